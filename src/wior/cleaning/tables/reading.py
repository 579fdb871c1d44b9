"""`read`: rows to judge and verified rows, as the job to find wrong labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from wior.cleaning.tables.arrays import read_arrays
from wior.cleaning.tables.asked import Asked
from wior.cleaning.tables.errors import InputError, counted, listed, shown
from wior.cleaning.tables.images import read_images
from wior.cleaning.tables.job import UNKNOWN, Job, Labels, VerifiedRows
from wior.cleaning.tables.opening import open_rows
from wior.cleaning.tables.picture_arrays import with_picture_features
from wior.cleaning.tables.roles import Roles
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.tabular import read_table

READERS: dict[str, Callable[[RowFile, Roles], Job]] = {"table": read_table, "arrays": read_arrays}
KINDS = {"table": "a table: CSV, TSV or Parquet", "arrays": "arrays: .npz", "images": "a folder of images"}


def read(asked: Asked) -> Job:
    """The rows of `train`, and those whose labels are right: the rows of `verified`, or those marked in a column."""
    verified = asked.verified
    if (verified is None) == (asked.verified_column is None):
        raise InputError(
            f"give {'either' if verified else 'one of'} --verified, a file of verified rows, "
            "or --verified-column, a column that marks them" + (", not both" if verified else "")
        )
    file = open_rows(asked.train)
    roles = Roles(asked.label, asked.id_column, asked.verified_column, asked.ignore)
    job = read_images(file, roles, asked) if file.kind == "images" else READERS[file.kind](file, roles)
    job = with_picture_features(job, asked)
    if verified is None:
        job = _with_marked(job, str(asked.verified_column))
    else:
        other = open_rows(verified)
        if other.kind != file.kind:
            raise InputError(f"{other.path} must be as the training rows are, {KINDS[file.kind]}")
        job = _with_verified(job, job.like(other))
    if not len(job.judged):
        raise InputError(f"{file.path}: every row is verified, none is left to be judged")
    return dataclasses.replace(job, notes=[*job.notes, *_notes_on_classes(job)])


def _with_marked(job: Job, column: str) -> Job:
    assert job.marked is not None
    places = np.flatnonzero(job.marked)
    if not len(places):
        raise InputError(f"{job.path}: no row is marked as verified in the column {shown(column)}")
    right = np.where(job.marked, job.given, UNKNOWN).astype(np.int32)
    return dataclasses.replace(job, right=right, outside_features=job.features[places], outside=job.given[places])


def _with_verified(job: Job, rows: VerifiedRows) -> Job:
    classes = sorted({*job.classes, *rows.labels.names})
    given, verified = Labels(job.given, job.classes).among(classes), rows.labels.among(classes)
    right = match(job, rows, verified)
    return dataclasses.replace(
        job,
        classes=classes,
        given=given,
        right=right,
        outside_features=rows.features,
        outside=verified,
        notes=[*job.notes, *rows.notes, *_notes_on_known(given, right)],
    )


def match(job: Job, rows: VerifiedRows, verified: np.ndarray) -> np.ndarray:
    """(n,) The right label of the rows that are verified ones, by their ids or else by all their features."""
    right = np.full(len(job.ids), UNKNOWN, np.int32)
    by_id = rows.ids is not None
    keys = rows.ids.tolist() if rows.ids is not None else [row.tobytes() for row in rows.features]
    labels = _one_label_each(rows, keys, verified, "the same id" if by_id else "the same features")
    for place, key in enumerate(job.ids.tolist() if by_id else (row.tobytes() for row in job.features)):
        if key in labels:
            right[place] = labels[key]
    return right


def _one_label_each(
    rows: VerifiedRows, keys: Sequence[str | bytes], verified: np.ndarray, what: str
) -> dict[str | bytes, int]:
    firsts: dict[str | bytes, int] = {}
    for place, key in enumerate(keys):
        first = firsts.setdefault(key, place)
        if verified[first] != verified[place]:
            named = [f"row {row + 1}" if rows.names is None else rows.names[row] for row in (first, place)]
            labels = [rows.labels.name(row) for row in (first, place)]
            raise InputError(
                f"{rows.path}: {named[0]} and {named[1]} have {what} and different labels, {listed(labels)}"
            )
    return {key: int(verified[first]) for key, first in firsts.items()}


def _notes_on_known(given: np.ndarray, right: np.ndarray) -> list[str]:
    known = right != UNKNOWN
    if not known.any():
        return []
    found = counted(int(known.sum()), "training row")
    other = int((given[known] != right[known]).sum())
    return [f"{found} found among the verified rows and not judged; {other:,} with another label than the verified one"]


def _notes_on_classes(job: Job) -> list[str]:
    if len(job.classes) < 2:
        raise InputError(f"{job.path}: all labels are {listed(job.classes)}; there must be two classes at least")
    given, right = (np.bincount(codes, minlength=len(job.classes)) > 0 for codes in (job.given, job.outside))
    names = np.array(job.classes)
    notes = []
    if (given & ~right).any():
        notes.append(f"no verified row has the label {listed(names[given & ~right])}")
    if (right & ~given).any():
        notes.append(f"no training row has the label {listed(names[right & ~given])}, which verified rows have")
    return notes
