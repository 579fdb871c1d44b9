"""`read`: training rows and verified rows, as the task to find wrong labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wior.cleaning.tables.arrays import read_arrays
from wior.cleaning.tables.errors import InputError, counted, listed, shown
from wior.cleaning.tables.images import read_images
from wior.cleaning.tables.opening import open_rows
from wior.cleaning.tables.roles import Roles
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.source import Source, Task, Training, Verified
from wior.cleaning.tables.tables import read_table

READERS: dict[str, Callable[[RowFile, Roles], Training]] = {
    "table": read_table,
    "arrays": read_arrays,
    "images": read_images,
}
KINDS = {"table": "a table: CSV, TSV or Parquet", "arrays": "arrays: .npz", "images": "a folder of images"}


def read(
    train: Path,
    *,
    label: str | None,
    verified: Path | None,
    verified_column: str | None,
    id_column: str | None = None,
    ignore: Sequence[str] = (),
) -> Task:
    """The rows of `train`, and those whose labels are right: the rows of `verified`, or those marked in `verified_column`."""
    if (verified is None) == (verified_column is None):
        raise InputError(
            f"give {'either' if verified else 'one of'} --verified, a file of verified rows, "
            "or --verified-column, a column that marks them" + (", not both" if verified else "")
        )
    file = open_rows(train)
    training = READERS[file.kind](file, Roles(label, id_column, verified_column, ignore))
    source = training.source
    notes = list(training.notes)
    if verified is None:
        assert training.marked is not None
        places = np.flatnonzero(training.marked)
        if not len(places):
            raise InputError(f"{file.path}: no row is marked as verified in the column {shown(str(verified_column))}")
        known = {int(place): str(source.labels[place]) for place in places}
        features, labels = source.features[places], source.labels[places]
    else:
        other = open_rows(verified)
        if other.kind != file.kind:
            raise InputError(f"{other.path} must be as the training rows are, {KINDS[file.kind]}")
        rows = training.read_verified(other)
        known = match(source, rows)
        features, labels = rows.features, rows.labels
        notes += [*rows.notes, *_notes_on_known(source, known)]
    judged = np.delete(np.arange(file.rows), list(known))
    if not len(judged):
        raise InputError(f"{file.path}: every row is verified, none is left to be judged")
    return Task(source, judged, features, labels, known, notes + _notes_on_classes(source, labels))


def match(source: Source, verified: Verified) -> dict[int, str]:
    """Training rows that are verified ones, by their ids or else by all their features, with the right label."""
    if verified.ids is not None:
        right = _one_label_each(verified, verified.ids.tolist(), "the same id")
        return {place: right[key] for place, key in enumerate(source.ids.tolist()) if key in right}
    keys = [row.tobytes() for row in verified.features]
    right = _one_label_each(verified, keys, "the same features")
    same = ((place, right.get(row.tobytes())) for place, row in enumerate(source.features))
    return {place: label for place, label in same if label is not None}


def _one_label_each(verified: Verified, keys: Sequence[str | bytes], what: str) -> dict[str | bytes, str]:
    firsts: dict[str | bytes, int] = {}
    for place, key in enumerate(keys):
        first = firsts.setdefault(key, place)
        labels = [str(verified.labels[row]) for row in (first, place)]
        if labels[0] != labels[1]:
            rows = [f"row {row + 1}" if verified.names is None else verified.names[row] for row in (first, place)]
            raise InputError(
                f"{verified.path}: {rows[0]} and {rows[1]} have {what} and different labels, {listed(labels)}"
            )
    return {key: str(verified.labels[first]) for key, first in firsts.items()}


def _notes_on_known(source: Source, known: dict[int, str]) -> list[str]:
    if not known:
        return []
    other = sum(source.labels[place] != label for place, label in known.items())
    return [
        f"{counted(len(known), 'training row')} found among the verified rows and not judged; {other:,} with another label than the verified one"
    ]


def _notes_on_classes(source: Source, verified: np.ndarray) -> list[str]:
    given, right = ({str(label) for label in labels} for labels in (source.labels, verified))
    if len(given | right) < 2:
        raise InputError(f"{source.path}: all labels are {listed(given)}; there must be two classes at least")
    notes = []
    if given - right:
        notes.append(f"no verified row has the label {listed(sorted(given - right))}")
    if right - given:
        notes.append(f"no training row has the label {listed(sorted(right - given))}, which verified rows have")
    return notes
