"""Tree arithmetic that jax and optax do not already have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


def sub(a: Tree, b: Tree) -> Tree:
    """a − b, where a leaf that is `None` on the left counts as zero."""
    return jax.tree.map(lambda left, right: -right if left is None else left - right, a, b, is_leaf=_is_none)


def neg(a: Tree) -> Tree:
    return jax.tree.map(jnp.negative, a)


def zeros_like(a: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, a)


def mean(a: Tree, axis: int = 0) -> Tree:
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis), a)


def vdot(a: Tree, b: Tree) -> jax.Array:
    """⟨a, b⟩ over all leaves."""
    products = jax.tree.map(lambda left, right: jnp.sum(left * right), a, b)
    return jax.tree.reduce(jnp.add, products, jnp.zeros(()))


def norm(a: Tree) -> jax.Array:
    return jnp.sqrt(vdot(a, a))


def axpy(scale: Any, a: Tree, b: Tree) -> Tree:
    """b + scale · a, in the types of b."""
    return jax.tree.map(lambda left, right: (right + scale * left).astype(right.dtype), a, b)


def project(a: Tree, radius: Any) -> Tree:
    """The point of the ball of `radius` around 0 that is nearest to a."""
    length = norm(a)
    shrink = jnp.where(length > radius, radius / jnp.where(length > 0, length, 1.0), 1.0)
    return jax.tree.map(lambda leaf: (shrink * leaf).astype(leaf.dtype), a)


def where(condition: Any, a: Tree, b: Tree) -> Tree:
    return jax.tree.map(lambda left, right: jnp.where(condition, left, right), a, b)


def flat(a: Tree) -> jax.Array:
    """All leaves of a joined into one vector; an empty tree gives an empty vector."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(a)]
    return jnp.concatenate(leaves) if leaves else jnp.zeros((0,))


def all_finite(a: Tree) -> jax.Array:
    return jax.tree.reduce(
        jnp.logical_and, jax.tree.map(lambda leaf: jnp.all(jnp.isfinite(leaf)), a), jnp.asarray(True)
    )


def _is_none(leaf: Any) -> bool:
    return leaf is None
