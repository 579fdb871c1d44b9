"""A file or a folder appears whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write a file or a folder to.

    It takes the place of `path` when all is written, and goes when something fails. Folders on the way are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}.part")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    with whole(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """An .npz file."""
    with whole(path) as unfinished, unfinished.open("xb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
