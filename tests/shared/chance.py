"""The draws of a step: batches, reserves, and keys for what chance may bring."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from baseline_twins import TERMS
from wior.algorithms.algorithm import Draws, Reserve, Reserves
from wior.algorithms.parts import linear_systems
from wior.orders import RandomReshuffling

# what chance brings in three steps from each first one: the length of a Neumann product, and a coin for large batches
CHANCES = {
    0: [(0, False), (3, False), (1, True)],
    3: [(3, False), (0, True), (2, False)],
    15: [(2, True), (1, False), (3, False)],
}


@jax.jit
def chance_of(key):
    return linear_systems.random_length(key, TERMS), jax.random.bernoulli(key, 0.5)


@functools.cache
def keys():
    """A key for each length and side of the coin."""
    some = [jax.random.key(seed) for seed in range(40)]
    found = {(int(p), bool(coin)): key for (p, coin), key in zip(map(chance_of, some), some, strict=True)}
    assert sorted(found) == [(p, coin) for p in range(TERMS) for coin in (False, True)]
    return found


def reserves(m, n):
    return Reserves(*(Reserve(jax.random.key(9 + n), RandomReshuffling(), n) for n in (m, n)))


take = jax.jit(Reserve.take, static_argnames="size")


def large_batches(number, size):
    if size is None:
        return np.arange(7), np.arange(11)
    return [np.asarray(take(reserve, jnp.uint32(number), size=size)) for reserve in reserves(7, 11)]


def drawn(outer, inner, step, key, reserves, visits=None):
    kinds = lambda level: tuple(jnp.asarray(kind, jnp.int32) for kind in level)
    return Draws(kinds(outer), kinds(inner), visits, jnp.uint32(step), jnp.asarray(False), key, reserves)


def random_batches(rng, streams, examples, repeated=True):
    """Batches of 3 outer and 4 inner examples for every kind, of which some hold an example twice."""
    batches = lambda number, rows, size: np.array([rng.choice(rows, size, repeated) for _ in range(number)])
    levels = zip((streams.outer, streams.inner), examples, (3, 4), strict=True)
    return [tuple(batches(number, rows, size) for number in level) for level, rows, size in levels]
