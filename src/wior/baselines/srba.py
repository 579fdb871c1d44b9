"""SRBA: SARAH in front of all three single-loop directions, with the full data every period.

    d ← D(z) on all data in steps 0, q, 2q, …;   d ← d + D(z) − D(z⁻) on one batch otherwise;   z ← z − (η, γ, ρ) d

for z = (x, y, u) and D its three directions, all at the old iterate. Where no period is given it is a pass over the larger data.

Dagréou, Moreau, Vaiter, Ablin, "A lower bound and a near-optimal algorithm for bilevel empirical risk minimization", AISTATS 2024.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, static
from wior.algorithms.parts import recursive
from wior.problems import Bilevel

Tree = Any


@dataclasses.dataclass(frozen=True)
class SRBA(Algorithm):
    """SARAH on all directions, for `Bilevel` problems."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    period: int | None = static(None, checks.positive_integer_or_none)  # q, a pass where None

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    takes_large_batches = True
    paper = "Dagréou, Moreau, Vaiter, Ablin, AISTATS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> recursive.State:
        return recursive.begun(x, y)

    def step(self, problem: Bilevel, state: recursive.State, draws: Draws) -> tuple[recursive.State, Seen]:
        period = self.period or recursive.steps_in_pass(problem, draws)
        fresh = draws.step % period == 0
        return recursive.recursive_step(self, problem, state, draws, fresh, draws.step // period, None)
