"""A progress bar for long runs, on request."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[[int, dict[str, Any]], None]


@contextlib.contextmanager
def bar(show: bool, title: str, total: int, done: int = 0) -> Iterator[Report]:
    """Yields `report(step, latest)`, which moves the bar and shows the latest metrics; without `show`, nothing happens."""
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
        task = progress.add_task(title, total=total, completed=done, latest="")

        def report(step: int, latest: dict[str, Any]) -> None:
            shown = "  ".join(f"{name} {value:.4g}" for name, value in latest.items())
            progress.update(task, completed=step, latest=shown)

        yield report
