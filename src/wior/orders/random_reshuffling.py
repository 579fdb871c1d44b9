"""Random reshuffling: a fresh permutation for every pass. The paper's WiOR-BO (RR)."""

from __future__ import annotations

import dataclasses

import jax

from wior.orders.order import PermutationOrder


@dataclasses.dataclass(frozen=True)
class RandomReshuffling(PermutationOrder):
    """A fresh random permutation for every pass over the data."""

    def permutation(self, number: jax.Array) -> tuple[jax.Array, bool]:
        return number, False
