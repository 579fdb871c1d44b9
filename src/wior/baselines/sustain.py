"""SUSTAIN: STORM on the inner gradient and on a hyper-gradient with a Neumann product of random length, in a single loop.

    d_y ← ∇_y g(z) + (1 − b_t) (d_y − ∇_y g(z⁻)),   d_x ← D(z) + (1 − a_t) (d_x − D(z⁻)),   on the same batches
    y ← y − γ_t d_y,   x ← x − η_t d_x

with D(z) = ∇_x f − ∇²_xy g Q τ Π_{j≤p} (I − τ ∇²_yy g(·; ζ'_j)) ∇_y f and one p, uniform in 0 … Q − 1, for both evaluations. The
rates fall as (1 + t/m)^(−1/3), the momenta as its square, and both momenta are 1 in the first step. m is `delay`.

Khanduri, Zeng, Hong, Wai, Wang, Yang, "A near-optimal algorithm for stochastic bilevel optimization via double-momentum",
NeurIPS 2021.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks
from wior.algorithms.algorithm import Algorithm, Draws, Rate, Seen, Streams, at_step, number, static
from wior.baselines import momentum
from wior.linear_systems import random_length
from wior.problems import Bilevel

Tree = Any


@dataclasses.dataclass(frozen=True)
class SUSTAIN(Algorithm):
    """STORM on both levels with a Neumann product, for `Bilevel` problems."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, at most 1/L
    neumann_terms: int = static(4)  # Q
    outer_momentum: float = number(0.9, checks.share)  # a
    inner_momentum: float = number(0.9, checks.share)  # b
    decay: float = number(1 / 3, checks.non_negative_number)
    delay: float = number(1.0)  # m
    separate_streams: bool = static(False, checks.boolean)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "d_x": "outer_lr", "d_y": "inner_lr"}
    paper = "Khanduri et al., NeurIPS 2021"

    @property
    def streams(self) -> Streams:
        return Streams((1,), (1, self.neumann_terms - 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> momentum.State:
        return momentum.begun(x, y)

    def step(self, problem: Bilevel, state: momentum.State, draws: Draws) -> tuple[momentum.State, Seen]:
        scale = at_step(self.neumann_lr, draws.step)
        length = random_length(draws.key, self.neumann_terms)
        return momentum.storm_step(self, problem, state, draws, scale, length)
