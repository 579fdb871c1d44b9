"""Files and folders that appear whole or not at all, and never in the place of another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from wior.cleaning.tables.errors import InputError
from wior.saving.whole import whole


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; it gets its name when all is written and goes when something fails."""
    try:
        with whole(path, refuse=refuse_existing) as unfinished:
            yield unfinished
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}" if error.strerror else str(error)) from error


def refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise InputError(f"{path} is there already and was left as it is; give another name for the output")
