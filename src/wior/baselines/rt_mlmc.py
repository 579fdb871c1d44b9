"""RT-MLMC: DL-SGD at the lowest level, corrected by a difference of two levels drawn at random.

With v^k the implicit hyper-gradient at the y of EpochSGD(k), all levels on shared batches,

    k = 1 … K with probability p_k ∝ 2^−k,   v = v^1 + (v^{k+1} − v^k)/p_k,   x ← x − η v

so that the expectation over k is v^{K+1} at an expected cost of order K. Levels nest: EpochSGD(k + 1) is EpochSGD(k)
and one more epoch. The Neumann product u = Q τ Π_{j≤p} (I − τ ∇²_yy g(·; ζ'_j)) ∇_y f has one p, uniform in 0 … Q − 1,
for all three. One k and one p serve the whole batch: if every example had its own, the program would make the most
steps of any example for all of them.

Hu, Wang, Xie, Krause, Kuhn, "Contextual stochastic bilevel optimization", NeurIPS 2023.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import oracle, tree
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

Tree = Any


@dataclasses.dataclass(frozen=True)
class RTMLMC(Algorithm):
    """Random levels of inner accuracy, for `ConditionalBilevel` problems.

    The inner problems are solved coarsely, and now and then finely, so that the mean direction is that of the finest
    level. Take it where inner sets are large or endless: its cost does not grow with them.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. Rare fine levels have large weights, so begin below the value for `WiORCBO`.
    inner_lr : float or schedule
        γ, the step size of y: in epoch k the steps are γ/2^k long. Start with 1/L, with L the largest eigenvalue of the
        inner Hessian ∇²_yy g, which `wior.check` measures.
    neumann_lr : float or schedule
        τ, the scale of the Neumann series, at most 1/L with L the largest eigenvalue of the inner Hessian ∇²_yy g.
        Start with the value of `inner_lr`. A smaller one is stable, but needs more terms to come as near.
    levels : int, default 6
        K, the finest level that is drawn; level k has probability proportional to 2^−k. Its inner loop has 2^(K + 2) −
        1 steps, 255 by default.
    neumann_terms : int, default 4
        Q, the terms of the Neumann series in expectation. The product has 0 to Q − 1 factors; one number is drawn for
        the whole batch.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Hu, Wang, Xie, Krause, Kuhn, "Contextual stochastic bilevel optimization", NeurIPS 2023. The updates as formulas:
    `help(wior.baselines.rt_mlmc)`.

    Examples
    --------
    >>> import wior
    >>> method = wior.baselines.RTMLMC(outer_lr=0.01, inner_lr=0.5, neumann_lr=0.5, levels=2)
    >>> [round(float(probability), 3) for probability in method.probabilities]
    [0.667, 0.333]
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, at most 1/L
    levels: int = static(6)  # K
    neumann_terms: int = static(4)  # Q
    damping: float | None = damping_term()  # μ

    solves = ConditionalBilevel
    step_sizes = {"x": "outer_lr"}
    moves = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Hu, Wang, Xie, Krause, Kuhn, NeurIPS 2023"
    cost_varies = True

    @property
    def probabilities(self) -> np.ndarray:
        """Of the levels 1 … K."""
        weights = 0.5 ** np.arange(1, self.levels + 1)
        return weights / weights.sum()

    @property
    def visit_batches(self) -> int:
        return int(epoch_steps(self.levels + 1)) + self.neumann_terms

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=())

    def init(self, problem: ConditionalBilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: ConditionalBilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        for_level, for_length = jax.random.split(draws.key)
        level = 1 + jax.random.choice(for_level, self.levels, p=jnp.asarray(self.probabilities))
        length = random_length(for_length, self.neumann_terms)
        direction, seen = self.estimate(problem, state, draws, level, length)
        examples = problem.outer_batch(draws.outer_index).examples
        return outer_step(self, state, draws, direction, seen, examples)

    def estimate(
        self, problem: ConditionalBilevel, state: State, draws: Draws, level: jax.Array, length: jax.Array
    ) -> tuple[Tree, Tree]:
        """v at a given level, the mean over the batch, and what was seen of the inner sets."""
        index, last = draws.outer_index, int(epoch_steps(self.levels + 1))
        scale, inner_lr = at_step(self.neumann_lr, draws.step), at_step(self.inner_lr, draws.step)
        probability = jnp.asarray(self.probabilities)[level - 1]

        def cotangents(
            xi: Tree, rows: Tree, represented: oracle.Representations, visits: Visits
        ) -> tuple[tuple[Tree, Tree], Tree]:
            inner, batches = InnerProblem(problem, state.x, xi, rows, represented), visits.examples

            def turn(j: jax.Array, carry: tuple[Epochs, Tree, Tree]) -> tuple[Epochs, Tree, Tree]:
                epochs, ends_of, seen = carry
                epochs, g_y, epoch, ends = epoch_step(epochs, j, inner_lr, lambda y: inner.gradient(y, batches[j]))
                # the ends of the epochs 1, level and level + 1, where they coincide in both places
                here = ends & (epoch == jnp.stack([jnp.ones_like(level), level, level + 1]))
                ends_of = jax.tree.map(
                    lambda all_three, y: jnp.where(here.reshape(-1, *(1,) * y.ndim), y, all_three), ends_of, epochs.y
                )
                return epochs, ends_of, tree.put(seen, j, g_y)

            repeated = functools.partial(tree.stack_of_zeros, state.y)
            start = (Epochs(state.y, tree.zeros_like(state.y)), repeated(3), repeated(last))
            _, ends_of, g_y = oracle.repeat(epoch_steps(level + 1), turn, start)
            for_u, for_x = batches[last:-1], batches[-1]
            three, products = oracle.vmap(lambda y: inner.cotangents(y, for_u, for_x, scale, length))(ends_of)
            lowest, low, high = (jax.tree.map(lambda leaf, i=i: leaf[i], three) for i in range(3))
            combined = tree.axpy(1 / probability, tree.sub(high, low), lowest)
            products = jax.tree.map(lambda leaf: leaf[2], products)
            return combined, seen_in_visit(g_y, products)

        xi, sets = problem.outer_batch(index), problem.inner_sets(index)
        represented, back = oracle.represent_batch(problem, state.x, xi, sets.rows)
        each, seen = oracle.vmap(cotangents)(xi.data, sets.rows, represented, draws.visits)
        return back(*each), seen
