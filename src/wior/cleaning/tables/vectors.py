"""Numbers for every row that lie in a file of their own: embeddings, and probabilities of a model of the user's own."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.errors import InputError, at, listed, shown
from wior.cleaning.tables.job import Job
from wior.cleaning.tables.roles import IdColumn, gather
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.vocabulary import NUMBER, match_spellings

IDS = ("id", "ids")
CLASSES = "classes"
TABLES = (".csv", ".tsv", ".parquet", ".pq")
ENOUGH = 1e-3  # by which the sum of probabilities may differ from 1
ROUNDING = 1e-6


class Vectors(NamedTuple):
    """The numbers of k rows, and what is known of rows and columns."""

    numbers: np.ndarray  # (k, width)
    ids: np.ndarray | None = None
    names: Sequence[str] | None = None  # of the columns
    name_of_ids: str | None = None  # the column that they were in


def read_embeddings(path: Path, job: Job, id_column: str | None, table: RowFile | None) -> np.ndarray:
    """(n, width) of float32, in the order of the job's rows."""
    found = _read(path, ("X", "embeddings"), id_column, job.label, table)
    return _in_order(path, found, job, id_column)


def read_probabilities(
    path: Path, job: Job, id_column: str | None, table: RowFile | None
) -> tuple[np.ndarray, list[str]]:
    """(n, classes) of float32 whose rows sum to 1, in the order of the job's classes; and notes."""
    found = _read(path, ("probabilities", "pred_probs", "X"), id_column, job.label, table)
    columns, notes = _columns(path, found, job)
    numbers = _in_order(path, found, job, id_column).astype(np.float64)
    _demand_probabilities(path, numbers)
    numbers = np.maximum(numbers, 0)
    whole = np.zeros((len(numbers), len(job.classes)), np.float32)
    whole[:, columns] = numbers / numbers.sum(1, keepdims=True)
    return whole, notes


def _read(path: Path, names: Sequence[str], id_column: str | None, label: str, table: RowFile | None) -> Vectors:
    path = path.expanduser()
    if not path.exists():
        raise InputError(f"{path} is not there")
    if table is not None:
        return _of_table(table, id_column, label)
    if path.suffix.lower() not in (".npy", ".npz"):
        raise InputError(f"{path} must be .npy, .npz or a table ({', '.join(TABLES)})")
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return Vectors(loaded)
            arrays = {name: loaded[name] for name in loaded.files}
    except (ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    ids = next((arrays.pop(name) for name in (id_column, *IDS) if name in arrays), None)
    classes = arrays.pop(CLASSES, None)
    name = next((name for name in names if name in arrays), None)
    if name is None and len(arrays) != 1:
        raise InputError(f"{path} must hold one array, or one called {' or '.join(names)}; it has {listed(arrays)}")
    return Vectors(
        arrays[name] if name is not None else next(iter(arrays.values())),
        None if ids is None else ids.astype(str),
        None if classes is None else classes.astype(str).tolist(),
    )


def _of_table(file: RowFile, id_column: str | None, label: str) -> Vectors:
    """All columns but the ids and the labels: numbers, or one list of numbers."""
    name_of_ids = next((name for name in (id_column, *IDS) if name in file.names), None)
    ids = None
    if name_of_ids is not None:
        column = IdColumn()
        gather(file, {name_of_ids: column})
        column.require_different()
        ids = column.all()
    names = [name for name in file.names if name not in (name_of_ids, label)]
    parts = []
    for batch in file.batches(names):
        columns = []
        for name in names:
            cells = batch[name]
            if pa.types.is_list(cells.plain.type) or pa.types.is_fixed_size_list(cells.plain.type):
                columns.append(_lists(file.path, name, cells.start, cells.plain))
                continue
            numbers = cells.numbers
            if numbers is None:
                place = int(np.flatnonzero(cells.strange)[0])
                raise cells.error(place, f"{shown(cells.text(place))} is not a number")
            columns.append(numbers[:, None])
        parts.append(np.hstack(columns) if columns else np.zeros((0, 0)))
    return Vectors(np.concatenate(parts), ids, names, name_of_ids)


def _lists(path: Path, name: str, start: int, lists: pa.Array) -> np.ndarray:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    odd = np.flatnonzero(lengths != lengths[0])
    if len(odd):
        place = int(odd[0])
        raise InputError(
            f"{at(path, start + place + 1, name)}: it has {lengths[place]} numbers, row {start + 1} has {lengths[0]}"
        )
    return np.asarray(pc.list_flatten(lists).to_numpy(zero_copy_only=False), np.float64).reshape(len(lists), -1)


def _in_order(path: Path, found: Vectors, job: Job, id_column: str | None) -> np.ndarray:
    numbers = found.numbers
    if numbers.ndim != 2 or numbers.dtype.kind not in "iufb" or not numbers.shape[1]:
        raise InputError(f"{path} must be numbers, a row of them for each row; got {numbers.dtype} {numbers.shape}")
    with np.errstate(over="ignore"):
        numbers = numbers.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(numbers))
    if len(wrong):
        row, column = wrong[0].tolist()
        name = str(column + 1) if found.names is None or len(found.names) <= column else found.names[column]
        value = found.numbers[row, column]
        raise InputError(f"{at(path, row + 1, name)}: {value} must be a finite number")
    n = len(job.given)
    if found.ids is None:
        if len(numbers) != n:
            raise InputError(
                f"{path} has {len(numbers):,} rows and {job.path} {n:,}; give one for each, in the same order, or an "
                "id column in both"
            )
        return numbers
    if len(found.ids) != len(numbers):
        raise InputError(f"{path} has {len(numbers):,} rows and {len(found.ids):,} ids")
    # without --id, a column of the table that has the name of the file's ids, and else the numbers of the rows
    named = _own_ids(job, found.name_of_ids) if id_column is None else None
    ways = [_places(ids, found.ids) for ids in (named, job.ids) if ids is not None]
    whole = next((places for places in ways if (places >= 0).all()), None)
    if whole is None:
        ids = job.ids if named is None else named
        missing = int(np.argmin(ways[0] >= 0))
        raise InputError(f"{path} has no row for the id {shown(ids[missing])} of {job.path}")
    return numbers[whole]


