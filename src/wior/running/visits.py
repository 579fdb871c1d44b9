"""What a step of a conditional problem reads of the inner sets of its outer examples.

Each visit to an outer example reads its own inner set afresh, either `inner_epochs` passes of it or a number of batches
(`visit_batches`), in batches that may straddle two passes. Inner sets may be ragged: an order runs over the first
`count` rows of each. Where passes are asked for, the places that are left over in the last batches carry weight zero;
where batches are asked for, none is left over, and a short set begins again more often.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from wior.algorithms.algorithm import Visits
from wior.orders import AdaptiveOrder, Order
from wior.orders.substitutes import FIRST_OF_INNER_SETS

Tree = Any


def passes_of(algorithm: Any, n: int, batch: int) -> int:
    """Passes over an inner set of n rows that a visit needs."""
    if algorithm.visit_batches is None:
        return int(algorithm.inner_epochs)
    return -(-algorithm.visit_batches * batch // n)


def counts_of(problem: Any, examples: jax.Array, n: int) -> jax.Array:
    """The lengths of the inner sets of some outer examples."""
    if problem.counts is None:
        return jnp.full(len(examples), n, jnp.int32)
    return problem.counts[examples].astype(jnp.int32)


def whole_passes(
    order: Order, key: jax.Array, examples: jax.Array, visit: jax.Array, passes: int, n: int, counts: jax.Array | None
) -> jax.Array:
    """The passes over the inner sets of `examples` on their visits number `visit`: (examples, passes, n)."""
    numbers = visit[:, None] * jnp.uint32(passes) + jnp.arange(passes, dtype=jnp.uint32)

    def one_set(example: jax.Array, numbers: jax.Array, count: jax.Array | None) -> jax.Array:
        own = jax.random.fold_in(key, example)
        return jax.vmap(lambda number: order.one_pass(own, number, n, count))(numbers)

    return jax.vmap(one_set)(examples, numbers, counts)


def in_batches(
    whole: jax.Array, counts: jax.Array, batch: int, ragged: bool, visit_batches: int | None = None
) -> Visits:
    """Passes (examples, passes, n) laid out one after the other, in batches: all there are, or as many as asked for."""
    _, passes, n = whole.shape
    steps = -(-passes * n // batch) if visit_batches is None else visit_batches
    place = jnp.arange(steps * batch).reshape(steps, batch)

    def lay_out(whole: jax.Array, count: jax.Array) -> Visits:
        real = (place < passes * count) | (visit_batches is not None)
        rows = jnp.where(real, whole[place // count % passes, place % count], 0)
        first = place[:, 0] // count
        starts = (first > jnp.concatenate([jnp.zeros(1, first.dtype), first[:-1]])) & real[:, 0]
        return Visits(rows, real.astype(jnp.int32), starts)

    visits = jax.vmap(lay_out)(whole, counts)
    padded = visit_batches is None and (ragged or passes * n % batch)
    return visits if padded else visits._replace(weights=None)


def first_orders(problem: Any, key: jax.Array, m: int, n: int) -> jax.Array:
    """A random first order for each of the m inner sets, for an order that learns to improve on."""

    def one(example: jax.Array, count: jax.Array | None) -> jax.Array:
        return FIRST_OF_INNER_SETS.one_pass(jax.random.fold_in(key, example), jnp.uint32(0), n, count)

    return jax.vmap(one, (0, None if problem.counts is None else 0))(jnp.arange(m), problem.counts)


def reordered(
    order: AdaptiveOrder,
    orders: jax.Array,
    examples: jax.Array,
    used: jax.Array,
    counts: jax.Array,
    batch: int,
    seen: Tree,
) -> jax.Array:
    """The table of all orders, with those of the visited inner sets sorted by what was seen of them in `used` rows
    each.
    """
    sort = functools.partial(order.reorder, batch=batch)
    return orders.at[examples].set(jax.vmap(sort)(orders[examples], flat_vectors(seen, 2), used, counts))


def flat_vectors(vectors: Any, leading: int) -> jax.Array:
    """A tree of observed derivatives as one array of vectors: the first `leading` axes, then the width."""
    leaves = [leaf.reshape((*leaf.shape[:leading], -1)) for leaf in jax.tree.leaves(vectors)]
    return jnp.concatenate(leaves, -1) if leaves else jnp.zeros((1,) * leading + (0,))
