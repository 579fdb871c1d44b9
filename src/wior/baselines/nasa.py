"""NASA: compositional optimization with running means of the inner map and of the direction.

    y ← (1 − β) y + β r(x; ζ),   h ← (1 − θ) h + θ ∇r(x; ζ) ∇f(y; ξ),   x ← x − η h

the gradient at the old y, the step along the new h. Two backward passes.

Ghadimi, Ruszczyński, Wang, "A single timescale stochastic approximation method for nested stochastic optimization",
SIAM J. Optim. 2020.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, at_step, number, one
from wior.algorithms.parts import estimators
from wior.problems import Compositional
from wior.problems.per_example import descend, shared_part

Tree = Any


class State(NamedTuple):
    x: Tree
    y: Tree
    h: Tree  # the running mean of the direction; where x has rows, one for each row


@dataclasses.dataclass(frozen=True)
class NASA(Algorithm):
    """Running means of map and direction, for `Compositional` problems.

    y is a running mean of the inner map, and x descends along a running mean of the direction. Two backward passes a
    step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        β, at most 1: the weight of a new batch in the running mean y of the inner map. Start with 0.5.
    averaging : float, default 0.1
        θ, above 0 and at most 1: the weight of the new direction in the running mean. 0.1 averages about ten steps.

    References
    ----------
    Ghadimi, Ruszczyński, Wang, "A single timescale stochastic approximation method for nested stochastic optimization",
    SIAM J. Optim. 2020. The updates as formulas: `help(wior.baselines.nasa)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.NASA(outer_lr=0.01, inner_lr=0.5)
    NASA(outer_lr=0.01, inner_lr=0.5, averaging=0.1)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # β, at most 1
    averaging: float = number(0.1, checks.share)  # θ

    solves = Compositional
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "h": "outer_lr"}
    paper = "Ghadimi, Ruszczyński, Wang, SIAM J. Optim. 2020"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Compositional, x: Tree, y: Tree) -> State:
        return State(x, y, estimators.no_average(x))

    def step(self, problem: Compositional, state: State, draws: Draws) -> tuple[State, Seen]:
        x, y, h = state
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        r, product = oracle.map_and_pullback(problem, x, zeta)
        f_y = oracle.map_gradient(problem, y, xi)
        direction = product(f_y)
        h, along = estimators.moving_average(h, direction, self.averaging, zeta.examples)
        moved = State(
            x=descend(x, at_step(self.outer_lr, draws.step), along, zeta.examples),
            y=descend(y, at_step(self.inner_lr, draws.step), tree.sub(y, r)),
            h=h,
        )
        return moved, Seen((one(f_y),), (one((r, shared_part(x, direction))),))
