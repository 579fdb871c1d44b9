"""CSV and TSV files.

The first look at a file finds where each row begins. So rows are read in pieces that end where a row ends (Arrow's own
pieces lose a letter where a line break in quotation marks lies across two of them), any row is found again at once, and
a copy keeps every byte of the cells that stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.delimited_text import CARRIAGE_RETURN, LINE_FEED, Delimited, delimiter_of
from wior.cleaning.tables.errors import InputError, at, counted
from wior.cleaning.tables.row_file import require_names, with_index
from wior.cleaning.tables.text_source import TextSource

PIECE = 8 << 20
SNIFFED = 1 << 16  # bytes in which the delimiter is looked for
LONGEST_ROW = 64 << 20  # beyond this a quotation mark was not closed
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class DelimitedFile:
    """A file with a header; its delimiter is the usual one, or another where that one does not fit."""

    kind = "table"

    def __init__(self, path: Path, usual: bytes = b","):
        self.path = path
        self._source = TextSource(path)
        self.suffix = self._source.suffix
        self.notes = list(self._source.notes)
        try:
            with self._source.opened() as file:
                delimiter = delimiter_of(file.read(SNIFFED).removeprefix(BYTE_ORDER_MARK), usual)
                self._text = Delimited(delimiter)
                file.seek(0)
                header, self._starts = self._look_through(file)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        if delimiter != usual:
            self.notes.append(f"{path}: its cells are separated by {delimiter.decode()!r}")
        self.names = with_index(self._text.cells(header))
        require_names(path, self.names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    @property
    def rows(self) -> int:
        return len(self._starts) - 1

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        wanted = {name: str(self._numbers[name]) for name in names}
        for first, content in self._pieces():
            columns = self._parsed(content, first, list(wanted.values()))
            comma = self._text.delimiter == b";"  # where the comma is not between cells, it is in numbers
            yield {name: Cells(self.path, name, first, columns[number], comma) for name, number in wanted.items()}

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        wanted = [self._numbers[name] for name in names]
        found = []
        with self._source.opened() as file:
            for start, stop in zip(self._starts[places].tolist(), self._starts[places + 1].tolist(), strict=True):
                file.seek(start)
                cells = self._text.cells(file.read(stop - start))
                found.append([cells[column] for column in wanted])
        return found

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        column = self._numbers[label]
        touched = ~keep
        touched[list(changes)] = True
        with self._source.opened() as file, self._source.written(path) as out:
            out.write(file.read(self._starts[0]))
            for first, content in self._pieces():
                done = 0
                for row in first + np.flatnonzero(touched[first : self._after(first)]):
                    start, stop = self._starts[row : row + 2] - self._starts[first]
                    out.write(content[done:start])
                    if keep[row]:
                        out.write(self._text.with_cell(content[start:stop], column, changes[int(row)]))
                    done = stop
                out.write(content[done:])

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        """Whole rows, some megabytes at a time, and the place of the first."""
        with self._source.opened() as file:
            file.seek(self._starts[0])
            first = 0
            while first < self.rows:
                after = self._after(first)
                yield first, file.read(self._starts[after] - self._starts[first])
                first = after

    def _after(self, first: int) -> int:
        """The end of the piece that begins with the row `first`."""
        within = np.searchsorted(self._starts, self._starts[first] + PIECE, side="right") - 1
        return int(max(within, first + 1))

    def _parsed(self, content: bytes, first: int, columns: list[str]) -> dict[str, pa.Array]:
        """The columns, named by their numbers, as strings."""
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(content),
                pyarrow.csv.ReadOptions(
                    column_names=[str(number) for number in range(len(self.names))], block_size=len(content) + 1
                ),
                pyarrow.csv.ParseOptions(delimiter=self._text.delimiter.decode(), newlines_in_values=True),
                pyarrow.csv.ConvertOptions(
                    include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), check_utf8=False
                ),
            )
        except pa.ArrowInvalid as error:
            self._require_as_many_cells(content, first)
            raise InputError(f"{at(self.path, first + 1)} and the rows behind it cannot be read: {error}") from error
        if table.num_rows != self._after(first) - first:
            raise InputError(f"{at(self.path, first + 1)} and the rows behind it cannot be told apart")
        return {column: table.column(column).combine_chunks() for column in columns}

    def _require_as_many_cells(self, content: bytes, first: int) -> None:
        starts = self._starts[first : self._after(first) + 1] - self._starts[first]
        for row, (start, stop) in enumerate(itertools.pairwise(starts), first + 1):
            cells = self._text.cells(content[start:stop])
            if len(cells) != len(self.names):
                raise InputError(
                    f"{at(self.path, row)}: it has {counted(len(cells), 'cell')}, the header {len(self.names)}"
                )

    def _look_through(self, file: BinaryIO) -> tuple[bytes, np.ndarray]:
        """The header, and where the rows begin, with the end of the last; checks that all is UTF-8."""
        left = file.read(len(BYTE_ORDER_MARK))
        position = 0
        if left == BYTE_ORDER_MARK:
            left, position = b"", len(BYTE_ORDER_MARK)
        header, found, rows = b"", [], -1  # the header is the first record, and no row
        while True:
            block = file.read(PIECE)
            text = left + block
            ends = self._text.record_ends(text, final=not block)
            starts = _without_empty_lines(text, np.append(0, ends)[: len(ends)])
            stop = int(ends[-1]) if len(ends) else 0
            self._require_utf8(text[:stop], rows, starts)
            if rows < 0 and len(starts):
                header = text[starts[0] : ends[np.searchsorted(ends, starts[0], side="right")]]
            found.append(position + starts)
            rows += len(starts)
            position, left = position + stop, text[stop:]
            if not block:
                break
            if len(left) > LONGEST_ROW:
                raise self._not_closed(rows + 1, f"is longer than {LONGEST_ROW >> 20} MB")
        if left:
            raise self._not_closed(rows + 1, "has no end")
        if rows < 1:
            raise InputError(f"{self.path} {'is empty' if rows < 0 else 'has a header and no rows'}")
        return header, np.append(np.concatenate(found)[1:], position)

    def _require_utf8(self, text: bytes, rows: int, starts: np.ndarray) -> None:
        """Of a text behind so many rows."""
        try:
            if not text.isascii():
                text.decode()
        except UnicodeDecodeError as error:
            row = rows + int(np.searchsorted(starts, error.start, side="right"))
            letter = text[error.start : error.start + 1].hex()
            raise InputError(f"{self._row(row)}: the byte {letter} is not UTF-8; save the file in UTF-8") from error

    def _not_closed(self, row: int, what: str) -> InputError:
        return InputError(f"{self._row(row)}: it {what}; a quotation mark in it is not closed")

    def _row(self, row: int) -> str:
        return at(self.path, row) if row else f"{self.path}, header"


def _without_empty_lines(text: bytes, starts: np.ndarray) -> np.ndarray:
    firsts = np.frombuffer(text, np.uint8)[starts]
    return starts[(firsts != LINE_FEED) & (firsts != CARRIAGE_RETURN)]
