"""FlipFlop: a permutation, then the same one backwards, then a new one.

Rajput, Lee, Papailiopoulos, "Permutation-based SGD: is random optimal?", ICLR 2022.
"""

from __future__ import annotations

import dataclasses

import jax

from wior.orders.order import PermutationOrder


@dataclasses.dataclass(frozen=True)
class FlipFlop(PermutationOrder):
    """Passes in pairs: a fresh random permutation, then its reverse."""

    def permutation(self, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        return number // 2, number % 2 == 1
