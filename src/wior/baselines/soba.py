"""SOBA: the single-loop directions on one batch of each level, with steps that fall as 1/√t.

    y ← y − γ_t ∇_y g(x, y; ζ)
    u ← u − ρ_t (∇²_yy g(x, y; ζ) u − ∇_y f(x, y; ξ))
    x ← x − η_t (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ) u),   each rate · (t + 1)^−decay

all at the old iterate. Three backward passes. With decay = 0 it is WiOR-BO without its projection.

Dagréou, Ablin, Vaiter, Moreau, "A framework for bilevel optimization that enables stochastic and global variance
reduction algorithms", NeurIPS 2022.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, damping_term, decayed, number
from wior.algorithms.wior_bo import State, directions
from wior.problems import Bilevel
from wior.problems.per_example import descend

Tree = Any


@dataclasses.dataclass(frozen=True)
class SOBA(Algorithm):
    """Plain single-loop directions with decaying steps, for `Bilevel` problems.

    One batch of each level moves y, u and x at once, with steps that fall as 1/√t. With `decay=0` it is `WiORBO`
    without a projection. Three backward passes a step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. It decays, so the first value may be larger than for `WiORBO`.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of the linear system ∇²_yy g u = ∇_y f. Its matrix is the inner Hessian, so
        the value of `inner_lr` is a good first one here too.
    decay : float, default 0.5
        How all rates fall: as (t + 1)^−decay in step t. 0 keeps them constant, which serves all but very long runs
        better. A schedule is used as it is.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Dagréou, Ablin, Vaiter, Moreau, "A framework for bilevel optimization that enables stochastic and global variance
    reduction algorithms", NeurIPS 2022. The updates as formulas: `help(wior.baselines.soba)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.SOBA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, decay=0)
    SOBA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, decay=0, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    decay: float = number(0.5, checks.non_negative_number)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Dagréou, Ablin, Vaiter, Moreau, NeurIPS 2022"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        zeta = problem.inner_batch(draws.inner_index)
        d = directions(problem, state, problem.outer_batch(draws.outer_index), zeta)
        moved = State(
            x=descend(state.x, decayed(self.outer_lr, draws.step, self.decay), d.x, zeta.examples),
            y=descend(state.y, decayed(self.inner_lr, draws.step, self.decay), d.y),
            u=descend(state.u, decayed(self.adjoint_lr, draws.step, self.decay), d.u),
        )
        return moved, d.seen
