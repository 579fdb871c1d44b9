"""What a column is, found from its cells, some at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.features.text import LEARNED_FROM
from wior.cleaning.tables.cells import FALSE, MISSING, TRUE, Cells
from wior.cleaning.tables.columns import LARGEST, Boolean, Category, Column, Ignored, Number, require_finite
from wior.cleaning.tables.errors import InputError, at, counted, shown
from wior.cleaning.tables.moments import DateSurvey
from wior.cleaning.tables.text_columns import column_of_texts

MOST_CATEGORIES = 50
MOST_COUNTED = 1000  # different texts of a column
STRANGE = 0.01  # the share of cells of a column of numbers that may be no numbers
FAR = 1e4  # times the usual distance from the middle of a column
PAIRS = [set(pair) for pair in zip(TRUE, FALSE, strict=True)]


class Survey:
    """One column of a table of so many rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.missing = self.present = self.strange = 0
        self.unreadable: str | None = None
        self.numbers = True
        self.dates: DateSurvey | None = DateSurvey()
        self.total, self.low, self.high = 0.0, np.inf, -np.inf
        self.infinite: InputError | None = None
        self.first_strange = ""
        self.values: set[str] = set()
        self.sample: list[pa.Array] = []

    def add(self, cells: Cells) -> None:
        self.unreadable = self.unreadable or cells.unreadable
        if self.unreadable:
            return
        numbers = cells.numbers_or_missing if self.numbers and not cells.is_moment else None
        if numbers is not None:
            self._add_numbers(cells, numbers)
        else:
            self.numbers = False
            self.missing += int(cells.missing.sum())
        if self.dates is not None and (cells.is_numeric or not self.dates.add(cells)):
            self.dates = None
        if not cells.is_numeric and not cells.is_moment:
            self._add_texts(cells)

    def column(self) -> Column:
        """Raises where a number is infinite."""
        if self.unreadable:
            return Ignored(self.unreadable)
        if self.missing == self.rows:
            return Ignored("no values")
        if self.numbers and 10 * self.strange <= self.present:
            if self.infinite:
                raise self.infinite
            missing = self.missing + self.strange
            constant = self.low == self.high and not missing
            return Ignored("constant") if constant else Number(self.total / self.present, missing, self.strange)
        words = {value.lower() for value in self.values}
        boolean = any(words <= pair for pair in PAIRS)
        if len(words if boolean else self.values) == 1 and not self.missing:
            return Ignored("constant")
        if self.dates is not None:
            return self.dates.column(self.missing)
        if boolean:
            return Boolean(self.missing)
        texts = pa.chunked_array(self.sample, pa.string()).to_pylist()
        category = len(self.values) <= MOST_CATEGORIES
        found = column_of_texts(texts, self.rows, self.missing, few=category)
        return Category(tuple(sorted(self.values)), self.missing) if found is None else found

    def notes(self, name: str) -> Iterator[str]:
        if self.numbers and self.strange and 10 * self.strange <= self.present:
            verb = "is no number and counts" if self.strange == 1 else "are no numbers and count"
            cells = counted(self.strange, "cell")
            yield f"column {shown(name)}: {cells} {verb} as missing, the first of them {self.first_strange}"

    def _add_numbers(self, cells: Cells, numbers: np.ndarray) -> None:
        strange = np.flatnonzero(cells.strange)
        if len(strange) and not self.strange:
            place = int(strange[0])
            self.first_strange = f"{shown(cells.text(place))} in row {cells.start + place + 1}"
        self.strange += len(strange)
        present = numbers[~np.isnan(numbers)]
        self.missing += len(numbers) - len(present) - len(strange)
        if self.strange > max(1, STRANGE * self.rows):
            self.numbers = False
        if not self.numbers or not len(present):
            return
        self.present += len(present)
        with np.errstate(over="ignore", invalid="ignore"):
            self.total += float(present.sum())
        self.low, self.high = min(self.low, float(present.min())), max(self.high, float(present.max()))
        if self.infinite is None and max(-self.low, self.high) > LARGEST:
            try:
                require_finite(cells, numbers)
            except InputError as error:
                self.infinite = error

    def _add_texts(self, cells: Cells) -> None:
        step = -(-self.rows // LEARNED_FROM)  # so that the sample is of all parts of the table
        places = np.arange(-cells.start % step, len(cells), step)
        chosen = dataclasses.replace(cells, array=cells.texts.take(pa.array(places)))
        self.sample.append(chosen.trimmed.filter(pa.array(~chosen.missing)))
        if len(self.values) <= MOST_COUNTED:
            # some more than are counted, since those that mean missing go
            different = pc.unique(cells.trimmed).slice(0, 2 * MOST_COUNTED).to_pylist()
            self.values.update(text for text in different if text.lower() not in MISSING)


def note_on_far_number(path: Path, name: str, numbers: np.ndarray) -> str | None:
    """Of a number that is out of all proportion to the others of its column."""
    some = numbers[:: -(-len(numbers) // LEARNED_FROM)]
    middle = np.median(some)
    near = np.abs(some.astype(np.float64) - middle)
    usual = np.quantile(near, 0.99) if len(near) >= 100 else np.partition(near, -2)[-2]
    distances = np.abs(numbers.astype(np.float64) - middle)
    far = np.flatnonzero(distances > FAR * usual) if usual > 0 else np.zeros(0, np.int64)
    if not len(far) or len(far) > max(1, 0.001 * len(numbers)):
        return None
    place = far[np.argmax(distances[far])]
    more = f" ({len(far) - 1:,} more are as far)" if len(far) > 1 else ""
    rest = np.delete(numbers, far)
    return (
        f"{at(path, int(place) + 1, name)}: {numbers[place]:.4g} is far from the others, which lie between "
        f"{rest.min():.4g} and {rest.max():.4g}{more}; is it right?"
    )
