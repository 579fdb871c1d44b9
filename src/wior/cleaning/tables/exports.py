"""What the pages export, read as verified rows: `verified.csv` of the verifying page, `decisions.csv` of the review.

Both say of which row they speak by its id, or its number where the table has no ids, and name the label that it had.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.decisions import has_decisions, read_decisions, texts_of
from wior.cleaning.tables.errors import InputError, at, shown
from wior.cleaning.tables.job import Job, Known, Labels
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.vocabulary import spelling

VERIFIED = ("id", "given", "verified", "chance")


def is_export(file: RowFile) -> bool:
    return has_decisions(file) or _is_verified(file)


def _is_verified(file: RowFile) -> bool:
    return file.kind == "table" and tuple(file.names[: len(VERIFIED)]) == VERIFIED


def read_export(job: Job, file: RowFile) -> Known:
    """The rows of the job that were looked at."""
    if _is_verified(file):
        ids, given, right, told = (texts_of(file, name) for name in VERIFIED)
        chances = np.array([_chance(file, row, text) for row, text in enumerate(told)])
    else:
        made = read_decisions(file)
        ids, given, right = ([getattr(one, name) for one in made] for name in ("id", "given", "right"))
        chances = np.zeros(len(ids))
    rows = np.array([row for row, label in enumerate(right) if label.strip()], np.int64)
    if not len(rows):
        raise InputError(f"{file.path}: nothing is decided in it; it names no verified label")
    places = places_of(job, file, "id", [ids[row] for row in rows], rows)
    _demand_same_given(job, file, [given[row] for row in rows], rows, places)
    encoded = pa.array([right[row] for row in rows]).dictionary_encode()
    return Known(
        str(file.path),
        places,
        Labels(encoded.indices.to_numpy(), encoded.dictionary.to_pylist()),
        lambda number: at(file.path, int(rows[number]) + 1),
        chances=chances[rows],
        same="the same id",
        beside_given=True,
    )


def places_of(job: Job, file: RowFile, column: str, ids: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Where in the job the ids are, which stand in these rows of the file; an unknown one is an error."""
    found = find_ids(job, ids)
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        first = int(unknown[0])
        numbered = job.kind != "images" and (job.ids[:1] == "1").all() and (job.ids[-1:] == str(len(job.ids))).all()
        hint = "; its rows are named by their numbers, or by the column that --id names" if numbered else ""
        raise InputError(
            f"{at(file.path, int(rows[first]) + 1, column)}: {job.path} has no row {shown(ids[first])}{hint}"
        )
    return found


def find_ids(job: Job, ids: Sequence[str]) -> np.ndarray:
    """The places of the rows with these ids, -1 where there is none."""
    places = pc.index_in(pa.array(ids, pa.string()), value_set=pa.array(job.ids))
    return np.asarray(pc.fill_null(places, -1).to_numpy(), np.int64)


def _chance(file: RowFile, row: int, text: str) -> float:
    if not text.strip():
        return np.nan
    try:
        chance = float(text)
    except ValueError:
        chance = np.nan
    if not 0 < chance <= 1:
        raise InputError(f"{at(file.path, row + 1, 'chance')}: {shown(text)} must be a number above 0 and at most 1")
    return chance


def _demand_same_given(job: Job, file: RowFile, given: Sequence[str], rows: np.ndarray, places: np.ndarray) -> None:
    spelled = [spelling(name) for name in job.classes]
    for text, row, place in zip(given, rows.tolist(), places.tolist(), strict=True):
        if spelling(text) != spelled[job.given[place]]:
            now = str(job.classes[job.given[place]])
            which = job.ids[place] if job.kind == "images" else f"row {place + 1}"
            raise InputError(
                f"{at(file.path, row + 1, 'given')}: {shown(text)} was given, but {which} of {job.path} has "
                f"{shown(now)}; the table has changed since"
            )
