"""FSLA: a fully single loop with STORM in front of x.

    y ← y − γ_t D_y,   u ← u − ρ_t D_u
    h ← D_x(z) + (1 − a_t) (h − D_x(z⁻)),   x ← x − η_t h

with z = (x, y, u) and z⁻ the iterate before it, D on one batch of each level. Rates and momentum fall as 1/√t; a_t = 1
in the first step. Six backward passes.

Li, Gu, Huang, "A fully single loop algorithm for bilevel optimization without Hessian inverse", AAAI 2022.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from wior import checks, oracle, tree
from wior.algorithms import wior_bo
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, damping_term, decayed, number
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
    """STORM in front of x, for `Bilevel` problems.

    A single loop like `SOBA`, with a variance-reduced direction for x. Six backward passes a step, twice as many as
    `SOBA`.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. All rates fall, so the first value may be larger than for other methods.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of the linear system ∇²_yy g u = ∇_y f. Its matrix is the inner Hessian, so
        the value of `inner_lr` is a good first one here too.
    momentum : float, default 0.5
        a, above 0 and at most 1: the weight of the new batch in the estimate. 1 is the plain direction; smaller values
        lean on earlier batches.
    decay : float, default 0.5
        How rates and momentum fall: as (t + 1)^−decay. 0 keeps them constant, which serves short runs better. A
        schedule is used as it is.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Li, Gu, Huang, "A fully single loop algorithm for bilevel optimization without Hessian inverse", AAAI 2022. The
    updates as formulas: `help(wior.baselines.fsla)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.FSLA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5)
    FSLA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, momentum=0.5, decay=0.5, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    momentum: float = number(0.5, checks.share)  # a
    decay: float = number(0.5, checks.non_negative_number)
    damping: float | None = damping_term()  # μ

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
        problem = problem.damped(self.damping)
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
