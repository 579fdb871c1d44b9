"""What the columns of a table are, and how they become features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.cells import FALSE, MISSING, TRUE, Cells
from wior.cleaning.tables.errors import InputError, shown

MOST_CATEGORIES = 50
MOST_COUNTED = 1000  # different texts of a column
LARGEST = float(np.finfo(np.float32).max)
PAIRS = [set(pair) for pair in zip(TRUE, FALSE, strict=True)]


class Column(Protocol):
    """One column as features."""

    @property
    def width(self) -> int: ...

    @property
    def report(self) -> Mapping[str, Any]: ...

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        """Writes the features of the cells into `out` (k, width); how many cells hold what the training table lacks."""
        ...


@dataclass(frozen=True)
class Number:
    """The number, the mean where it is missing, and with an indicator whether it is."""

    mean: float
    missing: int

    @property
    def width(self) -> int:
        return 2 if self.missing else 1

    @property
    def report(self) -> Mapping[str, Any]:
        return _report("number", self.missing)

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        numbers = cells.numbers
        if numbers is None:
            place = _first_that_is_no_number(cells)
            raise cells.error(place, f"{shown(cells.text(place))} is not a number, as it is in the training table")
        _require_finite(cells, numbers)
        absent = np.isnan(numbers)
        out[:, 0] = np.where(absent, self.mean, numbers) + 0.0  # so that -0 equals 0 in every bit
        if self.missing:
            out[:, 1] = absent
        return 0


@dataclass(frozen=True)
class Boolean:
    """1 where it is true, and with an indicator whether it is missing."""

    missing: int

    @property
    def width(self) -> int:
        return 2 if self.missing else 1

    @property
    def report(self) -> Mapping[str, Any]:
        return _report("boolean", self.missing)

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        true = cells.among(TRUE)
        out[:, 0] = true
        known = true | cells.among(FALSE)
        if self.missing:
            out[:, 1] = cells.missing
            known |= cells.missing
        return int((~known).sum())


@dataclass(frozen=True)
class Category:
    """One feature for each value, 1 where it is that one; a missing cell is a value of its own."""

    values: tuple[str, ...]
    missing: int

    @property
    def width(self) -> int:
        return len(self.values) + bool(self.missing)

    @property
    def report(self) -> Mapping[str, Any]:
        return {**_report("category", self.missing), "values": len(self.values)}

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        places = pc.fill_null(pc.index_in(cells.trimmed, value_set=pa.array(self.values, pa.string())), -1).to_numpy()
        if self.missing:
            places = np.where(cells.missing, len(self.values), places)
        known = np.flatnonzero(places >= 0)
        out[:] = 0
        out[known, places[known]] = 1
        return len(cells) - len(known)


@dataclass(frozen=True)
class Ignored:
    """No feature."""

    why: str
    width = 0

    @property
    def report(self) -> Mapping[str, Any]:
        return {"kind": "ignored", "why": self.why}

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        return 0


class Survey:
    """Finds what a column is, some of its cells at a time."""

    def __init__(self) -> None:
        self.rows = self.missing = 0
        self.unreadable: str | None = None
        self.numbers = self.dates = True
        self.total, self.low, self.high = 0.0, np.inf, -np.inf
        self.infinite: InputError | None = None
        self.values: set[str] = set()

    def add(self, cells: Cells) -> None:
        self.rows += len(cells)
        self.unreadable = self.unreadable or cells.unreadable
        if self.unreadable:
            return
        numbers = cells.numbers if self.numbers else None
        if numbers is not None:
            self._add_numbers(cells, numbers)
        else:
            self.numbers = False
            self.missing += int(cells.missing.sum())
            self.dates = self.dates and cells.all_dates()
        if not cells.is_numeric and len(self.values) <= MOST_COUNTED:
            # some more than are counted, since those that mean missing go
            different = pc.unique(cells.trimmed).slice(0, 2 * MOST_COUNTED).to_pylist()
            self.values.update(text for text in different if text.lower() not in MISSING)

    def column(self) -> Column:
        """Raises where a number is infinite."""
        if self.unreadable:
            return Ignored(self.unreadable)
        if self.missing == self.rows:
            return Ignored("no values")
        if self.numbers:
            if self.infinite:
                raise self.infinite
            constant = self.low == self.high and not self.missing
            return Ignored("constant") if constant else Number(self.total / (self.rows - self.missing), self.missing)
        words = {value.lower() for value in self.values}
        boolean = any(words <= pair for pair in PAIRS)
        if len(words if boolean else self.values) == 1 and not self.missing:
            return Ignored("constant")
        if self.dates:
            return Ignored("dates")
        if boolean:
            return Boolean(self.missing)
        if len(self.values) > MOST_CATEGORIES:
            number = f"more than {MOST_COUNTED}" if len(self.values) > MOST_COUNTED else str(len(self.values))
            return Ignored(f"text with {number} different values")
        return Category(tuple(sorted(self.values)), self.missing)

    def _add_numbers(self, cells: Cells, numbers: np.ndarray) -> None:
        present = numbers[~np.isnan(numbers)]
        self.missing += len(numbers) - len(present)
        if not len(present):
            return
        self.dates = False
        with np.errstate(over="ignore", invalid="ignore"):
            self.total += float(present.sum())
        self.low, self.high = min(self.low, float(present.min())), max(self.high, float(present.max()))
        if self.infinite is None and max(-self.low, self.high) > LARGEST:
            try:
                _require_finite(cells, numbers)
            except InputError as error:
                self.infinite = error


def _require_finite(cells: Cells, numbers: np.ndarray) -> None:
    beyond = np.flatnonzero(np.abs(numbers) > LARGEST)
    if len(beyond):
        raise cells.error(beyond[0], f"{shown(cells.text(beyond[0]))} is infinite or too large")


def _first_that_is_no_number(cells: Cells) -> int:
    alone = (Cells(cells.path, cells.column, 0, cells.array[place : place + 1]) for place in range(len(cells)))
    return next(place for place, cell in enumerate(alone) if cell.numbers is None)


def _report(kind: str, missing: int) -> dict[str, Any]:
    return {"kind": kind, **({"missing": missing} if missing else {})}
