"""stocBiO: inner SGD steps, then the implicit hyper-gradient with a Neumann sum.

    y ← y − γ ∇_y g(x, y; ζ_k)                                        K times, from the last y
    u = τ Σ_{q=0…Q} Π_{j≤q} (I − τ ∇²_yy g(x, y; ζ'_j)) ∇_y f(x, y; ξ)    a fresh ζ'_j for each factor
    x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ'') u)

Q + 1 is `neumann_terms`. Biased by the terms that are left out: u misses (I − τ ∇²_yy g)^(Q+1) of itself.

Ji, Yang, Liang, "Bilevel optimization: convergence analysis and enhanced design", ICML 2021.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, at_step, damping_term, static
from wior.algorithms.parts.implicit import Series, inner_steps, neumann_step
from wior.problems import Bilevel

Tree = Any


@dataclasses.dataclass(frozen=True)
class StocBiO(Algorithm):
    """Inner SGD steps and a Neumann sum, for `Bilevel` problems.

    y makes some inner SGD steps from its last value, then a Neumann sum gives u. The sum is cut off, which leaves a
    bias where the inner problem is badly conditioned.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    neumann_lr : float or schedule
        τ, the scale of the Neumann series, below 1/L with L the largest eigenvalue of the inner Hessian ∇²_yy g. Start
        with the value of `inner_lr`. A smaller one is stable, but needs more terms to come as near.
    inner_steps : int, default 10
        K, the number of inner SGD steps on y in one step of the method.
    neumann_terms : int, default 4
        Q + 1, the terms of the Neumann sum. u misses (I − τ ∇²_yy g)^(Q + 1) of itself, so badly conditioned inner
        problems need more.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Ji, Yang, Liang, "Bilevel optimization: convergence analysis and enhanced design", ICML 2021. The updates as
    formulas: `help(wior.baselines.stoc_bio)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.StocBiO(outer_lr=1.0, inner_lr=0.5, neumann_lr=0.5)
    StocBiO(outer_lr=1.0, inner_lr=0.5, neumann_lr=0.5, inner_steps=10, neumann_terms=4, separate_streams=False,
        damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, below 1/L
    inner_steps: int = static(10)  # K
    neumann_terms: int = static(4)  # Q + 1
    separate_streams: bool = static(False, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Ji, Yang, Liang, ICML 2021"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (self.inner_steps, self.neumann_terms - 1, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        for_y = draws.inner[0]
        inner_lr = at_step(self.inner_lr, draws.step)
        y, seen_y = inner_steps(problem, state.x, state.y, lambda j: inner_lr, for_y)
        outer_lr, scale = at_step(self.outer_lr, draws.step), at_step(self.neumann_lr, draws.step)
        return neumann_step(problem, state.x, y, draws, seen_y, outer_lr, Series(scale))
