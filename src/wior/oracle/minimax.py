"""The derivatives of minimax problems. Each says what it costs in backward passes; calls are counted."""

from __future__ import annotations

from typing import Any

import jax

from wior.oracle.tally import count
from wior.problems import Batch
from wior.problems.per_example import at_rows

Tree = Any


def minimax_gradients(problem: Any, x: Tree, y: Tree, xi: Batch) -> tuple[Tree, Tree]:
    """(∇_x f, ∇_y f) of a minimax objective on one batch, at its rows where x or y has `PerExample` rows. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.objective, (0, 1))(at_rows(x, xi.examples), at_rows(y, xi.examples), xi.data)


def minimax_gradient_x(problem: Any, x: Tree, y: Tree, xi: Batch) -> Tree:
    """∇_x f of a minimax objective on one batch, at its rows where x has `PerExample` rows. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.objective, 0)(at_rows(x, xi.examples), at_rows(y, xi.examples), xi.data)


def minimax_gradient_y(problem: Any, x: Tree, y: Tree, zeta: Batch) -> Tree:
    """∇_y f of a minimax objective on one batch, at its rows where y has `PerExample` rows. One pass.

    Where y ascends on data of its own, its examples are counted at the inner level.
    """
    count(1, len(zeta.examples), "outer_gradients" if problem.ascent_data is None else "inner_gradients")
    point = at_rows(x, zeta.examples), at_rows(y, zeta.examples)
    return jax.grad(problem.objective, 1)(*point, zeta.data)
