"""All differentiation, and the counting of it.

Each function states its cost in backward passes and counts itself where the call is made: gradients and products in
examples (the paper's Gc(f), Gc(g), JV, HV), passes as passes. Counting happens while a step is traced. A count that is
known then is a Python integer and costs nothing at run time; one that depends on the data (ragged inner sets, say) is
carried through the loop. `scan`, `repeat`, `cond` and `vmap` below are jax's, and multiply what their bodies count, or
count the side that was taken.

A point at which the inner loss is evaluated is x itself, or the representation of the rows where a problem has one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wior import tree
from wior.per_example import at_rows, without_rows
from wior.problems import Batch, weighted_mean

Tree = Any

CALLS = ("outer_gradients", "inner_gradients", "jacobian_products", "hessian_products", "backward_passes")


class Tally:
    """What was called while this tally was open: integers known when tracing, and numbers known only when running."""

    def __init__(self) -> None:
        self.known = dict.fromkeys(CALLS, 0)
        self.traced: dict[str, jax.Array] = {}

    def add(self, name: str, number: Any) -> None:
        if isinstance(number, int):
            self.known[name] += number
        else:
            self.traced[name] = self.traced.get(name, _zero()) + number.astype(jnp.uint32)

    def running(self) -> dict[str, jax.Array]:
        """The traced part with an entry for every name, to be carried through a loop."""
        return {name: self.traced.get(name, _zero()) for name in CALLS}

    def everything(self) -> dict[str, jax.Array]:
        """Both parts together, as numbers to be carried out of a loop or a branch."""
        return {name: number + jnp.uint32(self.known[name]) for name, number in self.running().items()}


class _Open(threading.local):
    def __init__(self) -> None:
        self.tallies: list[Tally] = []


_open = _Open()


@contextlib.contextmanager
def counting() -> Iterator[Tally]:
    """Collects the calls made inside into a `Tally`."""
    tally = Tally()
    _open.tallies.append(tally)
    try:
        yield tally
    finally:
        _open.tallies.pop()


def count(passes: int, examples: Any, *names: str) -> None:
    if _open.tallies:
        _open.tallies[-1].add("backward_passes", passes)
        for name in names:
            _open.tallies[-1].add(name, examples)


def shapes(function: Callable[..., Any], *args: Any) -> Any:
    """`jax.eval_shape`, whose calls are nobody's."""
    with counting():
        return jax.eval_shape(function, *args)


def no_calls() -> dict[str, jax.Array]:
    """Counters at zero, for a loop that carries them."""
    return Tally().running()


def add_calls(running: dict[str, jax.Array]) -> None:
    """Counts what a loop carried out."""
    _add(dict.fromkeys(CALLS, 0), running)


def scan(body: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any) -> tuple[Any, Any]:
    """`lax.scan` whose body's calls are counted once for each iteration."""
    length = jax.tree.leaves(xs)[0].shape[0]
    known: dict[str, int] = {}

    def counted(carry: Any, x: Any) -> tuple[Any, Any]:
        inside, running = carry
        with counting() as tally:
            inside, out = body(inside, x)
        known.update(tally.known)
        running = {
            name: running[name] + tally.traced[name] if name in tally.traced else running[name] for name in CALLS
        }
        return (inside, running), out

    (final, running), outs = lax.scan(counted, (init, Tally().running()), xs)
    _add({name: number * length for name, number in known.items()}, running)
    return final, outs


def repeat(times: jax.Array, body: Callable[[jax.Array, Any], Any], init: Any) -> Any:
    """`body(i, carry)` for i = 0 … times − 1, a number known only when running; each turn's calls are counted."""

    def counted(i: jax.Array, carry: Any) -> Any:
        inside, running = carry
        with counting() as tally:
            inside = body(i, inside)
        return inside, jax.tree.map(jnp.add, running, tally.everything())

    final, running = lax.fori_loop(jnp.int32(0), times.astype(jnp.int32), counted, (init, no_calls()))
    add_calls(running)
    return final


