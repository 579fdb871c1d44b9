"""JSON Lines, Excel, folders of Parquet files, datasets of Hugging Face, frames."""

import datetime
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from user_tables import known, names, table, write
from wior.cleaning.tables import Asked, InputError, job_of, read

# JSON Lines

LINES = '{"age": 1.0, "city": "Köln", "label": "cat", "big": 12345678901234567890}\n\n{"label":"dog","age":null, "ok": true}\n  {"age" : 3, "label" : 7, "city": "Oslo", "more": {"x": [1]}}\n'


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".jsonl.gz"])
def test_json_lines(folder, suffix):
    content = LINES.encode()
    path = write("train" + suffix, gzip.compress(content) if suffix.endswith("gz") else content)
    job = read(Asked(path, "label"))
    assert job.fields == ["age", "city", "big", "ok", "more"]
    assert names(job, job.given) == ["cat", "dog", "7"]
    assert job.features[:, :2].tolist() == [[1, 0], [2, 1], [3, 0]]
    assert job.fates["city"] == {"kind": "category", "width": 3, "missing": 1, "values": 2}
    assert job.records(np.array([2, 0])) == [
        ["3", "Oslo", "", "", '{"x": [1]}'],
        ["1.0", "Köln", "12345678901234567890", "", ""],
    ]
    out = job.write(folder, np.array([True, False, True]), {0: 'the "7"', 2: "8"})
    assert out.name == "cleaned" + suffix
    found = out.read_bytes()
    lines = LINES.splitlines(keepends=True)
    expected = lines[0].replace('"cat"', '"the \\"7\\""') + lines[3].replace("7", "8")
    assert (gzip.decompress(found) if suffix.endswith("gz") else found).decode() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"train.jsonl is empty"),
        ('{"a": 1, "label": "x"}\n{"a": 2,\n', r"train.jsonl, row 2: it is no JSON: "),
        ('{"a": 1, "label": "x"}\n[1]\n', r"train.jsonl, row 2: it must be an object"),
        ('{"a": 1, "label": "x"}\n{"a": 2}\n', r"train.jsonl, row 2, column 'label': the label is missing"),
        ("[" * 100_000, r"train.jsonl, row 1: it is no JSON"),
    ],
)
def test_wrong_json_lines(folder, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read(Asked(write("train.jsonl", text), "label"))
    assert "\n" not in str(caught.value)


# Excel


def workbook(path="train.xlsx", rows=(), sheets=()):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for name in sheets:
        book.create_sheet(name)
    book.save(path)
    return Path(path)


def test_excel(folder):
    rows = [
        ["age", "day", "city", "label", "ok"],
        [1, datetime.date(2024, 1, 1), "Rome", 0, True],
        [2.5, datetime.date(2024, 1, 8), "Oslo", 1.0, False],
        [None] * 5,
        [None, datetime.date(2024, 1, 3), "=Oslo", 1, True],
    ]
    path = workbook(rows=rows[:1] + rows[1:3] + rows[3:])
    book = openpyxl.load_workbook(path)
    book.active["C5"].data_type = "s"
    book.create_sheet("more")
    book.save(path)
    job = read(Asked(path, "label", verified_column="ok"))
    assert names(job, job.given) == ["0", "1", "1"]
    assert (job.features[:, :2].tolist(), known(job)) == ([[1, 0], [2.5, 0], [1.75, 1]], {0: "0", 2: "1"})
    assert job.records(np.array([0, 2])) == [["1", "2024-01-01", "Rome", "true"], ["", "2024-01-03", "=Oslo", "true"]]
    assert job.notes[0] == "train.xlsx: only its first sheet 'Sheet' is read, not 'more'"
    out = job.write(folder, np.array([True, False, True]), {2: "0"})
    copy = openpyxl.load_workbook(out).active
    assert out == folder / "cleaned.xlsx"
    assert [[cell.value for cell in row] for row in copy.iter_rows()] == [
        rows[0],
        [1, datetime.datetime(2024, 1, 1), "Rome", 0, True],
        [None, datetime.datetime(2024, 1, 3), "=Oslo", 0, True],
    ]
    assert copy["C3"].data_type == "s"


def test_excel_with_the_index_of_pandas(folder):
    job = read(Asked(workbook(rows=[[None, "a", "label"], [0, 1, "x"], [1, 2, "y"]]), "label"))
    assert job.fates["Unnamed: 0"]["kind"] == "ignored"
    copy = openpyxl.load_workbook(job.write(folder, np.ones(2, bool))).active
    assert [cell.value for cell in copy[1]] == [None, "a", "label"]


def test_wrong_workbooks(folder, monkeypatch):
    with pytest.raises(InputError, match=r"train.xlsx is damaged or no Excel file: File is not a zip file"):
        read(Asked(write("train.xlsx", "no"), "label"))
    with pytest.raises(InputError, match=r"train.xlsx: its first sheet 'Sheet' is empty"):
        read(Asked(workbook(), "label"))
    with pytest.raises(InputError, match=r"train.xlsx has a header and no rows"):
        read(Asked(workbook(rows=[["a", "label"]]), "label"))
    with pytest.raises(InputError, match=r"train.xlsx: column 2 has no name"):
        read(Asked(workbook(rows=[["a", None, "label"], [1, 2, "x"]]), "label"))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        InputError, match=r"Excel files are read by openpyxl, which is missing: pip install 'wior\[excel\]'"
    ):
        read(Asked(Path("train.xlsx"), "label"))


