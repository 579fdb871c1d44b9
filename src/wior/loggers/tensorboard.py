"""Records as event files of TensorBoard, through tensorboardX."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wior.loggers.extras import imported
from wior.loggers.logger import Logger, Record


class TensorBoard(Logger):
    """Writes each number of a record as a scalar for TensorBoard, along the steps.

    It needs `pip install 'wior[loggers]'`, which brings tensorboardX. A run that resumes tells TensorBoard to hide the
    steps that it makes again.

    Parameters
    ----------
    folder : str or pathlib.Path
        The folder of the run, below the one that `tensorboard --logdir` shows.

    Examples
    --------
    >>> import wior
    >>> log = wior.loggers.TensorBoard("logs/first")  # doctest: +SKIP
    >>> wior.solve(problem, method, x0, y0, steps=1000, loggers=[log])  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path):
        if not isinstance(folder, (str, Path)):
            raise TypeError(f"folder must be a path, got {folder!r} of type {type(folder).__name__}")
        self.folder = Path(folder)
        self._package = imported("tensorboardX", "TensorBoard")
        self._writer: Any = None

    def begin(self, columns: Sequence[str], first: int, earlier: Sequence[Record]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        again = int(earlier[-1]["step"]) + 1 if earlier else first
        # two files of one second would have one name, and the second would replace the first
        suffix = f".{again:012d}-{uuid.uuid4().hex[:8]}"
        self._writer = self._package.SummaryWriter(str(self.folder), purge_step=again or None, filename_suffix=suffix)

    def record(self, record: Record) -> None:
        for name, value in record.items():
            if name != "step":
                self._writer.add_scalar(name, value, int(record["step"]))
        self._writer.flush()

    def end(self, stopped_by: str) -> None:
        self._writer.close()