def cond(condition: jax.Array, chosen: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """`lax.cond` whose calls are those of the side that was taken."""

    def counted(side: Callable[..., Any]) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            with counting() as tally:
                out = side(*operands)
            return out, tally.everything()

        return run

    out, running = lax.cond(condition, counted(chosen), counted(otherwise), *operands)
    add_calls(running)
    return out


def vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap` over the first axis of every argument, whose calls are counted once for each row."""

    def mapped(*args: Any) -> Any:
        rows = jax.tree.leaves(args)[0].shape[0]
        known: dict[str, int] = {}

        def one(*row: Any) -> Any:
            with counting() as tally:
                out = function(*row)
            known.update(tally.known)
            return out, tally.running()

        out, running = jax.vmap(one)(*args)
        # one batched program is one pass, however many rows it has
        passes = known.pop("backward_passes")
        _add(
            {name: number * rows for name, number in known.items()} | {"backward_passes": passes},
            {
                name: jnp.max(number) if name == "backward_passes" else jnp.sum(number)
                for name, number in running.items()
            },
        )
        return out

    return mapped


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
    return jax.grad(problem.outer, (0, 1))(without_rows(x), y, xi.data)


def outer_gradient_x(problem: Any, x: Tree, y: Tree, xi: Batch) -> Tree:
    """∇_x f on one batch. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.outer, 0)(without_rows(x), y, xi.data)


def outer_gradient_y(problem: Any, x: Tree, y: Tree, xi: Batch) -> Tree:
    """∇_y f on one batch. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.outer, 1)(without_rows(x), y, xi.data)


def inner_gradients(problem: Any, x: Tree, y: Tree, zeta: Batch) -> tuple[Tree, Tree]:
    """(∇_x g, ∇_y g) on one batch, the first at the batch's rows where x has `PerExample` rows. One pass."""
    count(1, len(zeta.examples), "inner_gradients")
    return jax.grad(problem.inner, (0, 1))(at_rows(x, zeta.examples), y, zeta.data)


def inner_gradient_x(problem: Any, x: Tree, y: Tree, zeta: Batch) -> Tree:
    """∇_x g on one batch, at the batch's rows where x has `PerExample` rows. One pass."""
    count(1, len(zeta.examples), "inner_gradients")
    return jax.grad(problem.inner, 0)(at_rows(x, zeta.examples), y, zeta.data)


def inner_gradient(problem: Any, x: Tree, y: Tree, zeta: Batch) -> Tree:
    """∇_y g on one batch. One pass."""
    count(1, len(zeta.examples), "inner_gradients")
    return jax.grad(problem.inner, 1)(at_rows(x, zeta.examples), y, zeta.data)


def inner_derivatives(problem: Any, x: Tree, y: Tree, zeta: Batch) -> InnerDerivatives:
    """∇_y g on one batch, one pass; and both products with a vector in one more, on the same graph."""
    count(1, len(zeta.examples), "inner_gradients")
    gradient = lambda point, y: jax.grad(problem.inner, 1)(point, y, zeta.data)
    g_y, pullback = jax.vjp(gradient, at_rows(x, zeta.examples), y)

    def products(u: Tree) -> tuple[Tree, Tree]:
        count(1, len(zeta.examples), "jacobian_products", "hessian_products")
        return pullback(u)

    return InnerDerivatives(g_y, products)


def inner_curvature(problem: Any, x: Tree, y: Tree, zeta: Batch) -> Curvature:
    """∇_y g and ∇²g on one batch, the latter as products. One pass for the graph, and one for each product."""
    examples = len(zeta.examples)
    count(1, 0)
    gradient = lambda point, y: jax.grad(problem.inner, 1)(point, y, zeta.data)
    g_y, pullback = jax.vjp(gradient, at_rows(x, zeta.examples), y)

    def value() -> Tree:
        count(0, examples, "inner_gradients")
        return g_y

    def hessian(u: Tree) -> Tree:
        count(1, examples, "hessian_products")
        return pullback(u)[1]

    def jacobian(u: Tree) -> Tree:
        count(1, examples, "jacobian_products")
        return pullback(u)[0]

    def both(u: Tree) -> tuple[Tree, Tree]:
        count(1, examples, "jacobian_products", "hessian_products")
        return pullback(u)

    return Curvature(value, hessian, jacobian, both)


def hessian_product(problem: Any, x: Tree, y: Tree, u: Tree, zeta: Batch) -> Tree:
    """∇²_yy g u on one batch. Two passes: the gradient and the product through it."""
    count(2, len(zeta.examples), "hessian_products")
    point = at_rows(x, zeta.examples)
    return jax.vjp(lambda y: jax.grad(problem.inner, 1)(point, y, zeta.data), y)[1](u)[0]


def jacobian_product(problem: Any, x: Tree, y: Tree, u: Tree, zeta: Batch) -> Tree:
    """∇²_xy g u on one batch, at the batch's rows where x has `PerExample` rows. Two passes."""
    count(2, len(zeta.examples), "jacobian_products")
    return jax.vjp(lambda point: jax.grad(problem.inner, 1)(point, y, zeta.data), at_rows(x, zeta.examples))[1](u)[0]


def minimax_gradients(problem: Any, x: Tree, y: Tree, xi: Batch) -> tuple[Tree, Tree]:
    """(∇_x f, ∇_y f) of a minimax objective on one batch. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.objective, (0, 1))(at_rows(x, xi.examples), y, xi.data)


def minimax_gradient_x(problem: Any, x: Tree, y: Tree, xi: Batch) -> Tree:
    """∇_x f of a minimax objective on one batch, at its rows where x has `PerExample` rows. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.objective, 0)(at_rows(x, xi.examples), y, xi.data)


def minimax_gradient_y(problem: Any, x: Tree, y: Tree, xi: Batch) -> Tree:
    """∇_y f of a minimax objective on one batch. One pass."""
    count(1, len(xi.examples), "outer_gradients")
    return jax.grad(problem.objective, 1)(at_rows(x, xi.examples), y, xi.data)


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


# Conditional problems. One outer example at a time, under `vmap`: `xi` is a batch of one row, `rows` rows of its own
# inner set, `weights` zero for the rows that are padding, `None` where there is none.


class Representations(NamedTuple):
    """What the losses see of x at a batch of B outer examples: their representations (B, ...); `None` where they see x itself."""

    inner: Tree | None
    outer: Tree | None

    def at(self, x: Tree) -> tuple[Tree, Tree]:
        """What the inner and the outer loss of one example see, these being its own representations under `vmap`."""
        outer = jax.tree.map(lambda leaf: leaf[None], self.outer)
        return (x if self.inner is None else self.inner), (x if outer is None else outer)


def represent_batch(
    problem: Any, x: Tree, xi: Tree, rows: Tree
) -> tuple[Representations, Callable[[Tree, Tree], Tree]]:
    """What the losses see of x at all rows of a batch of outer examples, in one forward pass, and the way back in one pull-back.

    The way back takes ∇_x f and ∇²_xy g u of every example with respect to what was seen, (B, ...), and returns the mean of their
    differences with respect to x.
    """
    examples, n = jax.tree.leaves(rows)[0].shape[:2]

    def forward(x: Tree) -> Representations:
        inner = outer = None
        if problem.represent is not None:
            flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
            inner = jax.tree.map(lambda leaf: leaf.reshape(examples, n, *leaf.shape[1:]), problem.represent(x, flat))
        if problem.represent_outer is not None:
            outer = problem.represent_outer(x, xi)
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
    return jax.vjp(lambda y: jax.grad(conditional_loss, 2)(problem, point, y, rows, None), y)[1](u)[0]


def conditional_inner(
    problem: Any, point: Tree, y: Tree, u: Tree, rows: Tree, weights: jax.Array | None
) -> tuple[Tree, Tree]:
    """(∇_y g, ∇²_yy g u) on some rows of one inner set. Two passes."""
    examples = _examples(rows, weights)
    count(2, examples, "inner_gradients", "hessian_products")
    g_y, pullback = jax.vjp(lambda y: jax.grad(conditional_loss, 2)(problem, point, y, rows, weights), y)
    return g_y, pullback(u)[0]


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
    return jax.tree.map(lambda a: a[index], point) if represented else point


def spread(cotangent: Tree, point: Tree, represented: bool, index: jax.Array) -> Tree:
    """A cotangent of `rows_of(point, represented, index)` as one of the point itself."""
    if not represented:
        return cotangent
    return jax.tree.map(lambda all_rows, rows: jnp.zeros_like(all_rows).at[index].add(rows), point, cotangent)


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
    """One, or none where every row is padding and the update is not made."""
    return 1 if weights is None else jnp.any(weights > 0)


def _add(known: dict[str, int], running: dict[str, jax.Array]) -> None:
    if _open.tallies:
        for name in CALLS:
            _open.tallies[-1].add(name, known[name])
            _open.tallies[-1].add(name, running[name])


def _zero() -> jax.Array:
    return jnp.zeros((), jnp.uint32)
