"""What the conditional baselines share: EpochSGD on one inner problem, and the implicit hyper-gradient at its end.

EpochSGD(K): in epoch k = 0 … K, 2^k steps of length β/2^k, from the mean of the iterates of the epoch before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wior import oracle, tree
from wior.algorithms.parts import linear_systems
from wior.problems import ConditionalBilevel
from wior.problems.per_example import descend

Tree = Any


def epoch_steps(levels: Any) -> Any:
    """Steps of EpochSGD(levels): 1 + 2 + … + 2^levels."""
    return 2 ** (levels + 1) - 1


class Epochs(NamedTuple):
    """The state of EpochSGD between two steps."""

    y: Tree
    mean: Tree  # of the iterates of the present epoch


def epoch_step(carry: Epochs, j: jax.Array, lr: Any, gradient: Any) -> tuple[Epochs, Tree, jax.Array, jax.Array]:
    """Step j of EpochSGD, where `gradient(y)` is ∇_y g.

    Returns the new state, the gradient, the number of the epoch, and whether the epoch ends with this step.
    """
    j = jnp.asarray(j, jnp.int32)
    epoch = 31 - lax.clz(j + 1)
    size = jnp.left_shift(1, epoch)
    place = j + 1 - size
    g_y = gradient(carry.y)
    y = descend(carry.y, lr / size, g_y)
    mean = jax.tree.map(lambda m, new: (m + (new - m) / (place + 1)).astype(m.dtype), carry.mean, y)
    ends = place == size - 1
    return Epochs(tree.where(ends, mean, y), mean), g_y, epoch, ends


class InnerProblem:
    """The inner problem of one outer example: its losses at a fixed x, on batches of its own rows."""

    def __init__(self, problem: ConditionalBilevel, x: Tree, xi: Tree, rows: Tree, represented: oracle.Representations):
        self.problem, self.rows = problem, rows
        self.xi = jax.tree.map(lambda leaf: leaf[None], xi)
        self.point, self.outer_point = represented.at(x)

    def _at(self, index: jax.Array) -> tuple[Tree, Tree]:
        represented = self.problem.represent is not None
        return oracle.rows_of(self.point, represented, index), oracle.rows_at(self.rows, index)

    def gradient(self, y: Tree, index: jax.Array) -> Tree:
        point, rows = self._at(index)
        return oracle.conditional_inner_gradient(self.problem, point, y, rows)

    def cotangents(
        self, y: Tree, for_u: jax.Array, for_x: jax.Array, scale: Any, length: jax.Array
    ) -> tuple[tuple[Tree, Tree], Tree]:
        """∇_x f and ∇²_xy g u with respect to what the losses see of x, u by a Neumann product; and the products.

        Pulling back to x is linear, so that estimates and examples are combined before it is done once.
        """
        f_point, f_y = oracle.conditional_outer(self.problem, self.outer_point, y, self.xi)

        def product(v: Tree, index: jax.Array) -> Tree:
            point, rows = self._at(index)
            return oracle.conditional_hessian(self.problem, point, y, v, rows)

        u, seen = linear_systems.neumann_product(product, f_y, scale, for_u, length)
        point, rows = self._at(for_x)
        cross = oracle.conditional_cross(self.problem, point, y, u, rows, None)
        represented = self.problem.represent is not None
        return (f_point, oracle.spread(cross, self.point, represented, for_x)), seen


def seen_in_visit(g_y: Tree, products: Tree) -> Tree:
    """What was seen of the batches of a visit: a pair of trees, for ∇_y g and for the products.

    The batches come in this order: inner steps, factors of the Neumann product, the cross term. Each tree has zeros for
    the batches that were not read for it.
    """
    steps, factors = (jax.tree.leaves(kind)[0].shape[0] for kind in (g_y, products))

    def padded(before: int, kind: Tree, after: int) -> Tree:
        return jax.tree.map(lambda leaf: jnp.pad(leaf, ((before, after), *((0, 0),) * (leaf.ndim - 1))), kind)

    return padded(0, g_y, factors + 1), padded(steps, products, 1)
