"""Dates and times as numbers: days since the first, and where in the year, the week and the day it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.columns import Column, Ignored, report_of

CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(:(?P<second>\d{2})(\.\d+)?)?( ?(?P<half>[AaPp])[Mm])?"
    r"( ?(?P<zone>Z|UTC|[+-]\d{2}:?\d{2}))?"
)
DAY = (
    r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})"
    r"|(?P<first>\d{1,2})[-/.](?P<next>\d{1,2})[-/.](?P<late>\d{4}|\d{2})"
    r"|(?P<one>\d{1,2})[- ](?P<name>[A-Za-z]{3,9})[- ](?P<last>\d{2,4})"
)
MOMENT = re.compile(f"({DAY})([T ]{CLOCK})?", re.ASCII)
TIME = re.compile(CLOCK, re.ASCII)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
EPOCH = datetime(1970, 1, 1)
DAY_SECONDS = 86400.0
# what may vary: the period in days, and what of a moment lies in it
CIRCLES = (("year", 365.2425), ("week", 7.0), ("day", 1.0))


@dataclass(frozen=True)
class Moment:
    """Days since the first, the year, and sine and cosine of the place in year, week and day, those that vary."""

    exact: ClassVar[bool] = False  # float32 has no room for seconds
    missing: int
    first: float  # in days
    mean: float
    parts: tuple[str, ...]
    day_first: bool
    why: str

    @property
    def width(self) -> int:
        return sum(2 if part in dict(CIRCLES) else 1 for part in self.parts) + bool(self.missing)

    @property
    def report(self) -> Mapping[str, Any]:
        return report_of("date", self.width, self.missing, why=self.why)

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        days = days_of(cells, self.day_first)
        absent = np.isnan(days)
        days = np.where(absent, self.mean, days)
        columns = []
        for part in self.parts:
            if part == "days":
                columns.append(days - self.first)
            elif part == "years":
                columns.append(days // 365.2425 + 1970)
            else:
                angle = 2 * np.pi * days / dict(CIRCLES)[part]
                columns += [np.where(absent, 0, np.sin(angle)), np.where(absent, 0, np.cos(angle))]
        if self.missing:
            columns.append(absent)
        for number, values in enumerate(columns):
            out[:, number] = values
        return int((absent & ~cells.missing).sum())


class DateSurvey:
    """The moments of a column, while it is read."""

    def __init__(self) -> None:
        self.low, self.high, self.total, self.count = np.inf, -np.inf, 0.0, 0
        self.clock = self.date = False
        self.largest = [0, 0]  # of the first and of the second number of 1/2/2024
        self.dots = False
        self.kept: list[np.ndarray] = []

    def add(self, cells: Cells) -> bool:
        """Whether all are dates or times."""
        if not cells.is_moment and not cells.all_dates():
            return False
        if cells.is_moment:
            self._add(days_of(cells, True))
            kind = cells.plain.type
            self.date = self.date or not pa.types.is_time(kind)
            return True
        for text in pc.unique(cells.trimmed).to_pylist():
            if match := MOMENT.fullmatch(text):
                self.date = True
                if match["first"]:
                    pair = int(match["first"]), int(match["next"])
                    self.largest = [max(old, new) for old, new in zip(self.largest, pair, strict=True)]
                    self.dots = self.dots or "." in text[:6]
        self._add(days_of(cells, self.day_first))
        return True

    @property
    def day_first(self) -> bool:
        """Of 1/2/2024: by what cannot be a month, else by the dots, which are European."""
        first, second = self.largest
        return first > 12 or (second <= 12 and self.dots)

    def column(self, missing: int) -> Column:
        spread = self.high - self.low
        if not spread > 0 and not missing:
            return Ignored("constant")
        parts = []
        if self.date:
            parts = ["days"] if spread else []
            parts += ["years", "year"] if spread > 366 else ["year"] if spread > 31 else []
            parts += ["week"] if spread >= 1 else []
        parts += ["day"] if self.clock else []
        order = ""
        if any(self.largest):
            order = ", read as day before month" if self.day_first else ", read as month before day"
        what = ("dates and times" if self.clock else "dates") if self.date else "times of the day"
        mean = self.total / max(self.count, 1)
        return Moment(missing, self.low, mean, tuple(parts or ["days"]), self.day_first, what + order)

    def _add(self, days: np.ndarray) -> None:
        present = days[~np.isnan(days)]
        if not len(present):
            return
        self.clock = self.clock or bool((present % 1 != 0).any())
        self.low, self.high = min(self.low, float(present.min())), max(self.high, float(present.max()))
        self.total += float(present.sum())
        self.count += len(present)


def days_of(cells: Cells, day_first: bool) -> np.ndarray:
    """(k,) days since 1970 with their fractions, nan where there is no date."""
    kind = cells.plain.type
    if pa.types.is_time(kind):
        unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        wide = cells.plain.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        return np.asarray(pc.cast(wide, pa.float64()).to_numpy(zero_copy_only=False)) / unit / DAY_SECONDS
    if pa.types.is_temporal(kind):
        micros = pc.cast(pc.cast(cells.plain, pa.timestamp("us"), safe=False), pa.int64())
        return np.asarray(pc.cast(micros, pa.float64()).to_numpy(zero_copy_only=False)) / 1e6 / DAY_SECONDS
    encoded = cells.trimmed.dictionary_encode()
    values = np.array([_days(text, day_first) for text in encoded.dictionary.to_pylist()] or [np.nan])
    return values[encoded.indices.to_numpy()]


def _days(text: str, day_first: bool) -> float:
    match = MOMENT.fullmatch(text) or TIME.fullmatch(text)
    if match is None:
        return np.nan
    found = match.groupdict()
    try:
        day = EPOCH if "year" not in found else datetime(*_date(found, day_first))
    except (ValueError, OverflowError):
        return np.nan
    hour = int(found["hour"] or 0)
    if found["half"]:
        hour = hour % 12 + (12 if found["half"] in "pP" else 0)
    day += timedelta(hours=hour, minutes=int(found["minute"] or 0), seconds=int(found["second"] or 0))
    zone = found["zone"]
    if zone and zone[0] in "+-":
        ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        day += -ahead if zone[0] == "+" else ahead
    return (day - EPOCH).total_seconds() / DAY_SECONDS


def _date(found: Mapping[str, str | None], day_first: bool) -> tuple[int, int, int]:
    if found["year"]:
        return int(found["year"]), int(found["month"] or 0), int(found["day"] or 0)
    if found["first"]:
        day, month = int(found["first"]), int(found["next"] or 0)
        return _year(found["late"]), *((month, day) if day_first else (day, month))
    month = MONTHS.index(str(found["name"])[:3].lower()) + 1
    return _year(found["last"]), month, int(found["one"] or 0)


def _year(text: str | None) -> int:
    year = int(text or 0)
    return year if year > 99 else year + (2000 if year < 70 else 1900)
