"""Records and cells of delimited text, as bytes.

A cell that begins with a quotation mark goes on to the closing one, "" inside is one mark, and what follows up to the
delimiter belongs to it as it stands; a mark elsewhere is a letter. So Python's csv module and Arrow read, too.
"""

from __future__ import annotations

import re

import numpy as np

QUOTE, LINE_FEED, CARRIAGE_RETURN = b'"\n\r'
INSIDE = rb'[^"]*+(?:""[^"]*+)*+'
IN_QUOTES = re.compile(rb'"(%s)"(.*)' % INSIDE, re.DOTALL)


DELIMITERS = (b",", b";", b"\t", b"|")
RECORDS = 50


def delimiter_of(text: bytes, usual: bytes) -> bytes:
    """What separates the cells of a text, or of its beginning: the usual one where all records have equally many cells,
    else the one by which they have, and most.
    """
    cells = {delimiter: _cells_of_each(text, delimiter) for delimiter in (usual, *DELIMITERS)}
    if cells[usual] > 1:
        return usual
    best = max(cells, key=lambda delimiter: cells[delimiter])
    return best if cells[best] > 1 else usual


def _cells_of_each(text: bytes, delimiter: bytes) -> int:
    """How many cells every record has; 0 where they have not equally many."""
    own = Delimited(delimiter)
    ends = own.record_ends(text, final=False)[:RECORDS].tolist()
    ends = ends or own.record_ends(text, final=True)[:RECORDS].tolist()
    records = [text[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]
    counts = {own.count(record) for record in records if record.strip(b"\r\n")}
    return counts.pop() if len(counts) == 1 else 0


class Delimited:
    """Text of one delimiter, a byte."""

    def __init__(self, delimiter: bytes):
        self.delimiter = delimiter
        cell = rb'(?:"%s"|(?!"))[^%s\r\n]*+' % (INSIDE, re.escape(delimiter))
        self._cell = re.compile(cell)
        self._special = re.compile(rb'["\r\n%s]' % re.escape(delimiter))
        self._record = re.compile(cell + rb"(?:%s%s)*+(?:\r\n|\r|\n|\Z)" % (re.escape(delimiter), cell))

    def record_ends(self, text: bytes, *, final: bool) -> np.ndarray:
        """Where the whole records in `text` end, behind their line breaks; at its end a final one needs no break.

        A text that ends inside quotation marks has an end less.
        """
        letters = np.frombuffer(text, np.uint8)
        breaks = _line_breaks(text, letters)
        if b'"' in text:
            quotes = np.flatnonzero(letters == QUOTE)
            if not self._only_around_cells(letters, quotes):
                return self._record_ends_one_by_one(text, final=final)
            breaks = breaks[np.searchsorted(quotes, breaks) % 2 == 0]
            closed = len(quotes) % 2 == 0
        else:
            closed = True
        ends = breaks + 1
        last = ends[-1] if len(ends) else 0
        if final and closed and last < len(text):
            return np.append(ends, len(text))
        if not final and last == len(text) and text.endswith(b"\r"):
            return ends[:-1]  # a line feed may follow
        return ends

    def cells(self, record: bytes) -> list[str]:
        """Line breaks behind the record are no part of it."""
        if b'"' not in record:
            return [cell.decode() for cell in record.rstrip(b"\r\n").split(self.delimiter)]
        return [_content(record[start:stop]).decode() for start, stop in self._spans(record)]

    def count(self, record: bytes) -> int:
        return record.count(self.delimiter) + 1 if b'"' not in record else len(self._spans(record))

    def with_cell(self, record: bytes, place: int, text: str) -> bytes:
        """The record with one cell replaced and every other byte as it was."""
        start, stop = self._spans(record)[place]
        return record[:start] + self.quoted(text) + record[stop:]

    def quoted(self, text: str) -> bytes:
        cell = text.encode()
        return b'"%s"' % cell.replace(b'"', b'""') if self._special.search(cell) else cell

    def _only_around_cells(self, letters: np.ndarray, quotes: np.ndarray) -> bool:
        """Whether counting quotation marks tells what is inside: every second one must stand where a cell begins, or
        double the one before.
        """
        before = letters[quotes[::2] - 1]
        starts = np.isin(before, [ord(self.delimiter), LINE_FEED, CARRIAGE_RETURN, QUOTE])
        return bool((starts | (quotes[::2] == 0)).all())

    def _record_ends_one_by_one(self, text: bytes, *, final: bool) -> np.ndarray:
        ends, stop = [], 0
        while stop < len(text) and (match := self._record.match(text, stop)):
            stop = match.end()
            ends.append(stop)
        if not final and ends and stop == len(text) and not text.endswith(b"\n"):
            ends.pop()
        return np.array(ends, np.int64)

    def _spans(self, record: bytes) -> list[tuple[int, int]]:
        spans, start = [], 0
        while True:
            match = self._cell.match(record, start)
            assert match is not None  # records are whole
            spans.append(match.span())
            if record[match.end() : match.end() + 1] != self.delimiter:
                return spans
            start = match.end() + 1


def _line_breaks(text: bytes, letters: np.ndarray) -> np.ndarray:
    """Places of the last letters of line breaks."""
    feeds = letters == LINE_FEED
    if b"\r" in text:
        feeds[:-1] |= (letters[:-1] == CARRIAGE_RETURN) & (letters[1:] != LINE_FEED)
        feeds[-1:] |= letters[-1:] == CARRIAGE_RETURN
    return np.flatnonzero(feeds)


def _content(cell: bytes) -> bytes:
    match = IN_QUOTES.match(cell)
    return cell if match is None else match[1].replace(b'""', b'"') + match[2]
