"""Shuffle once: one permutation, drawn at the start and used in every pass. The paper's WiOR-BO (SO)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from wior.orders.order import PermutationOrder


@dataclasses.dataclass(frozen=True)
class ShuffleOnce(PermutationOrder):
    """One random permutation, used again in every pass over the data.

    Examples
    --------
    >>> import jax, wior
    >>> passes = wior.orders.ShuffleOnce().examples(jax.random.key(0), position=0, length=12, n=6).reshape(2, 6)
    >>> sorted(map(int, passes[0])), bool((passes[0] == passes[1]).all())
    ([0, 1, 2, 3, 4, 5], True)
    """

    def permutation(self, number: jax.Array) -> tuple[jax.Array, bool]:
        return jnp.zeros_like(number), False
