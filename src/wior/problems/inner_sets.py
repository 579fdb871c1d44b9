"""The inner data sets of conditional problems, one for each outer example, which may be ragged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.problems.keys import Indices, Rows, with_key_each
from wior.problems.per_example import at_slice, has_rows, take
from wior.problems.problem import Batches, batch_of, check_rows_of, shapes_of
from wior.streaming import sources
from wior.streaming.gathered import Gathered

Tree = Any

OF_SET = 1  # folded into the key of an outer example, it gives that of its inner set


class InnerSet(NamedTuple):
    """The inner sets of some outer examples: leaves (B, n_max, ...), and their lengths (B,), or `None` for n_max."""

    rows: Tree
    counts: jax.Array | None


def weighted_mean(per_row: Callable[..., Any], weights: jax.Array | None, *rows: Tree) -> Any:
    """The mean of `per_row` over rows.

    It is one call on the batch, or row by row with the given weights where some rows are padding.
    """
    if weights is None:
        return per_row(*rows)
    rows = tuple(with_key_each(one, len(weights)) for one in rows)
    each = jax.vmap(lambda *one: per_row(*jax.tree.map(lambda a: a[None], one)))(*rows)
    total = jnp.maximum(jnp.sum(weights), 1)

    def average(values: jax.Array) -> jax.Array:
        spread = weights.reshape(weights.shape + (1,) * (values.ndim - 1)).astype(values.dtype)
        return jnp.sum(spread * values, 0) / total.astype(values.dtype)

    return jax.tree.map(average, each)


def inner_sets_of(problem: Any, index: Any) -> InnerSet:
    if isinstance(index, Indices):
        sets = inner_sets_of(problem, index.examples)
        # the whole set of an example is another batch than the example itself
        return InnerSet(Rows(sets.rows, jax.vmap(jax.random.fold_in, (0, None))(index.key, OF_SET)), sets.counts)
    rows, examples = batch_of(problem.inner_data, index)
    if problem.counts is None:
        return InnerSet(rows, None)
    counts = take(problem.counts, examples)

    def repeat_first(leaf: jax.Array) -> jax.Array:
        # padding may hold anything, NaN included, and a weight of zero does not stop that in a derivative
        real = jnp.arange(leaf.shape[1]) < counts[:, None]
        return jnp.where(real.reshape(real.shape + (1,) * (leaf.ndim - 2)), leaf, leaf[:, :1])

    return InnerSet(jax.tree.map(repeat_first, rows), counts)


def conditional_sizes(outer_data: Tree, inner_data: Tree) -> dict[str, int]:
    rows = inner_data.rows if isinstance(inner_data, Gathered) else sources.shapes(inner_data)
    first = jax.tree.leaves(rows)[0]
    return {"outer": checks.rows("outer_data", outer_data), "inner": jnp.shape(first)[1]}


def check_conditional(problem: Any) -> None:
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
                f"{checks.path_name('inner_data', path)} has shape {jnp.shape(leaf)}; it must be (outer examples, "
                "inner examples, ...)"
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
            f"counts must lie between 1 and {n_max}, the second axis of inner_data; counts[{wrong[0]}] is "
            f"{counts[wrong[0]]}"
        )


def one_visit(problem: Any, batches: Batches) -> tuple[Tree, Tree]:
    """The shapes of one outer example, as a batch of one, and of an inner batch of its visit.

    Where the batch sizes are not known, the inner batch is the whole inner set.
    """
    xi, sets = shapes_of(problem, batches, "outer_batch", "inner_sets")
    one_set = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), sets.rows)
    return first_axis(xi.data, 1), one_set if batches is None else first_axis(one_set, batches[1])


def all_visits(problem: Any, batches: Batches) -> tuple[Tree, Tree]:
    """The shapes of what one step represents: its outer examples, and all rows of their inner sets."""
    if batches is None:
        return one_visit(problem, None)
    xi, sets = shapes_of(problem, batches, "outer_batch", "inner_sets")
    rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct((a.shape[0] * a.shape[1], *a.shape[2:]), a.dtype), sets.rows)
    return xi.data, rows


def seen_by(loss: Callable[..., Any], x: Tree) -> Callable[..., Any]:
    """A loss as it is called: of x with `PerExample` leaves it receives the row of one outer example."""
    if not has_rows(x):
        return loss
    return lambda x, *others: loss(at_slice(x, 0, 1), *others)


def first_axis(shapes: Tree, length: int) -> Tree:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((length, *a.shape[1:]), a.dtype), shapes)


def check_conditional_rows(problem: Any, x: Tree, y: Tree) -> None:
    """Demands that `PerExample` leaves are in x, and have a row for each outer example."""
    if has_rows(y):
        raise TypeError(
            "y0 has a PerExample leaf; in a conditional problem every visit to an outer example starts y anew from y0, "
            "so that no example keeps a y of its own. What each is to keep belongs into x, as a PerExample leaf"
        )
    for name in ("represent", "represent_outer"):
        if has_rows(x) and getattr(problem, name, None) is not None:
            raise TypeError(
                f"x0 has a PerExample leaf, and {name} represents the rows of many outer examples together, each of "
                f"which has a row of x of its own; leave {name} out, and let the loss call it"
            )
    check_rows_of("x0", x, problem.sizes()["outer"], "outer")
