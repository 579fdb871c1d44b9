"""MA-SOBA: SOBA with a moving average of the outer direction.

    y ← y − γ D_y,   u ← u − ρ D_u,   h ← (1 − θ) h + θ D_x,   x ← x − η h

all at the old iterate, on one batch of each level. Three backward passes.

Chen, Xiao, Balasubramanian, "Optimal algorithms for stochastic bilevel optimization under relaxed smoothness
conditions", 2023.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from wior import checks, tree
from wior.algorithms import wior_bo
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, damping_term, number
from wior.algorithms.parts import estimators
from wior.problems import Bilevel

Tree = Any


class State(NamedTuple):
    x: Tree
    y: Tree
    u: Tree
    h: Tree  # the average of D_x; where x has rows, one for each row


@dataclasses.dataclass(frozen=True)
class MASOBA(Algorithm):
    """A moving average in front of x, for `Bilevel` problems.

    `WiORBO` with an average of the outer direction, at the cost of one copy of x. A good choice where noise in x limits
    the result. Three backward passes a step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of the linear system ∇²_yy g u = ∇_y f. Its matrix is the inner Hessian, so
        the value of `inner_lr` is a good first one here too.
    averaging : float, default 0.1
        θ, above 0 and at most 1: the weight of the new direction in the average. 0.1 averages about ten steps; 1 is
        `WiORBO`.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Chen, Xiao, Balasubramanian, "Optimal algorithms for stochastic bilevel optimization under relaxed smoothness
    conditions", 2023. The updates as formulas: `help(wior.baselines.ma_soba)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.MASOBA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5)
    MASOBA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, averaging=0.1, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    averaging: float = number(0.1, checks.share)  # θ
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr", "h": "outer_lr"}
    paper = "Chen, Xiao, Balasubramanian, 2023"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y), estimators.no_average(x))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        zeta = problem.inner_batch(draws.inner_index)
        here = wior_bo.State(state.x, state.y, state.u)
        d = wior_bo.directions(problem, here, problem.outer_batch(draws.outer_index), zeta)
        h, direction = estimators.moving_average(state.h, d.x, self.averaging, zeta.examples)
        x, y, u = wior_bo.descended(self, here, d._replace(x=direction), draws, zeta)
        return State(x, y, u, h), d.seen
