"""WiR-BO: the single-loop updates of WiOR-BO with a separate draw for each derivative, the paper's control.

    ξ₁ for ∇_y f,  ξ₂ for ∇_x f,  ζ₁ for ∇_y g,  ζ₂ for ∇²_yy g u,  ζ₃ for ∇²_xy g u

Under `Independent()` these are the five independent samples of the usual analysis; under a permutation each of the five
kinds has a stream with a permutation of its own, or, with `separate_streams=False`, all of a level come from one. Seven
backward passes, since no two derivatives share a graph.

Li, Huang, NeurIPS 2024, section 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, damping_term, number, one, static
from wior.algorithms.wior_bo import Directions, State, descended, project_when
from wior.problems import Bilevel
from wior.problems.per_example import shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class WiRBO(Algorithm):
    """Five streams of examples and seven backward passes a step, for `Bilevel` problems.

    The updates of `WiORBO` with a separate batch for each of the five derivatives: the control of the paper, by which
    the effect of the order is told from that of shared batches.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. A `PerExample` leaf wants 10 to 1000.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of the linear system ∇²_yy g u = ∇_y f. Its matrix is the inner Hessian, so
        the value of `inner_lr` is a good first one here too.
    radius : float, default inf
        ι, the radius of the ball that u is projected to when an epoch starts. Start without a bound. If u grows until
        the run diverges, take a few times the norm of `wior.hypergradient(problem, x0, y0).u`.
    separate_streams : bool, default True
        Whether each of the five kinds of batches comes from a stream with a permutation of its own. If False, all kinds
        of a level come one after the other from a single stream.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Li, Huang, "Provably faster algorithms for bilevel optimization via without-replacement sampling", NeurIPS 2024,
    section 3. The updates as formulas: `help(wior.baselines.wir_bo)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.WiRBO(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5)
    WiRBO(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, radius=inf, separate_streams=True, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    radius: float = number(math.inf, checks.positive_or_infinite)  # ι
    separate_streams: bool = static(True, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Li, Huang, NeurIPS 2024"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1, 1), inner=(1, 1, 1), separate=self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, tree.zeros_like(y))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        x, y, u = state = state._replace(u=project_when(draws.starts_epoch, state.u, self.radius))
        for_f_y, for_f_x = (problem.outer_batch(index[0]) for index in draws.outer)
        for_g_y, for_g_yy, for_g_xy = (problem.inner_batch(index[0]) for index in draws.inner)
        f_y = oracle.outer_gradient_y(problem, x, y, for_f_y)
        f_x = oracle.outer_gradient_x(problem, x, y, for_f_x)
        g_y = oracle.inner_gradient(problem, x, y, for_g_y)
        g_yy_u = oracle.hessian_product(problem, x, y, u, for_g_yy)
        g_xy_u = oracle.jacobian_product(problem, x, y, u, for_g_xy)
        seen = Seen(outer=(one(f_y), one(f_x)), inner=(one(g_y), one(g_yy_u), one(shared_part(x, g_xy_u))))
        d = Directions(x=tree.sub(f_x, g_xy_u), y=g_y, u=tree.sub(g_yy_u, f_y), seen=seen)
        return descended(self, state, d, draws, for_g_xy, after=(g_y, g_yy_u)), seen
