"""A file or a folder is there as a whole or not at all, whatever comes between."""

import errno
import os
import signal

import numpy as np
import pytest

from wior.running.interruption import as_ctrl_c
from wior.saving.whole import put_in_place, whole, write_arrays, write_json


def write(path, folder, text):
    with whole(path, folder=folder) as unfinished:
        assert unfinished.parent == path.parent
        (unfinished / "one" if folder else unfinished).write_text(text)
        yield unfinished


def written(path, folder):
    return (path / "one" if folder else path).read_text()


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("end", [None, ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whole_or_not_at_all(tmp_path, folder, end):
    path = tmp_path / "new" / "folders" / "out"
    for before in (None, "first"):
        work = write(path, folder, "second")
        assert next(work).exists()
        assert path.exists() == (before is not None)
        if end is None:
            assert next(work, None) is None
            assert written(path, folder) == "second"
        else:
            with pytest.raises(end):
                work.throw(end)
            assert path.exists() == (before is not None)
            assert before is None or written(path, folder) == before
        if before is None and end is not None:
            assert os.listdir(tmp_path) == []  # nor the folders on the way
            list(write(path, folder, "first"))
        assert os.listdir(path.parent) == ["out"]


@pytest.mark.parametrize("folder", [False, True])
def test_what_must_stay_is_refused_before_and_after(tmp_path, folder):
    path, asked = tmp_path / "out", []

    def refuse(place):
        asked.append(place)
        if place.exists():
            raise FileExistsError("it is there")

    def work():
        with whole(path, folder=folder, refuse=refuse) as unfinished:
            (unfinished / "one" if folder else unfinished).write_text("mine")
            path.write_text("another's")

    with pytest.raises(FileExistsError, match="it is there"):
        work()
    assert asked == [path, path]
    with pytest.raises(FileExistsError), whole(path, folder=folder, refuse=refuse):
        pytest.fail("the work began")
    assert os.listdir(tmp_path) == ["out"]
    assert path.read_text() == "another's"


def test_a_full_disk_is_said_with_the_path(tmp_path):
    path = tmp_path / "out"
    for folder in (False, True):
        with pytest.raises(OSError, match="No space left on device") as raised, whole(path, folder=folder):
            raise OSError(errno.ENOSPC, "No space left on device")  # what a write to an open file raises
        assert raised.value.filename == str(path)

    def fill(unfinished):
        write_json(unfinished / "inside.json", {})
        raise OSError(errno.ENOSPC, "No space left on device", str(unfinished / "inside.json"))

    with pytest.raises(OSError, match="No space left") as raised, whole(path, folder=True) as unfinished:
        fill(unfinished)
    assert raised.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as raised, whole(path):
        (tmp_path / "input").read_text()
    assert raised.value.filename == str(tmp_path / "input")
    with pytest.raises(OSError, match="a sentence of ours") as raised, whole(path):
        raise OSError("a sentence of ours")
    assert raised.value.filename is None
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_made(tmp_path):
    (tmp_path / "a-file").write_text("mine")
    for folder in (False, True):
        with pytest.raises(OSError, match="a-file/below/out cannot be made: Not a directory"):
            next(write(tmp_path / "a-file" / "below" / "out", folder, ""))
    assert os.listdir(tmp_path) == ["a-file"]


def test_what_had_the_name_comes_back_where_the_renaming_fails(tmp_path, monkeypatch):
    path, unfinished = tmp_path / "out", tmp_path / "unfinished"
    path.mkdir()
    (path / "one").write_text("first")
    unfinished.mkdir()
    rename = type(path).rename

    def fails(place, target):
        if place == unfinished:
            raise OSError(errno.EIO, "Input/output error")
        return rename(place, target)

    monkeypatch.setattr(type(path), "rename", fails)
    with pytest.raises(OSError, match="Input/output"):
        put_in_place(unfinished, path)
    assert (path / "one").read_text() == "first"
    assert sorted(os.listdir(tmp_path)) == ["out", "unfinished"]


def test_sigterm_leaves_nothing(tmp_path):
    def work():
        with whole(tmp_path / "out", folder=True) as unfinished:
            (unfinished / "one").write_text("half")
            signal.raise_signal(signal.SIGTERM)

    with as_ctrl_c(), pytest.raises(KeyboardInterrupt):
        work()
    assert os.listdir(tmp_path) == []


def test_arrays_and_json(tmp_path):
    write_arrays(tmp_path / "a.npz", {"x": np.arange(3)})
    write_json(tmp_path / "a.json", {"ü": 1})
    with np.load(tmp_path / "a.npz") as found:
        np.testing.assert_array_equal(found["x"], np.arange(3))
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "ü": 1\n}\n'
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.npz"]
