"""`read`: rows with labels, and all that is known of the right ones, as the job to find wrong labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wior.cleaning.tables.arrays import read_arrays
from wior.cleaning.tables.asked import Asked
from wior.cleaning.tables.errors import InputError, at, counted, listed
from wior.cleaning.tables.exports import find_ids, is_export, places_of, read_export
from wior.cleaning.tables.images import read_images
from wior.cleaning.tables.job import Job, Known, Labels, VerifiedRows
from wior.cleaning.tables.opening import open_rows
from wior.cleaning.tables.picture_arrays import with_picture_features
from wior.cleaning.tables.roles import RoleColumns, Roles, gather
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.tabular import read_table
from wior.cleaning.tables.vectors import TABLES, read_embeddings, read_probabilities
from wior.cleaning.tables.verified_rows import Outside, settle
from wior.cleaning.tables.vocabulary import spelling
from wior.streaming.memory import aligned

READERS: dict[str, Callable[[RowFile, Roles], Job]] = {"table": read_table, "arrays": read_arrays}
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
    roles = Roles(
        asked.label,
        asked.id_column,
        asked.verified_column,
        asked.verified_label,
        asked.ignore,
        featured=asked.embeddings is None,
        bare=asked.probabilities is not None,
    )
    job = read_images(file, roles, asked) if file.kind == "images" else READERS[file.kind](file, roles)
    if asked.embeddings is None:
        job = with_picture_features(job, asked)
    else:
        job = _embedded(job, asked.embeddings, asked.id_column)
    known, outside = job.known, None
    for path in asked.verified_files:
        before = outside
        job, known, outside = _with_file(dataclasses.replace(job, known=known), asked, open_rows(path))
        if before is not None and outside is not None and len(before.labels.codes) and len(outside.labels.codes):
            raise InputError(f"{path}: verified rows that are none of {job.path} must be in one file; join them")
        outside = before if outside is None or (before is not None and len(before.labels.codes)) else outside
    job = settle(job, known, outside)
    if asked.probabilities is not None:
        path = asked.probabilities
        probabilities, notes = read_probabilities(path, job, asked.id_column, _table_at(path))
        job = dataclasses.replace(job, probabilities=probabilities, notes=[*job.notes, *notes])
    return job


def _embedded(job: Job, path: Path, id_column: str | None) -> Job:
    """The job with these features; what was there to look at stays."""
    found = read_embeddings(path, job, id_column, _table_at(path))
    features = aligned(found.shape, np.float32)
    features[...] = found
    return dataclasses.replace(job, features=features, pictures=job.images, picture_shape=None)


def _table_at(path: Path) -> RowFile | None:
    path = path.expanduser()
    return open_rows(path) if path.exists() and path.suffix.lower() in TABLES else None


def _with_file(job: Job, asked: Asked, file: RowFile) -> tuple[Job, Sequence[Known], Outside | None]:
    if file.kind != "images":
        job = dataclasses.replace(job, notes=[*job.notes, *file.notes])
    if is_export(file):
        return job, [*job.known, read_export(job, file)], None
    rows = job.like(file) if file.kind == job.kind else _ids_and_labels(job, asked, file)
    job = dataclasses.replace(job, notes=[*job.notes, *rows.notes])
    if rows.features is None:
        assert rows.ids is not None
        ids = rows.ids.tolist()
        _demand_consistent(rows, ids, "the same id")
        places = places_of(job, file, str(asked.id_column or file.names[0]), ids, np.arange(len(ids)))
        return job, [*job.known, _known(rows, places, np.arange(len(places)))], None
    known, outside = _matched(job, rows)
    if asked.embeddings is None:
        return job, known, outside
    beside = len(outside.labels.codes)
    if beside == len(rows.labels.codes):
        raise InputError(f"{file.path}: none of its rows is a row of {job.path}, and others have no embeddings")
    note = f"{file.path}: {counted(beside, 'row')} of it, without embeddings, are none of {job.path} and left out"
    return dataclasses.replace(job, notes=[*job.notes, *([note] if beside else [])]), known, None


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
