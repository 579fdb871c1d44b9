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
from wior.problems.keys import Indices
from wior.problems.moving import Mover
from wior.problems.optimizers import Optimizer, is_optimizer, unwrapped

Tree = Any
Schedule = Callable[[Any], Any]
Rate = float | Schedule | Optimizer
Check = Callable[[str, Any], Any]


class BatchKinds(NamedTuple):
    """How many batches of each kind a step takes, at each level.

    Parameters
    ----------
    outer, inner : tuple of int
        The batches of each kind that a step reads of the outer and of the inner data. (1,) is one batch for everything;
        (10, 3, 1) is ten batches for one purpose, three for another and one for a third. () is none: conditional
        problems draw their inner examples anew for each outer one, and minimax problems may have one data set.
    separate : bool, default False
        Whether each kind of batch comes from a stream of examples with a permutation of its own. If False, all kinds of
        a level come one after the other from one stream.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.StocBiO(0.1, 0.1, 0.1, inner_steps=5).batch_kinds
    BatchKinds(outer=(1,), inner=(5, 3, 1), separate=False)
    """

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    separate: bool = False


class Visits(NamedTuple):
    """What a conditional step reads of the inner sets of its B outer examples, in T batches of b rows each.

    Attributes
    ----------
    examples
        (B, T, b), the rows of each inner set.
    weights
        (B, T, b), zero for padding; None where there is no padding.
    starts_pass
        (B, T), whether a new pass over the inner set begins with this batch.
    """

    examples: Any
    weights: jax.Array | None
    starts_pass: jax.Array


