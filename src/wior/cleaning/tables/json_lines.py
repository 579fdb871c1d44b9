"""JSON Lines: an object on each line, whose names are columns."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.errors import InputError, at
from wior.cleaning.tables.row_file import require_names
from wior.cleaning.tables.text_source import TextSource

ROWS_AT_ONCE = 1 << 14
BLANKS = re.compile(r"[ \t\r\n]*")
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


class JsonLinesFile:
    """Columns are the names of all objects; one that an object lacks is missing there."""

    kind = "table"

    def __init__(self, path: Path):
        self.path = path
        self._source = TextSource(path)
        self.suffix, self.notes = self._source.suffix, list(self._source.notes)
        names: dict[str, None] = {}
        starts, place = [], 0
        with self._source.opened() as file:
            for line in file:
                if line.strip(b"\xef\xbb\xbf \t\r\n"):
                    starts.append(place)
                    names.update(dict.fromkeys(self._object(line, len(starts))))
                place += len(line)
        self._starts = np.array(starts, np.int64)
        self.rows = len(starts)
        self.names = list(names)
        if not self.rows:
            raise InputError(f"{path} is empty")
        require_names(path, self.names)

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        start = 0
        for lines in _batched(self._lines()):
            found = [self._object(line, start + row) for row, line in enumerate(lines, 1)]
            yield {name: Cells(self.path, name, start, _array([one.get(name) for one in found])) for name in names}
            start += len(lines)

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        found = []
        with self._source.opened() as file:
            for place in places.tolist():
                file.seek(self._starts[place])
                one = self._object(file.readline(), place + 1)
                found.append([_text(one.get(name)) or "" for name in names])
        return found

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        with self._source.written(path) as out:
            for place, line in enumerate(self._lines()):
                if not keep[place]:
                    continue
                if place in changes:
                    line = _with_value(line.decode(), label, changes[place]).encode()
                out.write(line if line.endswith(b"\n") else line + b"\n")

    def _lines(self) -> Iterator[bytes]:
        with self._source.opened() as file:
            for line in file:
                if line.strip(b"\xef\xbb\xbf \t\r\n"):
                    yield line

    def _object(self, line: bytes, row: int) -> dict[str, Any]:
        try:
            found = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{at(self.path, row)}: it is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise InputError(f"{at(self.path, row)}: it must be an object, as {{...}}")
        return found


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)


def _array(values: Sequence[Any]) -> pa.Array:
    return pa.array([_text(value) for value in values], pa.string())


def _with_value(line: str, name: str, text: str) -> str:
    """The line with another value under a name, and every other letter as it was."""
    decoder = json.JSONDecoder()
    place, found = BLANKS.match(line, line.index("{") + 1).end(), (0, 0)  # type: ignore[union-attr]
    while line[place] != "}":
        key, place = decoder.raw_decode(line, place)
        start = BLANKS.match(line, line.index(":", place) + 1).end()  # type: ignore[union-attr]
        _, place = decoder.raw_decode(line, start)
        if key == name:
            found = start, place
        place = BLANKS.match(line, place).end()  # type: ignore[union-attr]
        if line[place] == ",":
            place = BLANKS.match(line, place + 1).end()  # type: ignore[union-attr]
    return line[: found[0]] + _as(json.loads(line[slice(*found)]), text) + line[found[1] :]


def _as(old: Any, text: str) -> str:
    """A new label as JSON, of the type that the old one has if it can be."""
    number = isinstance(old, (int, float)) and not isinstance(old, bool) and NUMBER.fullmatch(text)
    return (
        text
        if number or (isinstance(old, bool) and text in ("true", "false"))
        else json.dumps(text, ensure_ascii=False)
    )


def _batched(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(itertools.islice(lines, ROWS_AT_ONCE)):
        yield batch
