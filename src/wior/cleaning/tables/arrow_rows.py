"""Rows of an Arrow table, in memory or mapped into it; a copy of them is a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.parquet import PANDAS
from wior.cleaning.tables.relabel import relabeled, type_for
from wior.cleaning.tables.row_file import require_names

ROWS_AT_ONCE = 1 << 16


class ArrowRows:
    """`path` names the table in messages."""

    kind = "table"
    suffix = ".parquet"

    def __init__(self, path: Path, table: pa.Table, notes: Sequence[str] = ()):
        self.path, self.notes = path, notes
        self._table = table
        self.rows: int = table.num_rows
        self.names: list[str] = table.column_names
        require_names(path, self.names)
        if self.rows == 0:
            raise InputError(f"{path} has no rows")

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        for start in range(0, self.rows, ROWS_AT_ONCE):
            part = self._table.slice(start, ROWS_AT_ONCE)
            yield {name: Cells(self.path, name, start, _one(part.column(name))) for name in names}

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        part = self._table.select(list(names)).take(pa.array(places))
        columns = [Cells(self.path, name, 0, _one(part.column(name))).texts.to_pylist() for name in names]
        return [list(texts) for texts in zip(*columns, strict=True)] if columns else [[] for _ in places]

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        pyarrow.parquet.write_table(self._changed(label, changes).filter(pa.array(keep)), path)

    def _changed(self, label: str, changes: Mapping[int, str]) -> pa.Table:
        """The table with other labels, in their own type where they can be."""
        if not changes:
            return self._table
        table = self._table
        places = np.array(sorted(changes), np.int64)
        texts = [changes[place] for place in places.tolist()]
        number = self.names.index(label)
        field = table.schema.field(number)
        kind = type_for(field.type, texts)
        labels = relabeled(_one(table.column(number)), kind, places, texts)
        if kind != field.type:  # what pandas noted of the column's type is no longer so
            table = table.replace_schema_metadata(
                {name: value for name, value in (table.schema.metadata or {}).items() if name != PANDAS}
            )
        return table.set_column(number, pa.field(label, kind, True, field.metadata), labels)


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.unify_dictionaries().combine_chunks()
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
