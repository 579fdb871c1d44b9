"""Frames of Python, of pandas, polars or Arrow, as jobs; none of these need be installed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.interchange

from wior.cleaning.tables.arrow_rows import ArrowRows
from wior.cleaning.tables.asked import Asked
from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.job import Job
from wior.cleaning.tables.reading import read_rows

NAME = Path("the frame")  # in messages


def job_of(frame: Any, label: str, **asked: Any) -> Job:
    """A frame as the job to find its wrong labels.

    Parameters
    ----------
    frame : a DataFrame of pandas or polars, an Arrow table, or anything with `__arrow_c_stream__`, `__dataframe__` or
        `to_arrow`.
    label : the column with the labels.
    asked : the other fields of `Asked`, such as `verified_label` or `id_column`.

    Returns
    -------
    The job, for `LabelCleaner.fit_job`; what it writes is Parquet.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from wior.cleaning.tables import job_of
    >>> frame = pa.table({"age": [1, 2, 3], "sort": ["cat", "dog", "cat"], "right": [None, "cat", None]})
    >>> job = job_of(frame, "sort", verified_label="right")
    >>> job.given.tolist(), job.right.tolist()
    ([0, 1, 0], [-1, 0, -1])
    """
    file = ArrowRows(NAME, _without_views(_table(frame)))
    return read_rows(file, dataclasses.replace(Asked(NAME, label), **asked))


def _table(frame: Any) -> pa.Table:
    try:
        if isinstance(frame, pa.Table):
            return frame
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
        if hasattr(frame, "to_arrow"):
            return pa.table(frame.to_arrow())
        if hasattr(frame, "__dataframe__"):
            return pyarrow.interchange.from_dataframe(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"the frame cannot be read: {' '.join(str(error).split())}") from error
    raise InputError(f"frame must be a DataFrame of pandas or polars, or an Arrow table; got {type(frame).__name__}")


def _without_views(table: pa.Table) -> pa.Table:
    """Arrow computes little with the views of strings that polars has."""
    for number, field in enumerate(table.schema):
        column, kind = table.column(number), field.type
        if kind == pa.string_view():
            table = table.set_column(number, field.name, column.cast(pa.large_string()))
        elif pa.types.is_dictionary(kind) and kind.value_type == pa.string_view():
            chunks = [
                pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
                for chunk in column.chunks
            ]
            table = table.set_column(number, field.name, pa.chunked_array(chunks))
    return table
