"""The command `wior`: what must be in place before anything else is imported.

The imports take a second, and Ctrl-C inside of them would end in a traceback, or be lost. Here a signal ends the
program at once, with one line; there is nothing to clean up yet. The commands themselves clean up: see
`wior.running.interruption`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any, NoReturn

ENDED = tuple(128 + getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def main() -> NoReturn:
    """The entry point."""
    for code in ENDED:
        if signal.getsignal(code - 128) is not signal.SIG_IGN:  # as under nohup
            signal.signal(code - 128, _end)
    from wior import cli

    try:
        cli.main()
    except SystemExit as ended:
        if isinstance(ended.code, int) and ended.code in ENDED:
            _leave(ended.code)
        raise
    sys.exit()


def _end(number: int, frame: Any) -> None:
    os.write(2, b"wior: interrupted\n")
    _leave(128 + number)


def _leave(code: int) -> NoReturn:
    """Without the interpreter's own ending, in which compiled computations that still run in threads of XLA crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
