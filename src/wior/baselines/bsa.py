"""BSA: a growing number of inner SGD steps of decreasing length, then a Neumann product of random length.

    y ← y − γ 2/(j + 2) ∇_y g(x, y; ζ_j),   j = 0 … t_k − 1,  t_k = min(K, ⌈(k + 1)^growth⌉)
    u = Q τ Π_{j≤p} (I − τ ∇²_yy g(x, y; ζ'_j)) ∇_y f(x, y; ξ),   p uniform in 0 … Q − 1
    x ← x − η_k (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ'') u),   η_k = η (k + 1)^−decay

τ is the paper's 1/L, γ its 1/μ; √k inner steps in step k and η_k of order 1/√k are its choice. K is where the growth
ends: a step takes K batches from the order and leaves those it does not need unread. In expectation u misses (I − τ
∇²_yy g)^Q of itself.

Ghadimi, Wang, "Approximation methods for bilevel programming", 2018.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from wior import checks, oracle, tree
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
    static,
)
from wior.algorithms.parts.implicit import Series, neumann_step
from wior.algorithms.parts.linear_systems import random_length
from wior.problems import Bilevel
from wior.problems.per_example import descend

Tree = Any


@dataclasses.dataclass(frozen=True)
class BSA(Algorithm):
    """Growing inner loops and a Neumann product of random length, for `Bilevel` problems.

    The inner loop grows from step to step and its step lengths fall within it; the hyper-gradient is unbiased but for
    the terms that are cut off.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. It decays, so the first value may be larger than for other methods.
    inner_lr : float or schedule
        γ, the length of the first inner SGD step on y; step j of the loop is γ 2/(j + 2) long. Start with 1/L, with L
        the largest eigenvalue of the inner Hessian ∇²_yy g, which `wior.check` measures.
    neumann_lr : float or schedule
        τ, the scale of the Neumann series, at most 1/L with L the largest eigenvalue of the inner Hessian ∇²_yy g.
        Start with the value of `inner_lr`. A smaller one is stable, but needs more terms to come as near.
    inner_steps : int, default 10
        K, the number of inner SGD steps at which the loop stops growing.
    neumann_terms : int, default 4
        Q, the terms of the Neumann series in expectation. The product has 0 to Q − 1 factors, drawn in every step. More
        terms, less bias and more noise.
    growth : float, default 0.5
        How the inner loop grows: step k has min(K, ⌈(k + 1)^growth⌉) inner steps. 0 is one inner step always.
    decay : float, default 0.5
        How the step size of x falls: η (k + 1)^−decay in step k. 0 keeps it constant, which serves short runs better. A
        schedule is used as it is.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Ghadimi, Wang, "Approximation methods for bilevel programming", 2018. The updates as formulas:
    `help(wior.baselines.bsa)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.BSA(outer_lr=1.0, inner_lr=0.5, neumann_lr=0.5, decay=0)
    BSA(outer_lr=1.0, inner_lr=0.5, neumann_lr=0.5, inner_steps=10, neumann_terms=4, growth=0.5, decay=0,
        separate_streams=False, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, at most 1/L
    inner_steps: int = static(10)  # K
    neumann_terms: int = static(4)  # Q
    growth: float = number(0.5, checks.non_negative_number)
    decay: float = number(0.5, checks.non_negative_number)
    separate_streams: bool = static(False, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Ghadimi, Wang, 2018"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (self.inner_steps, self.neumann_terms - 1, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        for_y = draws.inner[0]
        inner_lr = at_step(self.inner_lr, draws.step)
        grown = jnp.ceil(decayed(1.0, draws.step, -self.growth))
        unseen = tree.stack_of_zeros(state.y, self.inner_steps)

        def turn(j: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            y, seen = carry
            g_y = oracle.inner_gradient(problem, state.x, y, problem.inner_batch(for_y[j]))
            return descend(y, inner_lr * 2 / (j + 2), g_y), tree.put(seen, j, g_y)

        y, seen_y = oracle.repeat(jnp.minimum(grown, self.inner_steps), turn, (state.y, unseen))
        outer_lr, scale = decayed(self.outer_lr, draws.step, self.decay), at_step(self.neumann_lr, draws.step)
        return neumann_step(
            problem, state.x, y, draws, seen_y, outer_lr, Series(scale, random_length(draws.key, self.neumann_terms))
        )
