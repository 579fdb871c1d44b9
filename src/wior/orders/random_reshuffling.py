"""Random reshuffling: a fresh permutation for every pass. The paper's WiOR-BO (RR)."""

from __future__ import annotations

import dataclasses

import jax

from wior.orders.order import PermutationOrder


@dataclasses.dataclass(frozen=True)
class RandomReshuffling(PermutationOrder):
    """A fresh random permutation for every pass over the data.

    The order to start with: each pass reads every example once, and no two passes repeat the same errors.

    Examples
    --------
    >>> import jax, wior
    >>> passes = wior.orders.RandomReshuffling().examples(jax.random.key(0), position=0, length=12, n=6).reshape(2, 6)
    >>> sorted(map(int, passes[0])), bool((passes[0] == passes[1]).all())
    ([0, 1, 2, 3, 4, 5], False)
    """

    def permutation(self, number: jax.Array) -> tuple[jax.Array, bool]:
        return number, False
