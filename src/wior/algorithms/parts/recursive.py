"""The single-loop directions by a recursion that restarts on large batches: what SRBA and SPABA share."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from wior import oracle, tree
from wior.algorithms import wior_bo
from wior.algorithms.algorithm import Draws, Seen
from wior.algorithms.parts import estimators
from wior.problems import Bilevel
from wior.problems.per_example import shared_part, with_rows_of, without_rows

Tree = Any


class Before(NamedTuple):
    """The iterate before the present one, without `PerExample` rows."""

    x: Tree
    y: Tree
    u: Tree


class State(NamedTuple):
    x: Tree
    y: Tree
    u: Tree
    d_x: Tree  # the estimates of the three directions
    d_y: Tree
    d_u: Tree
    old: Before


def begun(x: Tree, y: Tree) -> State:
    u, none = tree.zeros_like(y), estimators.no_estimate
    return State(x, y, u, none(x), none(y), none(u), Before(without_rows(x), y, u))


def steps_in_pass(problem: Bilevel, draws: Draws) -> int:
    """The steps of one pass over the larger of the two data sets, with one batch of each level in a step."""
    sizes = problem.sizes()
    return max(
        -(-sizes[level] // kinds[0].shape[1]) for level, kinds in (("outer", draws.outer), ("inner", draws.inner))
    )


def recursive_step(
    algorithm: Any, problem: Bilevel, state: State, draws: Draws, fresh: jax.Array, number: jax.Array, size: int | None
) -> tuple[State, Seen]:
    """A step along the directions of the recursion.

    Where `fresh`, it starts again with the directions on large batch `number`, of `size` examples.
    """
    x, y, u = here = wior_bo.State(state.x, state.y, state.u)
    xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
    new = wior_bo.directions(problem, here, xi, zeta)

    def old() -> tuple[Tree, Tree, Tree]:
        before = wior_bo.State(with_rows_of(x, state.old.x), state.old.y, state.old.u)
        d = wior_bo.directions(problem, before, xi, zeta)
        return d.x, d.y, d.u

    def large() -> tuple[Tree, Tree, Tree]:
        assert draws.reserves is not None
        f_x, f_y = estimators.over_large_batch(
            lambda index: oracle.outer_gradients(problem, x, y, problem.outer_batch(index)),
            draws.reserves.outer.take(number, size),
        )

        def of_inner(index: jax.Array) -> tuple[Tree, Tree, Tree]:
            g_y, products = oracle.inner_derivatives(problem, x, y, problem.inner_batch(index))
            g_xy_u, g_yy_u = products(u)
            return g_y, shared_part(x, g_xy_u), g_yy_u

        g_y, g_xy_u, g_yy_u = estimators.over_large_batch(of_inner, draws.reserves.inner.take(number, size))
        return tree.sub(f_x, g_xy_u), g_y, tree.sub(g_yy_u, f_y)

    estimate = (state.d_x, state.d_y, state.d_u)
    d_x, d_y, d_u = estimators.page(fresh, estimate, large, (new.x, new.y, new.u), old)
    shared, d = estimators.remembered(state.d_x, d_x), wior_bo.Directions(d_x, d_y, d_u, new.seen)
    x, y, u = wior_bo.descended(algorithm, here, d, draws, zeta, after=(shared, d_y, d_u))
    return State(x, y, u, shared, d_y, d_u, Before(without_rows(here.x), here.y, here.u)), new.seen
