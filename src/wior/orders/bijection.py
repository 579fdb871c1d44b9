"""A permutation of [0, n) as a function of a key, evaluated at single positions without being stored.

Positions are written as (left, right) in Z_a × Z_b with a·b barely above n, and a Feistel network with modular addition
(the construction of Black and Rogaway, "Ciphers with arbitrary finite domains", 2002) permutes the pairs:

    left ← left + F₁(right) mod a,   right ← right + F₂(left) mod b,   and so on with fresh keys.

Positions that land outside [0, n) walk on along their cycle. There are a·b − n ≤ a few of them, the factors being chosen
for that, so their walks are found once for each key and the others pay a comparison. Below `EXACT_BELOW` a network
mixes badly and a true shuffle, the ranks of random bits, is cheap: it is used there instead.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

EXACT_BELOW = 256
LARGE = 2**16
LARGEST = 2**31 - 1


class Network(NamedTuple):
    """A keyed permutation: the word of each round, and where the walks from outside [0, n) come back.

    Each entry is a number, or an array that is broadcast against the positions.
    """

    words: tuple[jax.Array, ...]
    returns: tuple[jax.Array, ...]


def keyed(key: jax.Array, n: int) -> Network:
    """The network of a key."""
    a, b = factors(n)
    words = tuple(jax.random.bits(key, (rounds(n),), jnp.uint32))
    images = _rounds(words, jnp.arange(n, a * b, dtype=jnp.uint32), a, b)
    # each turn doubles how far a walk has come; one that stays outside for ever is never begun from inside
    for _ in range((a * b - n - 1).bit_length() if a * b > n else 0):
        images = jnp.where(images >= n, images[jnp.maximum(images, jnp.uint32(n)) - jnp.uint32(n)], images)
    return Network(words, tuple(images))


def rounds(n: int) -> int:
    """How many rounds mix n positions well.

    Two positions with the same right half keep their distance with probability b⁻³ after six rounds: too often for a small
    b, where ten rounds are needed.
    """
    return 10 if n < LARGE else 6


def permuted(network: Network, positions: jax.Array, n: int) -> jax.Array:
    """The examples at `positions`."""
    a, b = factors(n)
    image = _rounds(network.words, positions.astype(jnp.uint32), a, b)
    for outside, inside in enumerate(network.returns, n):
        image = jnp.where(image == outside, inside, image)
    return image.astype(jnp.int32)


def shuffled(key: jax.Array, n: int, count: jax.Array | None = None) -> jax.Array:
    """A true shuffle of [0, n): the ranks of random bits.

    With `count`, the first `count` entries are a shuffle of [0, count) and the rest are padding.
    """
    bits, place = jax.random.bits(key, (n,), jnp.uint32), jnp.arange(n)
    if count is not None:
        bits = jnp.where(place < count, bits, jnp.uint32(2**32 - 1))
    if n >= EXACT_BELOW:
        return jnp.argsort(bits, stable=True).astype(jnp.int32)

    def count_smaller(j: jax.Array, ranks: jax.Array) -> jax.Array:
        return ranks + ((bits[j] < bits) | ((bits[j] == bits) & (j < place)))

    # quadratic, but in vector instructions: up to here several times faster than a sort
    return lax.fori_loop(0, n, count_smaller, jnp.zeros(n, jnp.int32))


@functools.cache
def factors(n: int) -> tuple[int, int]:
    """(a, b) with a·b ≥ n as close to n as any pair near the square root."""
    root = math.isqrt(n)
    candidates = [(-(-n // b), b) for b in range(max(1, root // 2), 2 * root + 2)]
    return min(candidates, key=lambda pair: (pair[0] * pair[1] - n, abs(pair[0] - pair[1])))


def _rounds(words: tuple[jax.Array, ...], positions: jax.Array, a: int, b: int) -> jax.Array:
    left, right = positions // jnp.uint32(b), positions % jnp.uint32(b)
    for i, word in enumerate(words):
        if i % 2 == 0:
            left = _add_modulo(left, _hash_below(right ^ word, a), a)
        else:
            right = _add_modulo(right, _hash_below(left ^ word, b), b)
    return left * jnp.uint32(b) + right


def _add_modulo(value: jax.Array, shift: jax.Array, size: int) -> jax.Array:
    total = value + shift
    return jnp.where(total >= size, total - jnp.uint32(size), total)


def _hash_below(word: jax.Array, size: int) -> jax.Array:
    """A well mixed number in [0, size): the 32-bit finaliser of MurmurHash3, scaled by its upper bits."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    word = word ^ (word >> 16)
    bits = size.bit_length()
    return ((word >> bits) * jnp.uint32(size)) >> (32 - bits)
