"""VRBO: SPIDER on the inner gradient and on a hyper-gradient with a Neumann sum, refreshed over an inner loop.

Every q steps d_x = D(x, y) and d_y = ∇_y g(x, y) on large batches. Then x ← x − η d_x, and over m + 1 batches, of which
each gives both differences between the present point and the one before it,

    d_x ← d_x + D(x, y) − D(x⁻, y⁻),   d_y ← d_y + ∇_y g(x, y) − ∇_y g(x⁻, y⁻),   y ← y − γ d_y  (not after the last)

with D = ∇_x f − ∇²_xy g τ Σ_{q=0…Q} Π_{j≤q} (I − τ ∇²_yy g(·; ζ'_j)) ∇_y f and Q + 1 = `neumann_terms`. `large_batch`
is the number of examples of a large batch at each level, all of them where it is None; q is `period`, the steps of a
pass over the larger data where it is None.

Yang, Ji, Liang, "Provably faster algorithms for bilevel optimization", NeurIPS 2021.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, at_step, damping_term, static
from wior.algorithms.parts import estimators, linear_systems
from wior.algorithms.parts.implicit import Estimate, Series, neumann_hypergradient
from wior.algorithms.parts.recursive import steps_in_pass
from wior.problems import Bilevel
from wior.problems.moving import only_when
from wior.problems.per_example import descend, has_rows, shared_part, with_rows_of, without_rows

Tree = Any


class State(NamedTuple):
    x: Tree
    y: Tree
    d_x: Tree  # SPIDER's estimates
    d_y: Tree


@dataclasses.dataclass(frozen=True)
class VRBO(Algorithm):
    """SPIDER on both levels with a Neumann sum, for `Bilevel` problems.

    Every q steps the directions of x and y are computed on large batches; between, inner loops correct them. A step
    makes many backward passes, 75 by default: compare methods by calls, not by steps.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    neumann_lr : float or schedule
        τ, the scale of the Neumann series, below 1/L with L the largest eigenvalue of the inner Hessian ∇²_yy g. Start
        with the value of `inner_lr`. A smaller one is stable, but needs more terms to come as near.
    inner_steps : int, default 3
        m, the inner steps on y after each step of x; they read m + 1 batches.
    neumann_terms : int, default 4
        Q + 1, the terms of the Neumann sum. u misses (I − τ ∇²_yy g)^(Q + 1) of itself, so badly conditioned inner
        problems need more.
    period : int or None, default None
        q, the steps from one large batch to the next. None: as many as make one pass over the larger of the two data
        sets.
    large_batch : int or None, default None
        The examples of a large batch at each level. None takes all examples. Where all of them are too many, take some
        tens of batches.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.
    damping : float or None, default None
        μ, which is added to the inner Hessian: u solves (∇²_yy g + μ I) u = ∇_y f. Give one, a little above minus the
        smallest eigenvalue of ∇²_yy g, where the inner problem is not convex and u grows. None: no damping.

    References
    ----------
    Yang, Ji, Liang, "Provably faster algorithms for bilevel optimization", NeurIPS 2021. The updates as formulas:
    `help(wior.baselines.vrbo)`.

    Examples
    --------
    >>> import wior
    >>> method = wior.baselines.VRBO(outer_lr=1.0, inner_lr=0.5, neumann_lr=0.5, period=16)
    >>> method.period, method.large_batch is None
    (16, True)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ, below 1/L
    inner_steps: int = static(3)  # m
    neumann_terms: int = static(4)  # Q + 1
    period: int | None = static(None, checks.positive_integer_or_none)  # q, a pass where None
    large_batch: int | None = static(None, checks.positive_integer_or_none)
    separate_streams: bool = static(False, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "d_x": "outer_lr", "d_y": "inner_lr"}
    takes_large_batches = True
    paper = "Yang, Ji, Liang, NeurIPS 2021"

    @property
    def batch_kinds(self) -> BatchKinds:
        batches = self.inner_steps + 1
        return BatchKinds((batches,), (batches, batches * (self.neumann_terms - 1)), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, estimators.no_estimate(x), estimators.no_estimate(y))

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        (for_f,), (for_g, for_u) = draws.outer, draws.inner
        batches = self.inner_steps + 1
        period = self.period or -(-steps_in_pass(problem, draws) // batches)
        for_u = for_u.reshape(batches, self.neumann_terms - 1, for_g.shape[1])
        scale, inner_lr = at_step(self.neumann_lr, draws.step), at_step(self.inner_lr, draws.step)

        def evaluate(x: Tree, y: Tree, batch: tuple[jax.Array, ...]) -> tuple[Estimate, Tree]:
            xi, zeta = problem.outer_batch(batch[0]), problem.inner_batch(batch[1])
            curvature = oracle.inner_curvature(problem, x, y, zeta)
            estimate = neumann_hypergradient(problem, x, y, xi, batch[2], curvature.jacobian, Series(scale))
            return estimate, curvature.gradient()

        def large(d: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            return _on_large_batches(problem, state.x, state.y, draws, draws.step // period, self, scale)

        d_x, d_y = oracle.cond(draws.step % period == 0, large, lambda d: d, (state.d_x, state.d_y))
        direction, first = d_x, None
        if has_rows(state.x):  # a row moves along its own derivative, which the recursion does not have
            plain, _ = evaluate(state.x, state.y, (for_f[0], for_g[0], for_u[0]))
            direction, first = estimators.with_rows(d_x, plain.direction), for_g[0]
        x = descend(state.x, at_step(self.outer_lr, draws.step), direction, first, after=(d_x, d_y))

        def turn(carry: Any, item: Any) -> tuple[Any, Any]:
            old_x, old_y, y, d_x, d_y = carry
            batch, moves = item
            new, g_y = evaluate(x, y, batch)
            old, old_g_y = evaluate(with_rows_of(x, old_x), old_y, batch)
            d_x = estimators.remembered(d_x, estimators.spider(d_x, new.direction, old.direction))
            d_y = estimators.spider(d_y, g_y, old_g_y)
            moved = descend(y, only_when(moves, inner_lr), d_y)
            return (without_rows(x), y, moved, d_x, d_y), (new, g_y)

        moves = jnp.arange(batches) < self.inner_steps
        carry = (without_rows(state.x), state.y, state.y, d_x, d_y)
        (_, _, y, d_x, d_y), (new, g_y) = oracle.scan(turn, carry, ((for_f, for_g, for_u), moves))
        first_of = lambda kind: jax.tree.map(lambda leaf: leaf[:, 0], kind)
        joined = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), new.hessian)
        return State(x, y, d_x, d_y), Seen((first_of(new.outer),), ((g_y, first_of(new.jacobian)), joined))


def _on_large_batches(
    problem: Bilevel, x: Tree, y: Tree, draws: Draws, number: jax.Array, algorithm: VRBO, scale: Any
) -> tuple[Tree, Tree]:
    """D and ∇_y g on one large batch of each level; every factor of the Neumann sum is on the same one."""
    assert draws.reserves is not None
    outer = draws.reserves.outer.take(number, algorithm.large_batch)
    inner = draws.reserves.inner.take(number, algorithm.large_batch)

    def mean_inner(derivative: Any) -> Tree:
        return estimators.over_large_batch(lambda index: derivative(problem.inner_batch(index)), inner)

    f_x, f_y = estimators.over_large_batch(
        lambda index: oracle.outer_gradients(problem, x, y, problem.outer_batch(index)), outer
    )

    def product(v: Tree, _: jax.Array) -> Tree:
        return mean_inner(lambda zeta: oracle.hessian_product(problem, x, y, v, zeta))

    u, _ = linear_systems.neumann_sum(product, f_y, scale, jnp.zeros(algorithm.neumann_terms - 1))
    g_xy_u = mean_inner(lambda zeta: shared_part(x, oracle.jacobian_product(problem, x, y, u, zeta)))
    g_y = mean_inner(lambda zeta: oracle.inner_gradient(problem, x, y, zeta))
    return tree.sub(f_x, g_xy_u), g_y
