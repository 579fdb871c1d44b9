"""Records as a table with commas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from wior.loggers.line_file import LineFile
from wior.loggers.logger import Record


class Csv(LineFile):
    """Writes each record as a row of a table, with a header.

    It resumes, and survives a full disk, as `JsonLines` does.

    Parameters
    ----------
    path : str or pathlib.Path
        The file. Its folder is made where it does not exist.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, numpy as np, wior
    >>> problem = wior.Minimax(lambda x, y, batch: jnp.mean((x - batch) ** 2 - (y - x) ** 2), np.arange(8.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = wior.loggers.Csv(f"{folder}/log.csv")
    ...     options = dict(batch_size=4, steps=4, record_every=2, loggers=[log])
    ...     result = wior.solve(problem, wior.WiORMinimax(0.1, 0.1), 0.0, 0.0, **options)
    ...     [row.split(",")[:2] for row in log.path.read_text().splitlines()]
    [['step', 'outer_passes'], ['0', '0.0'], ['2', '1.0'], ['4', '2.0']]
    """

    def __init__(self, path: str | Path):
        super().__init__(path)
        self._columns: Sequence[str] = ()

    def header(self, columns: Sequence[str]) -> list[bytes]:
        self._columns = columns
        return [_row(columns)]

    def line(self, record: Record) -> bytes:
        return _row(repr(record[name]) for name in self._columns)

    def step_of(self, line: bytes) -> int:
        return int(line.split(b",", 1)[0])


def _row(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([cell.replace("\n", " ") for cell in cells])
    return text.getvalue().encode()
