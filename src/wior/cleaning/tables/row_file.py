"""Rows as they lie in a file or a folder: their columns as text, and a copy with other labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.errors import InputError, at, listed, shown


class RowFile(Protocol):
    """A table, a file of arrays or a folder of images."""

    @property
    def path(self) -> Path: ...

    @property
    def kind(self) -> str:
        """ "table", "arrays" or "images"."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Of the columns."""
        ...

    @property
    def rows(self) -> int: ...

    @property
    def suffix(self) -> str:
        """What the name of a copy ends in."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """For the user, one line each: how the file was read."""
        ...

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        """The columns of these names, some rows at a time."""
        ...

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        """The texts of the fields of these names, for the rows in `places`."""
        ...

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        """A copy, at a path that is free, of the rows with `keep`; `changes` are new labels by place."""
        ...


UNNAMED = "Unnamed: 0"  # as pandas calls the index that it wrote without a name


def with_index(names: list[str]) -> list[str]:
    """The names of columns, with one for the index that pandas writes first and without a name."""
    return [UNNAMED, *names[1:]] if names and not names[0] and UNNAMED not in names else names


def require_column(file: RowFile, name: str, option: str) -> None:
    if name not in file.names:
        raise InputError(
            f"{file.path} has no column {shown(name)}, which {option} names; its columns are {listed(file.names)}"
        )


def require_names(path: Path, names: Sequence[str]) -> None:
    """Columns must have names that tell them apart."""
    numbers: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise InputError(f"{path}: column {number} has no name; give it one")
        if numbers.setdefault(name, number) != number:
            raise InputError(f"{path}: columns {numbers[name]} and {number} are both called {shown(name)}")


class Stamp:
    """Whether a file is still the one that was opened."""

    def __init__(self, path: Path):
        self.path = path
        self.seen = self._look()

    def check(self) -> None:
        if self._look() != self.seen:
            raise InputError(f"{at(self.path)} was changed while it was in use; begin again")

    def _look(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}") from error
        return status.st_size, status.st_mtime_ns
