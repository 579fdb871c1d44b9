"""Checkpoints: everything that a run needs to resume, written whole or not at all. A folder belongs to one run.

orbax writes each save under a temporary name and renames it when it is complete. Beside the numbers lies a description
of the run (problem, losses, data, algorithm, orders, seed), and a folder whose description differs is refused with the
difference. Every array and the description have a checksum, so that a save is what was written or is not read. One run
at a time holds the folder. Nothing is unpickled: the files hold arrays and JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.devices.layout import in_pieces
from wior.problems.optimizers import is_optimizer
from wior.saving.code import of_code
from wior.saving.fingerprint import fingerprint, of_loss
from wior.saving.lock import FolderLock, InUse
from wior.saving.plain_keys import is_key, plain
from wior.streaming.sources import Streamed

Tree = Any
FORMAT = 3
UNFINISHED = "*.orbax-checkpoint-tmp*"  # what orbax calls a save that it writes
REMOVED = ".removed-"
PROGRAM = "function"  # how the description of a function begins


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is saved; the same call of `wior.solve` or `wior.sweep` resumes from there.

    Parameters
    ----------
    folder
        The folder of one run. It is made where it does not exist.
    every_seconds
        The least time between two saves. Where saves are slow they are made less often, and take no more than a
        fiftieth of the time.
    every_steps
        If given, the run is also saved at every multiple of this number of steps.
    keep
        How many saves stay; older ones are removed.
    at_end
        Whether the run is saved when it ends.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem, x0, y0 = wior.Bilevel(outer, inner, rows, rows), jnp.zeros(()), jnp.zeros(3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saves = wior.Checkpoint(folder, every_steps=10)
    ...     first = wior.solve(problem, algorithm, x0, y0, batch_size=8, steps=20, record_every=10, checkpoint=saves)
    ...     resumed = wior.solve(problem, algorithm, x0, y0, batch_size=8, steps=30, record_every=10, checkpoint=saves)
    >>> first.steps, resumed.steps, resumed.history["step"].tolist()
    (20, 30, [0, 10, 20, 30])
    """

    folder: str | Path
    every_seconds: float = 60.0
    every_steps: int | None = None
    keep: int = 2
    at_end: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, Path)):
            raise TypeError(f"checkpoint must be a path or a wior.Checkpoint, got {self.folder!r}")
        checks.positive_number("every_seconds", self.every_seconds, infinite=True)
        if self.every_steps is not None:
            checks.positive_integer("every_steps", self.every_steps)
        checks.positive_integer("keep", self.keep)


@dataclasses.dataclass
class Saved:
    """What a save holds: the carry's leaves, the history so far, and the counters that go with it."""

    step: int
    leaves: list[Any]  # arrays of the host, and those of the devices that are split among them
    history: dict[str, np.ndarray]
    about: dict[str, Any]


class SaveError(OSError):
    """A save could not be written; those before it are as they were."""


