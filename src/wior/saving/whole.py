"""A file or a folder appears whole or not at all.

What is written lies beside its place under a hidden name, and is renamed when it is complete. When something fails, or
a signal ends the program, it is removed again, together with the folders that were made for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np


def _anything(path: Path) -> None:
    """What lies in the place is replaced, whatever it is."""


@contextlib.contextmanager
def whole(path: Path, *, folder: bool = False, refuse: Callable[[Path], None] = _anything) -> Iterator[Path]:
    """Yields a path beside `path`, to write a file to or, with `folder`, files into; then it takes the place of `path`.

    `refuse` is called before the work and after it, and raises where what lies in the place must stay.
    """
    refuse(path)
    unfinished = beside(path, "new")
    missing = [parent for parent in path.parents if not parent.exists()]  # the innermost first
    try:
        make_folder(unfinished if folder else path.parent, path)
        with naming(path, unfinished):
            yield unfinished
            refuse(path)
            put_in_place(unfinished, path)
    finally:
        remove(unfinished)
        with contextlib.suppress(OSError):  # of a folder that is not empty
            for parent in missing:
                parent.rmdir()


def put_in_place(unfinished: Path, path: Path) -> None:
    """Renames a finished file or folder to its name. If that fails, what had the name before gets it back."""
    if not unfinished.is_dir():
        os.replace(unfinished, path)
        return
    before = beside(path, "old")
    if path.exists():
        path.rename(before)
    try:
        unfinished.rename(path)
    except BaseException:
        if before.exists():
            before.rename(path)
        raise
    remove(before)


def beside(path: Path, what: str) -> Path:
    """A hidden name in the same folder that nobody else has."""
    return path.with_name(f".{path.name}-{what}-{uuid.uuid4().hex[:8]}")


def remove(path: Path) -> None:
    """A file or a folder, if it is there; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def make_folder(folder: Path, for_path: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{for_path} cannot be made: {error.strerror}") from error


@contextlib.contextmanager
def naming(path: Path, unfinished: Path) -> Iterator[None]:
    """An error of the system names `path` where it names no file, as on a full disk, or an unfinished one."""
    try:
        yield
    except OSError as error:
        place = error.filename and Path(os.fsdecode(error.filename))
        hidden = place and (place == unfinished or unfinished in place.parents)
        if error.errno is None or not (hidden or error.filename is None):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, value: Any) -> None:
    with whole(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """An .npz file."""
    with whole(path) as unfinished, unfinished.open("xb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
