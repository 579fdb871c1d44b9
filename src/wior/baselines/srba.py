"""SRBA: SARAH in front of all three single-loop directions, with the full data every period.

    d ← D(z) on all data in steps 0, q, 2q, …;   d ← d + D(z) − D(z⁻) on one batch otherwise;   z ← z − (η, γ, ρ) d

for z = (x, y, u) and D its three directions, all at the old iterate. Where no period is given it is a pass over the
larger data.

Dagréou, Moreau, Vaiter, Ablin, "A lower bound and a near-optimal algorithm for bilevel empirical risk minimization",
AISTATS 2024.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, damping_term, static
from wior.algorithms.parts import recursive
from wior.problems import Bilevel

Tree = Any


@dataclasses.dataclass(frozen=True)
class SRBA(Algorithm):
    """SARAH on all directions, for `Bilevel` problems.

    Every q steps the directions are computed on all data; between, the last ones are corrected by one batch. Less noise
    in all three directions than `WiORBO`.

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
    period : int or None, default None
        q, the steps from one computation on all data to the next. None: one pass over the larger of the two data sets,
        a good first choice.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Dagréou, Moreau, Vaiter, Ablin, "A lower bound and a near-optimal algorithm for bilevel empirical risk
    minimization", AISTATS 2024. The updates as formulas: `help(wior.baselines.srba)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.SRBA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, period=64)
    SRBA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, period=64, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    period: int | None = static(None, checks.positive_integer_or_none)  # q, a pass where None
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    takes_large_batches = True
    paper = "Dagréou, Moreau, Vaiter, Ablin, AISTATS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> recursive.State:
        return recursive.begun(x, y)

    def step(self, problem: Bilevel, state: recursive.State, draws: Draws) -> tuple[recursive.State, Seen]:
        problem = problem.damped(self.damping)
        period = self.period or recursive.steps_in_pass(problem, draws)
        fresh = draws.step % period == 0
        return recursive.recursive_step(self, problem, state, draws, fresh, draws.step // period, None)
