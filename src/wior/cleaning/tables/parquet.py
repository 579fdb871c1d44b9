"""Parquet files, some rows at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.relabel import relabeled, type_for
from wior.cleaning.tables.row_file import Stamp, require_names

BATCH_BYTES = 32 << 20
MOST_ROWS = 1 << 14
READ_AHEAD = 1 << 16  # of each column; without it all of a column's bytes in a group of rows are read at once
PANDAS = b"pandas"


class ParquetFile:
    kind = "table"
    notes: Sequence[str] = ()

    def __init__(self, path: Path):
        self.path = path
        self.suffix = path.suffix
        self._stamp = Stamp(path)
        with self._opened() as file:
            self._schema = file.schema_arrow
            self.rows: int = file.metadata.num_rows
            first = file.metadata.row_group(0).column(0) if file.metadata.num_row_groups else None
            self._compression = first.compression if first and first.compression != "UNCOMPRESSED" else "NONE"
        self.names: list[str] = self._schema.names
        require_names(path, self.names)
        if self.rows == 0:
            raise InputError(f"{path} has no rows")

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        for start, batch in self._batches(names):
            yield {name: Cells(self.path, name, start, batch.column(name)) for name in names}

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        order = np.argsort(places, kind="stable")
        wanted, parts = places[order], []
        for start, batch in self._batches(names):
            own = slice(*np.searchsorted(wanted, [start, start + len(batch)]))
            parts.append(batch.take(pa.array(wanted[own] - start)))
        table = pa.Table.from_batches(parts).take(pa.array(np.argsort(order)))
        columns = [Cells(self.path, name, 0, _whole(table.column(name))).texts.to_pylist() for name in names]
        return [list(texts) for texts in zip(*columns, strict=True)]

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        schema = self.schema_with(label, changes.values())
        with pyarrow.parquet.ParquetWriter(path, schema, compression=self._compression) as writer:
            for batch in self.changed(label, keep, changes, schema):
                writer.write_batch(batch)

    def schema_with(self, label: str, texts: Iterable[str] | None) -> pa.Schema:
        """The schema in which these labels can be; `None`: labels as text."""
        field = self._schema.field(label)
        kind = pa.string() if texts is None else type_for(field.type, texts)
        if kind == field.type:
            return self._schema
        number = self._schema.get_field_index(label)
        schema = self._schema.set(number, pa.field(label, kind, field.nullable, field.metadata))
        # what pandas noted of the column's type is no longer so
        return schema.with_metadata({k: v for k, v in (schema.metadata or {}).items() if k != PANDAS})

    def changed(
        self, label: str, keep: np.ndarray, changes: Mapping[int, str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The rows with `keep`, with other labels by place, as the schema has them."""
        places = np.array(sorted(changes), np.int64)
        kind = schema.field(label).type
        for start, batch in self._batches(self.names):
            own = places[slice(*np.searchsorted(places, [start, start + len(batch)]))]
            texts = [changes[place] for place in own.tolist()]
            labels = relabeled(batch.column(label), kind, own - start, texts)
            columns = [
                labels if name == label else batch.column(name).cast(schema.field(name).type) for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema).filter(pa.array(keep[start : start + len(batch)]))

    def _batches(self, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        rows = int(np.clip(BATCH_BYTES // (8 * max(len(names), 1)), 1, MOST_ROWS))
        start = 0
        with self._opened() as file:
            for batch in file.iter_batches(rows, columns=list(names)):
                yield start, batch
                start += len(batch)
        if start != self.rows:
            raise InputError(f"{self.path} is damaged: it has {start:,} rows and says {self.rows:,}")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[pyarrow.parquet.ParquetFile]:
        self._stamp.check()
        try:
            with pyarrow.parquet.ParquetFile(self.path, buffer_size=READ_AHEAD, pre_buffer=False) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path} is damaged or no Parquet file: {_one_line(error)}") from error


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.unify_dictionaries().combine_chunks()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
