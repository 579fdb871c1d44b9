"""Records as JSON Lines."""

from __future__ import annotations

import json
import math

from wior.loggers.line_file import LineFile
from wior.loggers.logger import Record


class JsonLines(LineFile):
    """Writes each record as a line of JSON; a number that is not finite becomes null.

    A line is appended whole or not at all. A run that resumes, from a checkpoint or by `state`, continues the file and
    repeats no step; one that begins anew keeps the file of an earlier run beside it, with `.old` at its end (or
    `.old2`, ... where that is taken). A full disk is a warning: the run continues, and what was not written follows as
    soon as there is space.

    Parameters
    ----------
    path : str or pathlib.Path
        The file. Its folder is made where it does not exist.

    Examples
    --------
    >>> import json, pathlib, tempfile, jax.numpy as jnp, numpy as np, wior
    >>> problem = wior.Minimax(lambda x, y, batch: jnp.mean((x - batch) ** 2 - (y - x) ** 2), np.arange(8.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = wior.loggers.JsonLines(f"{folder}/log.jsonl")
    ...     options = dict(batch_size=4, steps=4, record_every=2, loggers=[log])
    ...     result = wior.solve(problem, wior.WiORMinimax(0.1, 0.1), 0.0, 0.0, **options)
    ...     [json.loads(line)["step"] for line in log.path.read_text().splitlines()]
    [0, 2, 4]
    """

    def line(self, record: Record) -> bytes:
        finite = {name: value if math.isfinite(value) else None for name, value in record.items()}
        return (json.dumps(finite, ensure_ascii=False) + "\n").encode()

    def step_of(self, line: bytes) -> int:
        return int(json.loads(line)["step"])