class Draws(NamedTuple):
    """The examples of one step, and what else a step may read.

    Attributes
    ----------
    outer, inner
        For each kind of batch of the level an array (batches, batch) of indices: `draws.outer[0][0]` is the first batch
        of the first kind. Where a loss takes a key they are `problems.keys.Indices`, which have one for each batch.
    visits
        What a conditional step reads of the inner sets; None in other problems.
    step
        The number of steps before this one, for schedules.
    starts_epoch
        Whether an epoch starts with this step.
    key
        A key of `jax.random` for what a method draws besides examples; another one in every step.
    reserves
        Where large batches come from, for methods that take some now and then.
    """

    outer: tuple[Any, ...]
    inner: tuple[Any, ...]
    visits: Visits | None
    step: jax.Array
    starts_epoch: jax.Array
    key: Any = None
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
    """Raised where a large batch of streamed data is asked for.

    Of such data only the rows of the next steps are on the device.
    """


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["key", "for_losses"], meta_fields=["order", "n", "streamed"]
)
@dataclasses.dataclass(frozen=True)
class Reserve:
    """Where the large batches of a level come from, which a step takes only now and then."""

    key: jax.Array
    order: Any
    n: int
    streamed: bool = False
    for_losses: Any = None  # a key, where losses take one

    def take(self, number: jax.Array, size: int | None) -> Any:
        """The indices of large batch `number`, in the order of the level.

        Parameters
        ----------
        number
            Which large batch: they follow one another.
        size
            Its examples. None, or a number not below n, gives all examples.

        Returns
        -------
        jax.Array
            Where losses take a key, `problems.keys.Indices`.
        """
        if self.streamed:
            raise NotAtHand
        index = self._indices(number, size)
        if self.for_losses is None:
            return index
        return Indices(index, jax.random.fold_in(self.for_losses, number.astype(jnp.uint32)))

    def _indices(self, number: jax.Array, size: int | None) -> jax.Array:
        if size is None or size >= self.n:
            return jnp.arange(self.n, dtype=jnp.int32)
        first = number.astype(jnp.uint32) * jnp.uint32(size)
        return self.order.run(self.key, first // jnp.uint32(self.n), first % jnp.uint32(self.n), size, self.n)


class Reserves(NamedTuple):
    outer: Reserve
    inner: Reserve


class State(NamedTuple):
    """x and y, which is all that many methods carry from step to step.

    In a conditional problem y is where every inner problem starts.
    """

    x: Tree
    y: Tree


class Seen(NamedTuple):
    """The derivatives that a step computed, for orders that learn from them.

    Attributes
    ----------
    outer, inner
        For each kind of batch of the level a tree whose leaves have a first axis of batches: as many kinds, and as many
        batches of each, as `Algorithm.batch_kinds` says. A batch that was not read has zeros.
    """

    outer: tuple[Tree, ...]
    inner: tuple[Tree, ...]


def static(default: Any, check: Check = checks.positive_integer) -> Any:
    """A field of an `Algorithm` that is part of the compiled program, for example a number of inner steps.

    Parameters
    ----------
    default
        Its default.
    check : callable, default a check for positive integers
        `check(name, value)` raises where a value is wrong.

    Returns
    -------
    dataclasses.Field
    """
    return dataclasses.field(default=default, metadata={"static": True, "check": check})


def number(default: float | None, check: Check = checks.positive_number) -> Any:
    """A field of an `Algorithm` that is a number and a leaf of the tree: another value runs the same compiled program.

    Parameters
    ----------
    default : float or None
        Its default.
    check : callable, default a check for positive numbers
        `check(name, value)` raises where a value is wrong.

    Returns
    -------
    dataclasses.Field
    """
    return dataclasses.field(default=default, metadata={"check": check})


def damping_term() -> Any:
    """The field `damping` of methods that solve a system with the inner Hessian; its step begins with `damped`.

    Returns
    -------
    dataclasses.Field
        A number, μ, or None; given by name.
    """
    check = {"check": checks.non_negative_number_or_none}
    return dataclasses.field(default=None, kw_only=True, metadata=check)


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """What every method is: hyper-parameters, and two pure functions, `init` and `step`.

    A method of your own is a frozen dataclass that inherits from this class. Its fields are the hyper-parameters.
    Fields named `*_lr` are step sizes: positive numbers, schedules, which are functions of the step number, or, where
    `descend` moves a variable by them, optimizers of optax. Other fields are `number(default, check)` or, where they
    change the compiled program, `static(default, check)`. It says which class of problems it `solves` and which of its
    `step_sizes` moves which variable of the state.

    Examples
    --------
    Gradient descent on f along x, with y held fixed:

    >>> import dataclasses
    >>> import jax, jax.numpy as jnp, numpy as np, wior
    >>> from wior.algorithms.algorithm import BatchKinds, Seen, State, at_step, one
    >>> @dataclasses.dataclass(frozen=True)
    ... class Descent(wior.Algorithm):
    ...     outer_lr: float
    ...
    ...     solves = wior.Bilevel
    ...     step_sizes = {"x": "outer_lr"}
    ...
    ...     @property
    ...     def batch_kinds(self):
    ...         return BatchKinds(outer=(1,), inner=())
    ...
    ...     def init(self, problem, x, y):
    ...         return State(x, y)
    ...
    ...     def step(self, problem, state, draws):
    ...         batch = problem.outer_batch(draws.outer_index)
    ...         f_x = jax.grad(problem.outer)(state.x, state.y, batch.data)
    ...         x = state.x - at_step(self.outer_lr, draws.step) * f_x
    ...         return State(x, state.y), Seen(outer=(one(f_x),), inner=())
    >>> outer = lambda x, y, batch: jnp.mean((x - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> problem = wior.Bilevel(outer, inner, np.arange(8.0), np.arange(8.0))
    >>> result = wior.solve(problem, Descent(0.25), jnp.zeros(()), jnp.zeros(()), batch_size=8, steps=50)
    >>> round(float(result.x), 2)
    3.5
    """

    solves: ClassVar[type[Problem]]
    step_sizes: ClassVar[dict[str, str]]  # which step size moves which variable of the state, for error messages
    moves: ClassVar[dict[str, str] | None] = None  # the variables that `descend` moves; None: those of `step_sizes`
    paper: ClassVar[str] = ""
    fixed_batches: ClassVar[bool] = False  # whether the data are cut into batches once, and an order runs over these
    takes_large_batches: ClassVar[bool] = False  # whether some steps take more examples than a batch has
    adds_outer_to_y: ClassVar[bool] = False  # whether y descends along the outer loss too, as in penalty methods
    cost_varies: ClassVar[bool] = False  # whether chance decides between steps of very different lengths

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = given = getattr(self, field.name)
            if field.name.endswith("_lr"):
                value = unwrapped(given)
            if value is not given:
                object.__setattr__(self, field.name, value)
            if is_optimizer(value):
                self._demand_descent(field.name)
                continue
            if field.name.endswith("_lr"):
                checks.step_size(field.name, value)
            elif "check" in field.metadata:
                field.metadata["check"](field.name, value)

    def _demand_descent(self, name: str) -> None:
        able = dict.fromkeys(self.moved().values())
        if name not in able:
            raise TypeError(
                f"{name} must be a number or a schedule, got an optimizer of optax: {type(self).__name__} does not "
                f"move a variable by it in plain steps; {', '.join(able)} may be optimizers"
            )

    @classmethod
    def moved(cls) -> dict[str, str]:
        """Which step size moves which variable by `descend`: those that an optimizer or a constraint may have.

        Returns
        -------
        dict
            By the name of the variable ("x", "y", "u", "z") the name of the field.
        """
        if cls.moves is not None:
            return cls.moves
        return {variable: field for variable, field in cls.step_sizes.items() if variable in ("x", "y", "u", "z")}

    @property
    def batch_kinds(self) -> BatchKinds:
        """How many batches of each kind a step takes at each level; every method gives it."""
        raise NotImplementedError

    def batch_kinds_for(self, problem: Any) -> BatchKinds:
        """`batch_kinds` for one problem: a method gives it where they depend on the problem.

        Parameters
        ----------
        problem
            A problem of the class that the method `solves`. A minimax one may have one data set or two.

        Returns
        -------
        BatchKinds
        """
        return self.batch_kinds

    @property
    def visit_batches(self) -> int | None:
        """How many inner batches a conditional method reads for each outer example.

        None where it makes `inner_epochs` whole passes over the inner set.
        """
        return None

    def init(self, problem: Any, x: Tree, y: Tree) -> Any:
        """The state before the first step.

        Parameters
        ----------
        problem
            A problem of the class that the method `solves`.
        x, y
            Where the run starts: trees of arrays.

        Returns
        -------
        NamedTuple
            At least with the fields `x` and `y`.
        """
        raise NotImplementedError

    def step(self, problem: Any, state: Any, draws: Draws) -> tuple[Any, Seen]:
        """One update: a pure function that jax compiles.

        Parameters
        ----------
        problem
            The problem, with its data.
        state
            The state before the step.
        draws
            The indices of the batches of this step, its number and a key.

        Returns
        -------
        state
            The state after the step.
        seen : Seen
            The derivatives that the step computed anyway, for orders that learn from them.
        """
        raise NotImplementedError

    def _flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        numbers, names, fixed = [], [], []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # inf stands for no bound, and the program without a projection is shorter
            absent = value is None or (isinstance(value, float) and math.isinf(value))
            if field.metadata.get("static") or callable(value) or is_optimizer(value) or absent:
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
    """The value of a step size at a step: the number itself, or what the schedule gives; an optimizer as it is."""
    if isinstance(rate, Mover):
        return rate.at(step)
    # signed: a schedule that subtracts from its step must be able to go below zero
    return rate(step.astype(jnp.int32)) if callable(rate) else rate


def decayed(rate: Any, step: jax.Array, power: Any, delay: Any = 1.0) -> Any:
    """A number that falls as (1 + step/delay)^−power from its own value on; others are taken as they are."""
    if isinstance(rate, Mover) and not (is_optimizer(rate.rate) or callable(rate.rate)):
        return dataclasses.replace(rate, rate=decayed(rate.rate, step, power, delay))
    if isinstance(rate, Mover):
        return rate.at(step)
    if callable(rate):
        return at_step(rate, step)
    return rate * (1 + step.astype(jnp.result_type(float)) / delay) ** -power


def is_infinite(radius: Any) -> bool:
    return isinstance(radius, float) and math.isinf(radius)


def one(vectors: Tree) -> Tree:
    """The derivatives of a single batch, with a first axis of one batch, as `Seen` has them."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], vectors)
