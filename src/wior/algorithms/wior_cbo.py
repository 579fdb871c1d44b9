"""WiOR-CBO, Algorithm 2: conditional bilevel optimization, each outer example with an inner problem of its own.

For each outer example ξ of the batch, from y⁰ and u⁰ = 0, S passes over its inner set in any order:

    y ← y − γ ∇_y g(x, y; ζ),   u ← u − ρ (∇²_yy g(x, y; ζ) u − ∇_y f(x, y; ξ))

with u projected to the ball of radius ι when a later pass starts, and then, with the *whole* inner set of ξ,

    x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g^ξ(x, y) u),

averaged over the batch. γ and ρ, where they are schedules, are functions of the outer step.

Li, Huang, "Provably faster algorithms for bilevel optimization via without-replacement sampling", NeurIPS 2024.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax

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
    number,
    static,
)
from wior.algorithms.parts.visit import full_weights, outer_step, visit
from wior.problems import ConditionalBilevel
from wior.problems.per_example import descend

Tree = Any


@dataclasses.dataclass(frozen=True)
class WiORCBO(Algorithm):
    """Algorithm 2 of the paper, for `ConditionalBilevel` problems.

    Every outer example has an inner problem of its own. For each one in the batch, y and u start anew and pass over its
    inner set; then x moves along the mean of their directions.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y. Start a little below 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g,
        which `wior.check` measures. With many updates in a visit a smaller value averages more of the noise away.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of ∇²_yy g u = ∇_y f of one outer example. Start with the value of
        `inner_lr`.
    inner_epochs : int, default 1
        S, the passes over the inner set in one visit. y and u start anew at every visit, so they must come near their
        solutions within it: `wior.check` says where one pass is too short.
    radius : float, default inf
        ι, the radius of the ball that u is projected to when a later pass of a visit starts. Start without a bound;
        with `inner_epochs=1` it has no effect.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    Notes
    -----
        y ← y − γ ∇_y g(x, y; ζ),   u ← u − ρ (∇²_yy g(x, y; ζ) u − ∇_y f(x, y; ξ))

    over batches ζ of the inner set of ξ, from y⁰ and u = 0. Then, with the whole inner set,

        x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g^ξ(x, y) u),   averaged over the outer batch.

    References
    ----------
    Li, Huang, "Provably faster algorithms for bilevel optimization via without-replacement sampling", NeurIPS 2024.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> sets = np.arange(24.0).reshape(8, 3)  # three inner examples for each of eight outer ones
    >>> problem = wior.ConditionalBilevel(outer, inner, sets.mean(1) + 1, sets)
    >>> method = wior.WiORCBO(outer_lr=0.1, inner_lr=0.4, adjoint_lr=0.4, inner_epochs=10)
    >>> result = wior.solve(problem, method, jnp.zeros(()), jnp.zeros(()), batch_size=(8, 3), steps=100)
    >>> round(float(result.x), 2)
    1.0
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    inner_epochs: int = static(1)  # S
    radius: float = number(math.inf, checks.positive_or_infinite)  # ι
    damping: float | None = damping_term()  # μ

    solves = ConditionalBilevel
    step_sizes = {"x": "outer_lr"}
    moves = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Li, Huang, NeurIPS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=())

    def init(self, problem: ConditionalBilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: ConditionalBilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        index = draws.outer_index
        xi, sets = problem.outer_batch(index), problem.inner_sets(index)
        inner_lr, adjoint_lr = at_step(self.inner_lr, draws.step), at_step(self.adjoint_lr, draws.step)

        def cotangents(
            xi: Tree, rows: Tree, represented: oracle.Representations, weights: jax.Array | None, visits: Visits
        ) -> tuple[Tree, Tree, Tree]:
            xi = jax.tree.map(lambda leaf: leaf[None], xi)
            inner_point, outer_point = represented.at(state.x)

            def update(y: Tree, u: Tree, index: jax.Array, weights: jax.Array | None) -> tuple[Tree, Tree, Tree]:
                zeta = oracle.rows_at(rows, index)
                point = oracle.rows_of(inner_point, problem.represent is not None, index)
                f_y = oracle.conditional_outer_y(problem, outer_point, y, xi, weights)
                g_y, g_yy_u = oracle.conditional_inner(problem, point, y, u, zeta, weights)
                return descend(y, inner_lr, g_y), descend(u, adjoint_lr, tree.sub(g_yy_u, f_y)), (g_y, g_yy_u)

            y, u, seen = visit(update, state.y, tree.zeros_like(state.y), visits, self.radius)
            f_x = oracle.conditional_outer_x(problem, outer_point, y, xi)
            g_xy_u = oracle.conditional_cross(problem, inner_point, y, u, rows, weights)
            return f_x, g_xy_u, seen

        represented, back = oracle.represent_batch(problem, state.x, xi, sets.rows)
        f_x, g_xy_u, seen = oracle.vmap(cotangents)(xi.data, sets.rows, represented, full_weights(sets), draws.visits)
        return outer_step(self, state, draws, back(f_x, g_xy_u), seen, xi.examples)
