"""The five problem classes: plain functions over trees, and the data they are averaged over.

A problem knows its losses and its data and nothing of algorithms or orders. Every problem is a tree whose leaves are its
data, so that it passes through `jit` with the data as arguments and the losses as part of the program.

Data that do not fit, or should not, stay on the host (`sources.py`): then all data that one index reads do, and a problem inside a
compiled block has the rows of some steps in their place (`gathered.py`).

Losses are means over the rows of their batch, so that the mean over all equal batches is the full objective. A loss that is
itself a tree (a registered dataclass with `__call__`) may hold arrays that batches point into; they are arguments too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks, sources, tree
from wior.gathered import Gathered, is_streamed, no_rows
from wior.per_example import PerExample, at_rows, has_rows, is_per_example, take, without_rows

Tree = Any
Calls = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]  # losses by name, and arguments to call them with
Batches = tuple[int, int] | None  # the rows of an outer and of an inner batch; None where they are not known
LARGEST = 2**31 - 1  # the largest number of a row on the device


class Batch(NamedTuple):
    """Rows of a data set, and where they stand in it."""

    data: Tree
    examples: jax.Array


class Problem:
    """What all problems share: the losses are the fixed part of the tree, the data its leaves."""

    _losses: ClassVar[tuple[str, ...]]
    _data: ClassVar[tuple[str, ...]]
    _arguments: ClassVar[dict[str, tuple[str, ...]]] = {}  # what each loss is called with
    _read_by: ClassVar[dict[str, tuple[str, ...]]] = {}  # the data that an index of each level reads

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    def _flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        data = tuple(getattr(self, name) for name in self._data)
        losses = tuple(getattr(self, name) for name in self._losses)
        # a loss that is a tree (of images that its batches point to, say) hands its arrays to the program as arguments
        return (*data, *(loss if _holds_arrays(loss) else None for loss in losses)), tuple(
            None if _holds_arrays(loss) else loss for loss in losses
        )

    @classmethod
    def _unflatten(cls, functions: tuple[Any, ...], leaves: tuple[Any, ...]) -> Self:
        new = object.__new__(cls)
        data, trees = leaves[: len(cls._data)], leaves[len(cls._data) :]
        losses = (tree if function is None else function for function, tree in zip(functions, trees, strict=True))
        for name, value in (*zip(cls._losses, losses, strict=True), *zip(cls._data, data, strict=True)):
            object.__setattr__(new, name, value)
        return new

    def _stream(self) -> None:
        """Makes sources of all data of a level that has one; a resident leaf beside it is read with it."""
        for names in self._read_by.values():
            for name in names:
                checks.readable(name, getattr(self, name))
            if any(sources.any_source(getattr(self, name)) for name in names):
                for name in names:
                    object.__setattr__(self, name, sources.streamed(name, getattr(self, name)))

    def _prepare(self) -> None:
        """Checks the losses and puts the data on the device; the classes' `__post_init__`."""
        for name in self._losses:
            if getattr(self, name) is not None or name in ("outer", "inner", "objective"):
                checks.function(name, getattr(self, name))
                checks.arity(name, getattr(self, name), self._arguments[name])
        for name in self._data:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.arrays(name, getattr(self, name)))

    def sizes(self) -> dict[str, int]:
        """The number of examples at each level that an order runs over."""
        raise NotImplementedError

    def streamed(self) -> dict[str, dict[str, Tree]]:
        """The data that stay on the host, by level and name; empty where all are on the device."""
        return {
            level: {name: getattr(self, name) for name in names}
            for level, names in self._read_by.items()
            if is_streamed([getattr(self, name) for name in names])
        }

    def demand_resident(self, user: str) -> None:
        """For what reads all data on the device."""
        if self.streamed():
            raise ValueError(
                f"the {' and '.join(self.streamed())} data are streamed, and {user} reads all of them on the device; give arrays that fit on it"
            )

    def with_rows(self, gathered: dict[str, Gathered]) -> Self:
        """This problem with gathered rows in place of streamed data, by name."""
        new = self._unflatten(*reversed(self._flatten()))
        for name, rows in gathered.items():
            object.__setattr__(new, name, rows)
        return new

    def without_sources(self) -> Self:
        """This problem with one row of zeros in place of streamed data: what shapes and types are taken from."""
        names = {name: data for level in self.streamed().values() for name, data in level.items()}
        return self.with_rows({name: no_rows(data) for name, data in names.items()}) if names else self

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        """Each loss as a step calls it, and arguments to call it with, as shapes where they come from the data.

        Batches have as many rows as a step with these batch sizes gives to the losses, two where `batches` is None.
        """
        raise NotImplementedError

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        """Traces the losses on the shapes of such batches and says what is wrong with them or with x and y."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class Bilevel(Problem):
    """min over x of mean f(x, y_x; ξ) where y_x minimises mean g(x, y; ζ) over y.

    `outer(x, y, batch)` is f, `inner(x, y, batch)` is g, strongly convex in y; both return the mean over the rows of
    the batch. `outer_data` and `inner_data` are trees of arrays with one row for each example.
    """

    outer: Callable[[Tree, Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree, Tree], jax.Array]
    outer_data: Tree
    inner_data: Tree

    _losses = ("outer", "inner")
    _arguments = {"outer": ("x", "y", "batch"), "inner": ("x", "y", "batch")}
    _data = ("outer_data", "inner_data")
    _read_by = {"outer": ("outer_data",), "inner": ("inner_data",)}

    def __post_init__(self) -> None:
        self._stream()
        self.sizes()
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return {
            "outer": checks.rows("outer_data", self.outer_data),
            "inner": checks.rows("inner_data", self.inner_data),
        }

    def outer_batch(self, index: jax.Array) -> Batch:
        return _batch(self.outer_data, index)

    def inner_batch(self, index: jax.Array) -> Batch:
        return _batch(self.inner_data, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        xi, zeta = _shapes(self, batches, "outer_batch", "inner_batch")
        return {
            "outer": (lambda x, y, b: self.outer(without_rows(x), y, b.data), (x, y, xi)),
            "inner": (lambda x, y, b: self.inner(at_rows(x, b.examples), y, b.data), (x, y, zeta)),
        }

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        _check_rows_fit(x, y, self.sizes()["inner"])
        _check_outer_ignores_rows(self.outer, x, y, *_shapes(self, batches, "outer_batch"))
        _check_scalars(self.loss_calls(x, y, batches))


@dataclasses.dataclass(frozen=True, eq=False)
class Minimax(Problem):
    """min over x of max over y of mean objective(x, y; ξ), concave in y. One data set, one order."""

    objective: Callable[[Tree, Tree, Tree], jax.Array]
    data: Tree

    _losses = ("objective",)
    _arguments = {"objective": ("x", "y", "batch")}
    _data = ("data",)
    _read_by = {"outer": ("data",)}

    def __post_init__(self) -> None:
        self._stream()
        checks.rows("data", self.data)
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return {"outer": checks.rows("data", self.data)}

    def outer_batch(self, index: jax.Array) -> Batch:
        return _batch(self.data, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        (xi,) = _shapes(self, batches, "outer_batch")
        return {"objective": (lambda x, y, b: self.objective(at_rows(x, b.examples), y, b.data), (x, y, xi))}

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        _check_rows_fit(x, y, self.sizes()["outer"])
        _check_scalars(self.loss_calls(x, y, batches))

    def as_bilevel(self) -> Bilevel:
        """The same problem with f = objective and g = −objective, the two levels drawn separately."""
        return Bilevel(self.objective, _Negative(self.objective), self.data, self.data)


@dataclasses.dataclass(frozen=True, eq=False)
class Compositional(Problem):
    """min over x of mean f(r(x); ξ) with r(x) = mean r(x; ζ).

    `outer(y, batch)` is f, `inner(x, batch)` returns the mean of r over the rows of the batch, a tree like y.
    """

    outer: Callable[[Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree], Tree]
    outer_data: Tree
    inner_data: Tree

    _losses = ("outer", "inner")
    _arguments = {"outer": ("y", "batch"), "inner": ("x", "batch")}
    _data = ("outer_data", "inner_data")
    _read_by = {"outer": ("outer_data",), "inner": ("inner_data",)}

    def __post_init__(self) -> None:
        self._stream()
        self.sizes()
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return {
            "outer": checks.rows("outer_data", self.outer_data),
            "inner": checks.rows("inner_data", self.inner_data),
        }

    def outer_batch(self, index: jax.Array) -> Batch:
        return _batch(self.outer_data, index)

    def inner_batch(self, index: jax.Array) -> Batch:
        return _batch(self.inner_data, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        xi, zeta = _shapes(self, batches, "outer_batch", "inner_batch")
        return {
            "outer": (lambda y, b: self.outer(y, b.data), (y, xi)),
            "inner": (lambda x, b: self.inner(at_rows(x, b.examples), b.data), (x, zeta)),
        }

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        _check_rows_fit(x, y, self.sizes()["inner"])
        _check_map_and_scalar(self.loss_calls(x, y, batches), y)

    def as_bilevel(self) -> Bilevel:
        """The same problem with g(x, y; ζ) = ½‖y − r(x; ζ)‖²."""
        return Bilevel(_OfY(self.outer), _SquaredDistance(self.inner), self.outer_data, self.inner_data)


@dataclasses.dataclass(frozen=True, eq=False)
class ConditionalBilevel(Problem):
    """min over x of mean f(x, y_i; ξ_i) where each y_i minimises g over the inner data set of its own example ξ_i.

    The leaves of `inner_data` are shaped (m, n_max, ...); `counts` (m,) says how many of the n_max rows belong to each
    example, all of them where it is `None`. Rows past the count are never read into a loss.

    Where g depends on x only through a representation, `represent(x, rows)` returns it with one row for each row, and
    `inner(representation, y, rows)` is g. It is then evaluated once for each outer step, and the hyper-gradient pulls
    back through it once; each row by itself, since the rows of all examples of a batch are given together.
    `represent_outer(x, rows)` does the same for `outer(representation, y, rows)`.
    """

    outer: Callable[[Tree, Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree, Tree], jax.Array]
    outer_data: Tree
    inner_data: Tree
    counts: Any = None
    represent: Callable[[Tree, Tree], Tree] | None = None
    represent_outer: Callable[[Tree, Tree], Tree] | None = None

    _losses = ("outer", "inner", "represent", "represent_outer")
    _arguments = {
        **dict.fromkeys(("outer", "inner"), ("x", "y", "batch")),
        **dict.fromkeys(("represent", "represent_outer"), ("x", "rows")),
    }
    _data = ("outer_data", "inner_data", "counts")
    _read_by = {"outer": ("outer_data", "inner_data")}

    def __post_init__(self) -> None:
        self._stream()
        _check_conditional(self)
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return _conditional_sizes(self.outer_data, self.inner_data)

    def outer_batch(self, index: jax.Array) -> Batch:
        return _batch(self.outer_data, index)

    def inner_sets(self, index: jax.Array) -> InnerSet:
        return _inner_sets(self, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        visit, together = _one_visit(self, batches), _all_visits(self, batches)
        calls: Calls = {}
        for name, loss, represent, rows, given in (
            ("outer", self.outer, self.represent_outer, visit[0], together[0]),
            ("inner", self.inner, self.represent, visit[1], together[1]),
        ):
            point = x
            if represent is not None:
                point = _first_axis(jax.eval_shape(represent, x, given), checks.rows("rows", rows))
                calls["represent_outer" if name == "outer" else "represent"] = (represent, (x, given))
            calls[name] = (loss, (point, y, rows))
        return calls

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        _check_no_rows(x, y)
        calls = self.loss_calls(x, y, batches)
        for name in ("represent", "represent_outer"):
            if name in calls:
                represent, args = calls.pop(name)
                found, given = (
                    checks.rows(f"{name}(x, rows)", jax.eval_shape(represent, *args)),
                    checks.rows("rows", args[1]),
                )
                if found != given:
                    raise ValueError(
                        f"{name} must return one row for each row it is given, here {given}; it returns {found}"
                    )
        _check_scalars(calls)


@dataclasses.dataclass(frozen=True, eq=False)
class ConditionalCompositional(Problem):
    """min over x of mean f(r_i(x); ξ_i) with r_i(x) the mean of r(x; ζ) over the inner data set of ξ_i."""

    outer: Callable[[Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree], Tree]
    outer_data: Tree
    inner_data: Tree
    counts: Any = None

    _losses = ("outer", "inner")
    _arguments = {"outer": ("y", "batch"), "inner": ("x", "batch")}
    _data = ("outer_data", "inner_data", "counts")
    _read_by = {"outer": ("outer_data", "inner_data")}

    def __post_init__(self) -> None:
        self._stream()
        _check_conditional(self)
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return _conditional_sizes(self.outer_data, self.inner_data)

    def outer_batch(self, index: jax.Array) -> Batch:
        return _batch(self.outer_data, index)

    def inner_sets(self, index: jax.Array) -> InnerSet:
        return _inner_sets(self, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        xi, zeta = _one_visit(self, batches)
        return {"outer": (self.outer, (y, xi)), "inner": (self.inner, (x, zeta))}

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        _check_no_rows(x, y)
        _check_map_and_scalar(self.loss_calls(x, y, batches), y)

    def as_conditional_bilevel(self) -> ConditionalBilevel:
        """The same problem with g(x, y; ζ) = ½‖y − r(x; ζ)‖²."""
        return ConditionalBilevel(
            _OfY(self.outer), _SquaredDistance(self.inner), self.outer_data, self.inner_data, self.counts
        )


class InnerSet(NamedTuple):
    """The inner data sets of some outer examples: leaves (B, n_max, ...), and their true lengths (B,) or `None`."""

    rows: Tree
    counts: jax.Array | None


def weighted_mean(per_row: Callable[..., Any], weights: jax.Array | None, *rows: Tree) -> Any:
    """The mean of `per_row` over rows: one call on the batch, or row by row with the given weights where some are padding."""
    if weights is None:
        return per_row(*rows)
    each = jax.vmap(lambda *one: per_row(*jax.tree.map(lambda a: a[None], one)))(*rows)
    total = jnp.maximum(jnp.sum(weights), 1)

    def average(values: jax.Array) -> jax.Array:
        spread = weights.reshape(weights.shape + (1,) * (values.ndim - 1)).astype(values.dtype)
        return jnp.sum(spread * values, 0) / total.astype(values.dtype)

    return jax.tree.map(average, each)


@dataclasses.dataclass(frozen=True)
class _Negative:
    objective: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, batch: Tree) -> jax.Array:
        return -self.objective(x, y, batch)


@dataclasses.dataclass(frozen=True)
class _OfY:
    outer: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, batch: Tree) -> jax.Array:
        return self.outer(y, batch)


@dataclasses.dataclass(frozen=True)
class _SquaredDistance:
    inner: Callable[..., Tree]

    def __call__(self, x: Tree, y: Tree, batch: Tree) -> jax.Array:
        apart = tree.sub(y, self.inner(x, batch))
        return 0.5 * tree.vdot(apart, apart)


def _holds_arrays(loss: Any) -> bool:
    return callable(loss) and not jax.tree_util.all_leaves([loss])


def _batch(data: Tree, index: jax.Array) -> Batch:
    if isinstance(data, Gathered):
        return Batch(_batch(data.rows, index).data, take(data.examples, index))
    return Batch(jax.tree.map(lambda rows: take(rows, index), data), index)


def _inner_sets(problem: Any, index: jax.Array) -> InnerSet:
    rows, examples = _batch(problem.inner_data, index)
    if problem.counts is None:
        return InnerSet(rows, None)
    counts = take(problem.counts, examples)

    def repeat_first(leaf: jax.Array) -> jax.Array:
        # padding may hold anything, NaN included, and a weight of zero does not stop that in a derivative
        real = jnp.arange(leaf.shape[1]) < counts[:, None]
        return jnp.where(real.reshape(real.shape + (1,) * (leaf.ndim - 2)), leaf, leaf[:, :1])

    return InnerSet(jax.tree.map(repeat_first, rows), counts)


def _shapes(problem: Any, batches: Batches, *draws: str) -> tuple[Any, ...]:
    problem, (outer, inner) = problem.without_sources(), batches or (2, 2)
    # the inner sets of conditional problems are drawn with their outer examples
    sizes = {"outer_batch": outer, "inner_batch": inner, "inner_sets": outer}
    return tuple(
        jax.eval_shape(getattr(problem, draw), jax.ShapeDtypeStruct((sizes[draw],), jnp.int32)) for draw in draws
    )


def _conditional_sizes(outer_data: Tree, inner_data: Tree) -> dict[str, int]:
    rows = inner_data.rows if isinstance(inner_data, Gathered) else sources.shapes(inner_data)
    first = jax.tree.leaves(rows)[0]
    return {"outer": checks.rows("outer_data", outer_data), "inner": jnp.shape(first)[1]}


def _check_conditional(problem: Any) -> None:
    m = checks.rows("outer_data", problem.outer_data)
    if checks.rows("inner_data", problem.inner_data) != m:
        raise ValueError(
            f"inner_data must have one inner data set for each of the {m} rows of outer_data; "
            f"its first axis has length {checks.rows('inner_data', problem.inner_data)}"
        )
    shapes = sources.shapes(problem.inner_data)
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        if jnp.ndim(leaf) < 2:
            raise ValueError(
                f"{checks.path_name('inner_data', path)} has shape {jnp.shape(leaf)}; it must be (outer examples, inner examples, ...)"
            )
    # counted as rows of a data set of their own, so that a disagreement reads like every other one
    n_max = checks.rows(
        "inner_data (second axis)",
        jax.tree.map(lambda a: jax.ShapeDtypeStruct(jnp.shape(a)[1:], jnp.float32), shapes),
    )
    if problem.counts is None:
        return
    counts = np.asarray(problem.counts)
    if not np.issubdtype(counts.dtype, np.integer):
        raise TypeError(f"counts must be integers, got dtype {counts.dtype}")
    if counts.shape != (m,):
        raise ValueError(f"counts must have shape ({m},), one for each outer example, got shape {counts.shape}")
    wrong = np.flatnonzero((counts < 1) | (counts > n_max))
    if wrong.size:
        raise ValueError(
            f"counts must lie between 1 and {n_max}, the second axis of inner_data; counts[{wrong[0]}] is {counts[wrong[0]]}"
        )


def _one_visit(problem: Any, batches: Batches) -> tuple[Tree, Tree]:
    """The shapes of one outer example, as a batch, and of an inner batch of its visit; of its whole set where sizes are not known."""
    xi, sets = _shapes(problem, batches, "outer_batch", "inner_sets")
    one_set = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), sets.rows)
    return _first_axis(xi.data, 1), one_set if batches is None else _first_axis(one_set, batches[1])


def _all_visits(problem: Any, batches: Batches) -> tuple[Tree, Tree]:
    """The shapes of what is represented together: the outer examples of a step, and all rows of their inner sets."""
    if batches is None:
        return _one_visit(problem, None)
    xi, sets = _shapes(problem, batches, "outer_batch", "inner_sets")
    rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct((a.shape[0] * a.shape[1], *a.shape[2:]), a.dtype), sets.rows)
    return xi.data, rows


def _first_axis(shapes: Tree, length: int) -> Tree:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((length, *a.shape[1:]), a.dtype), shapes)


def _check_scalars(calls: Calls) -> None:
    for name, (loss, args) in calls.items():
        checks.scalar_loss(name, loss, *args)


def _check_map_and_scalar(calls: Calls, y: Tree) -> None:
    inner, args = calls["inner"]
    checks.mean_of_rows("inner", jax.eval_shape(inner, *args), args[-1], y)
    checks.same_structure("inner(x, batch)", jax.eval_shape(inner, *args), "y0", y)
    _check_scalars({"outer": calls["outer"]})


def _check_rows_fit(x: Tree, y: Tree, n: int) -> None:
    if has_rows(y):
        raise TypeError("y0 has a PerExample leaf; only x may have one row for each example")
    for path, leaf in jax.tree_util.tree_leaves_with_path(x, is_leaf=is_per_example):
        if is_per_example(leaf) and n > LARGEST:
            raise ValueError(
                f"{checks.path_name('x0', path)} is PerExample, and there are {n} examples; on the device at most {LARGEST} can have a row each"
            )
        if is_per_example(leaf) and (jnp.ndim(leaf.rows) == 0 or jnp.shape(leaf.rows)[0] != n):
            raise ValueError(
                f"{checks.path_name('x0', path)} is PerExample with shape {jnp.shape(leaf.rows)}; "
                f"its first axis must be {n}, one row for each inner example"
            )


def _check_no_rows(x: Tree, y: Tree) -> None:
    if has_rows(x) or has_rows(y):
        raise TypeError(
            "PerExample leaves belong to problems with one inner data set; a conditional problem has one for each outer example"
        )


def _check_outer_ignores_rows(outer: Callable[..., Any], x: Tree, y: Tree, xi: Batch) -> None:
    if not has_rows(x):
        return
    try:
        jax.eval_shape(lambda x, y, b: outer(without_rows(x), y, b.data), x, y, xi)
    except (TypeError, AttributeError, ValueError) as error:
        dense = jax.tree.map(
            lambda leaf: PerExample(leaf.rows[:2]) if is_per_example(leaf) else leaf, x, is_leaf=is_per_example
        )
        try:
            jax.eval_shape(lambda x, y, b: outer(at_rows(x, b.examples), y, b.data), dense, y, xi)
        except Exception:  # noqa: BLE001 - it fails with rows as well, so the rows are not the reason
            raise error from None
        names = [
            checks.path_name("x0", path)
            for path, leaf in jax.tree_util.tree_leaves_with_path(x, is_leaf=is_per_example)
            if is_per_example(leaf)
        ]
        raise TypeError(
            f"outer uses the PerExample leaf {', '.join(names)}, which belongs to the inner examples: the outer loss receives None there. "
            f"Let only inner depend on it ({type(error).__name__}: {error})"
        ) from error
