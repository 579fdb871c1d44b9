"""WiR-BO: the single-loop updates of WiOR-BO with a separate draw for each derivative, the paper's control.

    ξ₁ for ∇_y f,  ξ₂ for ∇_x f,  ζ₁ for ∇_y g,  ζ₂ for ∇²_yy g u,  ζ₃ for ∇²_xy g u

Under `Independent()` these are the five independent samples of the usual analysis; under a permutation each of the five
kinds has a stream with a permutation of its own, or, with `separate_streams=False`, all of a level come from one. Seven backward passes, since no two derivatives share a graph.

Li, Huang, NeurIPS 2024, section 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, number, one, static
from wior.algorithms.wior_bo import Directions, State, descended, project_when
from wior.problems import Bilevel
from wior.problems.per_example import shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class WiRBO(Algorithm):
    """Five streams of examples and seven backward passes a step, for `Bilevel` problems."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    radius: float = number(math.inf, checks.positive_or_infinite)  # ι
    separate_streams: bool = static(True, checks.boolean)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Li, Huang, NeurIPS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1, 1), inner=(1, 1, 1), separate=self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        x, y, u = state = state._replace(u=project_when(draws.starts_epoch, state.u, self.radius))
        for_f_y, for_f_x = (problem.outer_batch(index[0]) for index in draws.outer)
        for_g_y, for_g_yy, for_g_xy = (problem.inner_batch(index[0]) for index in draws.inner)
        f_y = oracle.outer_gradient_y(problem, x, y, for_f_y)
        f_x = oracle.outer_gradient_x(problem, x, y, for_f_x)
        g_y = oracle.inner_gradient(problem, x, y, for_g_y)
        g_yy_u = oracle.hessian_product(problem, x, y, u, for_g_yy)
        g_xy_u = oracle.jacobian_product(problem, x, y, u, for_g_xy)
        seen = Seen(outer=(one(f_y), one(f_x)), inner=(one(g_y), one(g_yy_u), one(shared_part(x, g_xy_u))))
        d = Directions(x=tree.sub(f_x, g_xy_u), y=g_y, u=tree.sub(g_yy_u, f_y), seen=seen)
        return descended(self, state, d, draws, for_g_xy, after=(g_y, g_yy_u)), seen
