"""WiOR-CComp: conditional compositional optimization, each outer example with an inner mean of its own.

For each outer example ξ of the batch, from y⁰ and u⁰ = 0, S passes over its inner set in any order:

    y ← (1 − γ) y + γ r(x; ζ),   u ← (1 − ρ) u + ρ ∇f(y; ξ)

with u projected to the ball of radius ι when a later pass starts, and then, with the *whole* inner set of ξ,
x ← x − η ∇r^ξ(x) u, averaged over the batch.

Li, Huang, NeurIPS 2024, appendix, Algorithm WiOR-CComp.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, Visits, at_step, number, static
from wior.algorithms.parts.visit import full_weights, outer_step, visit
from wior.problems import ConditionalCompositional
from wior.problems.per_example import descend

Tree = Any


@dataclasses.dataclass(frozen=True)
class WiORCComp(Algorithm):
    """The paper's algorithm for `ConditionalCompositional` problems."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    inner_epochs: int = static(1)  # S
    radius: float = number(math.inf, checks.positive_or_infinite)  # ι

    solves = ConditionalCompositional
    step_sizes = {"x": "outer_lr"}
    paper = "Li, Huang, NeurIPS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=())

    def init(self, problem: ConditionalCompositional, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: ConditionalCompositional, state: State, draws: Draws) -> tuple[State, Seen]:
        index = draws.outer_index
        xi, sets = problem.outer_batch(index), problem.inner_sets(index)
        inner_lr, adjoint_lr = at_step(self.inner_lr, draws.step), at_step(self.adjoint_lr, draws.step)

        def gradient(xi: Tree, rows: Tree, weights: jax.Array | None, visits: Visits) -> tuple[Tree, Tree]:
            xi = jax.tree.map(lambda leaf: leaf[None], xi)

            def update(y: Tree, u: Tree, index: jax.Array, weights: jax.Array | None) -> tuple[Tree, Tree, Tree]:
                zeta = jax.tree.map(lambda leaf: leaf[index], rows)
                f_y = oracle.conditional_map_gradient(problem, y, xi, weights)
                r = oracle.conditional_map(problem, state.x, zeta, weights)
                return descend(y, inner_lr, tree.sub(y, r)), descend(u, adjoint_lr, tree.sub(u, f_y)), r

            _, u, seen = visit(update, state.y, tree.zeros_like(state.y), visits, self.radius)
            return oracle.conditional_map_pullback(problem, state.x, u, rows, weights), seen

        each, seen = oracle.vmap(gradient)(xi.data, sets.rows, full_weights(sets), draws.visits)
        return outer_step(self, state, draws, tree.mean(each), seen)
