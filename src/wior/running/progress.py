"""Progress of what takes long, on request: a bar on stderr, or a line now and then where stderr is no terminal.

What a program prints on stdout stays apart, so that it can be piped.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[int, dict[str, Any]], None]  # told the step that a run has reached and its latest metrics
Show = Callable[[float, float | None, str], None]  # told how much is done, of how much, and what that is

SECONDS_BETWEEN_LINES = 30.0


@contextlib.contextmanager
def bar(show: bool | Progress, title: str, total: int) -> Iterator[Progress]:
    """Yields `progress(step, latest)` of a run of `total` steps.

    Where `show` is such a function itself, it is told instead.
    """
    if callable(show):
        yield show
        return
    with _shown(show, title, str, stays=True) as at:
        yield lambda step, latest: at(step, total, f"{title}  {_numbers(latest)}")


@contextlib.contextmanager
def pieces(show: bool, title: str, total: int) -> Iterator[Callable[[str, int], Progress]]:
    """Yields `begin(name, steps)`, told before each of `total` pieces of work.

    It returns the progress within that piece.
    """
    with _shown(show, title, None) as at:
        done = -1

        def begin(name: str, steps: int) -> Progress:
            nonlocal done
            done += 1
            before, place = done, f"{title} {done + 1}/{total}: {name}"
            at(before, total, place)
            return lambda step, latest: at(
                before + step / max(steps, 1), total, f"{place}  {_numbers(dict(list(latest.items())[:2]))}"
            )

        yield begin


@contextlib.contextmanager
def counter(show: bool, title: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function that is told how much of something is done, and of how much (`None`: not known)."""
    with _shown(show, title, _megabytes if in_bytes else str) as at:
        yield lambda done, total: at(done, total, title)


@contextlib.contextmanager
def _shown(show: bool, title: str, amount: Callable[[Any], str] | None, *, stays: bool = False) -> Iterator[Show]:
    """A bar or lines; amounts are shown in percent, or as `amount` writes them."""
    if not show:
        yield lambda done, total, what: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        with _in_lines(amount, stays) as at:
            yield at
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        BarColumn(20),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=not stays, speed_estimate_period=600) as display:
        task = display.add_task(title, total=None, amount="")
        yield lambda done, total, what: display.update(
            task, completed=done, total=total, description=what, amount=_amount(amount, done, total)
        )


@contextlib.contextmanager
def _in_lines(amount: Callable[[Any], str] | None, stays: bool) -> Iterator[Show]:
    """A plain line now and then, and what was told last at the end where a bar would stay."""
    begun = said = time.monotonic()
    last = ""

    def at(done: float, total: float | None, what: str) -> None:
        nonlocal said, last
        now = time.monotonic()
        left = f", {_duration((now - begun) * (total - done) / done)} left" if total and done else ""
        last = f"{what.strip()}: {_amount(amount, done, total)} in {_duration(now - begun)}{left}"
        if now - said >= SECONDS_BETWEEN_LINES:
            print(last, file=sys.stderr, flush=True)
            said, last = now, ""

    yield at
    if stays and last:
        print(last, file=sys.stderr, flush=True)


def _amount(amount: Callable[[Any], str] | None, done: float, total: float | None) -> str:
    if amount is None:
        return f"{done / total:.0%}" if total else ""
    return amount(done) + ("" if total is None else f"/{amount(total)}")


def _megabytes(number: float) -> str:
    return f"{number / 1e6:,.1f} MB"


def _duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def _numbers(latest: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in latest.items())
