"""Records in a run of Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wior.loggers.extras import imported
from wior.loggers.logger import Logger, Record


class WandB(Logger):
    """Logs each record to Weights & Biases, along the steps.

    It needs `pip install 'wior[loggers]'`. To have a resumed run continue the same one there, give `id=` a name of your
    own and `resume="allow"`; steps that the run there has are not logged again.

    Parameters
    ----------
    project : str
        The project there.
    **options
        What else `wandb.init` takes: `name`, `config`, `id`, `resume`, `mode`, ...

    Examples
    --------
    >>> import wior
    >>> log = wior.loggers.WandB("bilevel", name="first")  # doctest: +SKIP
    >>> wior.solve(problem, method, x0, y0, steps=1000, loggers=[log])  # doctest: +SKIP
    """

    def __init__(self, project: str, **options: Any):
        self._options = {"project": project, **options}
        self._package = imported("wandb", "WandB")
        self._run: Any = None
        self._next = 0

    def begin(self, columns: Sequence[str], first: int, earlier: Sequence[Record]) -> None:
        self._run = self._package.init(**self._options)
        self._next = int(self._run.step)  # above 0 where it resumes
        for record in earlier:
            self.record(record)

    def record(self, record: Record) -> None:
        step = int(record["step"])
        if step >= self._next:
            self._run.log({name: value for name, value in record.items() if name != "step"}, step=step)
            self._next = step + 1

    def end(self, stopped_by: str) -> None:
        self._run.summary["stopped_by"] = stopped_by
        self._run.finish(exit_code=int(stopped_by in ("error", "divergence")))
