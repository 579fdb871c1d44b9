"""MRBO: STORM on the inner gradient and on a hyper-gradient with a Neumann sum, in a single loop.

    d_y ← ∇_y g(z) + (1 − b_t) (d_y − ∇_y g(z⁻)),   d_x ← D(z) + (1 − a_t) (d_x − D(z⁻)),   on the same batches
    y ← y − γ_t d_y,   x ← x − η_t d_x

with D(z) = ∇_x f − ∇²_xy g τ Σ_{q=0…Q} Π_{j≤q} (I − τ ∇²_yy g(·; ζ'_j)) ∇_y f. The rates fall as (1 + t/m)^(−1/3), the
momenta as its square, and both momenta are 1 in the first step. Q + 1 is `neumann_terms`, m is `delay`.

Yang, Ji, Liang, "Provably faster algorithms for bilevel optimization", NeurIPS 2021.
"""

from __future__ import annotations

import dataclasses

from wior.algorithms.algorithm import Draws
from wior.algorithms.parts.momentum import DoubleMomentum


@dataclasses.dataclass(frozen=True)
class MRBO(DoubleMomentum):
    """STORM on both levels with a Neumann sum, for `Bilevel` problems.

    A single loop with variance-reduced directions for y and x. The Neumann sum leaves a bias where it has few terms.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. It decays, so the first value may be larger than for other methods.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    neumann_lr : float or schedule
        τ, the scale of the Neumann series, at most 1/L with L the largest eigenvalue of the inner Hessian ∇²_yy g.
        Start with the value of `inner_lr`. A smaller one is stable, but needs more terms to come as near.
    neumann_terms : int, default 4
        Q + 1, the terms of the Neumann sum. u misses (I − τ ∇²_yy g)^(Q + 1) of itself, so badly conditioned inner
        problems need more.
    outer_momentum : float, default 0.9
        a, above 0 and at most 1: the weight of the new batch in the estimate for x after the first step. 1 is the plain
        direction.
    inner_momentum : float, default 0.9
        b, the same for y.
    decay : float, default 1/3
        How the rates fall: as (1 + t/m)^−decay. The momenta fall as its square. A schedule is used as it is.
    delay : float, default 1.0
        m, the number of steps before the decay has an effect. Take some hundreds, a part of the run's steps, where the
        step sizes fall too early.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Yang, Ji, Liang, "Provably faster algorithms for bilevel optimization", NeurIPS 2021. The updates as formulas:
    `help(wior.baselines.mrbo)`.

    Examples
    --------
    >>> import wior
    >>> method = wior.baselines.MRBO(outer_lr=1.0, inner_lr=0.5, neumann_lr=0.5, neumann_terms=8)
    >>> method.neumann_terms, method.outer_momentum
    (8, 0.9)
    """

    paper = "Yang, Ji, Liang, NeurIPS 2021"

    def length(self, draws: Draws) -> None:
        return None
