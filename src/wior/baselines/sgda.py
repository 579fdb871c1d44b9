"""SGDA: simultaneous stochastic descent on x and ascent on y, with two step sizes.

    y ← y + γ ∇_y f(x, y; ξ),   x ← x − η ∇_x f(x, y; ξ),   both at the old iterate. One backward pass.

The update of WiOR-MiniMax: the paper's contribution there is the order and its analysis. Theirs is of independent draws, with η of order 1/κ² of γ.

Lin, Jin, Jordan, "On gradient descent ascent for nonconvex-concave minimax problems", ICML 2020.
"""

from __future__ import annotations

import dataclasses

from wior.algorithms.wior_minimax import WiORMinimax


@dataclasses.dataclass(frozen=True)
class SGDA(WiORMinimax):
    """Simultaneous descent and ascent, for `Minimax` problems."""

    paper = "Lin, Jin, Jordan, ICML 2020"
