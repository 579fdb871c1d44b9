"""Cells of a column: which are missing, which are numbers, and their texts."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.errors import InputError, at

# in lower case, without blanks around them
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
NAMELESS = tuple(word for word in MISSING if word != "none")  # a class may well be called none
TRUE = ("true", "yes", "t", "y")
FALSE = ("false", "no", "f", "n")
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"
DATE = (
    r"^(\d{4}([-/.])\d{1,2}([-/.])\d{1,2}|\d{1,2}([-/.])\d{1,2}([-/.])(\d{4}|\d{2})"
    r"|\d{1,2}[- ][A-Za-z]{3,9}[- ]\d{2,4})"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?( ?(Z|UTC|[+-]\d{2}:?\d{2}))?)?$"
    r"|^\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?$"
)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column in consecutive rows; `start` is the place of the first."""

    path: Path
    column: str
    start: int
    array: pa.Array
    decimal_comma: bool = False  # whether 1,5 is a number

    def __len__(self) -> int:
        return len(self.array)

    @functools.cached_property
    def plain(self) -> pa.Array:
        return self.array.dictionary_decode() if pa.types.is_dictionary(self.array.type) else self.array

    @functools.cached_property
    def texts(self) -> pa.Array:
        """Strings; a value that is not there is an empty one."""
        if pa.types.is_string(self.plain.type) and self.plain.null_count == 0:
            return self.plain
        try:
            found = pc.cast(self.plain, pa.string())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, bytes
            found = pa.array([None if value is None else str(value) for value in self.plain.to_pylist()], pa.string())
        return pc.fill_null(found, "")

    @functools.cached_property
    def trimmed(self) -> pa.Array:
        return pc.utf8_trim_whitespace(self.texts)

    @functools.cached_property
    def words(self) -> pa.Array:
        return pc.utf8_lower(self.trimmed)

    @functools.cached_property
    def missing(self) -> np.ndarray:
        return self.among(MISSING)

    def among(self, words: tuple[str, ...]) -> np.ndarray:
        """(k,) of bool: whether a cell is one of the words, in any case and with any blanks around it."""
        return _flags(pc.is_in(self.words, value_set=pa.array(words, pa.string())))

    @property
    def unreadable(self) -> str | None:
        """Why cells of this type are neither numbers nor texts."""
        kind = self.plain.type
        readable = (
            self.is_numeric or self.is_moment or _is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
        )
        return None if readable else f"values of the type {kind}"

    @property
    def is_numeric(self) -> bool:
        kind = self.plain.type
        plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return bool(plain or pa.types.is_duration(kind))

    @property
    def is_moment(self) -> bool:
        kind = self.plain.type
        return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind))

    @functools.cached_property
    def numbers(self) -> np.ndarray | None:
        """(k,) of float64, nan where a cell is missing; `None` where some cell is no number."""
        if pa.types.is_duration(self.plain.type):
            return _floats(pc.cast(pc.cast(self.plain, pa.int64()), pa.float64()))
        if self.is_numeric:
            return _floats(pc.cast(self.plain, pa.float64(), safe=False))
        try:
            return _floats(pc.cast(self._numerals if self.decimal_comma else self.texts, pa.float64()))
        except pa.ArrowInvalid:
            pass
        present = pc.if_else(pa.array(self.missing), pa.scalar(None, pa.string()), self._numerals)
        try:
            return _floats(pc.cast(present, pa.float64()))
        except pa.ArrowInvalid:
            return None

    @functools.cached_property
    def _numerals(self) -> pa.Array:
        """The texts as numbers are written with a point."""
        return pc.replace_substring(self.trimmed, ",", ".") if self.decimal_comma else self.trimmed

    @functools.cached_property
    def strange(self) -> np.ndarray:
        """(k,) of bool: the cells that are neither missing nor numbers."""
        if self.numbers is not None:
            return np.zeros(len(self), bool)
        return ~_flags(pc.match_substring_regex(self._numerals, NUMBER)) & ~self.missing

    @functools.cached_property
    def numbers_or_missing(self) -> np.ndarray | None:
        """(k,) of float64, nan where a cell is missing or no number; `None` where it cannot be."""
        if self.numbers is not None:
            return self.numbers
        absent = pa.array(self.strange | self.missing)
        try:
            return _floats(pc.cast(pc.if_else(absent, pa.scalar(None, pa.string()), self._numerals), pa.float64()))
        except pa.ArrowInvalid:
            return None

    def all_dates(self) -> bool:
        """Whether every cell that is not missing is a date or a time."""
        return bool((_flags(pc.match_substring_regex(self.trimmed, DATE)) | self.missing).all())

    def text(self, place: int) -> str:
        return str(self.texts[int(place)].as_py())

    def error(self, place: int, why: str) -> InputError:
        """Of the cell in a place among these."""
        return InputError(f"{at(self.path, self.start + int(place) + 1, self.column)}: {why}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def _floats(array: pa.Array) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False))  # nulls become nan


def _flags(array: pa.Array) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False), bool)