class Store:
    """A checkpoint folder in use by one run."""

    def __init__(self, checkpoint: Checkpoint, description: dict[str, Any]):
        self.checkpoint = checkpoint
        self.description = description
        self.folder = Path(checkpoint.folder).absolute()
        self._damaged: set[int] = set()
        self._while_open = contextlib.ExitStack()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".writable-{jax.process_index()}-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink(missing_ok=True)
            if jax.process_index() == 0:
                self._while_open.callback(FolderLock(self.folder).release)
        except InUse as error:
            raise ValueError(f"{self._named} {error}; give each run a folder of its own") from None
        except OSError as error:
            raise ValueError(
                f"{self._named} cannot be written ({error}); give a folder that can be created and written"
            ) from error
        self._while_open.enter_context(_silent_late_reads())
        self._remove_leftovers()
        import orbax.checkpoint as ocp  # takes seconds to import, and only runs with a checkpoint need it

        self._ocp = ocp
        self._writer = ocp.Checkpointer(ocp.CompositeCheckpointHandler())
        self._while_open.callback(self._writer.close)

    def save(self, saved: Saved) -> None:
        """Writes a save, then removes those that are too many.

        Raises `SaveError` where it cannot; the older ones stay then.
        """
        if saved.step in self._steps() and saved.step not in self._damaged:
            return
        try:
            self._write(saved)
        except SaveError:
            raise
        except Exception as error:  # whatever it is, the run is worth more than this save
            self._remove_leftovers()
            raise SaveError(
                f"{self._named} cannot be written at step {saved.step}: {_first_line(error)}; {self._kept()}"
            ) from error

    def has_saves(self) -> bool:
        return any(step not in self._damaged for step in self._steps())

    def _write(self, saved: Saved) -> None:
        leaves = {_name(i): leaf for i, leaf in enumerate(saved.leaves) if leaf.size}
        # what is split among devices is written by those that have it, and read by those that will
        split = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, jax.Array)}
        arrays = {name: leaf for name, leaf in leaves.items() if name not in split}
        arrays |= {f"history.{name}": values for name, values in saved.history.items()}
        about = {"format": FORMAT, "description": self.description, "split": sorted(split), **saved.about}
        about["arrays"] = {name: checksum(value) for name, value in arrays.items()}
        about["arrays"] |= {name: split_checksum(value) for name, value in split.items()}
        about["checksum"] = _text_checksum(about)
        args = self._ocp.args
        items = {"arrays": args.StandardSave(arrays), "about": args.JsonSave(about)}
        if split:
            items["split"] = args.StandardSave(split)
        try:
            if saved.step in self._damaged:
                self._remove(saved.step)
            with _silent_orbax():
                self._writer.save(self.folder / str(saved.step), args=args.Composite(**items))
        except Exception as error:  # of many kinds: where the disk is full tensorstore raises a ValueError
            _silence_late_failures()
            self._remove_leftovers()
            raise SaveError(
                f"{self._named} cannot be written at step {saved.step}: {self._reason(error, leaves)}; {self._kept()}"
            ) from error
        self._damaged.discard(saved.step)
        good = [step for step in self._steps() if step not in self._damaged]
        for step in [*self._damaged, *good[self.checkpoint.keep :]]:
            self._remove(step)

    def load(self, like: list[Any]) -> Saved | None:
        """The newest save that can be read, or `None` in a folder without one; `like` are the carry's leaves."""
        problems = []
        for step in self._steps():
            try:
                saved = self._read(step, like)
            except (AnotherRunError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - orbax and tensorstore raise many kinds for a damaged folder
                problems.append(f"the save at step {step} is damaged ({_first_line(error)})")
                self._damaged.add(step)
                continue
            if problems:
                warnings.warn(f"{self._named}: {'; '.join(problems)}; resuming from step {step}", stacklevel=3)
            return saved
        if problems:
            raise ValueError(
                f"{self._named} is damaged and holds no save that can be read "
                f"({'; '.join(problems)}); remove it to start again"
            )
        return None

    def close(self) -> None:
        self._while_open.close()

    @property
    def _named(self) -> str:
        return f"checkpoint folder {str(self.checkpoint.folder)!r}"

    def _steps(self) -> list[int]:
        """The steps that were saved, the newest first."""
        found = [path for path in self.folder.glob("[0-9]*") if path.name.isdigit() and path.is_dir()]
        return sorted((int(path.name) for path in found), reverse=True)

    def _remove(self, step: int) -> None:
        """Under another name first: what is removed in part is no save."""
        if jax.process_index() != 0:
            return
        aside = self.folder / f"{REMOVED}{step}"
        with contextlib.suppress(OSError):  # a save too many does no harm
            (self.folder / str(step)).rename(aside)
            self._damaged.discard(step)
        shutil.rmtree(aside, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        """What interrupted saves and removals left behind."""
        if jax.process_index() != 0:
            return
        for pattern in (UNFINISHED, f"{REMOVED}*"):
            for path in self.folder.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)

    def _reason(self, error: Exception, arrays: dict[str, np.ndarray]) -> str:
        if "No space left on device" not in str(error):
            return _first_line(error)
        needed = sum(value.nbytes for value in arrays.values()) / 1e6
        free = shutil.disk_usage(self.folder).free / 1e6
        return f"no space left, of which about {needed:.1f} MB are needed and {free:.1f} MB are free"

    def _kept(self) -> str:
        good = [step for step in self._steps() if step not in self._damaged]
        return f"the save at step {good[0]} is kept" if good else "there is no earlier one"

    def _read(self, step: int, like: list[Any]) -> Saved:
        args = self._ocp.args
        place = self.folder / str(step)
        with _silent_orbax():
            about = self._writer.restore(place, args=args.Composite(about=args.JsonRestore()))["about"]
        self._demand_same_run(about)
        wanted = {_name(i): leaf for i, leaf in enumerate(like)}
        items = {"arrays": args.StandardRestore()}
        split = about["split"]
        if split:
            shapes = {
                name: jax.ShapeDtypeStruct(wanted[name].shape, wanted[name].dtype, sharding=wanted[name].sharding)
                for name in split
            }
            items["split"] = args.StandardRestore(shapes)
        with _silent_orbax():
            found = self._writer.restore(place, args=args.Composite(**items))
        arrays = {name: np.asarray(value) for name, value in found["arrays"].items()}
        sums = {name: checksum(value) for name, value in arrays.items()}
        sums |= {name: split_checksum(found["split"][name]) for name in split}
        if about["arrays"] != sums:
            raise ValueError("its numbers are not those that were written")
        leaves = []
        for name, leaf in wanted.items():
            if name in split:
                value = found["split"][name]
            else:
                value = arrays[name] if leaf.size else np.zeros(leaf.shape, leaf.dtype)
            if value.shape != leaf.shape or value.dtype != leaf.dtype:
                raise ValueError(
                    f"array {name} is {value.dtype}{list(value.shape)}, expected {leaf.dtype}{list(leaf.shape)}"
                )
            leaves.append(value)
        history = {
            name.removeprefix("history."): values for name, values in arrays.items() if name.startswith("history.")
        }
        return Saved(step, leaves, history, about)

    def _demand_same_run(self, about: dict[str, Any]) -> None:
        written = about.pop("checksum", None)
        if written is None and about.get("format") != FORMAT:
            raise AnotherRunError(
                f"{self._named} has format {about.get('format')!r}; this version of wior reads format {FORMAT}"
            )
        if written != _text_checksum(about):
            raise ValueError("its description is not the one that was written")
        there, here = dict(about["description"]), dict(self.description)
        if there.get("jax") != here.get("jax"):  # programs are written down differently by another jax
            there, here = _without_programs(there), _without_programs(here)
        there.pop("jax", None)
        here.pop("jax", None)
        difference = _difference("", there, here)
        if difference:
            raise AnotherRunError(
                f"{self._named} belongs to another run: {difference}. Give another folder, or the arguments of that run"
            )


class AnotherRunError(ValueError):
    """A checkpoint folder holds another run, or one of another version of wior; the message says what differs.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem, x0, y0 = wior.Bilevel(outer, inner, rows, rows), jnp.zeros(()), jnp.zeros(3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = wior.solve(problem, algorithm, x0, y0, batch_size=8, steps=20, checkpoint=folder)
    ...     try:
    ...         wior.solve(problem, algorithm, x0, y0, batch_size=8, steps=20, checkpoint=folder, seed=1)
    ...     except wior.AnotherRunError as error:
    ...         print("its seed is 0, here it is 1" in str(error))
    True
    """


def _name(number: int) -> str:
    return f"carry.{number:05d}"


def checksum(value: np.ndarray, before: int = 0) -> int:
    """Of the bytes alone, in whichever type they are."""
    return zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, before)


