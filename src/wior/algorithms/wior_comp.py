"""WiOR-Comp: compositional optimization with moving averages of the inner map and of the outer gradient, in any order.

    y ← (1 − γ) y + γ r(x; ζ),   u ← (1 − ρ) u + ρ ∇f(y; ξ),   x ← x − η ∇r(x; ζ) u

all at the old iterate; u is projected to the ball of radius ι when an epoch starts. It is WiOR-BO for
g(x, y; ζ) = ½‖y − r(x; ζ)‖², whose Hessian is the identity. Two backward passes.

Li, Huang, NeurIPS 2024, appendix, Algorithm WiOR-Comp.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, number, one
from wior.algorithms.wior_bo import Directions, State, descended, project_when
from wior.problems import Compositional
from wior.problems.per_example import shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class WiORComp(Algorithm):
    """The paper's algorithm for `Compositional` problems.

    y follows the inner map r(x) and u the outer gradient, both as moving averages over batches. Two backward passes a
    step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, at most 1: the weight of a new batch in the moving average y of the inner map. Start with 0.5; smaller values
        average more and follow x more slowly.
    adjoint_lr : float or schedule
        ρ, at most 1: the weight of a new batch in the moving average u of the outer gradient. Start with 0.5.
    radius : float, default inf
        ι, the radius of the ball that u is projected to when an epoch starts. Start without a bound. If u grows until
        the run diverges, take a few times the norm of `wior.hypergradient(problem, x0, y0).u`.

    Notes
    -----
        y ← (1 − γ) y + γ r(x; ζ),   u ← (1 − ρ) u + ρ ∇f(y; ξ),   x ← x − η ∇r(x; ζ) u

    all at the old iterate. It is `WiORBO` for g(x, y; ζ) = ½‖y − r(x; ζ)‖², whose Hessian is the identity.

    References
    ----------
    Li, Huang, NeurIPS 2024, appendix, Algorithm WiOR-Comp.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, batch: x + jnp.mean(batch)
    >>> problem = wior.Compositional(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> method = wior.WiORComp(outer_lr=0.05, inner_lr=0.5, adjoint_lr=0.5)
    >>> result = wior.solve(problem, method, jnp.zeros(()), jnp.zeros(()), batch_size=8, steps=300)
    >>> round(float(result.x), 2)
    1.0
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    radius: float = number(math.inf, checks.positive_or_infinite)  # ι

    solves = Compositional
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Li, Huang, NeurIPS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=(1,))

    def init(self, problem: Compositional, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y))

    def step(self, problem: Compositional, state: State, draws: Draws) -> tuple[State, Seen]:
        x, y, u = state = state._replace(u=project_when(draws.starts_epoch, state.u, self.radius))
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        f_y = oracle.map_gradient(problem, y, xi)
        r, product = oracle.map_and_pullback(problem, x, zeta)
        r_x_u = product(u)
        seen = Seen(outer=(one(f_y),), inner=(one((r, shared_part(x, r_x_u))),))
        d = Directions(x=r_x_u, y=tree.sub(y, r), u=tree.sub(u, f_y), seen=seen)
        return descended(self, state, d, draws, zeta), seen
