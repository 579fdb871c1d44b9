"""Where a run stands: what continues it besides the algorithm's own state.

The examples of every step follow from the seed, the number of the step, and what an order that learns remembers. So
`result.state` is the algorithm's state with that beside it, in an attribute `position`: the same class otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from wior.devices.layout import place
from wior.problems.modules import parted, whole
from wior.running.plan import Plan
from wior.saving.checkpoint import describe_tree

Tree = Any

AGAIN = "or start anew with x0=state.x and y0=state.y"

_kinds: dict[Any, Any] = {}


@dataclasses.dataclass(frozen=True)
class Position:
    """A place in the orders of a run, and what the run had counted until there."""

    step: int
    seed: int
    run: Mapping[str, Any]  # what the place depends on, besides the seed
    seconds: float
    calls: Mapping[str, float]
    memories: tuple[Any, ...] = dataclasses.field(repr=False)  # of orders that learn, as a list of arrays
    rests: tuple[Any, Any] = dataclasses.field(default=(None, None), repr=False)  # what x and y hold beside arrays


class _Stands:
    """What a state of a result has besides the algorithm's: its `position`, which a state made of it does not have."""

    position: Position | None = None

    def __reduce__(self) -> Any:
        kind: Any = type(self)
        return _again, (kind.__bases__[1], tuple(self), self.position)  # type: ignore[arg-type]


def at(state: Any, position: Position) -> Any:
    """A state that knows where it stands."""
    found = _standing(type(state))(*state)
    found.position = position
    return found


def _standing(kind: Any) -> Any:
    """The class of states of a method that know where they stand: one for each, or trees of them would not match."""
    if kind not in _kinds:
        _kinds[kind] = _new_kind(kind)
    return _kinds[kind]


def _new_kind(kind: Any) -> Any:
    return type(kind.__name__, (_Stands, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})


def _again(kind: type, values: tuple[Any, ...], position: Position | None) -> Any:
    return at(kind(*values), position) if position is not None else _standing(kind)(*values)


def position_of(state: Any) -> Position:
    """The position of a state that the user has given."""
    found = getattr(state, "position", None)
    if isinstance(found, Position):
        return found
    if hasattr(state, "history") and hasattr(state, "state"):
        raise TypeError("state is a Result; give its state: state=result.state")
    if isinstance(state, _Stands):
        raise ValueError(
            f"state is a copy of the state of a result (by jax.tree.map or _replace), which does not say where the run "
            f"stands; give result.state itself, {AGAIN}"
        )
    shown = " ".join(repr(state).split())[:80]
    raise TypeError(f"state must be the .state of a Result, got {shown} of type {type(state).__name__}")


def begin_at(x0: Tree, y0: Tree, state: Any) -> tuple[Tree, Tree]:
    """x0 and y0, which are those of the state where there is one."""
    missing = [name for name, value in (("x0", x0), ("y0", y0)) if value is None]
    if state is None:
        if missing:
            raise TypeError(f"{' and '.join(missing)} must be given: arrays, or trees of arrays, to start from")
        return x0, y0
    rests = position_of(state).rests
    starts = []
    for name, given, there, rest in (("x0", x0, state.x, rests[0]), ("y0", y0, state.y, rests[1])):
        if given is not None:
            _demand_equal(name, parted(name, given)[0], there)
        starts.append(whole(there, rest) if given is None else given)
    return starts[0], starts[1]


def _demand_equal(name: str, given: Tree, there: Tree) -> None:
    """Refuses an x0 or y0 that is not the one of the state."""
    if given is there:  # of many processes, none can compare what it has not
        return
    alike = [str(jax.tree.structure(one)) for one in (given, there)]
    if alike[0] == alike[1] or hasattr(there, "_fields"):  # a class that was loaded is a named tuple
        pairs = zip(jax.tree.leaves(given), jax.tree.leaves(there), strict=True)
        if all(np.shape(a) == np.shape(b) and np.array_equal(a, b, equal_nan=True) for a, b in pairs):
            return
    raise ValueError(f"{name} is not the {name[0]} of state, from which the run continues; leave out x0 and y0")


def depends_on(plan: Plan, method: str) -> dict[str, Any]:
    """What a position depends on, besides the seed."""
    streams, sets = plan.streams, plan.inner_sets
    found: dict[str, Any] = {
        "algorithm": method,
        "order": [repr(stream.order) for stream in streams],
        "batch_size": [stream.batch for stream in streams],
        "examples": [stream.n for stream in streams],
        "batches of a step": [list(stream.kinds) for stream in streams],
    }
    if sets is not None:
        found |= {"order of inner sets": repr(sets.order), "inner_sets": [sets.n, sets.batch]}
    return found


def demand_same_order(position: Position, plan: Plan, method: str) -> None:
    here = depends_on(plan, method)
    for name in here.keys() | position.run.keys():
        there = position.run.get(name)
        if there != here.get(name):
            raise ValueError(
                f"state was reached with {name} {there!r}, here it is {here.get(name)!r}: its place in the order means "
                f"nothing there; give the same {name}, {AGAIN}"
            )


def leaves_of(state: Any, position: Position) -> list[Any]:
    """The arrays of a carry: those of the algorithm's state, then those of the orders."""
    return [*jax.tree.leaves(state), *position.memories]


def continued(state: Any, position: Position, fresh: Any, placed: Any) -> Any:
    """The carry of a run that continues; `fresh` is that of a new one, and `placed` puts a leaf where another lies."""
    leaves, structure = jax.tree.flatten(fresh)
    found = leaves_of(state, position)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(fresh)]
    if len(found) != len(leaves):
        raise ValueError(f"state has {len(found)} arrays, and this run one of {len(leaves)}; {AGAIN[3:]}")
    for name, value, leaf in zip(names, found, leaves, strict=True):
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise ValueError(
                f"{name.removeprefix('.')} is {value.dtype}{list(value.shape)}, and this run needs "
                f"{leaf.dtype}{list(leaf.shape)}; {AGAIN[3:]}"
            )
    return jax.tree.unflatten(structure, [placed(value, leaf) for value, leaf in zip(found, leaves, strict=True)])


def describe(state: Any, position: Position) -> dict[str, Any]:
    """What tells a run that continues from this state from others."""
    leaves = {f"{number:05d}": leaf for number, leaf in enumerate(leaves_of(state, position))}
    return {"step": position.step, "state": describe_tree(leaves)}


def put(value: Any, like: jax.Array) -> jax.Array:
    """A saved array as a new one that lies where another one does."""
    if isinstance(like.sharding, NamedSharding):
        return jnp.copy(place(value, like.sharding))  # a block takes it over, and may not take the host's memory
    return jnp.array(value)
