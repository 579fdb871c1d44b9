"""WiOR-BO, Algorithm 1: single-loop bilevel optimization on one batch of each level, in any order.

    y ← y − γ ∇_y g(x, y; ζ)
    u ← u − ρ (∇²_yy g(x, y; ζ) u − ∇_y f(x, y; ξ))
    x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ) u)

all at the old iterate; u is projected to the ball of radius ι when an epoch starts. Three backward passes.

Li, Huang, "Provably faster algorithms for bilevel optimization via without-replacement sampling", NeurIPS 2024.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from wior import checks, oracle, tree
from wior.algorithms.algorithm import (
    Algorithm,
    BatchKinds,
    Draws,
    Rate,
    Seen,
    at_step,
    damping_term,
    is_infinite,
    number,
    one,
)
from wior.problems import Batch, Bilevel
from wior.problems.per_example import descend, shared_part

Tree = Any


class State(NamedTuple):
    """x, y, and u ≈ [∇²_yy g]⁻¹ ∇_y f."""

    x: Tree
    y: Tree
    u: Tree


class Directions(NamedTuple):
    """The directions along which x, y and u descend, and the derivatives that an order may learn from."""

    x: Tree
    y: Tree
    u: Tree
    seen: Seen


@dataclasses.dataclass(frozen=True)
class WiORBO(Algorithm):
    """Algorithm 1 of the paper, for `Bilevel` problems.

    One batch of each level moves y, u and x at once, in any order of the examples. It is the method to try first on a
    bilevel problem: three backward passes a step, and the memory of x and two y.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. For a `PerExample` leaf 10 to 1000 is usual.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of the linear system ∇²_yy g u = ∇_y f. Its matrix is the inner Hessian, so
        the value of `inner_lr` is a good first one here too.
    radius : float, default inf
        ι, the radius of the ball that u is projected to when an epoch starts. Start without a bound. If u grows until
        the run diverges, take a few times the norm of `wior.hypergradient(problem, x0, y0).u`.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    Notes
    -----
        y ← y − γ ∇_y g(x, y; ζ)
        u ← u − ρ (∇²_yy g(x, y; ζ) u − ∇_y f(x, y; ξ))
        x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ) u)

    all at the old iterate, on a batch ξ of the outer and a batch ζ of the inner data.

    References
    ----------
    Li, Huang, "Provably faster algorithms for bilevel optimization via without-replacement sampling", NeurIPS 2024.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> problem = wior.Bilevel(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> method = wior.WiORBO(outer_lr=0.05, inner_lr=0.4, adjoint_lr=0.4)
    >>> result = wior.solve(problem, method, jnp.zeros(()), jnp.zeros(()), batch_size=8, steps=300)
    >>> round(float(result.x), 2), round(float(result.y), 2)
    (1.0, 4.5)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    radius: float = number(math.inf, checks.positive_or_infinite)  # ι
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Li, Huang, NeurIPS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=(1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        state = state._replace(u=project_when(draws.starts_epoch, state.u, self.radius))
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        d = directions(problem, state, xi, zeta)
        return descended(self, state, d, draws, zeta), d.seen


def directions(problem: Bilevel, state: State, xi: Batch, zeta: Batch) -> Directions:
    """All three directions on one batch of each level. Three passes."""
    x, y, u = state
    f_x, f_y = oracle.outer_gradients(problem, x, y, xi)
    g_y, products = oracle.inner_derivatives(problem, x, y, zeta)
    g_xy_u, g_yy_u = products(u)
    seen = Seen(outer=(one((f_y, f_x)),), inner=(one((g_y, g_yy_u, shared_part(x, g_xy_u))),))
    return Directions(x=tree.sub(f_x, g_xy_u), y=g_y, u=tree.sub(g_yy_u, f_y), seen=seen)


def descended(algorithm: Any, state: State, d: Directions, draws: Draws, zeta: Batch, after: Tree = None) -> State:
    """The state after a step along the directions, with the algorithm's three step sizes; `after` as in `descend`."""
    x, y, u = state
    return State(
        x=descend(x, at_step(algorithm.outer_lr, draws.step), d.x, zeta.examples, after),
        y=descend(y, at_step(algorithm.inner_lr, draws.step), d.y),
        u=descend(u, at_step(algorithm.adjoint_lr, draws.step), d.u),
    )


def project_when(condition: Any, u: Tree, radius: Any) -> Tree:
    """u, projected to the ball of `radius` where the condition holds."""
    if is_infinite(radius):
        return u
    return tree.branch(condition, lambda u: tree.project(u, radius), lambda u: u, u)
