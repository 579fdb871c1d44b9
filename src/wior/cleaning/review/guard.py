"""Texts of a CSV file that a spreadsheet would take for a formula get an apostrophe in front, and lose it when read
again.

The page has the same rule in csv.js: who changes one changes both.
"""

from __future__ import annotations

import re

FORMULA = tuple("=+-@\t\r'")  # the apostrophe itself, or a text that begins with one would lose it
PLAIN_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def guard(text: str) -> str:
    return "'" + text if text.startswith(FORMULA) and not PLAIN_NUMBER.fullmatch(text) else text


def unguard(text: str) -> str:
    """The text that `guard` was given."""
    return text.removeprefix("'")
