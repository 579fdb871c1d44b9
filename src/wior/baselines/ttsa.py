"""TTSA: one inner step and one outer step on two time scales, with a Neumann product of random length.

    y ← y − γ_k ∇_y g(x, y; ζ),   γ_k = γ (k + 1)^(−2/5)
    x ← x − η_k (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ'') u),   η_k = η (k + 1)^(−3/5),  at the new y

with u = Q τ Π_{j≤p} (I − τ ∇²_yy g(x, y; ζ'_j)) ∇_y f(x, y; ξ) and p uniform in 0 … Q − 1.

Hong, Wai, Wang, Yang, "A two-timescale framework for bilevel optimization", 2020.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, oracle
from wior.algorithms.algorithm import (
    Algorithm,
    BatchKinds,
    Draws,
    Rate,
    Seen,
    State,
    at_step,
    damping_term,
    decayed,
    number,
    one,
    static,
)
from wior.algorithms.parts.implicit import Series, neumann_step
from wior.algorithms.parts.linear_systems import random_length
from wior.problems import Bilevel
from wior.problems.per_example import descend

Tree = Any


@dataclasses.dataclass(frozen=True)
class TTSA(Algorithm):
    """Two time scales and a Neumann product of random length, for `Bilevel` problems.

    One inner step and one outer step at a time; the step size of x falls faster than that of y, so that y has time to
    follow.

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
        Q, the terms of the Neumann series in expectation. The product has 0 to Q − 1 factors, drawn in every step.
    outer_decay : float, default 3/5
        How the step size of x falls: η (k + 1)^−decay in step k. 0 keeps it constant. A schedule is used as it is.
    inner_decay : float, default 2/5
        How the step size of y falls: γ (k + 1)^−decay in step k. 0 keeps it constant. A schedule is used as it is.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Hong, Wai, Wang, Yang, "A two-timescale framework for bilevel optimization", 2020. The updates as formulas:
    `help(wior.baselines.ttsa)`.

    Examples
    --------
    >>> import wior
    >>> method = wior.baselines.TTSA(outer_lr=1.0, inner_lr=0.5, neumann_lr=0.5)
    >>> method.outer_decay > method.inner_decay
    True
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, at most 1/L
    neumann_terms: int = static(4)  # Q
    outer_decay: float = number(3 / 5, checks.non_negative_number)
    inner_decay: float = number(2 / 5, checks.non_negative_number)
    separate_streams: bool = static(False, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Hong, Wai, Wang, Yang, 2020"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1, self.neumann_terms - 1, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        (for_y,) = draws.inner[0]
        g_y = oracle.inner_gradient(problem, state.x, state.y, problem.inner_batch(for_y))
        y = descend(state.y, decayed(self.inner_lr, draws.step, self.inner_decay), g_y)
        outer_lr, scale = decayed(self.outer_lr, draws.step, self.outer_decay), at_step(self.neumann_lr, draws.step)
        return neumann_step(
            problem, state.x, y, draws, one(g_y), outer_lr, Series(scale, random_length(draws.key, self.neumann_terms))
        )
