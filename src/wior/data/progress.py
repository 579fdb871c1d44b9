"""A progress bar for what takes long: downloads and the decoding of images."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(show: bool, what: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function that is told how much is done, and of how much (`None`: not known)."""
    if not show:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(20), count, TimeRemainingColumn())
    # on stderr, so that what is printed on stdout can be piped
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
