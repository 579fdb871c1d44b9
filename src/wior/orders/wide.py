"""The network of `bijection.py` for lengths up to 2⁶³, in numpy on the host, which has 64-bit integers.

The halves stay below 2³², so a round hashes a half and a 64-bit word of the key by the 64-bit finalizer of MurmurHash3
and takes the remainder. Data of this size are read piece by piece from the host, which is where these numbers are
wanted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior.orders import bijection

LARGEST = 2**63 - 1
CANDIDATES = 2**16
IN_CACHE = 2**14  # positions taken together


class WideFeistel(NamedTuple):
    """A keyed permutation of [0, n): the word of each round, and where the walks from outside come back, both ways."""

    n: int
    words: tuple[np.uint64, ...]
    returns: np.ndarray
    returns_back: np.ndarray


def keyed(key: jax.Array, n: int) -> WideFeistel:
    """The network of a key."""
    words = tuple(words_of(key, bijection.rounds(n)))
    a, b = factors(n)
    outside = np.arange(n, a * b, dtype=np.uint64)
    return WideFeistel(n, words, *(_walks(permute(words, outside, a, b), n) for permute in (_rounds, _rounds_back)))


def permuted(network: WideFeistel, positions: np.ndarray) -> np.ndarray:
    """The examples at `positions`, as int64."""
    return _in_pieces(_rounds, network, positions, network.returns)


def inverted(network: WideFeistel, examples: np.ndarray) -> np.ndarray:
    """The positions at which `examples` stand, as int64."""
    return _in_pieces(_rounds_back, network, examples, network.returns_back)


def words_of(key: jax.Array, count: int) -> np.ndarray:
    """64-bit words; made of halves, since jax has no longer integers unless told so."""
    high, low = np.asarray(jax.random.bits(key, (2, count), jnp.uint32)).astype(np.uint64)
    return high << np.uint64(32) | low


@functools.cache
def factors(n: int) -> tuple[int, int]:
    """(a, b) with a·b ≥ n close to n and a ≥ b near the square root.

    4ab = s² − d² for the sum s and the difference d: of each of the smallest sums the largest difference that keeps ab
    ≥ n. So the excess is at most about n^¼, and the least of many such.
    """
    least = math.isqrt(4 * n - 1) + 1
    more = np.arange(min(CANDIDATES, least // 8 + 1), dtype=np.int64)  # up to a = 4b
    square = (least**2 - 4 * n) + 2 * least * more + more**2
    d = np.sqrt(square).astype(np.int64)  # exact: the squares are below 2⁵⁰
    d -= (d + least + more) % 2
    best = int(np.argmin(square - d * d))
    s, difference = least + best, int(d[best])
    return (s + difference) // 2, (s - difference) // 2


def _in_pieces(
    permute: Callable[..., np.ndarray], network: WideFeistel, values: np.ndarray, returns: np.ndarray
) -> np.ndarray:
    flat = np.ravel(values).astype(np.uint64)
    a, b = factors(network.n)
    for start in range(0, flat.size, IN_CACHE):
        piece = flat[start : start + IN_CACHE]
        image = permute(network.words, piece, a, b)
        outside = np.flatnonzero(image >= np.uint64(network.n))
        image[outside] = returns[image[outside] - np.uint64(network.n)]
        piece[:] = image
    return flat.astype(np.int64).reshape(np.shape(values))


def _walks(images: np.ndarray, n: int) -> np.ndarray:
    # each turn doubles how far a walk has come; no walk from inside ends in a cycle that stays outside
    for _ in range(len(images).bit_length()):
        outside = np.flatnonzero(images >= np.uint64(n))
        images[outside] = images[images[outside] - np.uint64(n)]
    return images


def _rounds(words: tuple[np.uint64, ...], positions: np.ndarray, a: int, b: int) -> np.ndarray:
    forth = lambda value, word, size: _add_modulo(value, _hash_below(word, size), size)
    left, right = bijection.mixed(list(enumerate(words)), np.divmod(positions, np.uint64(b)), (a, b), forth)
    return left * np.uint64(b) + right


def _rounds_back(words: tuple[np.uint64, ...], images: np.ndarray, a: int, b: int) -> np.ndarray:
    back = lambda value, word, size: _add_modulo(value, np.uint64(size) - _hash_below(word, size), size)
    left, right = bijection.mixed(list(enumerate(words))[::-1], np.divmod(images, np.uint64(b)), (a, b), back)
    return left * np.uint64(b) + right


def _add_modulo(value: np.ndarray, shift: np.ndarray, size: int) -> np.ndarray:
    total = value + shift
    return np.minimum(total, total - np.uint64(size))  # below zero the difference wraps to a large number


def _hash_below(word: np.ndarray, size: int) -> np.ndarray:
    """A well mixed number in [0, size): the 64-bit finalizer of MurmurHash3; the remainder's bias is below 2⁻³²."""
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return (word ^ (word >> np.uint64(33))) % np.uint64(size)
