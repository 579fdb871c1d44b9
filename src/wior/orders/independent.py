"""Independent sampling: every example drawn afresh, with replacement. The usual assumption of stochastic methods."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

from wior.orders import bijection, wide
from wior.orders.order import Order


@dataclasses.dataclass(frozen=True)
class Independent(Order):
    """Every example drawn uniformly and independently, with replacement; a pass is n draws.

    The usual assumption of stochastic methods, to compare with: the other orders do better on most problems.

    Examples
    --------
    >>> import jax, wior
    >>> examples = wior.orders.Independent().examples(jax.random.key(0), position=0, length=1000, n=5)
    >>> sorted(set(map(int, examples)))
    [0, 1, 2, 3, 4]
    """

    repeats_within_pass: ClassVar[bool] = True

    def run(self, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
        place = offset.astype(jnp.uint32) + jnp.arange(length, dtype=jnp.uint32)
        return draws(key, first_pass + place // jnp.uint32(n), place % jnp.uint32(n), n)

    def one_pass(self, key: jax.Array, number: jax.Array, n: int, count: jax.Array | None = None) -> jax.Array:
        return draws(key, number, jnp.arange(n, dtype=jnp.uint32), n if count is None else count)

    def stretch(self, key: jax.Array, number: np.uint32, offset: int, length: int, n: int) -> np.ndarray:
        return wide_draws(jax.random.fold_in(key, number), offset, length, n)


def draws(key: jax.Array, numbers: jax.Array, offsets: jax.Array, below: Any) -> jax.Array:
    """A uniform number in [0, below) for each pass number and offset: the cipher of jax's generator at that counter."""
    data, numbers = jax.random.key_data(key), jnp.broadcast_to(numbers, offsets.shape)
    high, low = threefry_2x32(data, jnp.concatenate([numbers.reshape(-1), offsets.reshape(-1)])).reshape(2, -1)
    if isinstance(below, int) and below >= 2**16:
        # one word modulo a large number would favor the small results
        a, b = (jnp.uint32(factor) for factor in bijection.factors(below))
        number, other = (high % a) * b + low % b, (high // a % a) * b + low // b % b
        number = jnp.where(number >= below, other, number)  # past the end: drawn again, by the digits not yet used
        return jnp.where(number >= below, number - jnp.uint32(below), number).astype(jnp.int32)
    return (low % jnp.asarray(below, jnp.uint32)).astype(jnp.int32)


def wide_draws(key: jax.Array, offset: int, length: int, below: int) -> np.ndarray:
    """Uniform numbers in [0, below) at counters `offset` and on of Philox, numpy's cipher.

    The remainder of 64 bits; where it would favor small results, drawn again at the same counters under the next key.
    """
    last = 2**64 // below * below - 1
    found = np.empty(length, np.int64)
    missing, attempt = np.ones(length, bool), 0
    while missing.any():
        cipher = np.random.Philox(key=wide.words_of(jax.random.fold_in(key, attempt), 2), counter=offset // 4)
        words = cipher.random_raw(offset % 4 + length)[offset % 4 :]
        taken = missing & (words <= np.uint64(last))
        found[taken] = words[taken] % np.uint64(below)
        missing &= ~taken
        attempt += 1
    return found
