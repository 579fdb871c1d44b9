"""`hypergradient`: the exact ∇h(x) on the full data, by which every estimate is judged.

The inner problem is solved by Newton's method with conjugate gradients and a line search, the adjoint system ∇²_yy g u
= ∇_y f by conjugate gradients, both to a tolerance and without a matrix. The data pass in pieces, so that memory does
not grow with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wior import checks, oracle, tree
from wior.algorithms.parts.linear_systems import Solved, conjugate_gradients
from wior.problems import Bilevel, ConditionalBilevel, Minimax, Problem
from wior.problems.constraints import projected
from wior.problems.modules import parted, with_whole_variables
from wior.problems.per_example import (
    PerExample,
    all_rows,
    at_slice,
    has_rows,
    is_per_example,
    mean_direction,
    without_rows,
)
from wior.problems.restated import restated
from wior.saving import fingerprint

Tree = Any

NEWTON_STEPS = 100
HALVINGS = 30
SUFFICIENT_DECREASE = 1e-4


class HyperGradient(NamedTuple):
    """∇h(x), and what it was made from; `wior.hypergradient` returns it.

    Parameters
    ----------
    gradient : tree
        ∇h(x), a tree like x.
    objective : jax.Array
        h(x), the outer loss at the inner solution.
    y, u : tree
        The inner solution and the adjoint vector. In conditional problems they have a first axis of outer examples.
    inner_residual : jax.Array
        ‖∇_y g(x, y)‖, the largest one in conditional problems.
    adjoint_residual : jax.Array
        ‖∇²_yy g u − ∇_y f‖, the largest one in conditional problems.
    stationarity : jax.Array
        How far x is from where no step helps: ‖∇h(x)‖ or, where the problem has `project_x`, ‖x − P(x − ∇h(x))‖.

    Examples
    --------
    >>> import wior
    >>> wior.HyperGradient._fields
    ('gradient', 'objective', 'y', 'u', 'inner_residual', 'adjoint_residual', 'stationarity')
    """

    gradient: Tree
    objective: jax.Array
    y: Tree
    u: Tree
    inner_residual: jax.Array
    adjoint_residual: jax.Array
    stationarity: Any = None


def hypergradient(
    problem: Problem, x: Tree, y0: Tree, *, tolerance: float | None = None, limit: int = 1000, rows: int = 8192
) -> HyperGradient:
    """∇h(x) = ∇_x f − ∇²_xy g u at the inner solution y_x, with u = [∇²_yy g]⁻¹ ∇_y f, on all data.

    The inner problem is solved by Newton's method, the adjoint system by conjugate gradients. It takes much longer than
    a step of a method, and is what estimates are compared with. A loss that takes a key is given a fixed one, and one
    that takes a model state that of the problem.

    Parameters
    ----------
    problem : Problem
        One of wior's problems, with data on the device. A compositional or minimax one is restated as a bilevel one.
    x : tree
        Where the hyper-gradient is taken.
    y0 : tree
        Where the inner solve starts.
    tolerance : float or None, default None
        The inner problem is solved until ‖∇_y g‖ is below `tolerance` times its first value (or times 1, if that is
        more), the adjoint system to the same relative residual. None: 1e-5 in float32 and 1e-11 in float64.
    limit : int, default 1000
        The most conjugate-gradient steps of each solve.
    rows : int, default 8192
        The examples that are evaluated at once.

    Returns
    -------
    HyperGradient
        The gradient, the objective, y, u and the residuals.

    Raises
    ------
    RuntimeError
        Where a tolerance is not met, and where the inner solution lies outside of the problem's `project_y`: the
        formula is that of an inner problem without constraints.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> problem = wior.Bilevel(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> found = wior.hypergradient(problem, jnp.zeros(()), jnp.zeros(()))
    >>> round(float(found.gradient), 3), round(float(found.y), 3)
    (-2.0, 3.5)
    """
    (x, x_rest), (y0, y_rest) = parted("x", x), parted("y0", y0)
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be one of wior's problems, got {problem!r} of type {type(problem).__name__}")
    problem.demand_resident("hypergradient")
    sizes = _Sizes(checks.positive_integer("limit", limit), checks.positive_integer("rows", rows))
    pieces = _pieces(problem, sizes.rows)
    constraint_x, constraint_y = problem.project_x, problem.project_y
    problem = with_whole_variables(problem, x_rest, y_rest)
    problem.check(x, y0, pieces[0])
    if tolerance is None:
        tolerance = default_tolerance(y0)
    checks.positive_number("tolerance", tolerance)
    if isinstance(problem, Minimax) and has_rows((x, y0)):
        compute = _minimax
    else:
        problem = restated(problem, Bilevel, ConditionalBilevel)
        compute = _bilevel if isinstance(problem, Bilevel) else _conditional
    found, met = compute(problem, x, y0, tolerance, sizes, fingerprint.of_losses(problem, x, y0, *pieces))
    for name, residual, solved in (
        ("inner problem", found.inner_residual, met[0]),
        ("adjoint system", found.adjoint_residual, met[1]),
    ):
        if not solved:
            raise RuntimeError(
                f"the {name} was not solved: its residual norm is {float(residual):.3g} with tolerance={tolerance:g} "
                f"and limit={limit}; raise one of them, start from a better y0, or check that inner is strongly convex "
                "in y"
            )
    _demand_inside(constraint_y, found.y, problem.conditional, tolerance)
    return found._replace(stationarity=_stationarity(constraint_x, x, found.gradient))


def _demand_inside(constraint: Any, y: Tree, conditional: bool, tolerance: float) -> None:
    if constraint is None:
        return
    apart = lambda y: tree.sub(y, projected(constraint, y))
    outside = tree.norm(jax.vmap(apart)(y) if conditional else apart(y))
    if not outside <= tolerance**0.5 * jnp.maximum(tree.norm(y), 1.0):
        raise RuntimeError(
            f"the inner solution lies outside of project_y, at a distance of {float(outside):.3g}; the hyper-gradient "
            "of an inner problem with an active constraint is not computed"
        )


def _stationarity(constraint: Any, x: Tree, gradient: Tree) -> jax.Array:
    x, gradient = all_rows(x), all_rows(gradient)
    if constraint is None:
        return tree.norm(gradient)
    return tree.norm(tree.sub(x, projected(constraint, tree.sub(x, gradient))))


def default_tolerance(y: Tree) -> float:
    """The residual, relative to the first one, to which a solve in the precision of y can be trusted to come."""
    return 1e-11 if jnp.finfo(jnp.result_type(*jax.tree.leaves(y))).eps < 1e-10 else 1e-5


def _pieces(problem: Problem, rows: int) -> list[tuple[int, int] | None]:
    """The numbers of outer and inner rows that the losses are evaluated on.

    They are those of whole pieces, and of what remains of the data.
    """
    if problem.conditional:
        return [None]
    sizes = list(problem.sizes().values())
    whole = [min(n, rows) for n in sizes]
    rest = [n % rows or rows if n > rows else n for n in sizes]
    pair = lambda numbers: (numbers[0], numbers[-1])
    return [pair(whole), pair(rest)] if rest != whole else [pair(whole)]


class _Sizes(NamedTuple):
    limit: int
    rows: int


# `program` is what the losses compute now: with another one they are compiled again
@functools.partial(jax.jit, static_argnums=(4, 5))
def _bilevel(
    problem: Bilevel, x: Tree, y0: Tree, tolerance: Any, sizes: _Sizes, program: str
) -> tuple[HyperGradient, tuple[Any, Any]]:
    limit, rows = sizes
    outer = full_outer(problem, rows)
    inner = full_inner(problem, rows)
    y, residual, needed = newton(lambda y: inner(x, y), y0, tolerance, limit)
    objective, (f_x, f_y) = jax.value_and_grad(outer, (0, 1))(without_rows(x), y)
    u, adjoint_residual, adjoint_needed = adjoint(lambda y: inner(x, y), y, f_y, tolerance, limit)
    g_xy_u = jax.vjp(lambda x: jax.grad(inner, 1)(x, y), x)[1](u)[0]
    gradient = _like(x, tree.sub(f_x, all_rows(g_xy_u)))
    found = HyperGradient(gradient, objective, y, u, residual, adjoint_residual)
    return found, (residual <= needed, adjoint_residual <= adjoint_needed)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _minimax(
    problem: Minimax, x: Tree, y0: Tree, tolerance: Any, sizes: _Sizes, program: str
) -> tuple[HyperGradient, tuple[Any, Any]]:
    """Of a minimax problem with `PerExample` rows, which both losses read: at the best y, ∇h(x) is ∇_x f and u is 0."""
    limit, rows = sizes

    def piece(x: Tree, y: Tree, start: Any, size: int) -> jax.Array:
        point = at_slice(x, start, size), at_slice(y, start, size)
        return problem.objective(*point, _rows(problem.data, start, size))

    def full(x: Tree, y: Tree) -> jax.Array:
        return _in_pieces(functools.partial(piece, x, y), problem.sizes()["outer"], rows)

    y, residual, needed = newton(lambda y: -full(x, y), y0, tolerance, limit)
    objective, gradient = jax.value_and_grad(full)(x, y)
    found = HyperGradient(gradient, objective, y, tree.zeros_like(y), residual, jnp.zeros_like(residual))
    return found, (residual <= needed, True)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _conditional(
    problem: ConditionalBilevel, x: Tree, y0: Tree, tolerance: Any, sizes: _Sizes, program: str
) -> tuple[HyperGradient, tuple[Any, Any]]:
    limit, rows = sizes
    m, n = problem.sizes()["outer"], problem.sizes()["inner"]
    solve_one = functools.partial(one_hypergradient, problem, x, y0, tolerance=tolerance, limit=limit)
    each = lax.map(solve_one, jnp.arange(m), batch_size=max(1, min(m, rows // n)))
    gradients, objectives, y, u, residuals, adjoint_residuals, needed, adjoint_needed = each
    found = HyperGradient(
        _like(x, mean_direction(x, gradients)),
        jnp.mean(objectives),
        y,
        u,
        jnp.max(residuals),
        jnp.max(adjoint_residuals),
    )
    return found, (jnp.all(residuals <= needed), jnp.all(adjoint_residuals <= adjoint_needed))


def one_hypergradient(
    problem: ConditionalBilevel, x: Tree, y0: Tree, example: jax.Array, tolerance: Any, limit: int
) -> Any:
    """∇h(x; ξ) for one outer example of a conditional problem, exactly, and what it was made from."""
    index = example[None]
    xi = problem.outer_batch(index)
    sets = problem.inner_sets(index)
    own = jax.tree.map(lambda leaf: leaf[0], sets.rows)
    n = jax.tree.leaves(own)[0].shape[0]
    weights = None if sets.counts is None else (jnp.arange(n) < sets.counts[0]).astype(jnp.int32)
    represented, back = oracle.represent_batch(problem, x, xi, sets.rows)
    inner_point, outer_point = jax.tree.map(lambda leaf: leaf[0], represented).at(x)

    def inner(y: Tree) -> jax.Array:
        return oracle.conditional_loss(problem, inner_point, y, own, weights)

    y, residual, needed = newton(inner, y0, tolerance, limit)
    objective, (f_x, f_y) = jax.value_and_grad(problem.outer, (0, 1))(outer_point, y, xi.data)
    u, adjoint_residual, adjoint_needed = adjoint(inner, y, f_y, tolerance, limit)
    with oracle.counting():  # an instrument's calls are not charged to the method it watches
        g_xy_u = oracle.conditional_cross(problem, inner_point, y, u, own, weights)
    gradient = back(*jax.tree.map(lambda leaf: leaf[None], (f_x, g_xy_u)))
    return gradient, objective, y, u, residual, adjoint_residual, needed, adjoint_needed


def newton(function: Callable[[Tree], jax.Array], y0: Tree, tolerance: Any, limit: int) -> tuple[Tree, Any, Any]:
    """Minimizes a smooth convex function: the solution, its gradient norm and the norm that was asked for."""
    gradient = jax.grad(function)
    first = tree.norm(gradient(y0))
    needed = tolerance * jnp.maximum(first, 1.0)

    def step(loop: tuple[Tree, Tree, Any, Any]) -> tuple[Tree, Tree, Any, Any]:
        y, g, length, number = loop
        product = functools.partial(_hessian_product, gradient, y)
        forcing = jnp.minimum(0.1, jnp.sqrt(length / jnp.maximum(first, 1.0)))
        solved = _solved(product, tree.neg(g), jnp.maximum(forcing * length, 0.1 * needed), limit)
        # negative curvature at once: the gradient itself is a direction of descent
        p = tree.where(~solved.convex & (solved.steps == 1), tree.neg(g), solved.v)
        here, slope = function(y), tree.vdot(g, p)
        rounding = 10 * jnp.finfo(here.dtype).eps * jnp.abs(here)

        def too_high(search: tuple[Any, Any]) -> Any:
            scale, halvings = search
            bound = here + SUFFICIENT_DECREASE * scale * slope + rounding
            return ~(function(tree.axpy(scale, p, y)) <= bound) & (halvings < HALVINGS)

        scale, _ = lax.while_loop(too_high, lambda search: (search[0] / 2, search[1] + 1), (jnp.ones(()), 0))
        moved = tree.axpy(scale, p, y)
        new = gradient(moved)
        return moved, new, tree.norm(new), number + 1

    def goes_on(loop: tuple[Tree, Tree, Any, Any]) -> Any:
        return (loop[2] > needed) & (loop[3] < NEWTON_STEPS)

    y, _, length, _ = lax.while_loop(goes_on, step, (y0, gradient(y0), first, 0))
    return y, length, needed


def adjoint(
    inner: Callable[[Tree], jax.Array], y: Tree, f_y: Tree, tolerance: Any, limit: int
) -> tuple[Tree, Any, Any]:
    """u = [∇²_yy g]⁻¹ ∇_y f at y, its residual and the residual that was asked for."""
    needed = tolerance * jnp.maximum(tree.norm(f_y), jnp.finfo(jnp.result_type(float)).tiny)
    product = functools.partial(_hessian_product, jax.grad(inner), y)
    u = _solved(product, f_y, 0.5 * needed, limit).v
    return u, tree.norm(tree.sub(product(u), f_y)), needed


def _solved(product: Callable[[Tree], Tree], b: Tree, needed: Any, limit: int) -> Solved:
    with oracle.counting():  # an instrument's calls are not charged to the method it watches
        return conjugate_gradients(product, b, limit, needed)


def full_outer(problem: Bilevel, rows: int) -> Callable[[Tree, Tree], jax.Array]:
    """f(x, y) on all outer data, `rows` at a time; x without its `PerExample` rows."""
    n = problem.sizes()["outer"]
    return lambda x, y: _in_pieces(
        lambda start, size: problem.outer(x, y, _rows(problem.outer_data, start, size)), n, rows
    )


def full_inner(problem: Bilevel, rows: int) -> Callable[[Tree, Tree], jax.Array]:
    """g(x, y) on all inner data, `rows` at a time."""
    n = problem.sizes()["inner"]

    def full(x: Tree, y: Tree) -> jax.Array:
        def piece(start: Any, size: int) -> jax.Array:
            point = at_slice(x, start, size)
            return problem.inner(point, y, _rows(problem.inner_data, start, size))

        return _in_pieces(piece, n, rows)

    return full


def _in_pieces(mean_of: Callable[[Any, int], jax.Array], n: int, rows: int) -> jax.Array:
    """The mean over n examples of a function that gives the mean over `size` of them from `start` on."""
    if n <= rows:
        return mean_of(0, n)
    whole, rest = divmod(n, rows)

    @jax.checkpoint
    def piece(number: jax.Array) -> jax.Array:
        return mean_of(number * rows, rows)

    zero = jnp.zeros((), jax.eval_shape(piece, jnp.int32(0)).dtype)
    total, _ = lax.scan(
        lambda total, number: (total + rows * piece(number), None), zero, jnp.arange(whole, dtype=jnp.int32)
    )
    if rest:
        total = total + rest * mean_of(whole * rows, rest)
    return total / n


def _rows(data: Tree, start: Any, size: int) -> Tree:
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), data)


def _hessian_product(gradient: Callable[[Tree], Tree], y: Tree, v: Tree) -> Tree:
    return jax.jvp(gradient, (y,), (v,))[1]


def _like(x: Tree, gradient: Tree) -> Tree:
    """A gradient with its rows marked as those of x are."""
    return jax.tree.map(
        lambda leaf, g: PerExample(g) if is_per_example(leaf) else g, x, gradient, is_leaf=is_per_example
    )
