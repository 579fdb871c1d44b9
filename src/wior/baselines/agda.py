"""AGDA: alternating stochastic descent on x and ascent on y.

    x ← x − η ∇_x f(x, y; ξ),   then y ← y + γ ∇_y f(x, y; ξ')  at the new x, on another batch. Two backward passes.

Yang, Kiyavash, He, "Global convergence and variance-reduced optimization for a class of nonconvex-nonconcave minimax problems",
NeurIPS 2020.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, at_step, one, static
from wior.problems import Minimax
from wior.problems.per_example import descend, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class AGDA(Algorithm):
    """Alternating descent and ascent, for `Minimax` problems."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    separate_streams: bool = static(False, checks.boolean)

    solves = Minimax
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Yang, Kiyavash, He, NeurIPS 2020"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1, 1), (), self.separate_streams)

    def init(self, problem: Minimax, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Minimax, state: State, draws: Draws) -> tuple[State, Seen]:
        for_x, for_y = (problem.outer_batch(index[0]) for index in draws.outer)
        f_x = oracle.minimax_gradient_x(problem, state.x, state.y, for_x)
        x = descend(state.x, at_step(self.outer_lr, draws.step), f_x, for_x.examples)
        f_y = oracle.minimax_gradient_y(problem, x, state.y, for_y)
        y = descend(state.y, at_step(self.inner_lr, draws.step), tree.neg(f_y))
        return State(x, y), Seen((one(shared_part(state.x, f_x)), one(f_y)), ())
