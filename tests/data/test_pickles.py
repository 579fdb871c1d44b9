"""Pickles that hold plain data are read; nothing in them is run."""

import os
import pickle

import numpy as np
import pytest

from wior.data.pickles import read_plain_pickle


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_file_cannot_run_anything(tmp_path, protocol):
    path, trace = tmp_path / "a.pkl", tmp_path / "trace"
    for call in (
        Calls(os.system, f"touch {trace}"),
        Calls(eval, f"open({str(trace)!r}, 'w')"),
        Calls(__import__, "os"),
        Calls(np.load, str(trace)),
        Calls(np.dtype, "O"),
        np.array([Calls(os.system, f"touch {trace}")]),
    ):
        path.write_bytes(pickle.dumps({"image_data": call}, protocol))
        with pytest.raises(ValueError, match=r"nothing was run|numbers alone"):
            read_plain_pickle(path)
    assert not trace.exists()


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_plain_pickles_are_read_as_they_were_written(tmp_path, protocol):
    arrays = [np.arange(6).reshape(2, 3).astype(kind) for kind in ("u1", "i8", ">i4", "f4", "f8", "?")]
    arrays += [np.asfortranarray(arrays[0]), arrays[1][:, 1:], np.zeros((0, 4))]
    written = {
        "arrays": arrays,
        "one": np.int64(7),
        "text": "é",
        b"raw": b"\xff\x00",
        "none": None,
        "nested": {"a": [1.5]},
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(written, protocol))
    found = read_plain_pickle(tmp_path / "a.pkl")
    for one, other in zip(found.pop("arrays"), written.pop("arrays"), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert found == written


def test_a_pickle_of_python_2_is_read(tmp_path):
    """Written by hand: protocol 2 with byte strings, as old copies of MiniImageNet have them."""
    array = b"\x80\x02}U\nimage_datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    array += (
        b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array += b"\x89U\x03\x00\x80\xfftbs."
    (tmp_path / "a.pkl").write_bytes(array)
    assert read_plain_pickle(tmp_path / "a.pkl")["image_data"].tolist() == [0, 128, 255]
