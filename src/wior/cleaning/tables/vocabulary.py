"""Spellings of labels: the same label, written in another case, with blanks around it, or as another form of a number.

`0` and `0.0`, `1` and `01` are two spellings of one number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from wior.cleaning.tables.errors import MOST_SHOWN, InputError, counted, listed, shown

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)", re.ASCII)


def spelling(text: str) -> str:
    """What all spellings of a label have in common."""
    plain = unicodedata.normalize("NFC", text).strip().casefold()
    if not NUMBER.fullmatch(plain):
        return plain
    number = Decimal(plain)
    return str(number.normalize()) if number else "0"


def same_but_spelling(names: Iterable[str]) -> list[list[str]]:
    """The names that are spellings of the same label, together; in the order of the names."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(spelling(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def match_spellings(names: Sequence[str], classes: Sequence[str], where: str) -> Mapping[str, str]:
    """The class that each name is a spelling of; names that are classes, and those that are like none, are left out.

    `where` names the file of the names, for the error where a name is like two classes.
    """
    known = set(classes)
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault(spelling(name), []).append(name)
    found = {}
    for name in names:
        candidates = [] if name in known else alike.get(spelling(name), [])
        if len(candidates) > 1:
            raise InputError(
                f"{where}: the verified label {shown(name)} may be {' or '.join(map(shown, candidates))}; "
                "write it as one of them"
            )
        if candidates:
            found[name] = candidates[0]
    return found


def note_on_matched(matched: Mapping[str, str]) -> list[str]:
    if not matched:
        return []
    pairs = [f"{shown(name)} as {shown(match)}" for name, match in matched.items()]
    more = f" and {len(pairs) - MOST_SHOWN} more" if len(pairs) > MOST_SHOWN else ""
    verb = "was" if len(pairs) == 1 else "were"
    return [
        f"{counted(len(pairs), 'spelling')} of verified labels {verb} matched: {', '.join(pairs[:MOST_SHOWN])}{more}"
    ]


def notes_on_classes_alike(classes: Sequence[str]) -> list[str]:
    """Labels of the table that may be meant to be one; they are never merged."""
    return [
        f"the labels {listed(group)} differ only in case, blanks or the form of a number; they count as different "
        "classes"
        for group in same_but_spelling(classes)
    ]
