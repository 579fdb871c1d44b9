"""MRBO: STORM on the inner gradient and on a hyper-gradient with a Neumann sum, in a single loop.

    d_y ← ∇_y g(z) + (1 − b_t) (d_y − ∇_y g(z⁻)),   d_x ← D(z) + (1 − a_t) (d_x − D(z⁻)),   on the same batches
    y ← y − γ_t d_y,   x ← x − η_t d_x

with D(z) = ∇_x f − ∇²_xy g τ Σ_{q=0…Q} Π_{j≤q} (I − τ ∇²_yy g(·; ζ'_j)) ∇_y f. The rates fall as (1 + t/m)^(−1/3), the momenta as its
square, and both momenta are 1 in the first step. Q + 1 is `neumann_terms`, m is `delay`.

Yang, Ji, Liang, "Provably faster algorithms for bilevel optimization", NeurIPS 2021.
"""

from __future__ import annotations

import dataclasses

from wior.algorithms.algorithm import Draws
from wior.algorithms.parts.momentum import DoubleMomentum


@dataclasses.dataclass(frozen=True)
class MRBO(DoubleMomentum):
    """STORM on both levels with a Neumann sum, for `Bilevel` problems."""

    paper = "Yang, Ji, Liang, NeurIPS 2021"

    def length(self, draws: Draws) -> None:
        return None
