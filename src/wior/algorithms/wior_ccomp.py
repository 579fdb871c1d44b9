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
from wior.problems.per_example import descend, mean_direction, own_rows, with_own

Tree = Any


@dataclasses.dataclass(frozen=True)
class WiORCComp(Algorithm):
    """The paper's algorithm for `ConditionalCompositional` problems.

    Every outer example has an inner mean of its own. For each one in the batch, y and u start anew as moving averages
    over its inner set; then x moves along the mean of their directions.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, at most 1: the weight of a new batch in the moving average y of the inner map. A visit of T updates leaves (1
        − γ)^T of the start, so begin with 10/T, or with 0.9 where T is smaller than 11.
    adjoint_lr : float or schedule
        ρ, at most 1: the weight of a new value in the moving average u of the outer gradient. Start with the value of
        `inner_lr`.
    inner_epochs : int, default 1
        S, the passes over the inner set in one visit. `wior.check` says where one pass is too short.
    radius : float, default inf
        ι, the radius of the ball that u is projected to when a later pass of a visit starts. Start without a bound;
        with `inner_epochs=1` it has no effect.

    Notes
    -----
        y ← (1 − γ) y + γ r(x; ζ),   u ← (1 − ρ) u + ρ ∇f(y; ξ)

    over batches ζ of the inner set of ξ, from y⁰ and u = 0. Then, with the whole inner set,

        x ← x − η ∇r^ξ(x) u,   averaged over the outer batch.

    References
    ----------
    Li, Huang, NeurIPS 2024, appendix, Algorithm WiOR-CComp.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, batch: x + jnp.mean(batch)
    >>> sets = np.arange(24.0).reshape(8, 3)  # three inner examples for each of eight outer ones
    >>> problem = wior.ConditionalCompositional(outer, inner, sets.mean(1) + 1, sets)
    >>> method = wior.WiORCComp(outer_lr=0.1, inner_lr=0.9, adjoint_lr=0.9, inner_epochs=10)
    >>> result = wior.solve(problem, method, jnp.zeros(()), jnp.zeros(()), batch_size=(8, 3), steps=100)
    >>> round(float(result.x), 2)
    1.0
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    inner_epochs: int = static(1)  # S
    radius: float = number(math.inf, checks.positive_or_infinite)  # ι

    solves = ConditionalCompositional
    step_sizes = {"x": "outer_lr"}
    moves = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
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

        def gradient(xi: Tree, rows: Tree, weights: jax.Array | None, visits: Visits, own: Tree) -> tuple[Tree, Tree]:
            x = with_own(state.x, own)
            xi = jax.tree.map(lambda leaf: leaf[None], xi)

            def update(y: Tree, u: Tree, index: jax.Array, weights: jax.Array | None) -> tuple[Tree, Tree, Tree]:
                zeta = oracle.rows_at(rows, index)
                f_y = oracle.conditional_map_gradient(problem, y, xi, weights)
                r = oracle.conditional_map(problem, x, zeta, weights)
                return descend(y, inner_lr, tree.sub(y, r)), descend(u, adjoint_lr, tree.sub(u, f_y)), r

            _, u, seen = visit(update, state.y, tree.zeros_like(state.y), visits, self.radius)
            return oracle.conditional_map_pullback(problem, x, u, rows, weights), seen

        own = own_rows(state.x, xi.examples)
        each, seen = oracle.vmap(gradient)(xi.data, sets.rows, full_weights(sets), draws.visits, own)
        return outer_step(self, state, draws, mean_direction(state.x, each), seen, xi.examples)
