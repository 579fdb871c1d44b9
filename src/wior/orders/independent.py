"""Independent sampling: every example drawn afresh, with replacement. The usual assumption of stochastic methods."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32

from wior.orders import bijection
from wior.orders.order import Order


@dataclasses.dataclass(frozen=True)
class Independent(Order):
    """Every example drawn uniformly and independently, with replacement; a pass is n draws."""

    repeats_within_pass: ClassVar[bool] = True

    def run(self, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
        place = offset.astype(jnp.uint32) + jnp.arange(length, dtype=jnp.uint32)
        return draws(key, first_pass + place // jnp.uint32(n), place % jnp.uint32(n), n)

    def one_pass(self, key: jax.Array, number: jax.Array, n: int, count: jax.Array | None = None) -> jax.Array:
        return draws(key, number, jnp.arange(n, dtype=jnp.uint32), n if count is None else count)


def draws(key: jax.Array, numbers: jax.Array, offsets: jax.Array, below: Any) -> jax.Array:
    """A uniform number in [0, below) for each pass number and offset: the cipher of jax's generator at that counter."""
    data, numbers = jax.random.key_data(key), jnp.broadcast_to(numbers, offsets.shape)
    high, low = threefry_2x32(data, jnp.concatenate([numbers.reshape(-1), offsets.reshape(-1)])).reshape(2, -1)
    if isinstance(below, int) and below >= 2**16:
        # one word modulo a large number would favour the small results
        a, b = (jnp.uint32(factor) for factor in bijection.factors(below))
        number, other = (high % a) * b + low % b, (high // a % a) * b + low // b % b
        number = jnp.where(number >= below, other, number)  # past the end: drawn again, by the digits not yet used
        return jnp.where(number >= below, number - jnp.uint32(below), number).astype(jnp.int32)
    return (low % jnp.asarray(below, jnp.uint32)).astype(jnp.int32)