# folders of Parquet files


def test_a_folder_of_parquet_files(folder):
    Path("train").mkdir()
    table("train/b.parquet", a=[3, 4], label=["x", "y"], w=["u", "v"])
    table("train/a.parquet", a=[1, 2], w=["u", "u"], label=["x", "y"])
    Path("train/_SUCCESS").touch()
    job = read(Asked(Path("train"), "label", id_column="a"))
    assert job.ids.tolist() == ["1", "2", "3", "4"]
    assert job.features.tolist() == [[1, 0], [1, 0], [1, 0], [0, 1]]
    assert job.records(np.array([3, 0])) == [["4", "v"], ["1", "u"]]
    assert job.notes == ["train: 2 Parquet files read as one table, in the order of their names; a copy is one file"]
    Path("out").mkdir()
    out = job.write(Path("out"), np.array([True, False, True, True]), {0: "z", 3: "x"})
    assert out == Path("out/cleaned.parquet")
    assert pq.read_table(out).to_pydict() == {"a": [1, 3, 4], "w": ["u", "u", "v"], "label": ["z", "x", "x"]}
    with pytest.raises(InputError, match=r"train/new.parquet is the input or lies in it"):
        job.write(Path("train/new.parquet"), np.ones(4, bool))
    table("train/c.parquet", a=[3], label=["x"])
    with pytest.raises(InputError, match=r"train: a.parquet and c.parquet differ in the columns 'w'"):
        read(Asked(Path("train"), "label"))


# Hugging Face


def dataset(path, columns, features=None, parts=1):
    """A folder as `save_to_disk` leaves it."""
    path = Path(path)
    path.mkdir(parents=True)
    whole = pa.table(columns)
    files = [f"data-{part:05}-of-{parts:05}.arrow" for part in range(parts)]
    for part, name in enumerate(files):
        with pa.OSFile(str(path / name), "wb") as out, pa.ipc.new_stream(out, whole.schema) as writer:
            writer.write_table(whole.slice(part * len(whole) // parts, len(whole) // parts))
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in files]}))
    (path / "dataset_info.json").write_text(json.dumps({"features": features or {}}))
    return path


