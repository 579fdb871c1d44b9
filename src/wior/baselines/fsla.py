"""FSLA: a fully single loop with STORM in front of x.

    y ← y − γ_t D_y,   u ← u − ρ_t D_u
    h ← D_x(z) + (1 − a_t) (h − D_x(z⁻)),   x ← x − η_t h

with z = (x, y, u) and z⁻ the iterate before it, D on one batch of each level. Rates and momentum fall as 1/√t; a_t = 1 in the first step. Six
backward passes.

Li, Gu, Huang, "A fully single loop algorithm for bilevel optimization without Hessian inverse", AAAI 2022.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from wior import checks, oracle, tree
from wior.algorithms import wior_bo
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, decayed, number
from wior.algorithms.parts import estimators
from wior.problems import Bilevel
from wior.problems.per_example import descend, with_rows_of, without_rows

Tree = Any


class State(NamedTuple):
    x: Tree
    y: Tree
    u: Tree
    h: Tree  # STORM's estimate of the outer direction
    old_x: Tree  # the iterate before this one; rows have no part in it
    old_y: Tree
    old_u: Tree


@dataclasses.dataclass(frozen=True)
class FSLA(Algorithm):
    """STORM in front of x, for `Bilevel` problems."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    momentum: float = number(0.5, checks.share)  # a
    decay: float = number(0.5, checks.non_negative_number)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr", "h": "outer_lr"}
    paper = "Li, Gu, Huang, AAAI 2022"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        u = tree.zeros_like(y)
        return State(x, y, u, estimators.no_estimate(x), without_rows(x), y, u)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        x, y, u = state.x, state.y, state.u
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        d = wior_bo.directions(problem, wior_bo.State(x, y, u), xi, zeta)
        old_x = with_rows_of(x, state.old_x)
        f_x = oracle.outer_gradient_x(problem, old_x, state.old_y, xi)
        g_xy_u = oracle.jacobian_product(problem, old_x, state.old_y, state.old_u, zeta)
        weight = jnp.where(draws.step == 0, 1.0, decayed(self.momentum, draws.step, self.decay))
        direction = estimators.storm(state.h, d.x, tree.sub(f_x, g_xy_u), weight)
        rate = lambda rate: decayed(rate, draws.step, self.decay)
        moved = State(
            x=descend(x, rate(self.outer_lr), direction, zeta.examples),
            y=descend(y, rate(self.inner_lr), d.y),
            u=descend(u, rate(self.adjoint_lr), d.u),
            h=estimators.remembered(state.h, direction),
            old_x=without_rows(x),
            old_y=y,
            old_u=u,
        )
        return moved, d.seen
