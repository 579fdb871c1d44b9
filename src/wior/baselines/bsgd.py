"""BSGD: conditional compositional optimization with a batch mean in place of each inner mean.

    x ← x − η ∇r(x; ζ) ∇f(r(x; ζ); ξ),   ζ one batch of the inner set of ξ, averaged over the batch of ξ

Biased by the nonlinearity of f over the variance of the batch mean: of the order of one over the inner batch size.

Hu, Zhang, Chen, He, "Biased stochastic first-order methods for conditional stochastic optimization and applications in
meta learning", NeurIPS 2020.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from wior import oracle
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, Visits, one
from wior.algorithms.parts.visit import outer_step
from wior.problems import ConditionalCompositional
from wior.problems.per_example import mean_direction, own_rows, with_own

Tree = Any


@dataclasses.dataclass(frozen=True)
class BSGD(Algorithm):
    """One inner batch for each outer example, for `ConditionalCompositional` problems.

    The mean of one batch stands in for the whole inner mean. The direction is biased, by about one over the inner batch
    size, so it ends farther from the solution than `WiORCComp`.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x, the only hyper-parameter. A number, or a schedule: a function of the step number, as
        optax has them. Take the `outer_lr` that `wior.check` suggests, and try factors of 3 from there. Where the bias
        stops the progress, take larger inner batches.

    References
    ----------
    Hu, Zhang, Chen, He, "Biased stochastic first-order methods for conditional stochastic optimization and applications
    in meta learning", NeurIPS 2020. The updates as formulas: `help(wior.baselines.bsgd)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.BSGD(outer_lr=0.003)
    BSGD(outer_lr=0.003)
    """

    outer_lr: Rate  # η

    solves = ConditionalCompositional
    step_sizes = {"x": "outer_lr"}
    paper = "Hu, Zhang, Chen, He, NeurIPS 2020"

    @property
    def visit_batches(self) -> int:
        return 1

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=())

    def init(self, problem: ConditionalCompositional, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: ConditionalCompositional, state: State, draws: Draws) -> tuple[State, Seen]:
        index = draws.outer_index

        def gradient(xi: Tree, rows: Tree, visits: Visits, own: Tree) -> tuple[Tree, Tree]:
            zeta = oracle.rows_at(rows, visits.examples[0])
            r, product = oracle.conditional_map_and_pullback(problem, with_own(state.x, own), zeta)
            f_y = oracle.conditional_map_gradient(problem, r, jax.tree.map(lambda leaf: leaf[None], xi), None)
            direction = product(f_y)
            return direction, one((r, direction))

        xi, sets = problem.outer_batch(index), problem.inner_sets(index)
        each, seen = oracle.vmap(gradient)(xi.data, sets.rows, draws.visits, own_rows(state.x, xi.examples))
        return outer_step(self, state, draws, mean_direction(state.x, each), seen, xi.examples)
