"""SPABA: PAGE in front of all three single-loop directions.

    d ← D(z) on a large batch, with probability p;   d ← d + D(z) − D(z⁻) on a small one otherwise
    z ← z − (η, γ, ρ) d

for z = (x, y, u) and D its three directions, all at the old iterate; one coin for the three. The first step takes the
large batch. `large_batch` is its number of examples B at each level, all of them where it is None: the paper's
finite-sum case. Where no p is given it is b/(b + B) with b the inner batch, PAGE's own choice: both kinds of steps then
cost the same in the long run.

Chu, Xu, Yao, Zhang, "SPABA: a single-loop and probabilistic stochastic bilevel algorithm achieving optimal sample
complexity", ICML 2024.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from wior import checks
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, damping_term, number, static
from wior.algorithms.parts import recursive
from wior.problems import Bilevel

Tree = Any


@dataclasses.dataclass(frozen=True)
class SPABA(Algorithm):
    """PAGE on all directions, for `Bilevel` problems.

    In each step a coin decides: with probability p the directions are computed on a large batch, otherwise the last
    ones are corrected by a small batch. Less noise in all three directions than `WiORBO`.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of the linear system ∇²_yy g u = ∇_y f. Its matrix is the inner Hessian, so
        the value of `inner_lr` is a good first one here too.
    probability : float or None, default None
        p, the probability of a large batch, above 0 and at most 1. None: b/(b + B) for an inner batch of b and a large
        one of B examples, with which both kinds of steps cost the same in the long run.
    large_batch : int or None, default None
        B, the examples of a large batch at each level. None takes all examples. Where all of them are too many, take
        some tens of batches.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Chu, Xu, Yao, Zhang, "SPABA: a single-loop and probabilistic stochastic bilevel algorithm achieving optimal sample
    complexity", ICML 2024. The updates as formulas: `help(wior.baselines.spaba)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.SPABA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, probability=0.02)
    SPABA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, probability=0.02, large_batch=None, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    probability: float | None = number(None, checks.share_or_none)  # p, b/(b + B) where None
    large_batch: int | None = static(None, checks.positive_integer_or_none)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    takes_large_batches = True
    paper = "Chu, Xu, Yao, Zhang, ICML 2024"
    cost_varies = True

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> recursive.State:
        return recursive.begun(x, y)

    def step(self, problem: Bilevel, state: recursive.State, draws: Draws) -> tuple[recursive.State, Seen]:
        problem = problem.damped(self.damping)
        probability = self.probability
        if probability is None:
            small, data = draws.inner[0].shape[1], problem.sizes()["inner"]
            probability = small / (small + min(self.large_batch or data, data))
        fresh = (draws.step == 0) | jax.random.bernoulli(draws.key, probability)
        return recursive.recursive_step(self, problem, state, draws, fresh, draws.step, self.large_batch)
