"""`wior apply`: the decisions of a review, made in a copy of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.decisions import AMBIGUOUS, FIX, KEEP, SKIP, Decision, read_decisions
from wior.cleaning.tables.errors import InputError, at, listed, shown
from wior.cleaning.tables.job import write_copy
from wior.cleaning.tables.opening import open_rows
from wior.cleaning.tables.roles import IdColumn, gather
from wior.cleaning.tables.row_file import RowFile, require_column
from wior.cleaning.tables.staging import refuse_existing


@dataclass(frozen=True)
class Applied:
    """How many labels were fixed, kept and skipped, in which file, and by which columns the rows were found.

    An ambiguous label stays as it is, as a skipped one does.
    """

    fixed: int
    kept: int
    skipped: int
    path: Path
    label: str
    id_column: str | None  # None: row numbers
    ambiguous: int = 0


class Fit(NamedTuple):
    """A way to read the decisions: ids as row numbers or as a column, and the columns that hold the given labels."""

    id_column: str | None
    places: np.ndarray
    labels: list[str]


def apply_decisions(
    decisions: Path, table: Path, out: Path | None, *, label: str | None = None, id_column: str | None = None
) -> Applied:
    """Writes `out`, a copy of `table` with the labels that were decided on; by itself NAME.corrected beside the table.

    Without `label` and `id_column` they are the columns that hold what the decisions say; ids may be row numbers, which
    is what `id_column=""` says.
    """
    made = read_decisions(open_rows(decisions))
    _demand_once(decisions, made)
    if out is not None:
        refuse_existing(out)
    file = open_rows(table)
    if out is None:
        out = table.with_name(f"{table.name.removesuffix(file.suffix)}.corrected{file.suffix}")
        refuse_existing(out)
    fit = _understood(file, decisions, made, label, id_column)
    changes = {int(place): one.label for place, one in zip(fit.places, made, strict=True) if one.decision == FIX}
    write_copy(file, out, fit.labels[0], np.ones(file.rows, bool), changes)
    fixed, kept, skipped, ambiguous = (
        sum(one.decision == kind for one in made) for kind in (FIX, KEEP, SKIP, AMBIGUOUS)
    )
    return Applied(fixed, kept, skipped, out, fit.labels[0], fit.id_column, ambiguous)


def _demand_once(path: Path, made: Sequence[Decision]) -> None:
    """Each row decided on once."""
    firsts: dict[str, int] = {}
    for row, one in enumerate(made, 1):
        if firsts.setdefault(one.id, row) != row:
            raise InputError(
                f"{at(path, row, 'id')}: the row {shown(one.id)} was decided on in row {firsts[one.id]} already"
            )


def _understood(
    file: RowFile, decisions: Path, made: Sequence[Decision], label: str | None, id_column: str | None
) -> Fit:
    """The one way in which the decisions fit the table."""
    if label is not None:
        require_column(file, label, "--label")
    if id_column:
        require_column(file, id_column, "--id")
    ways = _located(file, decisions, made, id_column)
    labels = [[label] if label else [name for name in file.names if name != column] for column in ways]
    possible = [
        Fit(column, places, _agreeing(file, made, places, names))
        for (column, places), names in zip(ways.items(), labels, strict=True)
    ]
    fits = [fit for fit in possible if fit.labels]
    if not fits:
        raise _disagreement(file, decisions, made, possible[0], label)
    if any((fit.places != fits[0].places).any() for fit in fits):
        described = ["row numbers" if fit.id_column is None else f"column {shown(fit.id_column)}" for fit in fits]
        raise InputError(
            f"{decisions}: its ids may be {' or '.join(described)} of {file.path}; "
            'say which by --id COLUMN, or by --id "" for row numbers'
        )
    if len(fits[0].labels) > 1:
        raise InputError(
            f"{file.path}: the given labels stand in the columns {listed(fits[0].labels)}; say which by --label"
        )
    return fits[0]


def _located(
    file: RowFile, decisions: Path, made: Sequence[Decision], id_column: str | None
) -> dict[str | None, np.ndarray]:
    """The places of the rows decided on: by row number, and by every column of different values that holds all ids."""
    ids = [one.id for one in made]
    found: dict[str | None, np.ndarray] = {}
    if not id_column:
        found[None] = np.array([_row_number(text, file.rows) - 1 for text in ids])
    if id_column is None:
        found |= _by_columns(file, ids, file.names)
    elif id_column:
        _require_different(file, id_column)
        found |= _by_columns(file, ids, [id_column])
    whole = {column: places for column, places in found.items() if (places >= 0).all()}
    if id_column is None:
        whole = {column: places for column, places in whole.items() if column is None or _is_different(file, column)}
    if whole:
        return whole
    best = max(found.values(), key=lambda places: int((places >= 0).sum()))
    unknown = int(np.argmin(best))
    hint = "" if id_column else f": it is no row number up to {file.rows:,}"
    hint += " and in no column of different ids; or name their column by --id" if id_column is None else ""
    raise InputError(f"{at(decisions, unknown + 1, 'id')}: {file.path} has no row {shown(ids[unknown])}{hint}")


def _by_columns(file: RowFile, ids: Sequence[str], columns: Sequence[str]) -> dict[str | None, np.ndarray]:
    """The places of the ids in each column, -1 for those it lacks; columns that hold one twice are left out."""
    wanted = pa.array(ids, pa.string())
    found: dict[str | None, np.ndarray] = {name: np.full(len(ids), -1) for name in columns}
    for batch in file.batches(columns):
        for name, cells in batch.items():
            if name not in found:
                continue
            numbers = pc.fill_null(pc.index_in(cells.texts, value_set=wanted), -1).to_numpy()
            rows = np.flatnonzero(numbers >= 0)
            held = numbers[rows]
            if len(np.unique(held)) < len(held) or (found[name][held] >= 0).any():
                del found[name]
            else:
                found[name][held] = cells.start + rows
    return found


def _row_number(text: str, rows: int) -> int:
    """0 for a text that is none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(rows)) else 0
    return number if str(number) == text and number <= rows else 0


