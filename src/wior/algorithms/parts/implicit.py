"""What the double-loop methods share: inner SGD steps, and the implicit hyper-gradient with a Neumann series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior import oracle, tree
from wior.algorithms.algorithm import Draws, Seen, State, one
from wior.algorithms.parts import linear_systems
from wior.problems import Batch, Bilevel
from wior.problems.per_example import descend, shared_part

Tree = Any


def inner_steps(
    problem: Bilevel, x: Tree, y: Tree, rate: Callable[[jax.Array], Any], batches: jax.Array
) -> tuple[Tree, Tree]:
    """y ← y − rate(j) ∇_y g(x, y; ζ_j) over batches (number, batch). Returns y, and the gradient of each batch."""

    def turn(y: Tree, item: tuple[jax.Array, jax.Array]) -> tuple[Tree, Tree]:
        j, index = item
        g_y = oracle.inner_gradient(problem, x, y, problem.inner_batch(index))
        return descend(y, rate(j), g_y), g_y

    return oracle.scan(turn, y, (jnp.arange(len(batches)), batches))


class Series(NamedTuple):
    """A Neumann series: the sum over all batches or, given a length, a product of so many factors."""

    scale: Any
    length: jax.Array | None = None


def neumann_step(
    problem: Bilevel, x: Tree, y: Tree, draws: Draws, seen_y: Tree, outer_lr: Any, series: Series
) -> tuple[State, Seen]:
    """The outer step after an inner loop that ended at y.

    Inner batches of the second kind are used for u, the one of the third kind for ∇²_xy g u.
    """
    _, for_u, (for_x,) = draws.inner
    zeta = problem.inner_batch(for_x)
    jacobian = lambda u: oracle.jacobian_product(problem, x, y, u, zeta)
    xi = problem.outer_batch(draws.outer_index)
    estimate = neumann_hypergradient(problem, x, y, xi, for_u, jacobian, series)
    moved = State(descend(x, outer_lr, estimate.direction, zeta.examples), y)
    return moved, Seen((estimate.outer,), (seen_y, estimate.hessian, estimate.jacobian))


class Estimate(NamedTuple):
    """An estimate of ∇h(x), and the derivatives it was made from, with a first axis of batches for each kind."""

    direction: Tree
    outer: Tree
    hessian: Tree
    jacobian: Tree


def neumann_hypergradient(
    problem: Bilevel,
    x: Tree,
    y: Tree,
    xi: Batch,
    hessian_batches: jax.Array,
    jacobian: Callable[[Tree], Tree],
    series: Series,
) -> Estimate:
    """∇_x f − ∇²_xy g u with u a Neumann series over the batches.

    `jacobian` is u ↦ ∇²_xy g u on the batch that is meant for it.
    """
    f_x, f_y = oracle.outer_gradients(problem, x, y, xi)

    def product(v: Tree, index: jax.Array) -> Tree:
        return oracle.hessian_product(problem, x, y, v, problem.inner_batch(index))

    if series.length is None:
        u, seen = linear_systems.neumann_sum(product, f_y, series.scale, hessian_batches)
    else:
        u, seen = linear_systems.neumann_product(product, f_y, series.scale, hessian_batches, series.length)
    g_xy_u = jacobian(u)
    return Estimate(tree.sub(f_x, g_xy_u), one((f_y, f_x)), seen, one(shared_part(x, g_xy_u)))
