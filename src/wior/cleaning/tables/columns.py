"""What the columns of a table are, and how they become features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.cells import FALSE, TRUE, Cells
from wior.cleaning.tables.errors import shown

LARGEST = float(np.finfo(np.float32).max)


class Column(Protocol):
    """One column as features."""

    @property
    def width(self) -> int: ...

    @property
    def report(self) -> Mapping[str, Any]: ...

    @property
    def exact(self) -> bool:
        """Whether different cells have different features, or mean the same."""
        ...

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        """Writes the features of the cells into `out` (k, width); how many cells hold what the training table lacks."""
        ...


@dataclass(frozen=True)
class Number:
    """The number, the mean where it is missing, and with an indicator whether it is."""

    exact: ClassVar[bool] = True
    mean: float
    missing: int
    strange: int = 0  # of those missing, the cells that are no numbers

    @property
    def width(self) -> int:
        return 2 if self.missing else 1

    @property
    def report(self) -> Mapping[str, Any]:
        return report_of("number", self.width, self.missing, **({"no_numbers": self.strange} if self.strange else {}))

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        numbers = cells.numbers
        if numbers is None and self.strange:
            numbers = cells.numbers_or_missing
        if numbers is None:
            place = _first_that_is_no_number(cells)
            raise cells.error(place, f"{shown(cells.text(place))} is not a number, as it is in the training table")
        require_finite(cells, numbers)
        absent = np.isnan(numbers)
        out[:, 0] = np.where(absent, self.mean, numbers) + 0.0  # so that -0 equals 0 in every bit
        if self.missing:
            out[:, 1] = absent
        return 0


@dataclass(frozen=True)
class Boolean:
    """1 where it is true, and with an indicator whether it is missing."""

    exact: ClassVar[bool] = True
    missing: int

    @property
    def width(self) -> int:
        return 2 if self.missing else 1

    @property
    def report(self) -> Mapping[str, Any]:
        return report_of("boolean", self.width, self.missing)

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

    exact: ClassVar[bool] = True
    values: tuple[str, ...]
    missing: int

    @property
    def width(self) -> int:
        return len(self.values) + bool(self.missing)

    @property
    def report(self) -> Mapping[str, Any]:
        return report_of("category", self.width, self.missing, values=len(self.values))

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        places = pc.fill_null(pc.index_in(cells.trimmed, value_set=pa.array(self.values, pa.string())), -1).to_numpy()
        if self.missing:
            places = np.where(cells.missing, len(self.values), places)
        known = np.flatnonzero(places >= 0)
        out[:] = 0
        out[known, places[known]] = 1
        return len(cells) - len(known)


@dataclass(frozen=True)
class Shown:
    """No feature, and part of what is compared with verified rows."""

    exact: ClassVar[bool] = False
    width: ClassVar[int] = 0

    @property
    def report(self) -> Mapping[str, Any]:
        return {"kind": "shown", "width": 0, "why": "the embeddings stand for it"}

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        return 0


@dataclass(frozen=True)
class Ignored:
    """No feature."""

    exact: ClassVar[bool] = True
    width: ClassVar[int] = 0
    why: str

    @property
    def report(self) -> Mapping[str, Any]:
        return {"kind": "ignored", "width": 0, "why": self.why}

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        return 0


def require_finite(cells: Cells, numbers: np.ndarray) -> None:
    beyond = np.flatnonzero(np.abs(numbers) > LARGEST)
    if len(beyond):
        raise cells.error(beyond[0], f"{shown(cells.text(beyond[0]))} is infinite or too large")


def _first_that_is_no_number(cells: Cells) -> int:
    alone = (dataclasses.replace(cells, start=0, array=cells.array[place : place + 1]) for place in range(len(cells)))
    return next(place for place, cell in enumerate(alone) if cell.numbers is None)


def report_of(kind: str, width: int, missing: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "width": width, **({"missing": missing} if missing else {}), **more}
