"""SABA: SAGA in front of all three single-loop directions.

For each of the parts ∇_x f, ∇_y f (outer) and ∇_y g, ∇²_yy g u, ∇²_xy g u (inner) a table with the last value of every
batch:

    part ← part_i − table_i + mean(table),   table_i ← part_i,   z ← z − (η, γ, ρ) D

for z = (x, y, u) and D the directions made of the parts, all at the old iterate. The data are cut into batches once,
and the order runs over the batches. The tables take as many copies of (x, y) as there are outer batches and of (x, y,
y) as there are inner ones. Three backward passes.

Dagréou, Ablin, Vaiter, Moreau, "A framework for bilevel optimization that enables stochastic and global variance
reduction algorithms", NeurIPS 2022.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from wior import oracle, tree
from wior.algorithms import wior_bo
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, damping_term, one
from wior.algorithms.parts import estimators
from wior.problems import Bilevel
from wior.problems.per_example import shared_part

Tree = Any


class State(NamedTuple):
    x: Tree
    y: Tree
    u: Tree
    outer: estimators.Table  # of (∇_x f, ∇_y f)
    inner: estimators.Table  # of (∇_y g, ∇²_yy g u, ∇²_xy g u)


@dataclasses.dataclass(frozen=True)
class SABA(Algorithm):
    """SAGA on all directions, for `Bilevel` problems.

    Like `WiORBO`, with a memory of the last derivative of every batch, so that constant steps reach the solution
    without noise. It takes memory for as many copies of x and y as there are batches, and batch sizes that divide the
    data. Three backward passes a step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. On the ridge benchmark its best value was a fifth of that of `WiORBO`.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    adjoint_lr : float or schedule
        ρ, the step size of u, the solution of the linear system ∇²_yy g u = ∇_y f. Its matrix is the inner Hessian, so
        the value of `inner_lr` is a good first one here too.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Dagréou, Ablin, Vaiter, Moreau, "A framework for bilevel optimization that enables stochastic and global variance
    reduction algorithms", NeurIPS 2022. The updates as formulas: `help(wior.baselines.saba)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.SABA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5)
    SABA(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5, damping=None)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    adjoint_lr: Rate  # ρ
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}
    paper = "Dagréou, Ablin, Vaiter, Moreau, NeurIPS 2022"
    fixed_batches = True

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        sizes = problem.sizes()
        outer, inner = (
            estimators.empty_table((x, y), sizes["outer"]),
            estimators.empty_table((y, y, x), sizes["inner"]),
        )
        return State(x, y, tree.zeros_like(y), outer, inner)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        x, y, u = here = wior_bo.State(state.x, state.y, state.u)
        slot_of_xi, slot_of_zeta = draws.outer_index, draws.inner_index
        xi, zeta = problem.outer_batch(slot_of_xi), problem.inner_batch(slot_of_zeta)
        f = oracle.outer_gradients(problem, x, y, xi)
        g_y, products = oracle.inner_derivatives(problem, x, y, zeta)
        g_xy_u, g_yy_u = products(u)
        seen = Seen((one((f[1], f[0])),), (one((g_y, g_yy_u, shared_part(x, g_xy_u))),))
        outer, (f_x, f_y) = estimators.saga(state.outer, slot_of_xi[0], f)
        inner, (g_y, g_yy_u, g_xy_u) = estimators.saga(state.inner, slot_of_zeta[0], (g_y, g_yy_u, g_xy_u))
        d = wior_bo.Directions(x=tree.sub(f_x, g_xy_u), y=g_y, u=tree.sub(g_yy_u, f_y), seen=seen)
        return State(*wior_bo.descended(self, here, d, draws, zeta), outer, inner), seen