def split_checksum(value: jax.Array) -> int:
    """Of an array that no process has whole: the same whichever way it is split."""
    return int(_sum_of_words(value))


@jax.jit
def _sum_of_words(value: jax.Array) -> jax.Array:
    """The sum of hashes of every word and its place, modulo 2³²."""
    value = value.astype(jnp.uint8) if value.dtype == bool else value
    width = min(value.dtype.itemsize, 4)
    words = jax.lax.bitcast_convert_type(value, jnp.dtype(f"uint{8 * width}")).astype(jnp.uint32)
    place = jnp.zeros((), jnp.uint32)
    for axis, length in enumerate(words.shape):
        place = place * jnp.uint32(length % 2**32) + jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
    # the finalizer of MurmurHash3
    word = words ^ (place * jnp.uint32(0x9E3779B9))
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return jnp.sum(word ^ (word >> 16), dtype=jnp.uint32)


def describe_tree(data: Tree) -> dict[str, Any]:
    """Shape, type and checksum of every array of a tree, by its path.

    Of streamed data larger than 16 MB only 256 rows are read, evenly from the first to the last: a change in another
    row is not seen.
    """

    def about(shape: Any, leaf: Any) -> list[Any]:
        found = 0
        for value in in_pieces(plain(leaf)):
            found = checksum(value, found)
        return [list(shape), str(leaf.dtype if is_key(leaf) else jnp.result_type(leaf)), found]

    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        rows = leaf.sample() if isinstance(leaf, Streamed) else leaf
        n = (leaf.n,) if isinstance(leaf, Streamed) else np.shape(leaf)[:1]
        for below, value in jax.tree_util.tree_leaves_with_path(rows):
            found[jax.tree_util.keystr((*path, *below))] = about((*n, *np.shape(value)[1:]), value)
    return found


