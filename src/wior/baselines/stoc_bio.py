"""stocBiO: inner SGD steps, then the implicit hyper-gradient with a Neumann sum.

    y ← y − γ ∇_y g(x, y; ζ_k)                                        K times, from the last y
    u = τ Σ_{q=0…Q} Π_{j≤q} (I − τ ∇²_yy g(x, y; ζ'_j)) ∇_y f(x, y; ξ)    a fresh ζ'_j for each factor
    x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ'') u)

Q + 1 is `neumann_terms`. Biased by the terms that are left out: u misses (I − τ ∇²_yy g)^(Q+1) of itself.

Ji, Yang, Liang, "Bilevel optimization: convergence analysis and enhanced design", ICML 2021.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, at_step, static
from wior.algorithms.parts.implicit import Series, inner_steps, neumann_step
from wior.problems import Bilevel

Tree = Any


@dataclasses.dataclass(frozen=True)
class StocBiO(Algorithm):
    """Inner SGD steps and a Neumann sum, for `Bilevel` problems."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, below 1/L
    inner_steps: int = static(10)  # K
    neumann_terms: int = static(4)  # Q + 1
    separate_streams: bool = static(False, checks.boolean)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Ji, Yang, Liang, ICML 2021"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (self.inner_steps, self.neumann_terms - 1, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        for_y = draws.inner[0]
        inner_lr = at_step(self.inner_lr, draws.step)
        y, seen_y = inner_steps(problem, state.x, state.y, lambda j: inner_lr, for_y)
        outer_lr, scale = at_step(self.outer_lr, draws.step), at_step(self.neumann_lr, draws.step)
        return neumann_step(problem, state.x, y, draws, seen_y, outer_lr, Series(scale))
