"""Parquet."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from user_tables import known, names, table, verified_by, write
from wior.cleaning.tables import Asked, InputError, read


def test_types_of_parquet(folder):
    path = table(
        "train.parquet",
        whole=pa.array([1, None, 4], pa.int8()),
        decimal=pa.array(["1", "2", "4"]).cast(pa.decimal128(5, 2)),
        half=pa.array(np.array([1, 2, 4], np.float16)),
        nans=pa.array([1.0, float("nan"), 2.0]),
        flag=pa.array([True, None, False]),
        code=pa.array(["b", "a", None]).dictionary_encode(),
        large=pa.array(["x", "y", "x"], pa.large_string()),
        digits=pa.array(["1", "2", "3"]),
        day=pa.array([1, 2, 3], pa.date32()),
        when=pa.array([1, 2, 3], pa.timestamp("us")),
        many=pa.array([[1], [2], [3]]),
        raw=pa.array([b"\xff", b"2", b"3"]),
        none=pa.nulls(3),
        __index_level_0__=pa.array([5, 6, 7]),
        label=pa.array([3, 4, 3], pa.int16()),
        ok=pa.array([True, False, None]),
    )
    job = read(Asked(path, label="label", verified_column="ok"))
    kinds = {name: entry.get("why", entry["kind"]) for name, entry in job.fates.items()}
    assert kinds == {
        **dict.fromkeys(["whole", "decimal", "half", "nans", "digits"], "number"),
        "flag": "boolean",
        **dict.fromkeys(["code", "large"], "category"),
        "day": "dates",
        "when": "dates and times",
        "many": "values of the type list<element: int64>",
        "raw": "values of the type binary",
        "none": "no values",
        "__index_level_0__": "the index of a pandas table, which numbers its rows",
        "label": "label",
        "ok": "verified",
    }
    assert job.features[:, :14].tolist() == [
        [1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1],
        [2.5, 1, 2, 2, 1.5, 1, 0, 1, 1, 0, 0, 0, 1, 2],
        [4, 0, 4, 4, 2, 0, 0, 0, 0, 0, 1, 1, 0, 3],
    ]
    assert [job.fates[name]["width"] for name in ("day", "when")] == [3, 3]
    assert job.features[:, 14].tolist() == [0, 1, 2]
    assert names(job, job.given) == ["3", "4", "3"]
    assert known(job) == {0: "3"}
    record = dict(zip(job.fields, job.records(np.array([2, 1]))[1], strict=True))
    assert record["whole"] == record["flag"] == ""
    assert (record["code"], record["many"], record["decimal"]) == ("a", "[2]", "2.00")


def test_parquet_of_many_batches(folder, monkeypatch):
    monkeypatch.setattr("wior.cleaning.tables.parquet.MOST_ROWS", 7)
    n = 100
    numbers = np.random.default_rng(0).normal(size=n)
    words = [f"w{i % 3}" for i in range(n)]
    pq.write_table(
        pa.table(
            {"a": numbers, "w": pa.array(words).dictionary_encode(), "label": ["x", "y"] * 50, "ok": [1] + [0] * 99}
        ),
        "train.parquet",
        row_group_size=33,
    )
    train = read(Asked(Path("train.parquet"), label="label", verified_column="ok"))
    assert np.array_equal(train.features[:, 0], numbers.astype(np.float32))
    assert np.array_equal(train.features[:, 1:], np.eye(3)[np.arange(n) % 3])
    places = np.random.default_rng(1).permutation(n)[:40]
    assert train.records(places) == [[str(numbers[p]), words[p], "1" if p == 0 else "0"] for p in places]


@pytest.mark.parametrize(
    ("labels", "new", "kind"),
    [
        (pa.array(["a", "b", "a"]), "c", pa.string()),
        (pa.array(["a", "b", "a"], pa.large_string()), "c", pa.large_string()),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "c", pa.dictionary(pa.int32(), pa.string())),
        (pa.array([1, 2, 1], pa.int8()), "3", pa.int8()),
        (pa.array([1.0, 2.5, 1.0]), "3.5", pa.float64()),
        (pa.array([True, False, True]), "false", pa.bool_()),
        (pa.array([1, 2, 1], pa.int8()), "unknown", pa.string()),
        (pa.array([True, False, True]), "unknown", pa.string()),
    ],
)
def test_a_copy_of_parquet_has_labels_of_the_same_type_where_they_can_be(folder, labels, new, kind):
    schema = pa.schema([("a", pa.int32()), ("label", labels.type), ("ok", pa.bool_())], {"mine": "kept"})
    rows = pa.table([pa.array([1, None, 3], pa.int32()), labels, pa.array([True, False, False])], schema=schema)
    pq.write_table(rows, "train.parquet", compression="zstd")
    train = read(Asked(Path("train.parquet"), label="label", verified_column="ok"))
    out = train.write(folder, np.array([True, False, True]), {2: new})
    copy = pq.read_table(out)
    assert out == folder / "cleaned.parquet"
    assert copy.schema.field("label").type == kind
    assert copy.column("a").to_pylist() == [1, 3]
    assert copy.column("label").cast(pa.string()).to_pylist() == [names(train, train.given)[0], new]
    assert copy.schema.metadata[b"mine"] == b"kept"
    assert pq.ParquetFile(out).metadata.row_group(0).column(0).compression == "ZSTD"


def test_damaged_parquet(folder):
    with pytest.raises(InputError, match=r"train.parquet is damaged or no Parquet file"):
        verified_by(write("train.parquet", b"PAR1 and no more"), Path("verified.csv"))
    with pytest.raises(InputError, match=r"empty.parquet has no rows"):
        verified_by(table("empty.parquet", a=pa.array([], pa.int64()), label=pa.array([], pa.string())), Path("v.csv"))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, "twice.pq")
    with pytest.raises(InputError, match=r"twice.pq: columns 1 and 2 are both called 'a'"):
        verified_by(Path("twice.pq"), Path("v.csv"))
