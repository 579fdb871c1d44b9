"""Tree arithmetic that jax and optax do not already have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Tree = Any


def sub(a: Tree, b: Tree) -> Tree:
    """a − b, where a leaf that is `None` on the left counts as zero; `None` on both sides stays."""

    def one(left: Any, right: Any) -> Any:
        if right is None:
            return None
        return -right if left is None else left - right

    return jax.tree.map(one, a, b, is_leaf=_is_none)


def add(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(jnp.add, a, b)


def scaled(scale: Any, a: Tree) -> Tree:
    """scale · a, in the types of a."""
    return jax.tree.map(lambda leaf: (scale * leaf).astype(leaf.dtype), a)


def in_types_of(like: Tree, a: Tree) -> Tree:
    """a, leaf by leaf in the types of `like`."""
    return jax.tree.map(lambda to, leaf: leaf.astype(to.dtype), like, a)


def neg(a: Tree) -> Tree:
    return jax.tree.map(jnp.negative, a)


def zeros_like(a: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, a)


def stack_of_zeros(a: Tree, length: int) -> Tree:
    """`length` trees like a, all zero, with a first axis for them."""
    return jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), a)


def put(stack: Tree, place: Any, a: Tree) -> Tree:
    """A stack of trees with `a` at a place."""
    return jax.tree.map(lambda leaf, one: leaf.at[place].set(one), stack, a)


def mean(a: Tree, axis: int = 0) -> Tree:
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis), a)


def vdot(a: Tree, b: Tree) -> jax.Array:
    """⟨a, b⟩ over all leaves; one that is `None` on either side counts as zero."""
    products = jax.tree.map(
        lambda left, right: None if left is None or right is None else jnp.sum(left * right), a, b, is_leaf=_is_none
    )
    # a Python zero, since an array of zeros could raise the precision
    return jnp.asarray(sum(jax.tree.leaves(products)))


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


def branch(condition: Any, chosen: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """`chosen(*operands)` where the condition holds, else `otherwise(*operands)`.

    A CPU takes the branch. An accelerator would have to ask the host which one, and computes both sooner than that.
    """
    if jax.default_backend() == "cpu":
        return lax.cond(condition, chosen, otherwise, *operands)
    return where(condition, chosen(*operands), otherwise(*operands))


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
