"""SUSTAIN: STORM on the inner gradient and on a hyper-gradient with a Neumann product of random length, in a single loop.

    d_y ← ∇_y g(z) + (1 − b_t) (d_y − ∇_y g(z⁻)),   d_x ← D(z) + (1 − a_t) (d_x − D(z⁻)),   on the same batches
    y ← y − γ_t d_y,   x ← x − η_t d_x

with D(z) = ∇_x f − ∇²_xy g Q τ Π_{j≤p} (I − τ ∇²_yy g(·; ζ'_j)) ∇_y f and one p, uniform in 0 … Q − 1, for both evaluations. The
rates fall as (1 + t/m)^(−1/3), the momenta as its square, and both momenta are 1 in the first step. m is `delay`.

Khanduri, Zeng, Hong, Wai, Wang, Yang, "A near-optimal algorithm for stochastic bilevel optimization via double-momentum",
NeurIPS 2021.
"""

from __future__ import annotations

import dataclasses

import jax

from wior.algorithms.algorithm import Draws
from wior.algorithms.parts.linear_systems import random_length
from wior.algorithms.parts.momentum import DoubleMomentum


@dataclasses.dataclass(frozen=True)
class SUSTAIN(DoubleMomentum):
    """STORM on both levels with a Neumann product, for `Bilevel` problems."""

    paper = "Khanduri et al., NeurIPS 2021"

    def length(self, draws: Draws) -> jax.Array:
        return random_length(draws.key, self.neumann_terms)
