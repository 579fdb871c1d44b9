"""`read`: rows with labels, and all that is known of the right ones, as the job to find wrong labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wior.cleaning.tables.arrays import read_arrays
from wior.cleaning.tables.asked import Asked
from wior.cleaning.tables.errors import InputError, at, listed
from wior.cleaning.tables.exports import find_ids, is_export, places_of, read_export
from wior.cleaning.tables.images import read_images
from wior.cleaning.tables.job import Job, Known, Labels, VerifiedRows
from wior.cleaning.tables.opening import open_rows
from wior.cleaning.tables.roles import RoleColumns, Roles, gather
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.tabular import read_table
from wior.cleaning.tables.verified_rows import Outside, settle
from wior.cleaning.tables.vocabulary import spelling

READERS: dict[str, Callable[[RowFile, Roles], Job]] = {
    "table": read_table,
    "arrays": read_arrays,
    "images": read_images,
}
KINDS = {"table": "a table", "arrays": "arrays: .npz", "images": "a folder of images"}


def read(asked: Asked) -> Job:
    """The rows of `train`, and what is known of their right labels, by columns of it and by a file of verified rows.

    Nothing need be known.
    """
    return read_rows(open_rows(asked.train), asked)


def read_rows(file: RowFile, asked: Asked) -> Job:
    """As `read`, of rows that are open."""
    if asked.verified_label is not None and file.kind == "images":
        raise InputError(f"{file.path}: --verified-label is for tables; give a file or a folder by --verified")
    roles = Roles(asked.label, asked.id_column, asked.verified_column, asked.verified_label, asked.ignore)
    job = READERS[file.kind](file, roles)
    if asked.verified is None:
        return settle(job, job.known)
    return _with_file(job, asked, open_rows(asked.verified))


def _with_file(job: Job, asked: Asked, file: RowFile) -> Job:
    if is_export(file):
        return settle(job, [*job.known, read_export(job, file)])
    rows = job.like(file) if file.kind == job.kind else _ids_and_labels(job, asked, file)
    job = dataclasses.replace(job, notes=[*job.notes, *rows.notes])
    if rows.features is None:
        assert rows.ids is not None
        ids = rows.ids.tolist()
        _demand_consistent(rows, ids, "the same id")
        places = places_of(job, file, str(asked.id_column or file.names[0]), ids, np.arange(len(ids)))
        return settle(job, [*job.known, _known(rows, places, np.arange(len(places)))])
    return settle(job, *_matched(job, rows))


def _ids_and_labels(job: Job, asked: Asked, file: RowFile) -> VerifiedRows:
    """A table that names rows of arrays or images by their ids."""
    id_column, label = asked.id_column, job.label
    if job.kind == "images":
        id_column, label = job.file.names
    if file.kind != "table" or id_column not in file.names or label not in file.names:
        other = "" if job.kind == "table" else ", or a table of ids and labels"
        raise InputError(f"{file.path} must be as the training rows are, {KINDS[job.kind]}{other}")
    found = RoleColumns(Roles(label, id_column))
    gather(file, found.by_name)
    assert found.ids is not None
    return VerifiedRows(Path(file.path), None, found.labels.all(), found.ids.all())


def _matched(job: Job, rows: VerifiedRows) -> tuple[list[Known], Outside]:
    """The verified rows that are rows of the job, by their ids or else by all their cells; and those that are not."""
    assert rows.features is not None
    if rows.ids is not None:
        ids = rows.ids.tolist()
        _demand_consistent(rows, ids, "the same id")
        found = find_ids(job, ids)
        numbers = np.flatnonzero(found >= 0)
        places = found[numbers]
    else:
        keys = [row.tobytes() for row in rows.features] if rows.keys is None else list(rows.keys)
        _demand_consistent(rows, keys, "the same features")
        own = (row.tobytes() for row in job.features) if job.keys is None else iter(job.keys())
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        pairs = [(place, first[key]) for place, key in enumerate(own) if key in first]
        places, numbers = np.array(pairs, np.int64).reshape(-1, 2).T
        met = {keys[number] for number in numbers.tolist()}
        found = np.array([0 if key in met else -1 for key in keys], np.int64)
    beside = np.flatnonzero(found < 0)
    outside = Outside(rows.features[beside], Labels(rows.labels.codes[beside], rows.labels.names))
    return [*job.known, _known(rows, places, numbers)], outside


def _known(rows: VerifiedRows, places: np.ndarray, numbers: np.ndarray) -> Known:
    """Rows of the job, in these places, that are the verified rows of these numbers."""
    labels = Labels(rows.labels.codes[numbers], rows.labels.names)
    return Known(str(rows.path), places, labels, lambda at: where(rows, int(numbers[at])), same="the same id")


def _demand_consistent(rows: VerifiedRows, keys: Sequence[str | bytes], what: str) -> None:
    """Rows that are none of the table must not contradict each other either."""
    spelled = [spelling(name) for name in rows.labels.names]
    firsts: dict[str | bytes, int] = {}
    for number, key in enumerate(keys):
        first = firsts.setdefault(key, number)
        if spelled[rows.labels.codes[first]] != spelled[rows.labels.codes[number]]:
            named = [f"row {at + 1}" if rows.names is None else rows.names[at] for at in (first, number)]
            labels = [rows.labels.name(at) for at in (first, number)]
            raise InputError(
                f"{rows.path}: {named[0]} and {named[1]} have {what} and different labels, {listed(labels)}"
            )


def where(rows: VerifiedRows, number: int) -> str:
    return at(rows.path, number + 1) if rows.names is None else f"{rows.path}/{rows.names[number]}"
