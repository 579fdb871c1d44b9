"""Ways to solve ∇²_yy g u = b with products alone: the part in which the implicit methods differ.

`product(v, batch)` is ∇²_yy g v on one batch; `batches` is an array (number, ...) of which each turn takes the next one. Besides u
the solvers return the products they formed, for orders that learn from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wior import oracle, tree

Tree = Any
Product = Callable[[Tree, jax.Array], Tree]


def neumann_sum(product: Product, b: Tree, scale: Any, batches: jax.Array) -> tuple[Tree, Tree]:
    """τ Σ_{q=0…Q} Π_{j≤q} (I − τ H_j) b over Q batches: Q + 1 terms, Q products.

    With one matrix its error is (I − τ H)^(Q+1) H⁻¹ b: it falls by the factor 1 − τμ with every term.
    """

    def turn(carry: tuple[Tree, Tree], batch: jax.Array) -> tuple[tuple[Tree, Tree], Tree]:
        term, total = carry
        image = product(term, batch)
        term = tree.axpy(-scale, image, term)
        return (term, tree.add(total, term)), image

    (_, total), seen = oracle.scan(turn, (b, b), batches)
    return tree.scaled(scale, total), seen


def neumann_product(product: Product, b: Tree, scale: Any, batches: jax.Array, length: jax.Array) -> tuple[Tree, Tree]:
    """(Q τ) Π_{j≤p} (I − τ H_j) b with p = `length` of the Q − 1 batches.

    Where p is uniform in 0 … Q − 1 this is in expectation the first Q terms of the sum. Batches that p left out show zeros.
    """
    terms = batches.shape[0] + 1
    seen = jax.tree.map(lambda leaf: jnp.zeros((terms - 1, *leaf.shape), leaf.dtype), b)

    def turn(j: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
        term, seen = carry
        image = product(term, batches[j])
        seen = jax.tree.map(lambda all_of_them, one: all_of_them.at[j].set(one), seen, image)
        return tree.axpy(-scale, image, term), seen

    # without a batch there is nothing to index, not even in a loop that is never entered
    term, seen = oracle.repeat(length, turn, (b, seen)) if terms > 1 else (b, seen)
    return tree.scaled(terms * scale, term), seen


def random_length(key: jax.Array, terms: int) -> jax.Array:
    """p, uniform in 0 … terms − 1."""
    return jax.random.randint(key, (), 0, terms)


def quadratic_steps(product: Product, b: Tree, start: Tree, lr: Any, batches: jax.Array) -> tuple[Tree, Tree]:
    """u ← u − ρ (H_j u − b) over the batches: stochastic gradient steps on ½ u'H u − b'u."""

    def turn(u: Tree, batch: jax.Array) -> tuple[Tree, Tree]:
        image = product(u, batch)
        return tree.axpy(-lr, tree.sub(image, b), u), image

    return oracle.scan(turn, start, batches)


class Solved(NamedTuple):
    v: Tree
    residual: jax.Array  # ‖b − product(v)‖, as the recursion has it
    convex: jax.Array  # whether every direction had positive curvature
    steps: jax.Array


def conjugate_gradients(
    product: Callable[[Tree], Tree], b: Tree, needed: Any, limit: int, start: Tree | None = None
) -> Solved:
    """Solves product(v) = b from `start`, or zero, until the residual norm is at most `needed`; stops at negative curvature.

    The error in the norm of the matrix falls by (√κ − 1)/(√κ + 1) a step, and is zero after as many as there are eigenvalues.
    """

    class Loop(NamedTuple):
        v: Tree
        residual: Tree
        direction: Tree
        squared: jax.Array
        number: jax.Array
        convex: jax.Array
        calls: Any

    def step(loop: Loop) -> Loop:
        with oracle.counting() as tally:
            image = product(loop.direction)
        curvature = tree.vdot(loop.direction, image)
        convex = curvature > 0
        length = jnp.where(convex, loop.squared / jnp.where(convex, curvature, 1.0), 0.0)
        v = tree.axpy(length, loop.direction, loop.v)
        residual = tree.axpy(-length, image, loop.residual)
        squared = tree.vdot(residual, residual)
        direction = tree.axpy(squared / loop.squared, loop.direction, residual)
        calls = jax.tree.map(jnp.add, loop.calls, tally.everything())
        return Loop(v, residual, direction, squared, loop.number + 1, convex, calls)

    def goes_on(loop: Loop) -> Any:
        return (jnp.sqrt(loop.squared) > needed) & (loop.number < limit) & loop.convex

    v, residual = (tree.zeros_like(b), b) if start is None else (start, tree.sub(b, product(start)))
    first = Loop(
        v, residual, residual, tree.vdot(residual, residual), jnp.int32(0), jnp.asarray(True), oracle.no_calls()
    )
    end = lax.while_loop(goes_on, step, first)
    oracle.add_calls(end.calls)
    return Solved(end.v, jnp.sqrt(end.squared), end.convex, end.number)
