"""Checkpoints: everything a run needs to go on, written whole or not at all, and never by or for another run.

orbax writes each save under a temporary name and renames it when it is complete. Beside the numbers lies a description
of the run (problem, losses, data, algorithm, orders, seed), and a folder whose description differs is refused with the
difference. Nothing is unpickled: the files hold arrays and JSON.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.layout import in_pieces

Tree = Any
FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is saved: every so many seconds or, exactly, every so many steps, and at its end; `keep` saves stay."""

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


class Store:
    """A checkpoint folder in use by one run."""

    def __init__(self, checkpoint: Checkpoint, description: dict[str, Any]):
        self.checkpoint = checkpoint
        self.description = description
        self.folder = Path(checkpoint.folder).absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".writable-{jax.process_index()}-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ValueError(
                f"checkpoint folder {str(checkpoint.folder)!r} cannot be written ({error}); give a folder that can be created and written"
            ) from error
        import orbax.checkpoint as ocp  # takes seconds to import, and only runs with a checkpoint need it

        self._ocp = ocp
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(max_to_keep=checkpoint.keep, enable_async_checkpointing=False),
        )

    def save(self, saved: Saved) -> None:
        if saved.step in self._manager.all_steps():
            return
        leaves = {_name(i): leaf for i, leaf in enumerate(saved.leaves) if leaf.size}
        # what is split among devices is written by those that have it, and read by those that will
        split = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, jax.Array)}
        arrays = {name: leaf for name, leaf in leaves.items() if name not in split}
        arrays |= {f"history.{name}": values for name, values in saved.history.items()}
        about = {"format": FORMAT, "description": self.description, "split": sorted(split), **saved.about}
        args = self._ocp.args
        items = {"arrays": args.StandardSave(arrays), "about": args.JsonSave(about)}
        if split:
            items["split"] = args.StandardSave(split)
        try:
            self._manager.save(saved.step, args=args.Composite(**items))
            self._manager.wait_until_finished()
        except OSError as error:
            raise ValueError(
                f"checkpoint folder {str(self.checkpoint.folder)!r} cannot be written at step {saved.step}: {error}"
            ) from error

    def load(self, like: list[Any]) -> Saved | None:
        """The newest save that can be read, or `None` in a folder without one; `like` are the carry's leaves."""
        steps = sorted(self._manager.all_steps(), reverse=True)
        problems = []
        for step in steps:
            try:
                saved = self._read(step, like)
            except _OfAnotherRun:
                raise
            except Exception as error:  # noqa: BLE001 - orbax and tensorstore raise many kinds for a damaged folder
                problems.append(f"step {step}: {_first_line(error)}")
                continue
            if problems:
                warnings.warn(
                    f"checkpoint folder {str(self.checkpoint.folder)!r}: {'; '.join(problems)}; going on from step {step}",
                    stacklevel=3,
                )
                for damaged in steps:
                    if damaged > step:
                        self._manager.delete(damaged)
            return saved
        if problems:
            raise ValueError(
                f"checkpoint folder {str(self.checkpoint.folder)!r} is damaged and holds no save that can be read "
                f"({'; '.join(problems)}); remove it to start again"
            )
        return None

    def close(self) -> None:
        self._manager.close()

    def _read(self, step: int, like: list[Any]) -> Saved:
        args = self._ocp.args
        about = self._manager.restore(step, args=args.Composite(about=args.JsonRestore()))["about"]
        self._demand_same_run(about)
        wanted = {_name(i): leaf for i, leaf in enumerate(like)}
        items = {"arrays": args.StandardRestore()}
        split = about.get("split", [])
        if split:
            shapes = {
                name: jax.ShapeDtypeStruct(wanted[name].shape, wanted[name].dtype, sharding=wanted[name].sharding)
                for name in split
            }
            items["split"] = args.StandardRestore(shapes)
        found = self._manager.restore(step, args=args.Composite(**items))
        arrays = found["arrays"]
        leaves = []
        for name, leaf in wanted.items():
            if name in split:
                value = found["split"][name]
            else:
                value = np.asarray(arrays[name]) if leaf.size else np.zeros(leaf.shape, leaf.dtype)
            if value.shape != leaf.shape or value.dtype != leaf.dtype:
                raise ValueError(
                    f"array {name} is {value.dtype}{list(value.shape)}, expected {leaf.dtype}{list(leaf.shape)}"
                )
            leaves.append(value)
        history = {
            name.removeprefix("history."): np.asarray(values)
            for name, values in arrays.items()
            if name.startswith("history.")
        }
        return Saved(step, leaves, history, about)

    def _demand_same_run(self, about: dict[str, Any]) -> None:
        if about.get("format") != FORMAT:
            raise _OfAnotherRun(
                f"checkpoint folder {str(self.checkpoint.folder)!r} has format {about.get('format')!r}; this version of wior reads format {FORMAT}"
            )
        there, here = dict(about["description"]), dict(self.description)
        if there.get("jax") != here.get("jax"):  # programs are written down differently by another jax
            there.pop("losses", None)
            here.pop("losses", None)
        there.pop("jax", None)
        here.pop("jax", None)
        difference = _difference("", there, here)
        if difference:
            raise _OfAnotherRun(
                f"checkpoint folder {str(self.checkpoint.folder)!r} belongs to another run: {difference}. "
                "Give another folder, or the arguments of that run"
            )


class _OfAnotherRun(ValueError):
    pass


def _name(number: int) -> str:
    return f"carry.{number:05d}"


def describe_tree(data: Tree) -> dict[str, Any]:
    """Shape, type and checksum of every array of a tree, by its path."""

    def about(leaf: Any) -> list[Any]:
        checksum = 0
        for value in in_pieces(leaf):
            checksum = zlib.crc32(np.ascontiguousarray(value).tobytes(), checksum)
        return [list(np.shape(leaf)), str(jnp.result_type(leaf)), checksum]

    return {jax.tree_util.keystr(path): about(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(data)}


def describe_function(function: Any, *args: Any) -> str:
    """A digest of what a function computes at arguments of these shapes: its jaxpr and the arrays it closes over."""
    closed = jax.make_jaxpr(function)(*args)
    text = re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr))
    digest = hashlib.sha256(text.encode())
    for constant in closed.consts:
        digest.update(np.ascontiguousarray(np.asarray(constant)).tobytes())
    return digest.hexdigest()[:16]


def describe_algorithm(algorithm: Any) -> dict[str, Any]:
    """The class and its hyper-parameters; a schedule by what it computes."""

    def about(value: Any) -> Any:
        if callable(value):
            return "schedule " + describe_function(value, jnp.uint32(0))
        return np.asarray(value).tolist() if isinstance(value, (jax.Array, np.ndarray)) else value

    fields = {field.name: about(getattr(algorithm, field.name)) for field in dataclasses.fields(algorithm)}
    # JSON has no infinity
    return {
        "name": type(algorithm).__name__,
        **{name: str(value) if value == float("inf") else value for name, value in fields.items()},
    }


def _difference(where: str, there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted(there.keys() | here.keys()):
            found = _difference(f"{where}.{name}" if where else name, there.get(name), here.get(name))
            if found:
                return found
        return ""
    return "" if there == here else f"its {where} is {there!r}, here it is {here!r}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
