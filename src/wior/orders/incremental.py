"""Incremental: the examples as they lie in the data, in every pass."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from wior.orders.order import Order


@dataclasses.dataclass(frozen=True)
class Incremental(Order):
    """The order of the data itself, in every pass.

    Use another order where the data are sorted, for example by label.

    Examples
    --------
    >>> import jax, wior
    >>> wior.orders.Incremental().examples(jax.random.key(0), position=2, length=6, n=4)
    array([2, 3, 0, 1, 2, 3])
    """

    def run(self, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
        return ((offset.astype(jnp.uint32) + jnp.arange(length, dtype=jnp.uint32)) % jnp.uint32(n)).astype(jnp.int32)

    def one_pass(self, key: jax.Array, number: jax.Array, n: int, count: jax.Array | None = None) -> jax.Array:
        return jnp.arange(n, dtype=jnp.int32)

    def stretch(self, key: jax.Array, number: np.uint32, offset: int, length: int, n: int) -> np.ndarray:
        return np.arange(offset, offset + length, dtype=np.int64)