def describe_function(function: Any, *args: Any) -> str:
    """A digest of what a function computes at arguments of these shapes, the arrays that it closes over included."""
    return f"{PROGRAM} {fingerprint(function, *args)}"


def describe_loss(loss: Any, *args: Any) -> str:
    """A digest of a loss and of its derivatives, where these are the user's own."""
    return f"{PROGRAM} {of_loss(loss, *args)}"


def describe_code(function: Any) -> str:
    """A digest of a function that cannot be traced by what it computes."""
    return f"{PROGRAM} {of_code(function)}"


def describe_algorithm(algorithm: Any) -> dict[str, Any]:
    """The class and its hyper-parameters; a schedule by what it computes, another function by its code."""
    described: dict[str, Any] = {"name": type(algorithm).__name__}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.kw_only and value is None:
            continue  # an option that is not used, and that earlier versions did not have
        described[field.name] = describe_value(f"{described['name']}.{field.name}", value)
    return described


def describe_value(name: str, value: Any) -> Any:
    """A hyper-parameter as JSON writes it."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return np.asarray(value).tolist()
    if isinstance(value, float) and value == float("inf"):
        return str(value)  # JSON has no infinity
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_optimizer(value):
        return _describe_optimizer(value)
    if isinstance(value, (tuple, list)):
        return [describe_value(f"{name}[{i}]", one) for i, one in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: describe_value(f"{name}[{key!r}]", one) for key, one in value.items()}
    if callable(value):
        if name.endswith("_lr"):
            return describe_function(value, jnp.int32(0))
        return describe_code(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return describe_algorithm(value)
    raise TypeError(
        f"{name} is {value!r} of type {type(value).__name__}, which a checkpoint cannot describe, so that another run "
        "could not be told from this one; give numbers, texts, functions, dataclasses, or tuples and dictionaries of "
        "them, or run without checkpoint"
    )


def _describe_optimizer(optimizer: Any) -> str:
    """A digest of an optimizer of optax: what it computes for a vector or, where it wants another tree, its code."""
    point = jnp.zeros(2)
    try:
        state = jax.eval_shape(optimizer.init, point)
        return describe_function(optimizer.update, point, state, point)
    except Exception:  # noqa: BLE001 - a mask that names leaves, say, takes no vector
        return describe_code(optimizer.update)


def _without_programs(described: Any) -> Any:
    """A description without the fingerprints of functions."""
    if isinstance(described, dict):
        return {name: _without_programs(value) for name, value in described.items()}
    if isinstance(described, list):
        return [_without_programs(value) for value in described]
    return PROGRAM if isinstance(described, str) and described.startswith(PROGRAM) else described


def _difference(where: str, there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted(there.keys() | here.keys()):
            found = _difference(f"{where}.{name}" if where else name, there.get(name), here.get(name))
            if found:
                return found
        return ""
    if there == here:
        return ""
    if all(isinstance(one, str) and one.startswith(PROGRAM) for one in (there, here)):
        return f"its {where} is another function, or reads other values than its arguments ({there}, here {here})"
    return f"its {where} is {there!r}, here it is {here!r}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _text_checksum(about: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(about, sort_keys=True).encode())


@contextlib.contextmanager
def _silent_orbax() -> Iterator[None]:
    """orbax logs every failure with its tracebacks and raises it as well; raised it becomes a sentence."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


@functools.cache
def _silence_late_failures() -> None:
    """Threads and forgotten futures tell of a failed save once more, some of them when the program ends."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_of_no_save)
    sys.unraisablehook = _without_closed_loops(sys.unraisablehook)


def _is_of_no_save(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not any(UNFINISHED.strip("*") in text for text in (record.getMessage(), str(error)))


def _without_closed_loops(before: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def hook(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    return hook


@contextlib.contextmanager
def _silent_late_reads() -> Iterator[None]:
    """Reads of a damaged save that tensorstore gives up on after orbax has.

    Each would print a traceback that tells nothing.
    """
    before = sys.unraisablehook
    hook = sys.unraisablehook = _without_closed_loops(before)
    try:
        yield
    finally:
        if sys.unraisablehook is hook:
            sys.unraisablehook = before
