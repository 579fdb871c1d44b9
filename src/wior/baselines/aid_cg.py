"""AID-CG: inner SGD steps, then the adjoint system by conjugate gradients on one batch.

    y ← y − γ ∇_y g(x, y; ζ_k)                              K times, from the last y
    u: N conjugate-gradient steps on ∇²_yy g(x, y; ζ') u = ∇_y f(x, y; ξ), from the last u
    x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ') u)

Conjugate gradients need one matrix, so all products of a step are on one batch. Where the curvature of g is not
positive u stays as it is.

Grazzi, Franceschi, Pontil, Salzo, "On the iteration complexity of hypergradient computation", ICML 2020.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, at_step, damping_term, one, static
from wior.algorithms.parts.implicit import inner_steps
from wior.algorithms.parts.linear_systems import conjugate_gradients
from wior.algorithms.wior_bo import State
from wior.problems import Bilevel
from wior.problems.per_example import descend, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class AIDCG(Algorithm):
    """Inner SGD steps and conjugate gradients, for `Bilevel` problems.

    y moves by SGD steps from its last value, then u by conjugate gradients on one batch, then x. A good choice where
    the inner problem is badly conditioned.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    inner_steps : int, default 10
        K, the number of inner SGD steps on y in one step of the method. More of them let y follow x where the inner
        problem is badly conditioned.
    adjoint_steps : int, default 10
        N, the number of conjugate-gradient steps on u. u starts from its last value, so that 10 are mostly enough.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Grazzi, Franceschi, Pontil, Salzo, "On the iteration complexity of hypergradient computation", ICML 2020. The
    updates as formulas: `help(wior.baselines.aid_cg)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.AIDCG(outer_lr=1.0, inner_lr=0.5, inner_steps=5)
    AIDCG(outer_lr=1.0, inner_lr=0.5, inner_steps=5, adjoint_steps=10, separate_streams=False, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    inner_steps: int = static(10)  # K
    adjoint_steps: int = static(10)  # N
    separate_streams: bool = static(False, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "inner_lr"}
    moves = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Grazzi, Franceschi, Pontil, Salzo, ICML 2020"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (self.inner_steps, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        for_y, (for_x,) = draws.inner
        x, inner_lr = state.x, at_step(self.inner_lr, draws.step)
        y, seen_y = inner_steps(problem, x, state.y, lambda j: inner_lr, for_y)
        f_x, f_y = oracle.outer_gradients(problem, x, y, problem.outer_batch(draws.outer_index))
        zeta = problem.inner_batch(for_x)
        curvature = oracle.inner_curvature(problem, x, y, zeta)
        u = conjugate_gradients(curvature.hessian, f_y, self.adjoint_steps, start=state.u).v
        g_xy_u = curvature.jacobian(u)
        moved = descend(x, at_step(self.outer_lr, draws.step), tree.sub(f_x, g_xy_u), zeta.examples)
        seen = Seen((one((f_y, f_x)),), (seen_y, one(shared_part(x, g_xy_u))))
        return State(moved, y, u), seen
