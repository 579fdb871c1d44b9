"""BOME: descent on f along directions that also lower g, with first derivatives alone.

    z = y after T steps y ← y − γ ∇_y g(x, y; ζ_k),   q(x, y) = g(x, y; ζ') − g(x, z; ζ')  with z a constant
    λ = max((φ − ⟨∇f, ∇q⟩)/‖∇q‖², 0),  φ = c ‖∇q‖²
    (x, y) ← (x, y) − η (∇f + λ ∇q),   ∇ in x and y together

One step size moves x and y. At a solution ∇q vanishes and λ has no bound: the paper's rates for ∇q are sublinear, and η
must be small against the curvature of λ q.

Ye, Liu, Wright, Stone, Liu, "BOME! Bilevel optimization made easy: a simple first-order approach", NeurIPS 2022.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, at_step, number, one, static
from wior.algorithms.parts.implicit import inner_steps
from wior.algorithms.parts.penalty import plus
from wior.problems import Bilevel
from wior.problems.moving import of_variable
from wior.problems.per_example import descend, shared_part, squared_norm

Tree = Any


@dataclasses.dataclass(frozen=True)
class BOME(Algorithm):
    """A value-function constraint on first derivatives, for `Bilevel` problems.

    First derivatives alone. z runs ahead of y by some inner steps; (x, y) then descends along f and along g(x, y) −
    g(x, z), whose weight is chosen anew in every step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x and of y. A number, or a schedule: a function of the step number, as optax has them. The
        weight of ∇g in it can be large, so start with a tenth of `inner_lr`, and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of the inner steps on z. Start with 1/L, with L the largest eigenvalue of the inner Hessian
        ∇²_yy g, which `wior.check` measures.
    inner_steps : int, default 10
        T, the number of inner SGD steps on z, which starts from y in every step of the method.
    control : float, default 0.5
        c, how strongly the constraint is held: q = g(x, y) − g(x, z) falls along each step at a rate of at least c
        ‖∇q‖². Larger values keep y nearer to the inner solution and move x less.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.

    References
    ----------
    Ye, Liu, Wright, Stone, Liu, "BOME! Bilevel optimization made easy: a simple first-order approach", NeurIPS 2022.
    The updates as formulas: `help(wior.baselines.bome)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.BOME(outer_lr=0.05, inner_lr=0.5)
    BOME(outer_lr=0.05, inner_lr=0.5, inner_steps=10, control=0.5, separate_streams=False)
    """

    outer_lr: Rate  # η, of x and y
    inner_lr: Rate  # γ, of the inner steps
    inner_steps: int = static(10)  # T
    control: float = number(0.5)  # c
    separate_streams: bool = static(False, checks.boolean)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "outer_lr"}
    moves = {"x": "outer_lr", "y": "outer_lr", "z": "inner_lr"}
    adds_outer_to_y = True
    paper = "Ye, Liu, Wright, Stone, Liu, NeurIPS 2022"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (self.inner_steps, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        x, y = state
        inner_lr, outer_lr = at_step(self.inner_lr, draws.step), at_step(self.outer_lr, draws.step)
        z, seen_z = inner_steps(problem, x, y, lambda j: inner_lr, draws.inner[0])
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner[1][0])
        f = oracle.outer_gradients(problem, x, y, xi)
        g_x, g_y = oracle.inner_gradients(problem, x, y, zeta)
        q = (tree.sub(g_x, oracle.inner_gradient_x(problem, x, z, zeta)), g_y)
        squared = squared_norm(x, q[0], zeta.examples) + tree.vdot(g_y, g_y)
        weight = self.control - tree.vdot(f, q) / jnp.where(squared > 0, squared, 1)
        weight = jnp.where(squared > 0, jnp.maximum(weight, 0), 0)
        d_x, d_y = plus(f, weight, q)
        seen = Seen((one((f[1], f[0])),), (seen_z, one((g_y, shared_part(x, q[0])))))
        return State(descend(x, outer_lr, d_x, zeta.examples), descend(y, of_variable(outer_lr, "y"), d_y)), seen