def _own_ids(job: Job, name: str | None) -> np.ndarray | None:
    """The ids in this column of the table; None where there is no such column, or it holds one twice."""
    if job.kind != "table" or name not in job.file.names:
        return None
    column = IdColumn()
    try:
        gather(job.file, {str(name): column})
        column.require_different()
    except InputError:
        return None
    return column.all()


def _places(wanted: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Where among the ids the wanted ones are, -1 where there is none."""
    return np.asarray(pc.fill_null(pc.index_in(pa.array(wanted), value_set=pa.array(ids)), -1).to_numpy())


def _columns(path: Path, found: Vectors, job: Job) -> tuple[np.ndarray, list[str]]:
    """Which class each column is."""
    place = {name: at for at, name in enumerate(job.classes)}
    given = [job.classes[code] for code in np.unique(job.given)]
    width = found.numbers.shape[1] if found.numbers.ndim == 2 else 0
    if found.names is None or len(found.names) != width:
        names = next((classes for classes in (given, list(job.classes)) if len(classes) == width), None)
        if names is None:
            raise InputError(
                f"{path} must have a column for each of {len(given)} classes, {listed(given)}; it has the shape "
                f"{found.numbers.shape}"
            )
        if all(NUMBER.fullmatch(name) for name in names):
            names = sorted(names, key=float)  # as a model has them that learned from numbers
        return np.array([place[name] for name in names]), [
            f"{path}: its columns are taken as the classes {listed(names)}"
        ]
    matched = match_spellings(found.names, job.classes, str(path))
    names = [matched.get(name, name) for name in found.names]
    strange = [name for name in names if name not in place]
    absent = [name for name in given if name not in names]
    if strange or absent:
        what = f"lacks {listed(absent)}" if absent else f"has {listed(strange)} too"
        raise InputError(f"{path} must have one column for each class, named as the labels are; it {what}")
    if len(set(names)) < len(names):
        raise InputError(f"{path} has two columns of one class: {listed(found.names)}")
    return np.array([place[name] for name in names]), []


def _demand_probabilities(path: Path, numbers: np.ndarray) -> None:
    negative = np.argwhere(numbers < -ROUNDING)
    if len(negative):
        row, column = negative[0].tolist()
        raise InputError(
            f"{at(path, row + 1)}: {numbers[row, column]:.6g} is negative; these look like logits, give their softmax"
        )
    sums = numbers.sum(1)
    wrong = np.flatnonzero(np.abs(sums - 1) > ENOUGH)
    if len(wrong):
        row = int(wrong[0])
        logits = "; these look like logits, give their softmax" if (numbers > 1 + ENOUGH).any() else ""
        raise InputError(f"{at(path, row + 1)}: its probabilities sum to {sums[row]:.6g}, and must to 1{logits}")
