"""Estimators: what methods put between the derivatives of a batch and a step, to have less noise.

A direction is a tree like the variable it moves. Where the variable has a `PerExample` leaf, the direction holds the
rows of the batch there. A row belongs to one example and is met once in a pass, so there is no noise between batches to
take out of it: the estimators that work with differences (`storm`, `spider`, `page`, `saga`) hand rows on as they are,
keep no memory for them, and act on what all examples share. A moving average of a row runs over its own visits. No
estimator ever touches the rows that are not in the batch.

A method without an estimator steps along the direction itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior import oracle, tree
from wior.problems.per_example import PerExample, at_rows, is_per_example, take, without_rows

Tree = Any

ROWS_AT_ONCE = 8192  # of a large batch


def no_average(x: Tree) -> Tree:
    """The moving average before the first step, one for each row where x has rows."""
    return tree.zeros_like(x)


def moving_average(average: Tree, new: Tree, weight: Any, index: jax.Array | None = None) -> tuple[Tree, Tree]:
    """m ← (1 − θ) m + θ d; rows only where `index` says. Returns the average and the direction it gives."""

    def update(leaf: Any, d: Any) -> Any:
        if is_per_example(leaf):
            assert index is not None
            change = weight * (d - take(leaf.rows, index))
            return PerExample(leaf.rows.at[index].add(change.astype(leaf.rows.dtype), mode="promise_in_bounds"))
        return (leaf + weight * (d - leaf)).astype(leaf.dtype)

    average = jax.tree.map(update, average, new, is_leaf=is_per_example)
    return average, average if index is None else at_rows(average, index)


def no_estimate(x: Tree) -> Tree:
    """The estimate of a recursion before its first step: zero, and None for rows, which have no memory."""
    return tree.zeros_like(without_rows(x))


def storm(estimate: Tree, new: Tree, old: Tree, weight: Any) -> Tree:
    """d ← D(z) + (1 − a) (d − D(z⁻)), both D on the same batch; with a = 1 it is D(z), with a = 0 it is SPIDER's."""

    def one(d: Any, new: Any, old: Any) -> Any:
        return new if d is None else (new + (1 - weight) * (d - old)).astype(d.dtype)

    return jax.tree.map(one, estimate, new, old, is_leaf=_is_none)


def remembered(estimate: Tree, direction: Tree) -> Tree:
    """The part of a new direction that the next step needs: all but the rows."""
    return jax.tree.map(lambda d, new: None if d is None else new, estimate, direction, is_leaf=_is_none)


def with_rows(shared: Tree, new: Tree) -> Tree:
    """A direction that has None for rows, with the rows of another one."""
    return jax.tree.map(lambda d, new: new if d is None else d, shared, new, is_leaf=_is_none)


def spider(estimate: Tree, new: Tree, old: Tree) -> Tree:
    """d ← d + D(z) − D(z⁻), both D on the same batch: SARAH's and SPIDER's recursion."""

    def one(d: Any, new: Any, old: Any) -> Any:
        return new if d is None else d + new - old

    return jax.tree.map(one, estimate, new, old, is_leaf=_is_none)


def page(fresh: jax.Array, estimate: Tree, large: Callable[[], Tree], new: Tree, old: Callable[[], Tree]) -> Tree:
    """D on a large batch where `fresh`, else SPIDER's recursion on a small one.

    Only the side that is taken is computed. With a coin for `fresh` this is PAGE, with a period SARAH and SPIDER.
    `large()` has None for rows; they are those of `new`.
    """
    shared = oracle.cond(
        fresh, lambda estimate: large(), lambda estimate: remembered(estimate, spider(estimate, new, old())), estimate
    )
    return with_rows(shared, new)


class Table(NamedTuple):
    """SAGA's memory: the last derivative of each batch that the data are cut into, and their sum."""

    entries: Tree  # (batches, ...)
    total: Tree
    filled: jax.Array  # (batches,), whether a batch has been met


def empty_table(like: Tree, batches: int) -> Table:
    like = without_rows(like)
    entries = tree.stack_of_zeros(like, batches)
    return Table(entries, tree.zeros_like(like), jnp.zeros(batches, bool))


def saga(table: Table, slot: jax.Array, new: Tree) -> tuple[Table, Tree]:
    """D_i − table_i + mean(table) for the batch in `slot`, and the table with D_i in its place.

    The mean is over the batches met so far. A batch that was not counts as that mean, so its first direction is the
    plain one.
    """
    met, number = take(table.filled, slot), jnp.sum(table.filled)
    before = tree.branch(
        met,
        lambda rows: jax.tree.map(lambda leaf: take(leaf, slot), rows),
        lambda rows: jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), rows),
        table.entries,
    )

    def estimate(total: Any, before: Any, new: Any) -> Any:
        if total is None:
            return new
        mean = total / jnp.maximum(number, 1).astype(total.dtype)
        return jnp.where(met, new - before + mean, new)

    direction = jax.tree.map(estimate, table.total, before, new, is_leaf=_is_none)
    shared = remembered(table.total, new)
    total = jax.tree.map(lambda total, before, d: total + d - before, table.total, before, shared)
    # what is written waits for what was read; otherwise the compiler reads later, and copies the table so that it may
    written = jax.tree.map(lambda before, d: jnp.where(jnp.isnan(before), before, d), before, shared)
    entries = jax.tree.map(lambda rows, d: rows.at[slot].set(d, mode="promise_in_bounds"), table.entries, written)
    filled = table.filled.at[slot].set(True)
    return Table(entries, total, filled), direction


def over_large_batch(derivatives: Callable[[jax.Array], Tree], index: jax.Array, rows: int = ROWS_AT_ONCE) -> Tree:
    """The mean over a large batch of `derivatives(index)`, a tree of means over a batch; computed in pieces."""
    size = len(index)
    if size <= rows:
        return derivatives(index)
    whole, rest = divmod(size, rows)

    def piece(total: Tree, index: jax.Array) -> tuple[Tree, None]:
        return tree.axpy(rows / size, derivatives(index), total), None

    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), oracle.shapes(derivatives, index[:rows]))
    total, _ = oracle.scan(piece, zero, index[: whole * rows].reshape(whole, rows))
    return tree.axpy(rest / size, derivatives(index[whole * rows :]), total) if rest else total


def _is_none(leaf: Any) -> bool:
    return leaf is None
