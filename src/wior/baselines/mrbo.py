"""MRBO: STORM on the inner gradient and on a hyper-gradient with a Neumann sum, in a single loop.

    d_y ← ∇_y g(z) + (1 − b_t) (d_y − ∇_y g(z⁻)),   d_x ← D(z) + (1 − a_t) (d_x − D(z⁻)),   on the same batches
    y ← y − γ_t d_y,   x ← x − η_t d_x

with D(z) = ∇_x f − ∇²_xy g τ Σ_{q=0…Q} Π_{j≤q} (I − τ ∇²_yy g(·; ζ'_j)) ∇_y f. The rates fall as (1 + t/m)^(−1/3), the momenta as its
square, and both momenta are 1 in the first step. Q + 1 is `neumann_terms`, m is `delay`.

Yang, Ji, Liang, "Provably faster algorithms for bilevel optimization", NeurIPS 2021.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks
from wior.algorithms.algorithm import Algorithm, Draws, Rate, Seen, Streams, at_step, number, static
from wior.baselines import momentum
from wior.problems import Bilevel

Tree = Any


@dataclasses.dataclass(frozen=True)
class MRBO(Algorithm):
    """STORM on both levels with a Neumann sum, for `Bilevel` problems."""

    outer_lr: Rate  # γ η_t of the paper
    inner_lr: Rate  # λ η_t of the paper
    neumann_lr: Rate  # τ, below 1/L
    neumann_terms: int = static(4)  # Q + 1
    outer_momentum: float = number(0.9, checks.share)  # a
    inner_momentum: float = number(0.9, checks.share)  # b
    decay: float = number(1 / 3, checks.non_negative_number)
    delay: float = number(1.0)  # m
    separate_streams: bool = static(False, checks.boolean)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "d_x": "outer_lr", "d_y": "inner_lr"}
    paper = "Yang, Ji, Liang, NeurIPS 2021"

    @property
    def streams(self) -> Streams:
        return Streams((1,), (1, self.neumann_terms - 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> momentum.State:
        return momentum.begun(x, y)

    def step(self, problem: Bilevel, state: momentum.State, draws: Draws) -> tuple[momentum.State, Seen]:
        scale = at_step(self.neumann_lr, draws.step)
        return momentum.storm_step(self, problem, state, draws, scale, None)
