"""Ctrl-C during a run: held back until the block of steps ends, so that the run can save and hand over what it has reached."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a run.

    Attributes
    ----------
    result : Result or SweepResult
        What the run had reached: x, y, the state and the history so far.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem, x0, y0 = wior.Bilevel(outer, inner, rows, rows), jnp.zeros(()), jnp.zeros(3)
    >>> def pressed(step, latest):
    ...     raise KeyboardInterrupt  # what Ctrl-C does
    >>> try:
    ...     wior.solve(problem, algorithm, x0, y0, batch_size=8, steps=20, progress=pressed)
    ... except wior.Interrupted as ctrl_c:
    ...     print(0 < ctrl_c.result.steps < 20)
    True
    """

    def __init__(self, message: str, result: Any):
        super().__init__(message)
        self.result = result


class Interrupt:
    """Whether Ctrl-C was pressed."""

    asked = False


_here: Interrupt | None = None  # of the run in progress; a run inside its metrics shares it


@contextlib.contextmanager
def held_back() -> Iterator[Interrupt]:
    """Holds back the first Ctrl-C, for the run to notice between blocks; the second one ends at once.

    A handler of the caller's own stays, and threads other than the main one get no signals.
    """
    global _here
    if _here is not None:
        yield _here
        return
    interrupt = Interrupt()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupt
        return

    def note(number: int, frame: Any) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True

    _here = interrupt
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _here = None
