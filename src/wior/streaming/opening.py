"""Which reader a source has: by what it is, and for objects by what they return for the first row and the last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from wior.streaming.examples import Collate, OfExamples, as_arrays
from wior.streaming.readers import OfArray, OfObject, OfTable, in_one_line
from wior.streaming.refused import demand_rows

Tree = Any

# formats of Hugging Face in which rows are arrays, or what a function of the user makes of them
GIVE_ARRAYS = ("numpy", "torch", "jax", "tensorflow", "custom")


def reader_of(name: str, source: Any, collate: Collate | None = None) -> Any:
    """The reader of a source; raises where rows cannot be taken of it by their numbers."""
    if is_arrow(source) and collate is None:
        import pyarrow  # only data that come from it need it

        if not isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
            raise TypeError(
                f"{name} must be an Arrow table, got {type(source).__name__}; wior.streaming.from_parquet(path) maps a "
                "Parquet file as one"
            )
        table = source if isinstance(source, pyarrow.Table) else pyarrow.Table.from_batches([source])
        return OfTable(name, table)
    if isinstance(source, (np.ndarray, jax.Array)) and collate is None:
        return OfArray(name, source if isinstance(source, np.ndarray) else np.asarray(source))
    if not isinstance(source, Mapping):
        demand_rows(name, source)
    if isinstance(source, (str, bytes, Mapping)) or not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise TypeError(
            f"{name} must have a length and take the number of a row or an array of row numbers, got "
            f"{type(source).__name__}: {source!r:.80}"
        )
    if len(source) == 0:
        raise ValueError(f"{name} is empty: its length is 0, and at least one example is needed")
    if collate is not None or isinstance(source, (list, tuple)):
        return OfExamples(name, source, collate)
    if hasattr(source, "with_format") and hasattr(source, "column_names"):
        return _of_columns(name, source)
    return _of_object(name, source)


def is_arrow(leaf: Any) -> bool:
    return type(leaf).__module__.partition(".")[0] == "pyarrow" and not hasattr(leaf, "to_numpy")


def _of_columns(name: str, source: Any) -> OfObject:
    """A data set of Hugging Face, of any format; the columns are those of its format."""
    form = getattr(source, "format", None)
    form = form if isinstance(form, Mapping) else {}
    given = source
    if form.get("type") not in GIVE_ARRAYS:
        given = source.with_format("numpy", columns=form.get("columns"))
    numbers = np.unique([0, 1 % len(source), 2 % len(source), len(source) - 1])
    first = given[numbers]
    if isinstance(first, Mapping):
        good = [column for column, rows in first.items() if _is_column(rows, len(numbers))]
        bad = [column for column in first if column not in good]
        if bad:
            raise TypeError(
                f"{name} is a {type(source).__name__} whose columns {bad} are no numbers of one shape; take the "
                f"columns that are needed, .select_columns({good}), make arrays of them before, or give "
                "wior.Streamed(source, collate=...), a function that makes arrays of a list of rows"
            )
        first = dict(first)
    return OfObject(name, source, first, given)


def _of_object(name: str, source: Any) -> Any:
    """An object that takes an array of row numbers, or one number; both must be the same rows, or the latter counts."""
    numbers = _first_and_last(source)
    first, why = None, ""
    try:
        first = source[numbers]
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(first)]
        wrong = [shape for shape in shapes if not shape or shape[0] != 2]
        if wrong or not shapes:
            first, why = None, f"returned the shape {wrong[0]} for two numbers" if wrong else "returned no arrays"
    except Exception as error:  # noqa: BLE001 - many objects take one number alone, and raise anything for others
        first, why = None, f"raised {in_one_line(error)}"
    try:
        rows = [source[int(number)] for number in numbers]
    except Exception as error:
        if first is not None:
            return OfObject(name, source, first)
        raise TypeError(
            f"{name}, {type(source).__name__}, must take an array of row numbers, source[np.array([0])], or the number "
            f"of one row, source[0], and return rows; the first {why}, and the second raised {in_one_line(error)}"
        ) from error
    if first is not None and _are_rows(first, rows):
        return OfObject(name, source, first)
    return OfExamples(name, source)


def _first_and_last(source: Any) -> np.ndarray:
    return np.array([0, len(source) - 1], np.int64)


def _is_column(rows: Any, number: int) -> bool:
    """Whether so many rows of a column are numbers of one shape."""
    if isinstance(rows, list):
        return False
    array = np.asarray(rows)
    return array.ndim > 0 and len(array) == number and array.dtype.kind in "biufc"


def _are_rows(together: Tree, alone: list[Tree]) -> bool:
    """Whether rows that were read together are those that were read alone.

    What is written for one number may take an array by chance, and then normalize two pictures as if they were one.
    """
    try:
        for place, row in enumerate(alone):
            leaves, own = jax.tree.leaves(together), jax.tree.leaves(as_arrays(row))
            if len(leaves) != len(own):
                return False
            for leaf, one in zip(leaves, own, strict=True):
                if not np.array_equal(np.asarray(leaf)[place], one, equal_nan=one.dtype.kind in "fc"):
                    return False
    except (TypeError, ValueError, RuntimeError):  # its rows alone are no arrays
        return True
    return True
