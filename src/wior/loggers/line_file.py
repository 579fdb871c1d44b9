"""A file with a line for each record: appended whole or not at all, each record once, whatever ends and resumes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from wior.loggers.logger import Logger, Record
from wior.saving.whole import make_folder, naming, whole

OLD = ".old"

_system_write = os.write  # which may write a part


class LineFile(Logger):
    """What loggers that write lines share."""

    def __init__(self, path: str | Path):
        if not isinstance(path, (str, Path)):
            raise TypeError(f"path must be the path of a file, got {path!r} of type {type(path).__name__}")
        self.path = Path(path)
        if self.path.is_dir():
            raise IsADirectoryError(f"path must be the path of a file; {str(path)!r} is a folder")
        self._waiting: list[bytes] = []  # lines that could not be written yet

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def header(self, columns: Sequence[str]) -> list[bytes]:
        """The lines before the records."""
        return []

    def line(self, record: Record) -> bytes:
        """A record as a line of the file."""
        raise NotImplementedError

    def step_of(self, line: bytes) -> int:
        """The step of a line of this file; raises `ValueError` where it is none."""
        raise NotImplementedError

    def begin(self, columns: Sequence[str], first: int, earlier: Sequence[Record]) -> None:
        self._waiting = []
        header = self.header(columns)
        make_folder(self.path.parent, self.path)
        there = self.path.read_bytes() if self.path.exists() else b""
        continues = bool(first or earlier)
        kept = self._before(first, there, header) if continues else []
        wanted = b"".join([*header, *kept, *map(self.line, earlier)])
        if there == wanted and self.path.exists():
            return
        if there and not continues:  # another run's
            os.replace(self.path, self._old())
        with whole(self.path) as unfinished:
            unfinished.write_bytes(wanted)

    def _old(self) -> Path:
        """The name of the earlier file, which no file has: what was kept once is not lost later."""
        names = itertools.chain([OLD], (f"{OLD}{number}" for number in itertools.count(2)))
        return next(place for name in names if not (place := self.path.with_name(self.path.name + name)).exists())

    def record(self, record: Record) -> None:
        self._waiting.append(self.line(record))
        text = b"".join(self._waiting)
        with naming(self.path, self.path):
            _append(self.path, text)
        self._waiting = []

    def end(self, stopped_by: str) -> None:
        if self._waiting:
            _append(self.path, b"".join(self._waiting))

    def _before(self, first: int, there: bytes, header: list[bytes]) -> list[bytes]:
        """The lines of the steps before `first`; one that was not finished is none."""
        lines = there.splitlines(keepends=True)
        if there and lines[: len(header)] != header:
            raise ValueError(
                f"{str(self.path)!r} has other columns than this run ({_first(lines)}); give another path for the log"
            )
        whole_ones = [line for line in lines[len(header) :] if line.endswith(b"\n")]
        return [line for line in whole_ones if self._is_before(first, line)]

    def _is_before(self, first: int, line: bytes) -> bool:
        try:
            return self.step_of(line) < first
        except (ValueError, KeyError, TypeError, IndexError):
            raise ValueError(
                f"{str(self.path)!r} has a line that is no record ({_first([line])}); give another path for the log"
            ) from None


def _append(path: Path, text: bytes) -> None:
    """Adds all of a text to a file, or nothing."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        before = os.fstat(file).st_size
        try:
            while text:
                text = text[_system_write(file, text) :]
        except OSError:
            os.ftruncate(file, before)
            raise
    finally:
        os.close(file)


def _first(lines: list[bytes]) -> str:
    return repr(lines[0].decode(errors="replace").rstrip()[:80])
