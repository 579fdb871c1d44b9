"""Where files are looked for, their checksums, and the arrays that are remembered."""

import gzip
import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from small_files import CONTENT, published, visible
from wior import data
from wior.data import files
from wior.data.arrays import read_arrays, remembered, write_arrays
from wior.data.source import Source

# where files are looked for


def test_the_places_in_their_order(tmp_path, cache, monkeypatch):
    source = Source("set", ("a.bin", "b.bin"), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")
    for place in ("given/set", "variable", "cache/wior/set"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "b.bin").write_bytes(CONTENT)
    assert files.find(source, folder=tmp_path / "given") == tmp_path / "given" / "set" / "b.bin"
    monkeypatch.setenv("WIOR_DATA", str(tmp_path / "variable"))
    assert files.find(source) == tmp_path / "variable" / "b.bin"
    (tmp_path / "variable" / "b.bin").unlink()
    assert files.find(source) == cache / "set" / "b.bin"
    (cache / "set" / "b.bin").unlink()
    with pytest.raises(FileNotFoundError, match="not to be had at a public address"):
        files.find(source)


def test_a_given_folder_without_the_file_is_named_among_the_places(tmp_path):
    source = Source("set", ("a.bin",), "sha256:0", "http://127.0.0.1:9/a.bin")
    with pytest.raises(FileNotFoundError, match=f"a.bin is not in {re.escape(str(tmp_path))}, WIOR_DATA"):
        files.find(source, folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        files.find(source, folder=tmp_path / "nowhere")


def test_a_damaged_file_of_the_user_is_an_error_and_left_as_it_is(tmp_path):
    source = Source("set", ("a.bin",), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", "http://127.0.0.1:9/a.bin")
    (tmp_path / "a.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=r"a.bin \(511,999 bytes\) is truncated, .* replace it \(from http"):
        files.find(source, folder=tmp_path)
    assert (tmp_path / "a.bin").exists()
    (tmp_path / "a.bin").write_bytes(CONTENT)
    assert files.find(source, folder=tmp_path) == tmp_path / "a.bin"


def test_a_checksum_of_contents_does_not_depend_on_the_compression(tmp_path):
    source = Source("set", ("a.gz", "a"), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", of_contents=True)
    for name, packed in (("a.gz", gzip.compress(CONTENT, 1)), ("a.gz", gzip.compress(CONTENT, 9)), ("a", CONTENT)):
        (tmp_path / name).write_bytes(packed)
        assert files.find(source, folder=tmp_path).name == name
        (tmp_path / name).unlink()
    (tmp_path / "a.gz").write_bytes(gzip.compress(CONTENT)[:-20])
    with pytest.raises(ValueError, match=r"a.gz \(.* bytes\) cannot be read to its end"):
        files.find(source, folder=tmp_path)


def test_the_cache_is_where_the_system_has_its_caches(tmp_path, monkeypatch):
    assert files.cache_folder() == tmp_path / "cache" / "wior"
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable)
    assert files.cache_folder().name == "wior"
    assert files.cache_folder().is_relative_to(files.Path.home())


def test_importing_the_loaders_needs_numpy_alone():
    code = "import sys; sys.modules['wior'] = type(sys)('wior'); sys.modules['wior'].__path__ = [sys.argv[1]]; import wior.data; "
    code += "print([name for name in ('PIL', 'sklearn', 'rich', 'jax') if name in sys.modules])"
    folder = os.path.dirname(os.path.dirname(data.__file__))
    found = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["[]"]


def test_every_published_file_has_a_checksum_of_full_length_and_a_secure_home():
    assert len(published()) == 4 + 3 + 4 + 3
    for source in published():
        algorithm, value = source.checksum.split(":")
        assert len(value) == {"sha256": 64, "md5": 32}[algorithm]
        assert source.url is None or source.url.startswith("https://")


# arrays


def test_arrays_of_other_names_types_or_shapes_are_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, a=np.zeros((3, 2), np.uint8))
    assert read_arrays(path, {"a": ((None, 2), "u")})["a"].shape == (3, 2)
    for expected, message in (
        ({"b": ((3, 2), "uint8")}, "not an .npz file with the arrays b"),
        ({"a": ((3, 3), "uint8")}, r"a must be uint8 \(3, 3\), got uint8 \(3, 2\)"),
        ({"a": ((3, 2), "int16")}, "a must be int16"),
        ({"a": ((3,), "uint8")}, "a must be"),
    ):
        with pytest.raises(ValueError, match=message):
            read_arrays(path, expected)
    for broken in (path.read_bytes()[:-30], b"", b"\x93NUMPY"):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"truncated, damaged or not an \.npz"):
            read_arrays(path, {"a": ((3, 2), "uint8")})
    np.savez(path, a=np.array([print]))  # a pickled object
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_arrays(path, {"a": ((1,), "O")})


def test_decoded_arrays_are_remembered_until_their_origin_changes(cache):
    made, expected = [], {"a": ((2,), "uint8")}

    def make():
        made.append(1)
        return {"a": np.array([1, len(made)], np.uint8)}

    for origin, times in (("one", 1), ("one", 1), ("two", 2), ("two", 2)):
        assert remembered("set", origin, expected, make)["a"].tolist() == [1, times]
    (path,) = (cache / "decoded").iterdir()
    path.write_bytes(path.read_bytes()[:-50])
    assert remembered("set", "two", expected, make)["a"].tolist() == [1, 3]
    assert visible(cache) == ["set.npz"]


def test_arrays_that_cannot_be_written_leave_nothing(tmp_path, monkeypatch):
    def full(file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        write_arrays(tmp_path / "a.npz", {})
    assert visible(tmp_path) == []
    assert remembered("a", "", {}, lambda: {"b": np.ones(1)})["b"] == 1


# the documentation


def test_the_documented_checksums_are_those_of_the_code():
    page = (files.Path(__file__).parents[2] / "docs" / "data.md").read_text()
    for source in published():
        assert f"| `{source.subfolder}/{source.name}` | {source.checksum.replace(':', ' ')}" in page
