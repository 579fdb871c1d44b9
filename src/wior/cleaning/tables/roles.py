"""The columns that are no features: labels, ids, and marks of verified rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.tables.cells import FALSE, NAMELESS, TRUE, Cells
from wior.cleaning.tables.errors import InputError, at, shown
from wior.cleaning.tables.job import Known, Labels
from wior.cleaning.tables.row_file import RowFile, require_column

LONGEST = 200  # of an id or a label; every row has room for the longest one
NOBODY = "-1"  # in place of a right label where whole numbers leave no room for a missing one
MARKED = (*TRUE, "1", "1.0", "x")
UNMARKED = (*FALSE, "0", "0.0", "")


class Roles(NamedTuple):
    """Which columns are what; all others are features."""

    label: str | None
    id: str | None = None
    verified: str | None = None
    right: str | None = None
    ignored: Sequence[str] = ()
    featured: bool = True  # whether other columns, or pixels, become features
    bare: bool = False  # whether there may be no other column: something else says what the labels are

    def require(self, file: RowFile) -> None:
        """Every column that is named must be there, and have one role."""
        options = [("--label", self.label), ("--id", self.id), ("--verified-column", self.verified)]
        options.append(("--verified-label", self.right))
        named = [(option, name) for option, name in options if name is not None]
        roles: dict[str, str] = {}
        for option, name in [*named, *(("--ignore", name) for name in dict.fromkeys(self.ignored))]:
            require_column(file, name, option)
            if roles.setdefault(name, option) != option:
                raise InputError(f"the column {shown(name)} is named both by {roles[name]} and by {option}")


class LabelColumn:
    """The labels of all rows, each text once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.codes: list[np.ndarray] = []

    def add(self, cells: Cells) -> None:
        _require_names(cells, "label")
        self.add_texts(cells.texts)

    def add_texts(self, texts: pa.Array) -> None:
        encoded = texts.dictionary_encode()
        numbers = [self.numbers.setdefault(text, len(self.numbers)) for text in encoded.dictionary.to_pylist()]
        self.codes.append(np.array(numbers, np.int32)[encoded.indices.to_numpy()])

    def all(self) -> Labels:
        return Labels(np.concatenate(self.codes), list(self.numbers))


class IdColumn:
    """The ids of all rows."""

    def __init__(self) -> None:
        self.where = ""
        self.parts: list[pa.Array] = []

    def add(self, cells: Cells) -> None:
        _require_names(cells, "id")
        self.where = at(cells.path, column=cells.column)
        self.parts.append(cells.texts)

    def all(self) -> np.ndarray:
        return np.array([text for part in self.parts for text in part.to_pylist()])

    def require_different(self) -> None:
        encoded = pa.chunked_array(self.parts).combine_chunks().dictionary_encode()
        numbers = encoded.indices.to_numpy()
        firsts = np.unique(numbers, return_index=True)[1]
        if len(firsts) < len(numbers):
            again = np.delete(np.arange(len(numbers)), firsts)[0]
            text = encoded.dictionary[numbers[again]].as_py()
            first = firsts[numbers[again]]
            raise InputError(f"{self.where}: rows {first + 1} and {again + 1} have the same id {shown(text)}")


class MarkColumn:
    """Whether each row is marked as verified."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []

    def add(self, cells: Cells) -> None:
        marked = cells.among(MARKED)
        neither = np.flatnonzero(~(marked | cells.among(UNMARKED)))
        if len(neither):
            text = cells.text(neither[0])
            raise cells.error(
                neither[0], f"{shown(text)} must be true, yes, 1 or x where a row is verified, or false, no, 0 or empty"
            )
        self.parts.append(marked)

    def all(self) -> np.ndarray:
        return np.concatenate(self.parts)


class RightColumn:
    """The right labels, as far as somebody looked."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.labels = LabelColumn()
        self.places: list[np.ndarray] = []

    def add(self, cells: Cells) -> None:
        looked = np.flatnonzero(~cells.among(NAMELESS))
        self.places.append(cells.start + looked)
        require_short(cells, "verified label")
        self.labels.add_texts(cells.texts.take(pa.array(looked)))

    def all(self) -> tuple[np.ndarray, Labels]:
        return np.concatenate(self.places), self.labels.all()


class Collector(Protocol):
    def add(self, cells: Cells) -> None: ...


class RoleColumns:
    """The columns with roles, while a file is read."""

    def __init__(self, roles: Roles):
        assert roles.label is not None
        self.roles = roles
        self.labels = LabelColumn()
        self.ids = None if roles.id is None else IdColumn()
        self.marks = None if roles.verified is None else MarkColumn()
        self.rights = None if roles.right is None else RightColumn(roles.right)
        columns = {
            roles.label: self.labels,
            roles.id: self.ids,
            roles.verified: self.marks,
            roles.right: self.rights,
        }
        self.by_name: dict[str, Collector] = {
            name: column for name, column in columns.items() if name is not None and column is not None
        }

    def known(self, path: Path) -> tuple[list[Known], list[str]]:
        """What the columns say of right labels, and notes."""
        known, notes = [], []
        labels = self.labels.all()
        if self.marks is not None:
            places = np.flatnonzero(self.marks.all())
            if not len(places):
                notes.append(f"no row is marked as verified in the column {shown(str(self.roles.verified))}")
            known.append(_known(path, str(self.roles.verified), places, labels._replace(codes=labels.codes[places])))
            known[-1] = known[-1]._replace(paired=False)
        if self.rights is not None:
            places, right = self.rights.all()
            if NOBODY in right.names and NOBODY not in labels.names:
                looked = right.codes != right.names.index(NOBODY)
                places, right = places[looked], right._replace(codes=right.codes[looked])
                notes.append(f"{NOBODY} in the column {shown(str(self.roles.right))} means that nobody looked")
            if not len(places):
                notes.append(f"the column {shown(str(self.roles.right))} has no verified label")
            known.append(_known(path, str(self.roles.right), places, right))
        return known, notes


def _known(path: Path, column: str, places: np.ndarray, labels: Labels) -> Known:
    return Known(str(path), places, labels, lambda number: at(path, int(places[number]) + 1, column))


def gather(file: RowFile, collectors: Mapping[str, Collector]) -> None:
    """Shows all cells to the collectors of their columns."""
    for batch in file.batches(list(collectors)):
        for name, collector in collectors.items():
            collector.add(batch[name])


def row_numbers(rows: int) -> np.ndarray:
    """The ids of rows that have none: texts from 1 on."""
    return np.arange(1, rows + 1).astype(f"U{len(str(rows))}")


def _require_names(cells: Cells, what: str) -> None:
    absent = np.flatnonzero(cells.among(NAMELESS))
    if len(absent):
        raise cells.error(absent[0], f"the {what} is missing")
    require_short(cells, what)


def require_short(cells: Cells, what: str) -> None:
    long = pc.greater(pc.utf8_length(cells.texts), LONGEST)
    odd = np.flatnonzero(pc.or_(long, pc.match_substring(cells.texts, "\0")).to_numpy(zero_copy_only=False))
    if len(odd):
        text = cells.text(odd[0])
        why = f"has {len(text):,} characters, more than {LONGEST}" if len(text) > LONGEST else "holds the character NUL"
        raise cells.error(odd[0], f"the {what} {shown(text)} {why}")
