"""What an algorithm is: hyper-parameters, and two pure functions of a state.

`init(problem, x, y)` makes the state, `step(problem, state, draws)` the next one. An algorithm sees the indices it is
given and nothing of where they come from. It is a tree whose leaves are its numbers, so that another step size is the
same program and a grid of them a `vmap`; schedules, and fields declared `static`, are part of the program.
"""

from __future__ import annotations

import dataclasses
import functools
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
Check = Callable[[str, Any], Any]


class BatchKinds(NamedTuple):
    """How many batches of each kind a step takes, at each level.

    (1,) is one batch for everything; (10, 3, 1) ten batches for one purpose, three for another, one for a third. All kinds of a
    level come one after the other from one stream of examples, or, if `separate`, each from a stream with a
    permutation of its own. Conditional problems draw their inner examples anew for each outer one: their inner level has no stream.
    """

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    separate: bool = False


class Visits(NamedTuple):
    """What a conditional step reads of the inner sets of its B outer examples, in T batches of b rows each."""

    examples: jax.Array  # (B, T, b), rows of each inner set
    weights: jax.Array | None  # (B, T, b), zero for padding; None where there is none
    starts_pass: jax.Array  # (B, T), whether a new pass over the inner set begins


class Draws(NamedTuple):
    """The examples of one step: for each kind of batch of a level an array (batches, batch) of indices."""

    outer: tuple[jax.Array, ...]
    inner: tuple[jax.Array, ...]
    visits: Visits | None
    step: jax.Array  # the number of steps before this one, for schedules
    starts_epoch: jax.Array
    key: Any = None  # for what a method draws besides examples; another one in every step
    reserves: Reserves | None = None

    @property
    def outer_index(self) -> jax.Array:
        """The indices of the outer batch, of a step that takes one; of more, the first."""
        return self.outer[0][0]

    @property
    def inner_index(self) -> jax.Array:
        """The indices of the inner batch, of a step that takes one; of more, the first."""
        return self.inner[0][0]


class NotAtHand(ValueError):
    """A large batch of data that are streamed, of which only the rows of the next steps are on the device."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["key"], meta_fields=["order", "n", "streamed"])
@dataclasses.dataclass(frozen=True)
class Reserve:
    """The examples of a level beside its streams, for large batches that a step takes only now and then."""

    key: jax.Array
    order: Any
    n: int
    streamed: bool = False

    def take(self, number: jax.Array, size: int | None) -> jax.Array:
        """Large batch `number` of `size` examples, in the level's order; all examples where `size` is None or covers them."""
        if self.streamed:
            raise NotAtHand
        if size is None or size >= self.n:
            return jnp.arange(self.n, dtype=jnp.int32)
        first = number.astype(jnp.uint32) * jnp.uint32(size)
        return self.order.run(self.key, first // jnp.uint32(self.n), first % jnp.uint32(self.n), size, self.n)


class Reserves(NamedTuple):
    outer: Reserve
    inner: Reserve


class State(NamedTuple):
    """x and y, which is all that many methods carry; in a conditional problem y is where every inner problem starts."""

    x: Tree
    y: Tree


class Seen(NamedTuple):
    """The derivatives a step computed, for orders that learn from them: for each kind of batch a tree of (batches, ...)."""

    outer: tuple[Tree, ...]
    inner: tuple[Tree, ...]


def static(default: Any, check: Check = checks.positive_integer) -> Any:
    """A field that is part of the program: another value compiles another one."""
    return dataclasses.field(default=default, metadata={"static": True, "check": check})


def number(default: float | None, check: Check = checks.positive_number) -> Any:
    """A field that is a number, and a leaf of the tree: another value is the same program."""
    return dataclasses.field(default=default, metadata={"check": check})


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """The fields are hyper-parameters; those named `*_lr` are step sizes, numbers or schedules."""

    solves: ClassVar[type[Problem]]
    step_sizes: ClassVar[dict[str, str]]  # which step size moves which variable of the state
    paper: ClassVar[str] = ""
    fixed_batches: ClassVar[bool] = False  # whether the data are cut into batches once, and an order runs over these
    takes_large_batches: ClassVar[bool] = False  # whether some steps take more examples than a batch has
    adds_outer_to_y: ClassVar[bool] = False  # whether y descends along the outer loss too, as in penalty methods
    cost_varies: ClassVar[bool] = False  # whether chance decides between steps of very different lengths

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_lr"):
                checks.step_size(field.name, value)
            elif "check" in field.metadata:
                field.metadata["check"](field.name, value)

    @property
    def batch_kinds(self) -> BatchKinds:
        raise NotImplementedError

    @property
    def visit_batches(self) -> int | None:
        """Of a conditional method: how many inner batches a visit takes; None where it makes `inner_epochs` whole passes."""
        return None

    def init(self, problem: Any, x: Tree, y: Tree) -> Any:
        raise NotImplementedError

    def step(self, problem: Any, state: Any, draws: Draws) -> tuple[Any, Seen]:
        raise NotImplementedError

    def _flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        numbers, names, fixed = [], [], []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # an infinite bound is the absence of one, and the program without it is shorter
            absent = value is None or (isinstance(value, float) and math.isinf(value))
            if field.metadata.get("static") or callable(value) or absent:
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


def decayed(rate: Any, step: jax.Array, power: Any, delay: Any = 1.0) -> Any:
    """A number that falls as (1 + step/delay)^−power from its own value on; a schedule is taken as it is."""
    if callable(rate):
        return at_step(rate, step)
    return rate * (1 + step.astype(jnp.result_type(float)) / delay) ** -power


def is_infinite(radius: Any) -> bool:
    return isinstance(radius, float) and math.isinf(radius)


def one(vectors: Tree) -> Tree:
    """The derivatives of a single batch, as a stream of one."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], vectors)
