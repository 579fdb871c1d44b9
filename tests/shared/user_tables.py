"""Tables as users bring them, written and read."""

import csv
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from wior.cleaning.tables import UNKNOWN, Asked, read
from wior.cleaning.tables.delimited_text import Delimited

ROWS = "age,city,label\n1,Rome,cat\n2,Oslo,dog\n3,Rome,cat\n4,Bonn,dog\n"


def write(name, text):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return Path(name)


def table(name, **columns):
    """A Parquet file."""
    pq.write_table(pa.table(columns), name)
    return Path(name)


def marked(text="", name="train.csv", **options):
    """The rows of a CSV file in which the column `ok` marks those that are verified."""
    return read(Asked(write(name, text), **{"label": "label", "verified_column": "ok", **options}))


def column(*cells, **options):
    """The features that a column of a CSV file becomes, beside a column of numbers."""
    lines = [f"{csv_cell(cell)},{i},{'ab'[i % 2]},{int(i == 0)}" for i, cell in enumerate(cells)]
    job = marked("\n".join(["it,n,label,ok", *lines]) + "\n", **options)
    fate = dict(job.fates["it"])
    features = job.features[:, :-1]
    assert fate.pop("width") == features.shape[1]
    return features.tolist(), fate


def names(job, codes):
    return [job.classes[code] for code in codes]


def known(job):
    """The right labels of the rows that are verified, by place."""
    return {place: job.classes[code] for place, code in enumerate(job.right) if code != UNKNOWN}


def csv_cell(text):
    return Delimited(b",").quoted(text).decode()


def verified_by(train, verified, label="label", **options):
    return read(Asked(train, label, verified, **options))


def csv_rows(content):
    text = content.decode("utf-8-sig")
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]
