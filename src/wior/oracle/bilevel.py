"""The derivatives of bilevel problems. Each says what it costs in backward passes; calls are counted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from wior.oracle.damping import damped
from wior.oracle.tally import count
from wior.problems import Batch, carried
from wior.problems.losses import MODEL, evaluate
from wior.problems.per_example import at_rows, without_rows

Tree = Any


class InnerDerivatives(NamedTuple):
    """∇_y g at a point, and the products that its graph still gives."""

    gradient: Tree
    products: Callable[[Tree], tuple[Tree, Tree]]  # u ↦ (∇²_xy g u, ∇²_yy g u), one pass


class Curvature(NamedTuple):
    """The derivatives of g at a point that one graph gives: what is called is counted."""

    gradient: Callable[[], Tree]  # ∇_y g, no further pass
    hessian: Callable[[Tree], Tree]  # u ↦ ∇²_yy g u
    jacobian: Callable[[Tree], Tree]  # u ↦ ∇²_xy g u
    both: Callable[[Tree], tuple[Tree, Tree]]  # u ↦ (∇²_xy g u, ∇²_yy g u), one pass


def outer_gradients(problem: Any, x: Tree, y: Tree, xi: Batch) -> tuple[Tree, Tree]:
    """(∇_x f, ∇_y f) on one batch; `None` where x has `PerExample` rows. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return gradient(problem.outer, (0, 1), without_rows(x), y, xi.data)


def outer_gradient_x(problem: Any, x: Tree, y: Tree, xi: Batch) -> Tree:
    """∇_x f on one batch. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return gradient(problem.outer, 0, without_rows(x), y, xi.data)


def outer_gradient_y(problem: Any, x: Tree, y: Tree, xi: Batch) -> Tree:
    """∇_y f on one batch. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return gradient(problem.outer, 1, without_rows(x), y, xi.data)


def inner_gradients(problem: Any, x: Tree, y: Tree, zeta: Batch) -> tuple[Tree, Tree]:
    """(∇_x g, ∇_y g) on one batch, the first at the batch's rows where x has `PerExample` rows. One pass."""
    count(1, len(zeta.examples), "inner_gradients")
    return gradient(problem.inner, (0, 1), at_rows(x, zeta.examples), y, zeta.data)


def inner_gradient_x(problem: Any, x: Tree, y: Tree, zeta: Batch) -> Tree:
    """∇_x g on one batch, at the batch's rows where x has `PerExample` rows. One pass."""
    count(1, len(zeta.examples), "inner_gradients")
    return jax.grad(problem.inner, 0)(at_rows(x, zeta.examples), y, zeta.data)


def inner_gradient(problem: Any, x: Tree, y: Tree, zeta: Batch) -> Tree:
    """∇_y g on one batch. One pass."""
    count(1, len(zeta.examples), "inner_gradients")
    return gradient(problem.inner, 1, at_rows(x, zeta.examples), y, zeta.data)


def inner_derivatives(problem: Any, x: Tree, y: Tree, zeta: Batch) -> InnerDerivatives:
    """∇_y g on one batch, one pass; and both products with a vector in one more, on the same graph."""
    count(1, len(zeta.examples), "inner_gradients")
    g_y, pullback, state = _through_gradient(problem.inner, at_rows(x, zeta.examples), y, zeta.data)
    _keep(state)

    def products(u: Tree) -> tuple[Tree, Tree]:
        count(1, len(zeta.examples), "jacobian_products", "hessian_products")
        g_xy_u, g_yy_u = pullback(u)
        return g_xy_u, damped(problem, g_yy_u, u)

    return InnerDerivatives(g_y, products)


def inner_curvature(problem: Any, x: Tree, y: Tree, zeta: Batch) -> Curvature:
    """∇_y g and ∇²g on one batch, the latter as products. One pass for the graph, and one for each product."""
    examples = len(zeta.examples)
    count(1, 0)
    g_y, pullback, state = _through_gradient(problem.inner, at_rows(x, zeta.examples), y, zeta.data)

    def value() -> Tree:
        count(0, examples, "inner_gradients")
        _keep(state)
        return g_y

    def hessian(u: Tree) -> Tree:
        count(1, examples, "hessian_products")
        return damped(problem, pullback(u)[1], u)

    def jacobian(u: Tree) -> Tree:
        count(1, examples, "jacobian_products")
        return pullback(u)[0]

    def both(u: Tree) -> tuple[Tree, Tree]:
        count(1, examples, "jacobian_products", "hessian_products")
        g_xy_u, g_yy_u = pullback(u)
        return g_xy_u, damped(problem, g_yy_u, u)

    return Curvature(value, hessian, jacobian, both)


def hessian_product(problem: Any, x: Tree, y: Tree, u: Tree, zeta: Batch) -> Tree:
    """∇²_yy g u on one batch. Two passes: the gradient and the product through it."""
    count(2, len(zeta.examples), "hessian_products")
    point = at_rows(x, zeta.examples)
    product = jax.vjp(lambda y: jax.grad(problem.inner, 1)(point, y, zeta.data), y)[1](u)[0]
    return damped(problem, product, u)


def jacobian_product(problem: Any, x: Tree, y: Tree, u: Tree, zeta: Batch) -> Tree:
    """∇²_xy g u on one batch, at the batch's rows where x has `PerExample` rows. Two passes."""
    count(2, len(zeta.examples), "jacobian_products")
    return jax.vjp(lambda point: jax.grad(problem.inner, 1)(point, y, zeta.data), at_rows(x, zeta.examples))[1](u)[0]


def gradient(loss: Callable[..., Any], places: int | tuple[int, int], *args: Any) -> Any:
    """The gradient of a loss in some of its arguments; the model state after it is carried on, where there is one."""
    if not carried.holds(MODEL):
        return jax.grad(loss, places)(*args)
    found, state = jax.grad(functools.partial(evaluate, loss, carried.value(MODEL)), places, has_aux=True)(*args)
    _keep(state)
    return found


def _through_gradient(loss: Callable[..., Any], point: Tree, y: Tree, data: Tree) -> tuple[Tree, Any, Tree]:
    """∇_y g, the way back through it, and the model state after it; None where none is carried."""
    if not carried.holds(MODEL):
        return *jax.vjp(lambda point, y: jax.grad(loss, 1)(point, y, data), point, y), None
    own = jax.grad(functools.partial(evaluate, loss, carried.value(MODEL)), 1, has_aux=True)
    found, pullback, state = jax.vjp(lambda point, y: own(point, y, data), point, y, has_aux=True)
    return found, pullback, state


def _keep(state: Tree) -> None:
    if state is not None:
        carried.put(MODEL, state)
