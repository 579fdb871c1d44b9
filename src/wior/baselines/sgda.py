"""SGDA: simultaneous stochastic descent on x and ascent on y, with two step sizes.

    y ← y + γ ∇_y f(x, y; ξ),   x ← x − η ∇_x f(x, y; ξ),   both at the old iterate. One backward pass.

The update of WiOR-MiniMax: the paper's contribution there is the order and its analysis. Lin, Jin and Jordan analyze
independent draws, with η/γ of order 1/κ².

Lin, Jin, Jordan, "On gradient descent ascent for nonconvex-concave minimax problems", ICML 2020.
"""

from __future__ import annotations

import dataclasses

from wior.algorithms.wior_minimax import WiORMinimax


@dataclasses.dataclass(frozen=True)
class SGDA(WiORMinimax):
    """Simultaneous descent and ascent, for `Minimax` problems.

    The update of `WiORMinimax`: the paper's contribution there is the order and its analysis. One backward pass a step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. Simultaneous
        steps are stable only where x is slow against y: take the value that `wior.check` suggests, or start with a
        hundredth of `inner_lr`.
    inner_lr : float or schedule
        γ, the step size of y, which ascends. Start with 1/L, with L the largest eigenvalue of −∇²_yy f, which
        `wior.check` measures.

    References
    ----------
    Lin, Jin, Jordan, "On gradient descent ascent for nonconvex-concave minimax problems", ICML 2020. The updates as
    formulas: `help(wior.baselines.sgda)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.SGDA(outer_lr=0.001, inner_lr=0.1)
    SGDA(outer_lr=0.001, inner_lr=0.1)
    """

    paper = "Lin, Jin, Jordan, ICML 2020"
