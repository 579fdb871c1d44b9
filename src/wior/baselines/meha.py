"""MEHA: a single loop on first derivatives, with a Moreau envelope in place of the inner minimum.

    z ← z − γ (∇_y g(x, z; ζ) + (z − y)/τ)
    y ← y − β (∇_y f(x, y; ξ)/c_k + ∇_y g(x, y; ζ) − (y − z)/τ)
    x ← x − η (∇_x f(x, y; ξ)/c_k + ∇_x g(x, y; ζ) − ∇_x g(x, z; ζ)),   c_k = c (k + 1)^growth, growth below 1/2

y and x move along derivatives at the old x and y and the new z. The inner loss need not be convex: τ has to be below
the inverse of its weak convexity. The outer derivative is divided by c_k, so η is to be compared with c times that of
other methods. At a fixed c the bias is of order 1/c.

Liu, Liu, Yao, Zeng, Zhang, "Moreau envelope for nonconvex bi-level optimization: a single-loop and Hessian-free
solution strategy", ICML 2024.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, at_step, decayed, number, one
from wior.algorithms.parts.penalty import State, plus
from wior.problems import Bilevel
from wior.problems.per_example import descend, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class MEHA(Algorithm):
    """First derivatives and a Moreau envelope, for `Bilevel` problems whose inner loss need not be convex.

    A single loop on first derivatives alone. Take it where second derivatives are not available or the inner problem is
    not convex.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. The outer
        derivative is divided by the penalty, so start with c times the value for another method, for example `outer_lr`
        of `wior.check`.
    inner_lr : float or schedule
        γ, the step size of z. Start with 1/(L + 1/τ), with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures.
    penalized_lr : float or schedule
        β, the step size of y. Start with the value of `inner_lr`.
    proximity : float, default 1.0
        τ, which holds z near y. For a convex inner loss any value will do; for another one it must be below the inverse
        of its weak convexity.
    penalty : float, default 1.0
        c, by which the outer derivative is divided in the first step. At a fixed c the bias is of order 1/c.
    penalty_growth : float, default 0.25
        How the penalty grows: c (k + 1)^growth in step k, with growth below 1/2.

    References
    ----------
    Liu, Liu, Yao, Zeng, Zhang, "Moreau envelope for nonconvex bi-level optimization: a single-loop and Hessian-free
    solution strategy", ICML 2024. The updates as formulas: `help(wior.baselines.meha)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.MEHA(outer_lr=0.1, inner_lr=0.3, penalized_lr=0.3)
    MEHA(outer_lr=0.1, inner_lr=0.3, penalized_lr=0.3, proximity=1.0, penalty=1.0, penalty_growth=0.25)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ, of z
    penalized_lr: Rate  # β, of y
    proximity: float = number(1.0)  # τ
    penalty: float = number(1.0)  # c
    penalty_growth: float = number(0.25, checks.non_negative_number)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "penalized_lr", "z": "inner_lr"}
    adds_outer_to_y = True
    paper = "Liu, Liu, Yao, Zeng, Zhang, ICML 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        x, y, z = state
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        share = 1 / decayed(self.penalty, draws.step, -self.penalty_growth)
        pull = 1 / self.proximity
        at_z = oracle.inner_gradient(problem, x, z, zeta)
        z = descend(z, at_step(self.inner_lr, draws.step), plus(at_z, pull, tree.sub(z, y)))
        f_x, f_y = oracle.outer_gradients(problem, x, y, xi)
        g_x, g_y = oracle.inner_gradients(problem, x, y, zeta)
        apart = tree.sub(g_x, oracle.inner_gradient_x(problem, x, z, zeta))
        d_y = plus(plus(g_y, share, f_y), -pull, tree.sub(y, z))
        moved = State(
            x=descend(x, at_step(self.outer_lr, draws.step), plus(tree.scaled(share, f_x), 1.0, apart), zeta.examples),
            y=descend(y, at_step(self.penalized_lr, draws.step), d_y),
            z=z,
        )
        seen = Seen((one((f_y, f_x)),), (one((at_z, g_y, shared_part(x, apart))),))
        return moved, seen
