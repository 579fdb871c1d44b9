"""Output folders that appear whole or not at all, and can be resumed after an interruption.

Work in progress lies beside the folder, under a hidden name. The finished pieces of an interrupted run stay there. The
folder gets its name only when everything is written. A folder that holds something else is never touched.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wior.saving.checkpoint import Checkpoint
from wior.saving.whole import beside, make_folder, naming, put_in_place, remove, whole, write_arrays, write_json

CONFIG = "config.json"
SUMMARY = "summary.json"
OLD_DEMO = {SUMMARY, "curves.csv", "comparison.png"}  # what `wior demo` wrote before it had a configuration
PIECES = "pieces"
CHECKPOINTS = "checkpoints"
SECONDS_BETWEEN_SAVES = 120.0

Arrays = dict[str, np.ndarray]
# the part of the configuration in which two halves of one run may differ
MACHINE = ("jax", "device", "machine")


class RunFolder:
    """The folder of one run: its pieces while it works, its files when it is done."""

    def __init__(self, out: Path, config: Mapping[str, Any], resume: bool = False):
        self.path = out.expanduser().resolve()
        self.config = json.loads(json.dumps(config))
        refuse_what_is_not_ours(self.path, made_by_wior)
        self.work = work_folder(out)
        self._remove_if_nothing_is_done()
        if self.work.exists():
            if not resume:
                raise FileExistsError(
                    f"{self.path} has an unfinished run; resume it with --resume, or discard it by deleting {self.work}"
                )
            self._check_same_run()
        with self.in_use():
            for folder in (PIECES, CHECKPOINTS):
                make_folder(self.work / folder, self.path)
            write_json(self.work / CONFIG, self.config)

    def piece(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """The arrays that `make` returns, or those that it returned before the run was interrupted."""
        if self.has(name):
            return read_piece(self.work, name)
        arrays = make()
        self._refuse_if_taken_over()
        write_arrays(piece_path(self.work, name), arrays)
        remove(checkpoint_path(self.work, name))
        return arrays

    def has(self, name: str) -> bool:
        return piece_path(self.work, name).exists()

    def checkpoint(self, name: str) -> Checkpoint | None:
        return piece_checkpoint(self.work, name)

    def finish(self) -> None:
        """Gives the folder its name; its pieces are in the history by now."""
        self._refuse_if_taken_over()
        refuse_what_is_not_ours(self.path, made_by_wior)
        # the pieces go last: where the folder cannot get its name they are not to be made again
        aside = beside(self.path, "pieces")
        (self.work / PIECES).rename(aside)
        remove(self.work / CHECKPOINTS)
        try:
            put_in_place(self.work, self.path)
        except BaseException:
            aside.rename(self.work / PIECES)
            raise
        remove(aside)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Where the work ends before any of it is done, nothing is left behind; errors name the folder."""
        try:
            with naming(self.path, self.work):
                yield
        except BaseException:
            self._remove_if_nothing_is_done()
            raise

    def _remove_if_nothing_is_done(self) -> None:
        pieces, saves = (self.work / PIECES).glob("*.npz"), (self.work / CHECKPOINTS).rglob("*")
        done = (self.work / SUMMARY).exists() or any(pieces) or any(path.name.isdigit() for path in saves)
        if not done:  # a save of a checkpoint is named by its step
            remove(self.work)

    def _refuse_if_taken_over(self) -> None:
        """Raises where another run into the folder was begun while this one had nothing done, and took its place."""
        if self._saved_config() != self.config:
            raise FileExistsError(
                f"another run into {self.path} was begun in the meantime; give each run its own folder"
            )

    def _saved_config(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.work / CONFIG).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    def _check_same_run(self) -> None:
        before = self._saved_config()
        self.config |= {key: before[key] for key in MACHINE if key in before}
        differing = sorted(key for key in before.keys() | self.config.keys() if before.get(key) != self.config.get(key))
        if differing:
            raise ValueError(
                f"the unfinished run in {self.work} is another one (it differs in {', '.join(differing)}); "
                "resume it with its own options, or delete it"
            )


def work_folder(out: Path) -> Path:
    """Where the work on the folder `out` lies until it is finished."""
    path = out.expanduser().resolve()
    return path.with_name(f".{path.name}-unfinished")


def piece_path(work: Path, name: str) -> Path:
    return work / PIECES / f"{_as_file_name(name)}.npz"


def read_piece(work: Path, name: str) -> Arrays:
    with np.load(piece_path(work, name), allow_pickle=False) as saved:
        return {key: saved[key] for key in saved.files}


def checkpoint_path(work: Path, name: str) -> Path:
    return work / CHECKPOINTS / _as_file_name(name)


def piece_checkpoint(work: Path, name: str) -> Checkpoint | None:
    """Where a long piece saves itself, now and then; nowhere on a machine without orbax."""
    if importlib.util.find_spec("orbax") is None:
        return None
    # the end is in the piece itself
    return Checkpoint(checkpoint_path(work, name), every_seconds=SECONDS_BETWEEN_SAVES, keep=1, at_end=False)


def whole_folder(path: Path, is_ours: Callable[[Path], bool]) -> contextlib.AbstractContextManager[Path]:
    """A folder to write in that becomes `path` when all is written and disappears when something fails."""
    refuse = functools.partial(refuse_what_is_not_ours, is_ours=is_ours)
    return whole(path.expanduser().resolve(), folder=True, refuse=refuse)


def refuse_what_is_not_ours(path: Path, is_ours: Callable[[Path], bool]) -> None:
    """Raises `FileExistsError` where something other than an earlier run would be lost."""
    if path == Path.cwd():
        raise FileExistsError(f"{path} is the current folder; give another one for the output")
    if not path.exists():
        return
    if not path.is_dir():
        raise FileExistsError(f"{path} is a file; give a folder for the output")
    if any(path.iterdir()) and not is_ours(path):
        raise FileExistsError(
            f"{path} holds something other than an earlier run and was left as it is; give another folder"
        )


def made_by_wior(path: Path) -> bool:
    """Whether a folder is one of ours, with nothing of the user's added to it."""
    try:
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        names = {entry.name for entry in path.iterdir()}
        if summary["made_by"] == "wior demo" and names <= OLD_DEMO:
            return True
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        return str(config["made_by"]).startswith("wior ") and names <= {CONFIG, *summary["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _as_file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()
