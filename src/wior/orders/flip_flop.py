"""FlipFlop: a permutation, then the same one backwards, then a new one.

Rajput, Lee, Papailiopoulos, "Permutation-based SGD: is random optimal?", ICLR 2022.
"""

from __future__ import annotations

import dataclasses

import jax

from wior.orders.order import PermutationOrder


@dataclasses.dataclass(frozen=True)
class FlipFlop(PermutationOrder):
    """Passes in pairs: a fresh random permutation, then its reverse.

    Examples
    --------
    >>> import jax, wior
    >>> passes = wior.orders.FlipFlop().examples(jax.random.key(0), position=0, length=12, n=6).reshape(2, 6)
    >>> bool((passes[0] == passes[1][::-1]).all())
    True
    """

    def permutation(self, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        return number // 2, number % 2 == 1
