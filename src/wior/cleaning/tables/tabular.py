"""Tables as features: a first pass finds what each column is, a second one fills the matrix."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from wior.cleaning.tables.columns import Column, Ignored, Number, Shown
from wior.cleaning.tables.errors import MOST_SHOWN, InputError, counted, listed, shown
from wior.cleaning.tables.job import Job, VerifiedRows
from wior.cleaning.tables.roles import RoleColumns, Roles, gather, row_numbers
from wior.cleaning.tables.row_file import UNNAMED, RowFile
from wior.cleaning.tables.survey import Survey, note_on_far_number
from wior.streaming.memory import aligned

PANDAS_INDEX = "__index_level_"
FEWEST_TO_COMPARE = 5  # numbers of a column


def read_table(file: RowFile, roles: Roles) -> Job:
    if roles.label is None:
        raise InputError(
            f"{file.path}: name the column with the labels by --label; the columns are {listed(file.names)}"
        )
    roles.require(file)
    reserved = {roles.label, roles.id, roles.verified, roles.right, *roles.ignored}
    others = [name for name in file.names if name not in reserved and not _is_index(name)]
    surveys = {name: Survey(file.rows) for name in others if roles.featured}
    found = RoleColumns(roles)
    gather(file, {**surveys, **found.by_name})
    if found.ids is not None:
        found.ids.require_different()
    columns: dict[str, Column] = {name: surveys[name].column() if roles.featured else Shown() for name in others}
    used = {name: column for name, column in columns.items() if column.width or not roles.featured}
    fates = _fates(file, roles, columns, len(found.labels.numbers))
    ignored = {name: fate["why"] for name, fate in fates.items() if fate["kind"] == "ignored"}
    if not used and roles.featured and not roles.bare:
        reasons = "; ".join(f"{shown(name)}: {why}" for name, why in list(ignored.items())[:MOST_SHOWN])
        raise InputError(f"{file.path} has no column to learn from" + (f" ({reasons})" if reasons else ""))
    labels = found.labels.all()
    classes = sorted(labels.names)
    known, notes = found.known(file.path)
    features = _features(file, used, {})
    odd = [note for name, survey in surveys.items() for note in survey.notes(name)]
    return Job(
        file,
        roles.label,
        row_numbers(file.rows) if found.ids is None else found.ids.all(),
        classes,
        labels.among(classes),
        features,
        [name for name in file.names if name != roles.label],
        fates,
        functools.partial(read_like, roles.label, roles.id, used),
        notes=[
            *file.notes,
            *(f"column {shown(name)} is ignored: {why}" for name, why in ignored.items()),
            *odd,
            *_notes_on_far_numbers(file, used, features),
            *notes,
        ],
        known=known,
        keys=functools.partial(_keys, file, used, features),
    )


def read_like(label: str, id_column: str | None, columns: Mapping[str, Column], file: RowFile) -> VerifiedRows:
    """Verified rows, with features as the training table has them."""
    missing = [name for name in (label, *columns) if name not in file.names]
    if (missing or not columns) and {label, id_column} <= set(file.names):
        found = RoleColumns(Roles(label, id_column))
        gather(file, found.by_name)
        assert found.ids is not None
        return VerifiedRows(file.path, None, found.labels.all(), found.ids.all())
    if missing:
        hint = f", or its labels and the ids in {shown(id_column)}" if id_column else ""
        raise InputError(f"{file.path} must have the columns of the training table{hint}; it lacks {listed(missing)}")
    if not columns:
        raise InputError(f"{file.path} has no columns by which its rows are known; name the ids of both files by --id")
    found = RoleColumns(Roles(label, id_column if id_column in file.names else None))
    gather(file, found.by_name)
    unseen: dict[str, int] = {}
    features = _features(file, columns, unseen)
    notes = [
        f"{file.path}: {counted(rows, 'row')} of column {shown(name)} hold what the training table lacks; they count "
        "as none of its values"
        for name, rows in unseen.items()
    ]
    ids = None if found.ids is None else found.ids.all()
    return VerifiedRows(
        file.path,
        features,
        found.labels.all(),
        ids,
        None,
        notes,
        None if ids is not None else _keys(file, columns, features),
    )


def _keys(file: RowFile, columns: Mapping[str, Column], features: np.ndarray) -> list[bytes]:
    """Equal where all columns are: the features where they tell all, else the texts too."""
    texts = [name for name, column in columns.items() if not column.exact]
    if not texts:
        return [row.tobytes() for row in features]
    at = np.cumsum([0, *(column.width for column in columns.values())])
    exact = [np.arange(at[i], at[i + 1]) for i, column in enumerate(columns.values()) if column.exact]
    numbers = features[:, np.concatenate([np.zeros(0, np.int64), *exact])]
    keys = []
    for batch in file.batches(texts):
        cells = [batch[name].trimmed.to_pylist() for name in texts]
        start = batch[texts[0]].start
        for row, own in enumerate(zip(*cells, strict=True), start):
            digest = hashlib.blake2b("\0".join(own).encode(), digest_size=16)
            keys.append(numbers[row].tobytes() + digest.digest())
    return keys


def _notes_on_far_numbers(file: RowFile, columns: Mapping[str, Column], features: np.ndarray) -> Iterator[str]:
    at = 0
    for name, column in columns.items():
        if isinstance(column, Number) and len(features) >= FEWEST_TO_COMPARE:
            note = note_on_far_number(file.path, name, features[:, at])
            if note is not None:
                yield note
        at += column.width


def _is_index(name: str) -> bool:
    return name.startswith(PANDAS_INDEX) or name == UNNAMED


def _features(file: RowFile, columns: Mapping[str, Column], unseen: dict[str, int]) -> np.ndarray:
    """The matrix of all rows; `unseen` counts the cells, by column, that hold what the training table lacks."""
    widths = [column.width for column in columns.values()]
    try:
        features = aligned((file.rows, sum(widths)), np.float32)
    except MemoryError as error:
        size = 4 * file.rows * sum(widths) / 2**30
        raise InputError(
            f"{file.path}: its {sum(widths):,} features need {size:.0f} GB; leave columns out by --ignore"
        ) from error
    for batch in file.batches(list(columns)):
        at = 0
        for (name, column), width in zip(columns.items(), widths, strict=True):
            cells = batch[name]
            odd = column.fill(cells, features[cells.start : cells.start + len(cells), at : at + width])
            if odd:
                unseen[name] = unseen.get(name, 0) + odd
            at += width
    return features


def _fates(file: RowFile, roles: Roles, columns: Mapping[str, Column], classes: int) -> dict[str, Any]:
    """What became of every column, in the order of the file."""
    others: dict[str, dict[str, Any]] = {
        **{name: {"kind": "ignored", "width": 0, "why": "named by --ignore"} for name in roles.ignored},
        str(roles.label): {"kind": "label", "values": classes},
    }
    if roles.id is not None:
        others[roles.id] = {"kind": "id"}
    if roles.verified is not None:
        others[roles.verified] = {"kind": "verified"}
    if roles.right is not None:
        others[roles.right] = {"kind": "verified label"}
    index = Ignored("the index of a pandas table, which numbers its rows").report
    return {name: others.get(name) or dict(columns[name].report if name in columns else index) for name in file.names}
