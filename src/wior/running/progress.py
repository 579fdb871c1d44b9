"""Progress of long runs, on request: a bar, or a function of the caller's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[[int, dict[str, Any]], None]


@contextlib.contextmanager
def bar(show: bool | Report, title: str, total: int) -> Iterator[Report]:
    """Yields `report(step, latest)`, which moves the bar and shows the latest metrics; without `show`, nothing happens.

    Where `show` is such a function itself, it is told in place of a bar.
    """
    if callable(show):
        yield show
        return
    if not show:
        yield lambda step, latest: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[latest]}"),
    )
    # on stderr, so that what a program prints can be piped
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, latest="")

        def report(step: int, latest: dict[str, Any]) -> None:
            shown = "  ".join(f"{name} {value:.4g}" for name, value in latest.items())
            progress.update(task, completed=step, latest=shown)

        yield report


@contextlib.contextmanager
def pieces(show: bool, title: str, total: int) -> Iterator[Callable[[str, int], Report]]:
    """Yields `begin(name, steps)`, told before each of `total` pieces of work; it returns the report of the steps of that piece.

    One line shows how much of the whole is done and how long the rest will take, another the present piece.
    """
    if not show:
        yield lambda name, steps: lambda step, latest: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600) as progress:
        whole = progress.add_task(title, total=total)
        done = -1

        def begin(name: str, steps: int) -> Report:
            nonlocal done
            done += 1
            place, at = f"{title} {done + 1}/{total}: {name}", done
            progress.update(whole, completed=at, description=place)

            def report(step: int, latest: dict[str, Any]) -> None:
                shown = "  ".join(f"{name} {value:.4g}" for name, value in list(latest.items())[:2])
                progress.update(whole, completed=at + step / max(steps, 1), description=f"{place}  {shown}")

            return report

        yield begin
        progress.update(whole, completed=total)
