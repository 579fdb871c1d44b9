"""Ctrl-C during a run.

Held back until the block of steps ends, so that the run can save and hand over what it has reached.

A program may also have other signals act like Ctrl-C (`as_ctrl_c`), so that what is unfinished is removed whichever
ends it.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a run.

    Parameters
    ----------
    message : str
        Where the run ended, and how to resume it.
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
        self.message, self.result = message, result


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
    before = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or before not in _raising:
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
        signal.signal(signal.SIGINT, before)
        _here = None
        if interrupt.asked and not _unwinding():  # the run had ended, or ends by an error that its caller may expect
            raise KeyboardInterrupt


class Ending:
    """Which of the signals ends the program, if any."""

    number: int | None = None

    @property
    def code(self) -> int:
        """The exit code of a program that a signal ends, of Ctrl-C where it is not known."""
        return 128 + (self.number or signal.SIGINT)


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
AGAIN = 0.1  # seconds
# of functions in which Python prints an exception and goes on
LOST_IN = ("__del__", "_xla_gc_callback")

_raising: list[Any] = [signal.default_int_handler]  # handlers that only raise KeyboardInterrupt


@contextlib.contextmanager
def as_ctrl_c() -> Iterator[Ending]:
    """SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does, and none of them is lost.

    An exception that is raised in an import, or in a callback of the garbage collector, may become another one or
    disappear. So a signal waits there, and is raised again until it ends the block. A signal that is ignored, as under
    nohup, stays ignored.
    """
    ending = Ending()
    if not _in_main_thread():
        yield ending
        return

    def deliver(number: int, frame: FrameType | None) -> None:
        if number in SIGNALS and ending.number is None:
            ending.number = number
        if ending.number is None:
            return
        now = signal.getsignal(signal.SIGINT)
        if now in (deliver, signal.SIG_IGN, signal.SIG_DFL, None):
            _again()
            if not _unwinding() and not _is_lost_in(frame):
                raise KeyboardInterrupt
        else:  # a run holds it back
            now(number, frame)  # type: ignore[operator]

    taken: dict[int, Any] = {}
    for number in [*SIGNALS, *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else [])]:
        if signal.getsignal(number) is not signal.SIG_IGN:
            taken[number] = signal.signal(number, deliver)
    _raising.append(deliver)
    try:
        yield ending
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, before in taken.items():
            signal.signal(number, before)
        _raising.remove(deliver)


def _again() -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, AGAIN)


def _unwinding() -> bool:
    """Whether an interruption is being raised: the functions on its way clean up, and must not be disturbed."""
    return comes_from_interruption(sys.exc_info()[1])


def comes_from_interruption(error: BaseException | None) -> bool:
    """Whether an error is a `KeyboardInterrupt` or was raised because of one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_lost_in(frame: FrameType | None) -> bool:
    called_by_gc = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        code = frame.f_code
        if code.co_name in LOST_IN or code in called_by_gc:
            return True
        if code.co_filename.startswith("<frozen importlib") or code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
