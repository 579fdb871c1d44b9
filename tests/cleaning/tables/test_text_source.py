"""Compressed text, other encodings and other delimiters."""

import bz2
import gzip
import lzma
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from user_tables import names, write
from wior.cleaning.tables import Asked, InputError, read

TEXT = "age,city,label\n1,Köln,café\n2,Oslo,dog\n3,Köln,café\n4,Oslo,dog\n"


def packed(name, content):
    path = Path(name)
    match path.suffix:
        case ".gz":
            path.write_bytes(gzip.compress(content))
        case ".bz2":
            path.write_bytes(bz2.compress(content))
        case ".xz":
            path.write_bytes(lzma.compress(content))
        case ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("inner.csv", content)
                archive.writestr("__MACOSX/._inner.csv", b"")
        case ".zst":
            path.write_bytes(pa.compress(content, "zstd", asbytes=True))
        case _:
            path.write_bytes(content)
    return path


def unpacked(path):
    match path.suffix:
        case ".gz":
            return gzip.decompress(path.read_bytes())
        case ".bz2":
            return bz2.decompress(path.read_bytes())
        case ".xz":
            return lzma.decompress(path.read_bytes())
        case ".zip":
            with zipfile.ZipFile(path) as archive:
                return archive.read("inner.csv")
        case ".zst":
            with pa.input_stream(str(path), compression="zstd") as file:
                return file.read()
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zip", ".zip", ".csv.zst", ".CSV.GZ"])
def test_compressed_text_is_read_and_written(folder, monkeypatch, suffix):
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path = (
        packed("train" + suffix, TEXT.encode())
        if suffix.islower()
        else packed("a.gz", TEXT.encode()).rename("train" + suffix)
    )
    job = read(Asked(path, "label"))
    assert job.features.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0], [4, 0, 1]]
    assert job.records(np.array([2])) == [["3", "Köln"]]
    Path("out").mkdir()
    out = job.write(Path("out"), np.array([True, False, True, True]), {3: "café"})
    assert out == Path("out/cleaned" + suffix)
    copied = out if suffix.islower() else out.rename("b.gz")
    assert unpacked(copied).decode() == "age,city,label\n1,Köln,café\n3,Köln,café\n4,Oslo,café\n"
    with pytest.raises(InputError, match=r"must end in"):
        job.write(Path("out/other.csv"), np.ones(4, bool))
    del job
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8-sig", None),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("utf-32", "utf-32"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings_are_found_said_and_kept(folder, encoding, said):
    path = write("train.csv", TEXT.encode(encoding))
    job = read(Asked(path, "label"))
    assert names(job, job.given) == ["café", "dog", "café", "dog"]
    assert job.notes == ([f"train.csv is not in UTF-8; it was read as {said}"] if said else [])
    out = job.write(Path("out.csv"), np.array([True, True, False, True]), {1: "café"})
    assert out.read_bytes().decode(encoding) == "age,city,label\n1,Köln,café\n2,Oslo,café\n4,Oslo,dog\n"
    if said == "cp1252":
        with pytest.raises(InputError, match=r"'猫', a letter of a new label, does not exist in cp1252"):
            job.write(Path("cat.csv"), np.ones(4, bool), {1: "猫"})
        assert not Path("cat.csv").exists()


def test_bytes_that_windows_lacks(folder):
    job = read(Asked(write("train.csv", b"a,label\n1,\xe9\x81\n2,y\n"), "label"))
    assert job.notes == ["train.csv is not in UTF-8; it was read as latin-1"]
    assert job.classes == ["y", "é\x81"]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a;label\n1,5;x\n2,5;y\n", "';'"),
        ("a\tlabel\n1\tx\n2\ty\n", r"'\t'"),
        ("a|label\n1|x\n2|y\n", "'|'"),
        ('a;label\n"1;5";x\n2,5;"y, or z"\n', "';'"),
    ],
)
def test_delimiters_are_found_and_said(folder, text, delimiter):
    job = read(Asked(write("train.csv", text), "label"))
    assert job.fields == ["a"]
    assert len(job.classes) == 2
    assert f"train.csv: its cells are separated by {delimiter}" in job.notes
    assert job.write(Path("out.csv"), np.ones(2, bool)).read_text() == text


def test_a_comma_within_numbers(folder):
    text = "a;b;label\n1,5;1;x\n-2,25;;y\n;3,0;y\n"
    job = read(Asked(write("train.csv", text), "label"))
    assert job.features.tolist() == [[1.5, 0, 1, 0], [-2.25, 0, 2, 1], [-0.375, 1, 3, 0]]
    assert job.records(np.array([0])) == [["1,5", "1"]]


def test_one_column_and_uneven_rows_keep_the_usual_delimiter(folder):
    with pytest.raises(InputError, match=r"train.csv has no column 'label', which --label names; its columns are 'a'"):
        read(Asked(write("train.csv", "a\n1\n2\n"), "label"))
    with pytest.raises(InputError, match=r"train.csv, row 2: it has 2 cells, the header 3"):
        read(Asked(write("train.csv", "a,b,label\n1,2,x\n2,y\n"), "label"))


def test_damaged_archives(folder):
    with pytest.raises(InputError, match=r"train.csv.gz cannot be read"):
        read(Asked(write("train.csv.gz", gzip.compress(TEXT.encode())[:-9]), "label"))
    with pytest.raises(InputError, match=r"train.csv.zip cannot be read: File is not a zip file"):
        read(Asked(write("train.csv.zip", b"no"), "label"))
    with zipfile.ZipFile("two.zip", "w") as archive:
        archive.writestr("a.csv", TEXT)
        archive.writestr("b.csv", TEXT)
    with pytest.raises(InputError, match=r"two.zip must hold one file, and holds 'a.csv', 'b.csv'"):
        read(Asked(Path("two.zip"), "label"))
    with pytest.raises(InputError, match=r"train.ods.gz: files of the kind .gz are not read"):
        read(Asked(write("train.ods.gz", b""), "label"))
