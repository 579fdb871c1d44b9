"""The derivatives of conditional problems, one outer example at a time, under `vmap`.

`xi` is a batch of one row, `rows` rows of its own inner set, `weights` zero for the rows that are padding, `None` where
there is none. A point at which the inner loss is evaluated is x itself, or the representation of the rows where a
problem has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior import tree
from wior.oracle.damping import damped
from wior.oracle.tally import count
from wior.problems import Batch
from wior.problems.inner_sets import weighted_mean
from wior.problems.keys import examples_of, rows_alone
from wior.problems.per_example import has_rows, mean_direction, own_rows, with_own

Tree = Any


class Representations(NamedTuple):
    """What the losses see of x at a batch of B outer examples: their representations (B, ...).

    `None` where a loss sees x itself. `own` has the examples' rows of `PerExample` leaves, `None` where x has none.
    """

    inner: Tree | None
    outer: Tree | None
    own: Tree | None = None

    def at(self, x: Tree) -> tuple[Tree, Tree]:
        """What the inner and the outer loss of one example see; under `vmap` these are its own representations."""
        outer = jax.tree.map(lambda leaf: leaf[None], self.outer)
        seen = x if self.own is None else with_own(x, self.own)
        return (seen if self.inner is None else self.inner), (seen if outer is None else outer)


def represent_batch(
    problem: Any, x: Tree, xi: Batch, rows: Tree
) -> tuple[Representations, Callable[[Tree, Tree], Tree]]:
    """What the losses see of x at all rows of a batch of outer examples, and the way back to x.

    Both take one pass. The way back takes ∇_x f and ∇²_xy g u of every example with respect to what was seen, (B, ...),
    and returns the mean of their differences with respect to x. With `PerExample` leaves of x there is nothing to
    represent: the losses of an example see its own row.
    """
    if has_rows(x):
        own = Representations(None, None, own_rows(x, xi.examples))
        return own, lambda f_point, g_point: mean_direction(x, tree.sub(f_point, g_point))
    outer_rows, rows = rows_alone(xi.data), rows_alone(rows)  # a representation takes no key
    examples, n = jax.tree.leaves(rows)[0].shape[:2]

    def forward(x: Tree) -> Representations:
        inner = outer = None
        if problem.represent is not None:
            flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
            inner = jax.tree.map(lambda leaf: leaf.reshape(examples, n, *leaf.shape[1:]), problem.represent(x, flat))
        if problem.represent_outer is not None:
            outer = problem.represent_outer(x, outer_rows)
        return Representations(inner, outer)

    seen, pullback = jax.vjp(forward, x)

    def back(f_point: Tree, g_point: Tree) -> Tree:
        if seen.inner is None and seen.outer is None:
            return tree.mean(tree.sub(f_point, g_point))
        inner = None if seen.inner is None else tree.scaled(-1 / examples, g_point)
        outer = None if seen.outer is None else tree.scaled(1 / examples, f_point)
        # the outer loss of one example saw a batch of one, whose axis goes here
        outer = jax.tree.map(lambda cotangent, leaf: cotangent.reshape(leaf.shape), outer, seen.outer)
        (direction,) = pullback(Representations(inner, outer))
        if seen.inner is None:
            direction = tree.sub(direction, tree.mean(g_point))
        if seen.outer is None:
            direction = tree.add(direction, tree.mean(f_point))
        return direction

    return seen, back


def conditional_outer_y(problem: Any, point: Tree, y: Tree, xi: Tree, weights: jax.Array | None) -> Tree:
    """∇_y f at one outer example, for an update on inner rows with these weights. One pass."""
    count(1, _updates(weights), "outer_gradients")
    return jax.grad(problem.outer, 1)(point, y, xi)


def conditional_outer_x(problem: Any, point: Tree, y: Tree, xi: Tree) -> Tree:
    """∇_x f at one outer example, with respect to what the loss sees of x. One pass."""
    count(1, 1, "outer_gradients")
    return jax.grad(problem.outer, 0)(point, y, xi)


def conditional_outer(problem: Any, point: Tree, y: Tree, xi: Tree) -> tuple[Tree, Tree]:
    """(∇_x f, ∇_y f) at one outer example, the first with respect to what the loss sees of x. One pass."""
    count(1, 1, "outer_gradients")
    return jax.grad(problem.outer, (0, 1))(point, y, xi)


def conditional_inner_gradient(problem: Any, point: Tree, y: Tree, rows: Tree) -> Tree:
    """∇_y g on some rows of one inner set. One pass."""
    count(1, _examples(rows, None), "inner_gradients")
    return jax.grad(conditional_loss, 2)(problem, point, y, rows, None)


def conditional_hessian(problem: Any, point: Tree, y: Tree, u: Tree, rows: Tree) -> Tree:
    """∇²_yy g u on some rows of one inner set. Two passes."""
    count(2, _examples(rows, None), "hessian_products")
    product = jax.vjp(lambda y: jax.grad(conditional_loss, 2)(problem, point, y, rows, None), y)[1](u)[0]
    return damped(problem, product, u)


def conditional_inner(
    problem: Any, point: Tree, y: Tree, u: Tree, rows: Tree, weights: jax.Array | None
) -> tuple[Tree, Tree]:
    """(∇_y g, ∇²_yy g u) on some rows of one inner set. Two passes."""
    examples = _examples(rows, weights)
    count(2, examples, "inner_gradients", "hessian_products")
    g_y, pullback = jax.vjp(lambda y: jax.grad(conditional_loss, 2)(problem, point, y, rows, weights), y)
    return g_y, damped(problem, pullback(u)[0], u)


def conditional_cross(problem: Any, point: Tree, y: Tree, u: Tree, rows: Tree, weights: jax.Array | None) -> Tree:
    """∇²_xy g u on some rows of one inner set, with respect to what the loss sees of x. Two passes."""
    count(2, _examples(rows, weights), "jacobian_products")
    gradient = lambda point: jax.grad(conditional_loss, 2)(problem, point, y, rows, weights)
    return jax.vjp(gradient, point)[1](u)[0]


def conditional_map(problem: Any, x: Tree, rows: Tree, weights: jax.Array | None) -> Tree:
    """r(x; ζ) on some rows of one inner set. No pass."""
    count(0, _examples(rows, weights), "inner_gradients")
    return weighted_mean(lambda rows: problem.inner(x, rows), weights, rows)


def conditional_map_pullback(problem: Any, x: Tree, u: Tree, rows: Tree, weights: jax.Array | None) -> Tree:
    """∇r(x; ζ) u on some rows of one inner set. One pass."""
    count(1, _examples(rows, weights), "jacobian_products")
    value, pullback = jax.vjp(lambda x: weighted_mean(lambda rows: problem.inner(x, rows), weights, rows), x)
    return pullback(tree.in_types_of(value, u))[0]


def conditional_map_gradient(problem: Any, y: Tree, xi: Tree, weights: jax.Array | None) -> Tree:
    """∇f(y) at one outer example, for an update on inner rows with these weights. One pass."""
    count(1, _updates(weights), "outer_gradients")
    return jax.grad(problem.outer)(y, xi)


def rows_of(point: Tree, represented: bool, index: jax.Array) -> Tree:
    """What the loss sees of x at some rows: rows of a representation, or x itself."""
    return jax.tree.map(lambda a: a[examples_of(index)], point) if represented else point


def spread(cotangent: Tree, point: Tree, represented: bool, index: jax.Array) -> Tree:
    """A cotangent of `rows_of(point, represented, index)` as one of the point itself."""
    if not represented:
        return cotangent
    at = examples_of(index)
    return jax.tree.map(lambda all_rows, rows: jnp.zeros_like(all_rows).at[at].add(rows), point, cotangent)


def conditional_map_and_pullback(problem: Any, x: Tree, rows: Tree) -> tuple[Tree, Callable[[Tree], Tree]]:
    """r(x; ζ) on some rows of one inner set, and u ↦ ∇r(x; ζ) u. One pass when pulled back."""
    count(0, _examples(rows, None), "inner_gradients")
    value, pullback = jax.vjp(lambda x: problem.inner(x, rows), x)

    def product(u: Tree) -> Tree:
        count(1, _examples(rows, None), "jacobian_products")
        return pullback(tree.in_types_of(value, u))[0]

    return value, product


def conditional_loss(problem: Any, point: Tree, y: Tree, rows: Tree, weights: jax.Array | None) -> jax.Array:
    if problem.represent is None:
        return weighted_mean(lambda rows: problem.inner(point, y, rows), weights, rows)
    return weighted_mean(lambda features, rows: problem.inner(features, y, rows), weights, point, rows)


def _examples(rows: Tree, weights: jax.Array | None) -> Any:
    return jax.tree.leaves(rows)[0].shape[0] if weights is None else jnp.sum(weights > 0)


def _updates(weights: jax.Array | None) -> Any:
    """One; zero where every row is padding, since the update is not made then."""
    return 1 if weights is None else jnp.any(weights > 0)
