"""Reads dicts, lists, numbers, text and plain arrays from pickle files of unknown origin.

A pickle file names functions and has them called while it is read: `pickle.load` runs whatever its author wanted. Here
a name is only looked up in the table below, where NumPy's own functions are replaced by stand-ins written in Python,
and any other name is an error before anything is called.
"""

from __future__ import annotations

import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np


class _Number:
    """In place of `numpy.dtype`, which trusts the state that it is given: whole and real numbers alone."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f[248])", str(code)):
            raise pickle.UnpicklingError(f"arrays of {code!r} are not read, numbers alone are")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """In place of an array that NumPy makes empty and fills in a second step."""

    def __init__(self, *_: object) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, number, columns_first, values = state
        self.array = _filled(values, number, shape, "F" if columns_first else "C")


def _filled(values: Any, number: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(number, _Number) or not isinstance(values, bytes | bytearray | str):
        raise pickle.UnpicklingError("an array must be given as its bytes and the type of its numbers")
    data = values.encode("latin1") if isinstance(values, str) else values  # Python 2 wrote bytes as text
    return np.frombuffer(data, number.dtype).reshape(shape, order=order)


def _from_buffer(values: Any, number: Any, shape: Any, order: Any) -> _Array:
    made = _Array()
    made.array = _filled(values, number, shape, order)
    return made


def _scalar(number: Any, value: Any) -> Any:
    return _filled(value, number, (), "C").item()


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes written as {encoding!r} are not read, only as latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""  # in place of `bytes`, by which old protocols write that there are none


KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Number,
    ("_codecs", "encode"): _latin1,
    ("__builtin__", "bytes"): _no_bytes,
    ("collections", "OrderedDict"): OrderedDict,
}
for _core in ("numpy.core", "numpy._core"):  # the name before and since NumPy 2
    KNOWN[f"{_core}.multiarray", "_reconstruct"] = _Array
    KNOWN[f"{_core}.multiarray", "scalar"] = _scalar
    KNOWN[f"{_core}.numeric", "_frombuffer"] = _from_buffer


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which plain data has no use for; nothing was run"
            )
        return KNOWN[module, name]


def read_plain_pickle(path: Path) -> Any:
    """What is in the file, tuples as lists; `ValueError` for all but plain data."""
    with path.open("rb") as file:
        try:
            return _plain(_Reader(file, encoding="latin1").load())
        # a damaged file can raise nearly anything
        except Exception as error:
            raise ValueError(f"{path} is truncated, damaged or not plain data: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.array if isinstance(value, _Array) else value
