"""The derivatives of compositional problems. Each says what it costs in backward passes; calls are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from wior import tree
from wior.oracle.tally import count
from wior.problems import Batch
from wior.problems.per_example import at_rows

Tree = Any


def map_gradient(problem: Any, y: Tree, xi: Batch) -> Tree:
    """∇f(y) of a compositional problem on one batch. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.outer)(y, xi.data)


def map_and_pullback(problem: Any, x: Tree, zeta: Batch) -> tuple[Tree, Callable[[Tree], Tree]]:
    """r(x; ζ) of a compositional problem, and u ↦ ∇r(x; ζ) u. One pass when pulled back.

    r stands for the inner gradient (∇_y g = y − r) and ∇r u for the Jacobian product; there is no Hessian.
    """
    count(0, len(zeta.examples), "inner_gradients")
    value, pullback = jax.vjp(lambda point: problem.inner(point, zeta.data), at_rows(x, zeta.examples))

    def product(u: Tree) -> Tree:
        count(1, len(zeta.examples), "jacobian_products")
        return pullback(tree.in_types_of(value, u))[0]

    return value, product
