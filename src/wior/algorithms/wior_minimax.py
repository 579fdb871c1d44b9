"""WiOR-MiniMax: simultaneous descent on x and ascent on y, on one batch, in any order.

    y ← y + γ ∇_y f(x, y; ξ),   x ← x − η ∇_x f(x, y; ξ),   both at the old iterate. One backward pass.

Where y ascends on data of its own, ∇_y f is taken on a batch ζ of these, and there are two passes.

Li, Huang, NeurIPS 2024, appendix, Algorithm WiOR-MiniMax.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, at_step, one
from wior.problems import Minimax
from wior.problems.per_example import descend, has_rows, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class WiORMinimax(Algorithm):
    """The paper's algorithm for `Minimax` problems.

    x descends and y ascends at once, on one batch. One backward pass a step. How near it comes to the solution depends
    on the order of the examples: take one that shuffles. Where y has data of its own (`ascent_data`), it ascends on a
    batch of these, and a step makes two passes.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. Simultaneous
        steps are stable only where x is slow against y: take the value that `wior.check` suggests, or start with a
        hundredth of `inner_lr`.
    inner_lr : float or schedule
        γ, the step size of y, which ascends. Start with 1/L, with L the largest eigenvalue of −∇²_yy f, which
        `wior.check` measures.

    Notes
    -----
        y ← y + γ ∇_y f(x, y; ξ),   x ← x − η ∇_x f(x, y; ξ),   both at the old iterate.

    References
    ----------
    Li, Huang, NeurIPS 2024, appendix, Algorithm WiOR-MiniMax.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> objective = lambda x, y, batch: jnp.mean(x * y - y**2 / 2 + (x - batch) ** 2)
    >>> problem = wior.Minimax(objective, np.arange(8.0))  # its solution is x = y = 7/3
    >>> method = wior.WiORMinimax(outer_lr=0.05, inner_lr=0.5)
    >>> result = wior.solve(problem, method, jnp.zeros(()), jnp.zeros(()), batch_size=8, steps=300)
    >>> round(float(result.x), 2)
    2.33
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ

    solves = Minimax
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Li, Huang, NeurIPS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=())

    def batch_kinds_for(self, problem: Minimax) -> BatchKinds:
        return self.batch_kinds if problem.ascent_data is None else BatchKinds(outer=(1,), inner=(1,))

    def init(self, problem: Minimax, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Minimax, state: State, draws: Draws) -> tuple[State, Seen]:
        x, y = state
        xi = zeta = problem.outer_batch(draws.outer_index)
        if problem.ascent_data is None:
            f_x, f_y = oracle.minimax_gradients(problem, x, y, xi)
            seen = Seen(outer=(one((shared_part(y, f_y), shared_part(x, f_x))),), inner=())
        else:
            zeta = problem.inner_batch(draws.inner_index)
            f_x, f_y = oracle.minimax_gradient_x(problem, x, y, xi), oracle.minimax_gradient_y(problem, x, y, zeta)
            seen = Seen(outer=(one(f_x),), inner=(one(f_y),))
        # where y has rows, both derivatives are read from rows of x and y before any is written
        after = f_y if has_rows(y) else None
        moved = State(
            x=descend(x, at_step(self.outer_lr, draws.step), f_x, xi.examples, after),
            y=descend(y, at_step(self.inner_lr, draws.step), tree.neg(f_y), zeta.examples, f_x),
        )
        return moved, seen
