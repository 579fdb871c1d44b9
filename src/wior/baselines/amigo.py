"""AmIGO: warm-started inner steps, warm-started steps on the adjoint system, one outer step.

    y ← y − γ ∇_y g(x, y; ζ_k)                                    T times, from the last y
    u ← u − ρ (∇²_yy g(x, y; ζ'_j) u − ∇_y f(x, y; ξ))             N times, from the last u, a fresh ζ'_j each
    x ← x − η (∇_x f(x, y; ξ) − ∇²_xy g(x, y; ζ'') u)

Arbel, Mairal, "Amortized implicit differentiation for stochastic bilevel optimization", ICLR 2022.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, at_step, damping_term, one, static
from wior.algorithms.parts import linear_systems
from wior.algorithms.parts.implicit import inner_steps
from wior.algorithms.wior_bo import State
from wior.problems import Bilevel
from wior.problems.per_example import descend, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class AmIGO(Algorithm):
    """Warm-started loops for y and u, for `Bilevel` problems.

    Each step moves y, then u, by several SGD steps from where they were, then x once. A good choice where x moves the
    inner problem far or the inner problem is badly conditioned.

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
    inner_steps : int, default 10
        T, the number of inner SGD steps on y in one step of the method.
    adjoint_steps : int, default 10
        N, the number of SGD steps on u in one step of the method, each on a fresh batch.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Arbel, Mairal, "Amortized implicit differentiation for stochastic bilevel optimization", ICLR 2022. The updates as
    formulas: `help(wior.baselines.amigo)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.AmIGO(outer_lr=1.0, inner_lr=0.5, adjoint_lr=0.5, inner_steps=5)
    AmIGO(outer_lr=1.0, inner_lr=0.5, adjoint_lr=0.5, inner_steps=5, adjoint_steps=10, separate_streams=False,
        damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    inner_steps: int = static(10)  # T
    adjoint_steps: int = static(10)  # N
    separate_streams: bool = static(False, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Arbel, Mairal, ICLR 2022"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (self.inner_steps, self.adjoint_steps, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        for_y, for_u, (for_x,) = draws.inner
        x, inner_lr = state.x, at_step(self.inner_lr, draws.step)
        y, seen_y = inner_steps(problem, x, state.y, lambda j: inner_lr, for_y)
        f_x, f_y = oracle.outer_gradients(problem, x, y, problem.outer_batch(draws.outer_index))

        def product(v: Tree, index: Any) -> Tree:
            return oracle.hessian_product(problem, x, y, v, problem.inner_batch(index))

        adjoint_lr = at_step(self.adjoint_lr, draws.step)
        u, seen_u = linear_systems.quadratic_steps(product, f_y, state.u, adjoint_lr, for_u)
        zeta = problem.inner_batch(for_x)
        g_xy_u = oracle.jacobian_product(problem, x, y, u, zeta)
        moved = descend(x, at_step(self.outer_lr, draws.step), tree.sub(f_x, g_xy_u), zeta.examples)
        seen = Seen((one((f_y, f_x)),), (seen_y, seen_u, one(shared_part(x, g_xy_u))))
        return State(moved, y, u), seen
