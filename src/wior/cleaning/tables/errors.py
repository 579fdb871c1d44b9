"""What is said when a user's data cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LONGEST_SHOWN = 60
MOST_SHOWN = 20


class InputError(ValueError):
    """What is wrong with the data, in one line: the file, and the column and the row where there are such."""


def at(path: Path, row: int | None = None, column: str | None = None) -> str:
    """For messages: a place in a file. Rows are counted from 1, the header is none."""
    return str(path) + ("" if row is None else f", row {row}") + ("" if column is None else f", column {shown(column)}")


def shown(text: str) -> str:
    """For messages: a text on one line, and not all of a long one."""
    text = str(text)  # numpy's own texts say of which type they are
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…")


def listed(texts: Iterable[str]) -> str:
    """For messages: the first of some texts."""
    texts = list(texts)
    more = f" and {len(texts) - MOST_SHOWN} more" if len(texts) > MOST_SHOWN else ""
    return ", ".join(map(shown, texts[:MOST_SHOWN])) + more


def counted(number: int, thing: str) -> str:
    """For messages: 1 row, 2 rows."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
