"""Folders of Parquet files: one table, in the order of their names; a copy is one Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.errors import InputError, counted, listed
from wior.cleaning.tables.parquet import ParquetFile

SUFFIXES = (".parquet", ".pq")


def has_parquet(path: Path) -> bool:
    return bool(_files(path))


class ParquetFolder:
    kind = "table"
    suffix = ".parquet"

    def __init__(self, path: Path):
        self.path = path
        self._files = [ParquetFile(file) for file in _files(path)]
        first = self._files[0]
        self.names = first.names
        for file in self._files:
            if sorted(file.names) != sorted(self.names):
                other = sorted(set(file.names) ^ set(self.names))
                raise InputError(
                    f"{path}: {first.path.name} and {file.path.name} differ in the columns {listed(other)}"
                )
        self._starts = np.cumsum([0, *(file.rows for file in self._files)])
        self.rows = int(self._starts[-1])
        files = counted(len(self._files), "Parquet file")
        self.notes = [f"{path}: {files} read as one table, in the order of their names; a copy is one file"]

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        for start, file in zip(self._starts.tolist(), self._files, strict=False):
            for batch in file.batches(names):
                yield {name: Cells(self.path, name, start + one.start, one.array) for name, one in batch.items()}

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        owners = np.searchsorted(self._starts, places, side="right") - 1
        found: list[list[str]] = [[] for _ in places]
        for number in np.unique(owners).tolist():
            own = np.flatnonzero(owners == number)
            rows = self._files[number].records(places[own] - self._starts[number], names)
            for place, row in zip(own.tolist(), rows, strict=True):
                found[place] = row
        return found

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        schema = self._files[0].schema_with(label, changes.values())
        kinds = {file.schema_with(label, changes.values()).field(label).type for file in self._files}
        if len(kinds) > 1:
            schema = self._files[0].schema_with(label, None)
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            for start, file in zip(self._starts.tolist(), self._files, strict=False):
                own = {place - start: text for place, text in changes.items() if 0 <= place - start < file.rows}
                for batch in file.changed(label, keep[start : start + file.rows], own, schema):
                    writer.write_batch(batch)


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and not file.name.startswith("."))
