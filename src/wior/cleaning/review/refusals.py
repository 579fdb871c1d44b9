"""What is wrong with what a page is to show, said before any of it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def require_different(name: str, texts: Sequence[str]) -> None:
    """The exported files name rows by their ids and labels by their classes."""
    seen: dict[str, int] = {}
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{place}] must be a text, got {text!r:.200} of type {type(text).__name__}")
        if seen.setdefault(text, place) != place:
            raise ValueError(
                f"{name} must differ from each other, got {text!r:.200} in places {seen[text]} and {place}"
            )


def require_labels(name: str, values: np.ndarray, rows: int, classes: int) -> None:
    """One place in the classes for each row."""
    _require_one_for_each_row(name, values, rows)
    _require_places(name, values, classes, "classes")


def require_shares(name: str, values: np.ndarray, rows: int) -> None:
    """One number between 0 and 1 for each row."""
    _require_one_for_each_row(name, values, rows)
    _require_between(name, values)


def require_chances(name: str, values: np.ndarray, rows: int) -> None:
    """One number above 0 and at most 1 for each row."""
    _require_one_for_each_row(name, values, rows)
    wrong = np.flatnonzero(~((values > 0) & (values <= 1)))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {values[wrong[0]]}; it must be a number above 0 and at most 1")


def require_several(names: tuple[str, str], of: Any, end: int, what: str) -> None:
    """Two arrays with as many places for each row as numbers between 0 and 1, or neither of them."""
    rows = len(of.ids)
    first, second = (getattr(of, name) for name in names)
    if first is None and second is None:
        return
    if first is None or second is None:
        raise ValueError(
            f"{names[0]} and {names[1]} must be given together, got only {names[0 if second is None else 1]}"
        )
    for name in names:
        values = np.asarray(getattr(of, name))
        if values.ndim != 2 or len(values) != rows or values.shape != np.shape(first):
            raise ValueError(
                f"{names[0]} and {names[1]} must have one shape ({rows}, k), k values for each of the ids, "
                f"got {np.shape(first)} and {np.shape(second)}"
            )
    _require_places(names[0], np.asarray(first), end, what)
    _require_between(names[1], np.asarray(second))


def require_marks(name: str, values: np.ndarray, rows: int) -> None:
    _require_one_for_each_row(name, values, rows)


def require_records(columns: Sequence[str], records: Any) -> None:
    if bool(columns) != (records is not None):
        raise ValueError(
            f"columns and records must be given together, got columns {list(columns)!r:.200} "
            f"and {'no' if records is None else 'a function for'} records"
        )


def _require_places(name: str, values: np.ndarray, end: int, what: str) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"{name} must hold places in {what} as integers, got dtype {values.dtype}")
    wrong = np.argwhere((values < 0) | (values >= end))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise ValueError(
            f"{name}[{', '.join(map(str, at))}] is {values[at]}; with {end} {what} it must be a place from 0 to "
            f"{end - 1}"
        )


def _require_between(name: str, values: np.ndarray) -> None:
    wrong = np.argwhere(~((values >= 0) & (values <= 1)))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise ValueError(f"{name}[{', '.join(map(str, at))}] is {values[at]}; it must be a number between 0 and 1")


def _require_one_for_each_row(name: str, values: np.ndarray, rows: int) -> None:
    if values.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},), one value for each of the ids, got {values.shape}")
