"""DL-SGD: SGD on the inner problem of each outer example, then an implicit hyper-gradient with a Neumann product.

    y: EpochSGD(K) from y⁰, or `inner_steps` plain steps y ← y − γ ∇_y g(x, y; ζ)
    u = Q τ Π_{j≤p} (I − τ ∇²_yy g(x, y; ζ'_j)) ∇_y f(x, y; ξ),   p uniform in 0 … Q − 1
    x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ'') u),   averaged over the batch

One p serves the whole batch. All inner batches of a visit come from the inner set of ξ in the chosen order, the next
pass beginning where one ends. The inner steps of EpochSGD are γ/2^k long in epoch k.

Hu, Wang, Xie, Krause, Kuhn, "Contextual stochastic bilevel optimization", NeurIPS 2023.
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
    Visits,
    at_step,
    damping_term,
    static,
)
from wior.algorithms.parts.contextual import Epochs, InnerProblem, epoch_step, epoch_steps, seen_in_visit
from wior.algorithms.parts.linear_systems import random_length
from wior.algorithms.parts.visit import outer_step
from wior.problems import ConditionalBilevel
from wior.problems.per_example import descend

Tree = Any


@dataclasses.dataclass(frozen=True)
class DLSGD(Algorithm):
    """An inner loop for each outer example, for `ConditionalBilevel` problems.

    For each outer example of the batch an inner problem is solved by SGD, and the hyper-gradient estimated at its end.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y: in epoch k of EpochSGD the steps are γ/2^k long. Start with 1/L, with L the largest
        eigenvalue of the inner Hessian ∇²_yy g, which `wior.check` measures.
    neumann_lr : float or schedule
        τ, the scale of the Neumann series, at most 1/L with L the largest eigenvalue of the inner Hessian ∇²_yy g.
        Start with the value of `inner_lr`. A smaller one is stable, but needs more terms to come as near.
    levels : int, default 3
        K, the last epoch of EpochSGD, which makes 2^(K + 1) − 1 inner steps: 15 by default. It has no effect where
        `inner_steps` is given.
    inner_steps : int or None, default None
        The number of plain SGD steps of length γ, in place of EpochSGD. None: EpochSGD.
    neumann_terms : int, default 4
        Q, the terms of the Neumann series in expectation. The product has 0 to Q − 1 factors; one number is drawn for
        the whole batch.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Hu, Wang, Xie, Krause, Kuhn, "Contextual stochastic bilevel optimization", NeurIPS 2023. The updates as formulas:
    `help(wior.baselines.dl_sgd)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.DLSGD(outer_lr=0.01, inner_lr=0.5, neumann_lr=0.5, levels=3).steps
    15
    >>> wior.baselines.DLSGD(outer_lr=0.01, inner_lr=0.5, neumann_lr=0.5, inner_steps=4).steps
    4
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, at most 1/L
    levels: int = static(3)  # K
    inner_steps: int | None = static(None, checks.positive_integer_or_none)
    neumann_terms: int = static(4)  # Q
    damping: float | None = damping_term()  # μ

    solves = ConditionalBilevel
    step_sizes = {"x": "outer_lr"}
    moves = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Hu, Wang, Xie, Krause, Kuhn, NeurIPS 2023"

    @property
    def steps(self) -> int:
        """Inner steps of a visit."""
        return int(epoch_steps(self.levels)) if self.inner_steps is None else self.inner_steps

    @property
    def visit_batches(self) -> int:
        return self.steps + self.neumann_terms

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=())

    def init(self, problem: ConditionalBilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: ConditionalBilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        index = draws.outer_index
        scale, inner_lr = at_step(self.neumann_lr, draws.step), at_step(self.inner_lr, draws.step)
        length = random_length(draws.key, self.neumann_terms)

        def cotangents(
            xi: Tree, rows: Tree, represented: oracle.Representations, visits: Visits
        ) -> tuple[tuple[Tree, Tree], Tree]:
            inner, batches = InnerProblem(problem, state.x, xi, rows, represented), visits.examples

            def turn(carry: Epochs, item: tuple[jax.Array, jax.Array]) -> tuple[Epochs, Tree]:
                j, index = item
                if self.inner_steps is None:
                    carry, g_y, *_ = epoch_step(carry, j, inner_lr, lambda y: inner.gradient(y, index))
                    return carry, g_y
                g_y = inner.gradient(carry.y, index)
                return carry._replace(y=descend(carry.y, inner_lr, g_y)), g_y

            start = Epochs(state.y, tree.zeros_like(state.y))
            ended, g_y = oracle.scan(turn, start, (jnp.arange(self.steps), batches[: self.steps]))
            for_u, for_x = batches[self.steps : -1], batches[-1]
            of_xi, products = inner.cotangents(ended.y, for_u, for_x, scale, length)
            return of_xi, seen_in_visit(g_y, products)

        xi, sets = problem.outer_batch(index), problem.inner_sets(index)
        represented, back = oracle.represent_batch(problem, state.x, xi, sets.rows)
        each, seen = oracle.vmap(cotangents)(xi.data, sets.rows, represented, draws.visits)
        return outer_step(self, state, draws, back(*each), seen, xi.examples)