def test_a_dataset_of_hugging_face(folder):
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}, "a": {"dtype": "int64", "_type": "Value"}}
    dataset("train", {"a": [1, 2, 3, 4], "label": [0, 1, 1, 0]}, features, parts=2)
    job = read(Asked(Path("train"), "label"))
    assert names(job, job.given) == ["neg", "pos", "pos", "neg"]
    assert job.features.tolist() == [[1], [2], [3], [4]]
    assert job.notes == ["train: a copy of a Hugging Face dataset is a Parquet file"]
    out = job.write(folder, np.array([True, True, False, True]), {0: "pos"})
    assert pq.read_table(out).to_pydict() == {"a": [1, 2, 4], "label": ["pos", "pos", "neg"]}
    with pytest.raises(InputError, match=r"more, row 2, column 'label': it has 2 names and no number 2"):
        read(Asked(dataset("more", {"a": [1, 2], "label": [0, 2]}, features), "label"))
    unknown = dataset("unknown", {"a": [1, 2], "label": [0, -1]}, features)
    with pytest.raises(InputError, match=r"unknown, row 2, column 'label': the label is missing"):
        read(Asked(unknown, "label"))


def test_splits_of_hugging_face(folder):
    for split in ("train", "test"):
        dataset(f"all/{split}", {"a": [1, 2], "label": ["x", split]})
    Path("all/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    job = read(Asked(Path("all"), "label"))
    assert job.classes == ["train", "x"]
    assert "all: of its splits 'train', 'test', 'train' is read" in job.notes
    Path("all/dataset_dict.json").write_text('{"splits": ["one", "two"]}')
    with pytest.raises(InputError, match=r"all has the splits 'one', 'two'; give the folder of one of them"):
        read(Asked(Path("all"), "label"))
    Path("all/train/data-00000-of-00001.arrow").write_bytes(b"no")
    with pytest.raises(InputError, match=r"train is damaged or no Hugging Face dataset"):
        read(Asked(Path("all/train"), "label"))


# frames


class Exports:
    """A frame of which only one way out is known."""

    def __init__(self, way):
        rows = pa.table({"a": [1, 2, 3], "label": ["x", "y", "x"], "right": [None, "x", None]})
        setattr(self, way, lambda *_, **__: rows.__arrow_c_stream__() if way == "__arrow_c_stream__" else rows)


class Stream:
    def __arrow_c_stream__(self, requested_schema=None):
        return Exports("to_arrow").to_arrow().__arrow_c_stream__(requested_schema)


class Interchange:
    def __dataframe__(self, **options):
        return Exports("to_arrow").to_arrow().__dataframe__(**options)


@pytest.mark.parametrize("frame", [Exports("to_arrow").to_arrow(), Exports("to_arrow"), Stream(), Interchange()])
def test_frames(folder, frame):
    job = job_of(frame, "label", verified_label="right")
    assert job.features.tolist() == [[1], [2], [3]]
    assert (names(job, job.given), known(job)) == (["x", "y", "x"], {1: "x"})
    out = job.write(folder, np.array([True, True, False]), {1: "x"})
    assert pq.read_table(out).to_pydict() == {"a": [1, 2], "label": ["x", "x"], "right": [None, "x"]}


def test_frames_with_views_of_strings_as_polars_has_them(folder):
    views = pa.array(["u", "v"], pa.string_view())
    frame = pa.table(
        {
            "a": pa.array(["p", "q", "p"], pa.string_view()),
            "b": pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.uint32()), views),
            "label": pa.array(["x", "y", "x"], pa.string_view()),
        }
    )
    job = job_of(frame, "label")
    assert job.features.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]]
    out = job.write(folder, np.ones(3, bool), {0: "y"})
    assert pq.read_table(out).to_pydict() == {"a": ["p", "q", "p"], "b": ["u", "v", "v"], "label": ["y", "y", "x"]}


def test_what_is_no_frame(folder):
    with pytest.raises(InputError, match=r"frame must be a DataFrame of pandas or polars, or an Arrow table; got list"):
        job_of([1, 2], "label")
    with pytest.raises(InputError, match=r"the frame has no column 'sort', which --label names"):
        job_of(Stream(), "sort")
