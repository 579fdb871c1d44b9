"""The smallest and the largest eigenvalue of the inner Hessian on real batches, by Lanczos' method.

A product with the Hessian costs two backward passes, and no matrix is made. The eigenvalues of the tridiagonal matrix
lie between those of the Hessian: a negative one proves that the inner problem is not convex, a positive one proves
nothing where y is long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import tree
from wior.instruments.checking.finding import Finding
from wior.instruments.checking.sample import Place, Sample
from wior.problems import Compositional, ConditionalCompositional, Minimax
from wior.problems.movement import two_batches, two_losses

Tree = Any

PRODUCTS = 30
SECONDS = 4.0
SETS = 8  # inner sets of a conditional problem whose Hessians are looked at
SINGLE = 3  # batches whose own largest eigenvalue is estimated
KEPT = 10**7  # numbers of all vectors together that are kept to stay orthogonal to
STRONGLY_CURVED_DOWN = 0.5


class Spectrum(NamedTuple):
    """The ends of the spectrum of the inner Hessian in y; the largest one is that of the worst single batch."""

    smallest: float
    largest: float
    rows: int  # that the Hessian was averaged over
    exact: bool  # whether as many products were made as y has numbers


def inner_curvature(sample: Sample, x: Tree, y: Tree) -> Spectrum:
    """The curvature of the inner problem in y at x, y.

    For a minimax problem it is that of −objective, for a compositional one 1.
    """
    problem = sample.problem
    if isinstance(problem, (Compositional, ConditionalCompositional)):
        return Spectrum(1.0, 1.0, 0, True)

    @jax.jit
    def product(problem: Any, x: Tree, y: Tree, v: Tree, outer: Any, inner: Any) -> Tree:
        g, zeta = two_losses(problem)[1], two_batches(problem, outer, inner)[1]
        return jax.vjp(lambda y: jax.grad(g, 1)(x, y, zeta), y)[1](v)[0]

    def mean_product(places: tuple[Place, ...]) -> Callable[[Tree], Tree]:
        def times(v: Tree) -> Tree:
            each = [product(sample.posed, x, y, v, jnp.asarray(p.outer), jnp.asarray(p.inner)) for p in places]
            return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *each)

        return times

    # the inner problems of a conditional one are different ones, and each has a Hessian of its own
    groups = [(place,) for place in sample.places[:SETS]] if sample.conditional else [sample.places]
    until = time.perf_counter() + SECONDS
    ends = [spectrum(mean_product(group), y, until=until) for group in groups]
    smallest, largest = min(end[0] for end in ends), max(end[1] for end in ends)
    if not sample.conditional and len(sample.places) > 1:
        for place in sample.places[:SINGLE]:
            largest = max(largest, spectrum(mean_product((place,)), y, PRODUCTS // 3, until + SECONDS)[1])
    size = sum(leaf.size for leaf in jax.tree.leaves(y))
    return Spectrum(
        smallest, largest, sum(len(place.inner) for place in groups[0]), all(end[2] >= size for end in ends)
    )


def curvature_findings(sample: Sample, found: Spectrum, y: Tree) -> list[Finding]:
    """What the spectrum says of the inner problem: not convex, or without a unique solution."""
    smallest, largest = found.smallest, found.largest
    minimax = isinstance(sample.problem, Minimax)
    name, convex, solution = (
        ("objective", "concave in y", "maximum over y") if minimax else ("inner", "convex in y", "inner solution")
    )
    if not (math.isfinite(smallest) and math.isfinite(largest)):
        return []  # losses that are not finite have been named
    rounding = 100 * float(jnp.finfo(jnp.result_type(*jax.tree.leaves(y))).eps) * max(abs(smallest), abs(largest))
    of = "the Hessian in y of −objective" if minimax else "its Hessian in y"
    measured = f"{of} has eigenvalues from {smallest:.3g} to {largest:.3g} at x0, y0"
    if smallest < -rounding and largest <= rounding:
        sign = "objective is to be maximized over y" if minimax else "inner is to be minimized over y"
        message = f"has a curvature of the wrong sign: {measured}, so y diverges. {sign}: look at its sign."
        return [Finding("error", name, message)]
    if smallest < -rounding:
        strong = -smallest > STRONGLY_CURVED_DOWN * largest
        remedy = (
            "Look at its sign, or add a penalty on y"
            if strong
            else "This is usual for neural networks, of which a local solution often serves as well. Take a smaller "
            "adjoint_lr or a finite radius if u grows"
        )
        return [Finding("warning" if strong else "note", name, f"is not {convex}: {measured}. {remedy}.")]
    if largest <= rounding:
        message = (
            f"has no curvature in y at x0, y0: {measured}. There is no unique {solution}: add a penalty on y, or start "
            "elsewhere."
        )
        return [Finding("warning", name, message)]
    if smallest <= rounding:
        message = (
            f"is not strongly {convex}: {measured}, on {found.rows} rows. The {solution} is not unique, and u may "
            "grow: a small penalty on y makes it so."
        )
        return [Finding("note", name, message)]
    return []


def spectrum(
    product: Callable[[Tree], Tree], like: Tree, products: int = PRODUCTS, until: float = math.inf
) -> tuple[float, float, int]:
    """Estimates of the smallest and the largest eigenvalue of a symmetric operator, and how many products they took."""
    size = sum(leaf.size for leaf in jax.tree.leaves(like))
    v = _unit(_random_like(like))
    previous, beta = tree.zeros_like(v), jnp.zeros(())
    kept: list[Tree] = [v]
    diagonal: list[float] = []
    beside: list[float] = []
    for number in range(min(size, products)):
        w, alpha = _advance(product(v), v, previous, beta)
        if (number + 1) * size <= KEPT:
            for one in kept:
                w = _without(w, one)
        diagonal.append(float(alpha))
        beta = tree.norm(w)
        scale = max(map(abs, [*diagonal, *beside]))
        eps = float(jnp.finfo(jnp.result_type(*jax.tree.leaves(like))).eps)
        # the rest of the space has been seen, or is no more than rounding
        if not math.isfinite(scale) or float(beta) <= 10 * eps * scale or time.perf_counter() > until:
            break
        beside.append(float(beta))
        previous, v = v, tree.scaled(1 / beta, w)
        kept.append(v)
    matrix = np.diag(diagonal) + sum(np.diag(beside[: len(diagonal) - 1], k) for k in (-1, 1))
    if not np.isfinite(matrix).all():
        return math.nan, math.nan, len(diagonal)
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]), float(values[-1]), len(diagonal)


@jax.jit
def _advance(w: Tree, v: Tree, previous: Tree, beta: Any) -> tuple[Tree, jax.Array]:
    """The part of w = H v that is new, and v'H v."""
    alpha = tree.vdot(v, w)
    return tree.axpy(-beta, previous, tree.axpy(-alpha, v, w)), alpha


@jax.jit
def _without(w: Tree, v: Tree) -> Tree:
    return tree.axpy(-tree.vdot(v, w), v, w)


@jax.jit
def _unit(v: Tree) -> Tree:
    return tree.scaled(1 / tree.norm(v), v)


def _random_like(like: Tree) -> Tree:
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(random.standard_normal(leaf.shape), leaf.dtype), like)
