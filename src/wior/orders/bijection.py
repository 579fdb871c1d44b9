"""A permutation of [0, n) as a function of a key, evaluated at single positions without being stored.

Positions are written as (left, right) in Z_a × Z_b with a·b barely above n, and a Feistel network with modular addition
(the construction of Black and Rogaway, "Ciphers with arbitrary finite domains", 2002) permutes the pairs:

    left ← left + F₁(right) mod a,   right ← right + F₂(left) mod b,   and so on with fresh keys.

Positions that land outside [0, n) walk on along their cycle. There are a·b − n ≤ a few of them, the factors being
chosen for that, so their walks are found once for each key and the others pay a comparison. Below `EXACT_BELOW` a
network mixes badly and a true shuffle, the ranks of random bits, is cheap: it is used there instead. Above `LARGEST`
examples have numbers that need 64 bits: `wide.py`, on the host.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

EXACT_BELOW = 256
LARGE = 2**16
LARGEST = 2**31 - 1
MOST_SCALED = 2**15


class Feistel(NamedTuple):
    """A keyed permutation: the word of each round, and where the walks from outside [0, n) come back.

    Each entry is a number, or an array that is broadcast against the positions.
    """

    words: tuple[jax.Array, ...]
    returns: tuple[jax.Array, ...]


def keyed(key: jax.Array, n: int) -> Feistel:
    """The network of a key."""
    words = tuple(jax.random.bits(key, (rounds(n),), jnp.uint32))
    return Feistel(words, _walks(_rounds, words, n))


def rounds(n: int) -> int:
    """How many rounds mix n positions well.

    Two positions with the same right half keep their distance with probability b⁻³ after six rounds: too often for a
    small b, where ten rounds are needed.
    """
    return 10 if n < LARGE else 6


def permuted(network: Feistel, positions: jax.Array, n: int) -> jax.Array:
    """The examples at `positions`."""
    image = _rounds(network.words, positions.astype(jnp.uint32), *factors(n))
    return _walked(image, network.returns, n)


def inverted(network: Feistel, examples: jax.Array, n: int) -> jax.Array:
    """The positions at which `examples` stand."""
    preimage = _rounds_back(network.words, examples.astype(jnp.uint32), *factors(n))
    return _walked(preimage, _walks(_rounds_back, network.words, n), n)


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
    b = np.arange(max(1, root // 2), 2 * root + 2, dtype=np.int64)
    a = -(-n // b)
    excess = a * b - n
    best = np.flatnonzero(excess == excess.min())
    nearest = best[np.argmin(np.abs(a - b)[best])]
    return int(a[nearest]), int(b[nearest])


def _walks(permute: Callable[..., jax.Array], words: tuple[jax.Array, ...], n: int) -> tuple[jax.Array, ...]:
    """Where the walks from each position outside [0, n) come back."""
    a, b = factors(n)
    images = permute(words, jnp.arange(n, a * b, dtype=jnp.uint32), a, b)
    # each turn doubles how far a walk has come; no walk from inside ends in a cycle that stays outside
    for _ in range((a * b - n - 1).bit_length() if a * b > n else 0):
        images = jnp.where(images >= n, images[jnp.maximum(images, jnp.uint32(n)) - jnp.uint32(n)], images)
    return tuple(images)


def _walked(image: jax.Array, returns: tuple[jax.Array, ...], n: int) -> jax.Array:
    for outside, inside in enumerate(returns, n):
        image = jnp.where(image == outside, inside, image)
    return image.astype(jnp.int32)


def mixed(
    numbered_words: list[tuple[int, Any]], halves: tuple[Any, Any], sizes: tuple[int, int], shift: Callable[..., Any]
) -> tuple[Any, Any]:
    """The rounds of a network: one half in turn is shifted by what `shift` makes of the other and the round's word."""
    left, right = halves
    for number, word in numbered_words:
        if number % 2 == 0:
            left = shift(left, right ^ word, sizes[0])
        else:
            right = shift(right, left ^ word, sizes[1])
    return left, right


def _rounds(words: tuple[jax.Array, ...], positions: jax.Array, a: int, b: int) -> jax.Array:
    forth = lambda value, word, size: _add_modulo(value, _hash_below(word, size), size)
    left, right = mixed(list(enumerate(words)), (positions // jnp.uint32(b), positions % jnp.uint32(b)), (a, b), forth)
    return left * jnp.uint32(b) + right


def _rounds_back(words: tuple[jax.Array, ...], images: jax.Array, a: int, b: int) -> jax.Array:
    back = lambda value, word, size: _add_modulo(value, jnp.uint32(size) - _hash_below(word, size), size)
    left, right = mixed(list(enumerate(words))[::-1], (images // jnp.uint32(b), images % jnp.uint32(b)), (a, b), back)
    return left * jnp.uint32(b) + right


def _add_modulo(value: jax.Array, shift: jax.Array, size: int) -> jax.Array:
    total = value + shift
    return jnp.where(total >= size, total - jnp.uint32(size), total)


def _hash_below(word: jax.Array, size: int) -> jax.Array:
    """A well mixed number in [0, size): the 32-bit finalizer of MurmurHash3, scaled by its upper bits.

    Above 2¹⁵ scaling has too few bits left (of 2¹⁶ numbers only the even ones would come), and the remainder is taken.
    """
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    word = word ^ (word >> 16)
    if size > MOST_SCALED:
        return word % jnp.uint32(size)
    bits = size.bit_length()
    return ((word >> bits) * jnp.uint32(size)) >> (32 - bits)
