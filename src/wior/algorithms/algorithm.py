"""What an algorithm is: hyper-parameters, and two pure functions of a state.

`init(problem, x, y)` makes the state, `step(problem, state, draws)` the next one. An algorithm sees the indices it is
given and nothing of where they come from. It is a tree whose leaves are its numbers, so that another step size is the
same program and a grid of them a `vmap`; schedules, and fields declared `static`, are part of the program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from wior import checks
from wior.problems import Problem

Tree = Any
Schedule = Callable[[Any], Any]
Rate = float | Schedule


class Streams(NamedTuple):
    """How many batches a step takes from each stream of examples, at each level.

    (1,) is one stream of one batch a step; (1, 1) two streams, each with an order of its own. Conditional problems draw
    their inner examples anew for each outer one: their inner level has no stream.
    """

    outer: tuple[int, ...]
    inner: tuple[int, ...]


class Visits(NamedTuple):
    """What a conditional step reads of the inner sets of its B outer examples, in T batches of b rows each."""

    examples: jax.Array  # (B, T, b), rows of each inner set
    weights: jax.Array | None  # (B, T, b), zero for padding; None where there is none
    starts_pass: jax.Array  # (B, T), whether a new pass over the inner set begins


class Draws(NamedTuple):
    """The examples of one step: for each stream of a level an array (batches, batch) of indices."""

    outer: tuple[jax.Array, ...]
    inner: tuple[jax.Array, ...]
    visits: Visits | None
    step: jax.Array  # the number of steps before this one, for schedules
    starts_epoch: jax.Array


class Seen(NamedTuple):
    """The derivatives a step computed, for orders that learn from them: for each stream a tree of (batches, ...)."""

    outer: tuple[Tree, ...]
    inner: tuple[Tree, ...]


def static(default: Any) -> Any:
    """A field that is part of the program: another value compiles another one."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """The fields are hyper-parameters; those named `*_lr` are step sizes, numbers or schedules."""

    solves: ClassVar[type[Problem]]
    step_sizes: ClassVar[dict[str, str]]  # which step size moves which variable of the state

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_lr"):
                checks.step_size(field.name, value)
            elif field.name == "radius":
                checks.positive_number("radius", value, infinite=True)
            elif field.metadata.get("static"):
                checks.positive_integer(field.name, value)

    @property
    def streams(self) -> Streams:
        raise NotImplementedError

    def init(self, problem: Any, x: Tree, y: Tree) -> Any:
        raise NotImplementedError

    def step(self, problem: Any, state: Any, draws: Draws) -> tuple[Any, Seen]:
        raise NotImplementedError

    def _flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        numbers, names, fixed = [], [], []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # an infinite radius is the absence of one, and the program without it is shorter
            if field.metadata.get("static") or callable(value) or (isinstance(value, float) and math.isinf(value)):
                fixed.append((field.name, value))
            else:
                numbers.append(value)
                names.append(field.name)
        return tuple(numbers), (tuple(names), tuple(fixed))

    @classmethod
    def _unflatten(cls, names_fixed: tuple[Any, ...], numbers: tuple[Any, ...]) -> Self:
        names, fixed = names_fixed
        new = object.__new__(cls)
        for name, value in (*zip(names, numbers, strict=True), *fixed):
            object.__setattr__(new, name, value)
        return new


def at_step(rate: Any, step: jax.Array) -> Any:
    """The value of a step size at a step: itself, or the schedule's."""
    # signed: a schedule that subtracts from its step must be able to go below zero
    return rate(step.astype(jnp.int32)) if callable(rate) else rate


def is_infinite(radius: Any) -> bool:
    return isinstance(radius, float) and math.isinf(radius)


def one(vectors: Tree) -> Tree:
    """The derivatives of a single batch, as a stream of one."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], vectors)
