"""SCGD: compositional optimization with a running mean of the inner map.

    y ← (1 − β_k) y + β_k r(x; ζ),   x ← x − η_k ∇r(x; ζ) ∇f(y; ξ),   at the new y

with β_k = β (k + 1)^(−1/2) and η_k = η (k + 1)^(−3/4). Two backward passes.

Wang, Fang, Liu, "Stochastic compositional gradient descent", Mathematical Programming 2017.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, decayed, number, one
from wior.problems import Compositional
from wior.problems.per_example import descend, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class SCGD(Algorithm):
    """A running mean of the inner map, for `Compositional` problems.

    y is a running mean of the inner map; x descends along the gradient at the new y, with step sizes that fall. Two
    backward passes a step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. It decays, so the first value may be larger than for other methods.
    inner_lr : float or schedule
        β, at most 1: the weight of a new batch in the running mean y of the inner map, in the first step. Start with
        0.5.
    outer_decay : float, default 3/4
        How the step size of x falls: η (k + 1)^−decay in step k. 0 keeps it constant. A schedule is used as it is.
    inner_decay : float, default 1/2
        How the weight of a new batch falls: β (k + 1)^−decay in step k. 0 keeps it constant. A schedule is used as it
        is.

    References
    ----------
    Wang, Fang, Liu, "Stochastic compositional gradient descent", Mathematical Programming 2017. The updates as
    formulas: `help(wior.baselines.scgd)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.SCGD(outer_lr=0.3, inner_lr=0.5)
    SCGD(outer_lr=0.3, inner_lr=0.5, outer_decay=0.75, inner_decay=0.5)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # β, at most 1
    outer_decay: float = number(3 / 4, checks.non_negative_number)
    inner_decay: float = number(1 / 2, checks.non_negative_number)

    solves = Compositional
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Wang, Fang, Liu, Mathematical Programming 2017"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Compositional, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Compositional, state: State, draws: Draws) -> tuple[State, Seen]:
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        r, product = oracle.map_and_pullback(problem, state.x, zeta)
        y = descend(state.y, decayed(self.inner_lr, draws.step, self.inner_decay), tree.sub(state.y, r))
        f_y = oracle.map_gradient(problem, y, xi)
        direction = product(f_y)
        x = descend(state.x, decayed(self.outer_lr, draws.step, self.outer_decay), direction, zeta.examples)
        return State(x, y), Seen((one(f_y),), (one((r, shared_part(state.x, direction))),))
