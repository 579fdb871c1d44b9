"""Files and folders that appear whole or not at all, and never in the place of another."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from wior.cleaning.tables.errors import InputError


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; it gets its name when all is written and goes when something fails."""
    refuse_existing(path)
    unfinished = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        refuse_existing(path)
        os.rename(unfinished, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)


def refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise InputError(f"{path} is there already and was left as it is; give another name for the output")
