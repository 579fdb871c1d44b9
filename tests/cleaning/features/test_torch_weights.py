"""Files of weights are read, and nothing in them is run."""

import pickle
import struct
import sys
import types
from collections import OrderedDict

import numpy as np
import pytest

from wior.cleaning.features.torch_weights import LAYOUT, MAGIC, read_weights


class Tensor:
    """Written as PyTorch writes a tensor."""

    def __init__(self, storage, offset, shape, strides):
        self.arguments = (storage, offset, shape, strides, False, OrderedDict())

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


class Storage:
    def __init__(self, key, kind, values):
        self.key, self.kind, self.values = key, kind, values


class Writer(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", value.kind, value.key, "cpu", len(value.values), None)
        return None


@pytest.fixture
def torch(monkeypatch):
    """Modules with the names that such files hold."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*_):
        raise AssertionError("PyTorch's function was called")

    for module, made in (
        (utils, _rebuild_tensor_v2),
        (torch, type("FloatStorage", (), {})),
        (torch, type("LongStorage", (), {})),
    ):
        made.__module__, made.__qualname__ = module.__name__, made.__name__
        setattr(module, made.__name__, made)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return torch


def write(path, tensors, storages, magic=MAGIC, little_endian=True):
    with path.open("wb") as file:
        for value in (magic, LAYOUT, {"little_endian": little_endian}):
            pickle.dump(value, file, 2)
        Writer(file, 2).dump(OrderedDict(tensors))
        pickle.dump([storage.key for storage in storages], file, 2)
        for storage in storages:
            file.write(struct.pack("<q", len(storage.values)) + storage.values.tobytes())
    return path


def test_tensors_are_read(tmp_path, torch):
    reals = Storage("7", torch.FloatStorage, np.arange(12, dtype="<f4"))
    wholes = Storage("8", torch.LongStorage, np.array([41, 42], "<i8"))
    tensors = {
        "kernel": Tensor(reals, 0, (3, 4), (4, 1)),
        "turned": Tensor(reals, 2, (2, 3), (1, 3)),
        "count": Tensor(wholes, 1, (), ()),
    }
    found = read_weights(write(tmp_path / "w.pth", tensors, [reals, wholes]))
    assert found["kernel"].tolist() == np.arange(12).reshape(3, 4).tolist()
    assert found["turned"].tolist() == [[2, 5, 8], [3, 6, 9]]
    assert (found["count"].tolist(), found["count"].dtype) == (42, np.int64)


def test_files_that_are_not_weights(tmp_path, torch):
    reals = Storage("7", torch.FloatStorage, np.arange(12, dtype="<f4"))
    path = tmp_path / "w.pth"

    def message():
        with pytest.raises(ValueError, match=r"w.pth is truncated, damaged or no file of weights") as error:
            read_weights(path)
        return str(error.value)

    for offset, shape, strides in ((0, (13,), (1,)), (5, (2, 4), (4, 1)), (-1, (2,), (1,)), (3, (2,), (-1,))):
        write(path, {"w": Tensor(reals, offset, shape, strides)}, [reals])
        assert message().endswith("a tensor lies outside of its storage")
    write(path, {"w": Tensor(reals, 0, (2,), (1,))}, [reals])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert message().endswith("it ends within 12 numbers")
    for length in (0, 3, 40, 200):
        path.write_bytes(whole[:length])
        message()
    write(path, {}, [], magic=1)
    assert message().endswith("it begins otherwise than weights do")
    write(path, {}, [], little_endian=False)
    assert message().endswith("its numbers are big-endian")


def test_nothing_in_a_file_is_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return exec, ("raise SystemExit",)

    path = tmp_path / "w.pth"
    path.write_bytes(pickle.dumps(Evil(), 2))
    with pytest.raises(ValueError, match=r"exec, which weights have no use for; nothing was run"):
        read_weights(path)