def _require_different(file: RowFile, column: str) -> None:
    ids = IdColumn()
    gather(file, {column: ids})
    ids.require_different()


def _is_different(file: RowFile, column: str) -> bool:
    try:
        _require_different(file, column)
    except InputError:
        return False
    return True


def _agreeing(file: RowFile, made: Sequence[Decision], places: np.ndarray, names: Sequence[str]) -> list[str]:
    """The columns of these names that hold the given labels in these places."""
    order = np.argsort(places, kind="stable")
    rows = places[order]
    given = pa.array([made[number].given for number in order], pa.string())
    agreeing = list(names)
    for batch in file.batches(names):
        for name in list(agreeing):
            cells = batch[name]
            first, after = np.searchsorted(rows, [cells.start, cells.start + len(cells)])
            held = cells.texts.take(pa.array(rows[first:after] - cells.start))
            if not held.equals(given.slice(first, after - first)):
                agreeing.remove(name)
    return agreeing


def _disagreement(file: RowFile, decisions: Path, made: Sequence[Decision], fit: Fit, label: str | None) -> InputError:
    if label is None:
        return InputError(
            f"no column of {file.path} holds the given labels of {decisions}: the table has changed, or name the "
            "column by --label"
        )
    present = [record[0] for record in file.records(fit.places, [label])]
    row = next(row for row, (one, text) in enumerate(zip(made, present, strict=True)) if one.given != text)
    return InputError(
        f"{at(decisions, row + 1, 'given')}: {shown(made[row].given)} was given, but "
        f"{at(file.path, int(fit.places[row]) + 1, label)} "
        f"has {shown(present[row])}; the table has changed since the review"
    )
