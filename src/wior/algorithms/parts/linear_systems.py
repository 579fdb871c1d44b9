"""Ways to solve ∇²_yy g u = b with products alone: the part in which the implicit methods differ.

`product(v, batch)` is ∇²_yy g v on one batch; `batches` is an array (number, ...) of which each turn takes the next
one. Besides u the solvers return the products they formed, for orders that learn from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wior import oracle, tree
from wior.problems.per_example import descend

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

    Where p is uniform in 0 … Q − 1 this is in expectation the first Q terms of the sum. Batches that p left out show
    zeros.
    """
    terms = batches.shape[0] + 1
    seen = tree.stack_of_zeros(b, terms - 1)

    def turn(j: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
        term, seen = carry
        image = product(term, batches[j])
        return tree.axpy(-scale, image, term), tree.put(seen, j, image)

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
        return descend(u, lr, tree.sub(image, b)), image

    return oracle.scan(turn, start, batches)


class Solved(NamedTuple):
    v: Tree
    residual: jax.Array  # ‖b − product(v)‖, as the recursion has it
    convex: jax.Array  # whether every direction had positive curvature
    steps: jax.Array


class _Search(NamedTuple):
    v: Tree
    residual: Tree
    direction: Tree
    squared: jax.Array
    number: jax.Array
    convex: jax.Array


def conjugate_gradients(
    product: Callable[[Tree], Tree], b: Tree, limit: int, needed: Any = None, start: Tree | None = None
) -> Solved:
    """Solves product(v) = b by conjugate gradients in `limit` steps, from `start` or from zero.

    If `needed` is given, it stops once the norm of the residual is at most that.

    The error in the norm of the matrix falls by (√κ − 1)/(√κ + 1) a step, and is zero after as many as there are
    eigenvalues. Where the curvature is not positive, v stays as it is.
    """

    def step(search: _Search) -> _Search:
        image = product(search.direction)
        curvature = tree.vdot(search.direction, image)
        convex = search.convex & ((curvature > 0) | (search.squared == 0))
        goes_on = convex & (search.squared > 0)
        length = jnp.where(goes_on, search.squared / jnp.where(goes_on, curvature, 1.0), 0.0)
        v = tree.axpy(length, search.direction, search.v)
        residual = tree.axpy(-length, image, search.residual)
        squared = tree.vdot(residual, residual)
        ratio = squared / jnp.where(goes_on, search.squared, 1.0)
        return _Search(v, residual, tree.axpy(ratio, search.direction, residual), squared, search.number + 1, convex)

    v, residual = (tree.zeros_like(b), b) if start is None else (start, tree.sub(b, product(start)))
    first = _Search(v, residual, residual, tree.vdot(residual, residual), jnp.int32(0), jnp.asarray(True))
    if needed is None:  # a length that is known: an accelerator need not ask the host after every step
        end, _ = oracle.scan(lambda search, _: (step(search), None), first, jnp.arange(limit))
        return Solved(end.v, jnp.sqrt(end.squared), end.convex, end.number)

    def counted(loop: tuple[_Search, Any]) -> tuple[_Search, Any]:
        search, calls = loop
        with oracle.counting() as tally:
            search = step(search)
        return search, jax.tree.map(jnp.add, calls, tally.everything())

    def goes_on(loop: tuple[_Search, Any]) -> Any:
        search, _ = loop
        return (jnp.sqrt(search.squared) > needed) & (search.number < limit) & search.convex

    end, calls = lax.while_loop(goes_on, counted, (first, oracle.no_calls()))
    oracle.add_calls(calls)
    return Solved(end.v, jnp.sqrt(end.squared), end.convex, end.number)
