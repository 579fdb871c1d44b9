"""Reads the weights of a file that `torch.save` wrote, without PyTorch, and without running what the file asks for.

Such a file, of the layout from before 2020, is a row of pickles: a magic number, the version of the layout, sizes of
the machine that wrote it, the tensors as places in named storages, the names of the storages. Their numbers follow.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
LAYOUT = 1001
NUMBERS = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Tensor(NamedTuple):
    """Where the numbers of a tensor lie in its storage."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _tensor(storage: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> _Tensor:
    """In place of PyTorch's function that makes a tensor."""
    return _Tensor(storage, offset, shape, strides)


class _Reader(pickle.Unpickler):
    """Knows the few names that weights need; any other is an error before anything is called."""

    def __init__(self, file: IO[bytes]):
        super().__init__(file)
        self.storages: dict[str, Any] = {}  # the dtype of each

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in NUMBERS:
            return name
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which weights have no use for; nothing was run")

    def persistent_load(self, pid: Any) -> str:
        what, numbers, key, _, _, view = pid
        if what != "storage" or view is not None:
            raise pickle.UnpicklingError(f"{what!r} is not read, whole storages alone are")
        self.storages[key] = NUMBERS[numbers]
        return key


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The arrays in the file, by name; `ValueError` for all but weights."""
    try:
        with path.open("rb") as file:
            if (_Reader(file).load(), _Reader(file).load()) != (MAGIC, LAYOUT):
                raise ValueError("it begins otherwise than weights do")
            sizes = _Reader(file).load()
            if not sizes["little_endian"]:
                raise ValueError("its numbers are big-endian")
            reader = _Reader(file)
            tensors = reader.load()
            names = _Reader(file).load()
            storages = {name: _storage(file, reader.storages[name]) for name in names}
            return {name: _array(storages[tensor.storage], tensor) for name, tensor in tensors.items()}
    # a damaged file can raise nearly anything
    except Exception as error:
        raise ValueError(f"{path} is truncated, damaged or no file of weights: {error}") from error


def _storage(file: IO[bytes], dtype: np.dtype) -> np.ndarray:
    (count,) = struct.unpack("<q", file.read(8))
    content = file.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise ValueError(f"it ends within {count:,} numbers")
    return np.frombuffer(content, dtype)


def _array(values: np.ndarray, tensor: _Tensor) -> np.ndarray:
    """A copy, since its numbers may lie in any order of the axes."""
    places = [tensor.offset, *tensor.strides, *tensor.shape]
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if min(places) < 0 or 0 in tensor.shape or last >= len(values):
        raise ValueError("a tensor lies outside of its storage")
    strides = [stride * values.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides, writeable=False).copy("C")
