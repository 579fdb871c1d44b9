"""Random quadratic problems of all five classes, whose solutions are known by dense linear algebra.

Every one of them is, or is a special case of,

    f(x, y; i) = ½ y'C_i y + x'D_i y + ½ x'E_i x + c_i'y + e_i'x
    g(x, y; j) = ½ y'A_j y + y'B_j x + a_j'y + b_j'x

so that, with means over the examples written without an index,

    y_x = −A⁻¹(B x + a),   u_x = A⁻¹(C y_x + D'x + c),   ∇h(x) = E x + D y_x + e − B'u_x.

`quadratic_with_waves` adds waves in y to f: y_x stays what it is, and h is smooth, bounded below and not convex.

Examples lie around their mean at a distance that `noise` scales, and their deviations add up to zero, so that the means
have the spectra asked for. Arrays have jax's default floating-point type; a seed gives the same problem in each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks, tree
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax

Array = Any  # numpy's while a problem is made, jax's afterwards
Ends = tuple[float, float]

EIGENVALUES = (0.5, 2.0)
FREQUENCY = 2.0  # ω of the waves


class Outer(NamedTuple):
    """The coefficients of f, of one example or with a first axis of examples."""

    C: Array  # (d, d)
    D: Array  # (p, d)
    E: Array  # (p, p)
    c: Array  # (d,)
    e: Array  # (p,)


class Inner(NamedTuple):
    """The coefficients of g; b, the term in x alone, has no influence on y_x and must have none on a method."""

    A: Array  # (d, d)
    B: Array  # (d, p)
    a: Array  # (d,)
    b: Array  # (p,)


class Waves(NamedTuple):
    """The coefficients of w(y; i) = Σ_k α_ik cos(ω y_k) + β_ik sin(ω y_k).

    It is a wave in each y_k, with a height and a phase of its own.
    """

    alpha: Array  # (d,)
    beta: Array  # (d,)


class OuterWithWaves(NamedTuple):
    quadratic: Outer
    waves: Waves


class OuterOfY(NamedTuple):
    """The coefficients of f(y; i) = ½ y'C_i y + c_i'y, the outer loss of compositional problems."""

    C: Array  # (d, d)
    c: Array  # (d,)


class Map(NamedTuple):
    """The coefficients of r(x; j) = R_j x + r_j, the inner map of compositional problems."""

    R: Array  # (d, p)
    r: Array  # (d,)


@dataclasses.dataclass(frozen=True, eq=False)
class Quadratic:
    """A quadratic problem with closed forms of its solution.

    h(x) is f(x, y_x), or in a conditional problem its mean over the outer examples. The methods are functions of x (p,)
    that jax can compile.

    Parameters
    ----------
    problem
        The problem, as `wior.solve` takes it.
    f, g : Outer, Inner
        The means of the coefficients; in a conditional problem with a first axis of outer examples.
    """

    problem: Any
    f: Outer
    g: Inner

    def inner_solution(self, x: Array) -> Array:
        """y_x = −A⁻¹(B x + a): (d,), or (m, d) in a conditional problem."""
        return self._each(lambda f, g: _inner_solution(g, x))

    def adjoint(self, x: Array) -> Array:
        """u_x = A⁻¹(C y_x + D'x + c): (d,), or (m, d) in a conditional problem."""
        return self._each(lambda f, g: _adjoint(f, g, x))

    def objective(self, x: Array) -> Array:
        """h(x) = ½ y'C y + x'D y + ½ x'E x + c'y + e'x at y = y_x."""
        return self._mean(lambda f, g: _outer_value(x, _inner_solution(g, x), f))

    def hypergradient(self, x: Array) -> Array:
        """∇h(x) = E x + D y_x + e − B'u_x."""
        return self._mean(lambda f, g: f.E @ x + f.D @ _inner_solution(g, x) + f.e - g.B.T @ _adjoint(f, g, x))

    def hessian(self) -> Array:
        """∇²h = E + D S + S'D' + S'C S with S = −A⁻¹B, the Jacobian of y_x."""
        return self._mean(lambda f, g: _hessian(f, g, jnp.linalg.solve))

    def minimizer(self) -> Array:
        """The x at which ∇h = 0, unique since ∇²h is positive definite."""
        return -jnp.linalg.solve(self.hessian(), self.hypergradient(jnp.zeros(self.f.e.shape[-1])))

    def _each(self, function: Callable[[Outer, Inner], Array]) -> Array:
        return jax.vmap(function)(self.f, self.g) if self.f.c.ndim == 2 else function(self.f, self.g)

    def _mean(self, function: Callable[[Outer, Inner], Array]) -> Array:
        return jnp.mean(self._each(function), 0) if self.f.c.ndim == 2 else self._each(function)


@dataclasses.dataclass(frozen=True, eq=False)
class QuadraticWithWaves:
    """A bilevel problem of which y_x is linear in x and h(x) = f(x, y_x) is not convex; with what is known of it.

    `f`, `waves` and `g` are the means over the examples.
    """

    problem: Bilevel
    f: Outer
    waves: Waves
    g: Inner

    def inner_solution(self, x: Array) -> Array:
        """y_x = −A⁻¹(B x + a)."""
        return _inner_solution(self.g, x)

    def objective(self, x: Array) -> Array:
        """h(x) = ½ y'C y + x'D y + ½ x'E x + c'y + e'x + w(y) at y = y_x."""
        y = self.inner_solution(x)
        return _outer_value(x, y, self.f) + _waves_value(y, self.waves)

    def hypergradient(self, x: Array) -> Array:
        """∇h(x), the derivative of the closed form."""
        return jax.grad(self.objective)(x)


WithExamples = TypeVar("WithExamples", Quadratic, QuadraticWithWaves)


def quadratic(
    p: int = 3,
    d: int = 5,
    m: int = 7,
    n: int = 11,
    inner_eigenvalues: Ends = EIGENVALUES,
    outer_eigenvalues: Ends = EIGENVALUES,
    noise: float = 0.5,
    seed: int = 0,
) -> Quadratic:
    """A random quadratic `Bilevel` problem whose solution is known.

    Every A_j = ∇²_yy g(·; j) is positive definite, no less than inner_eigenvalues[0] / (1 + noise). f is convex in y; h
    is convex, and f need not be convex in x.

    Parameters
    ----------
    p, d : int
        The lengths of x and of y.
    m, n : int
        The outer and the inner examples.
    inner_eigenvalues, outer_eigenvalues : (float, float), default (0.5, 2.0)
        The smallest and the largest eigenvalue of A = ∇²_yy g and of ∇²h; the others lie evenly between.
    noise : float, default 0.5
        How far the examples lie from their mean.
    seed : int, default 0
        Draws the coefficients.

    Returns
    -------
    Quadratic
        The problem, and closed forms of its solution.

    Examples
    --------
    >>> import numpy as np
    >>> from wior.tasks.quadratic import quadratic
    >>> task = quadratic(p=2, d=3)
    >>> bool(np.allclose(task.hypergradient(task.minimizer()), 0, atol=1e-4))
    True
    """
    rng = _checked(seed, noise, inner_eigenvalues, outer_eigenvalues, p=p, d=d, m=m, n=n)
    g_rows, f_rows = _inner_rows(rng, p, d, n, inner_eigenvalues, noise), _outer_rows(rng, p, d, m, noise)
    f, g = _mean(f_rows), _mean(g_rows)
    missing = _with_spectrum(rng, p, outer_eigenvalues) - _hessian(f, g)
    f, f_rows = f._replace(E=f.E + missing), f_rows._replace(E=f_rows.E + missing)
    return Quadratic(Bilevel(outer, inner, *_arrays((f_rows, g_rows))), *_arrays((f, g)))


def quadratic_with_waves(
    p: int = 3,
    d: int = 5,
    m: int = 7,
    n: int = 11,
    inner_eigenvalues: Ends = EIGENVALUES,
    outer_eigenvalues: Ends = EIGENVALUES,
    noise: float = 0.5,
    height: float = 1.0,
    seed: int = 0,
) -> QuadraticWithWaves:
    """A `Bilevel` problem: `quadratic` with waves in y added to f, so that h is not convex.

    Parameters
    ----------
    p, d : int
        The lengths of x and of y.
    m, n : int
        The outer and the inner examples.
    inner_eigenvalues, outer_eigenvalues : (float, float), default (0.5, 2.0)
        The smallest and the largest eigenvalue of A = ∇²_yy g and of the quadratic part of ∇²h; the others lie evenly
        between.
    noise : float, default 0.5
        How far the examples lie from their mean.
    height : float, default 1.0
        About how high the waves are; their frequency is `FREQUENCY`.
    seed : int, default 0
        Draws the coefficients.

    Returns
    -------
    QuadraticWithWaves
        The problem, and closed forms of its solution.
    """
    if not 0 <= height < np.inf:
        raise ValueError(f"height must be a non-negative number, got {height!r}")
    plain = quadratic(p, d, m, n, inner_eigenvalues, outer_eigenvalues, noise, seed)
    rng = np.random.default_rng((seed, 1))  # apart from the quadratic's, which stays the one of the same seed
    rows = Waves(*(height * _rows(rng, (d,), m, noise) for _ in range(2)))
    data = OuterWithWaves(plain.problem.outer_data, _arrays(rows))
    problem = Bilevel(outer_with_waves, inner, data, plain.problem.inner_data)
    return QuadraticWithWaves(problem, plain.f, _arrays(_mean(rows)), plain.g)


def with_shared_hessians(task: WithExamples) -> WithExamples:
    """The same bilevel problem with second derivatives that all examples share, those of the mean.

    h stays what it was; the examples differ in their linear terms.

    Parameters
    ----------
    task : Quadratic or QuadraticWithWaves
        Of a `Bilevel` problem.

    Returns
    -------
    Quadratic or QuadraticWithWaves
    """
    problem = task.problem
    if not isinstance(problem, Bilevel):
        raise TypeError(f"task must be of a Bilevel problem, got one of a {type(problem).__name__}")
    f, g = problem.outer_data, _with_means(problem.inner_data, "A", "B")
    if isinstance(task, QuadraticWithWaves):
        f = OuterWithWaves(_with_means(f.quadratic, "C", "D", "E"), _with_means(f.waves, "alpha", "beta"))
    else:
        f = _with_means(f, "C", "D", "E")
    return dataclasses.replace(task, problem=Bilevel(problem.outer, problem.inner, f, g))


def quadratic_conditional(
    p: int = 3,
    d: int = 5,
    m: int = 7,
    n: int = 11,
    inner_eigenvalues: Ends = EIGENVALUES,
    outer_eigenvalues: Ends = EIGENVALUES,
    noise: float = 0.5,
    ragged: bool = False,
    seed: int = 0,
) -> Quadratic:
    """A `ConditionalBilevel` problem: `quadratic` with a g of its own for each outer example.

    Parameters
    ----------
    p, d : int
        The lengths of x and of y.
    m, n : int
        The outer and the inner examples of each outer one.
    inner_eigenvalues, outer_eigenvalues : (float, float), default (0.5, 2.0)
        The smallest and the largest eigenvalue of every A^i and of ∇²h; the others lie evenly between.
    noise : float, default 0.5
        How far the examples lie from their mean.
    ragged : bool, default False
        Whether inner sets have between n/2 and n examples, in place of n.
    seed : int, default 0
        Draws the coefficients.

    Returns
    -------
    Quadratic
        The problem, and closed forms of its solution.
    """
    rng = _checked(seed, noise, inner_eigenvalues, outer_eigenvalues, p=p, d=d, m=m, n=n)
    counts = _counts(rng, m, n, ragged)
    g_rows = _padded([_inner_rows(rng, p, d, count, inner_eigenvalues, noise) for count in counts], n)
    f, g = _outer_rows(rng, p, d, m, noise), _means_of_sets(g_rows, counts)
    f = f._replace(E=f.E + _with_spectrum(rng, p, outer_eigenvalues) - _mean(_hessian(f, g)))
    problem = ConditionalBilevel(outer, inner, _arrays(f), _arrays(g_rows), counts if ragged else None)
    return Quadratic(problem, *_arrays((f, g)))


def quadratic_minimax(p: int = 3, d: int = 5, m: int = 7, noise: float = 0.5, seed: int = 0) -> Quadratic:
    """A `Minimax` problem: f with C negative definite, and g = −f.

    The eigenvalues of −∇²_yy f = −C and of ∇²_xx f = E run evenly between `EIGENVALUES`: f is concave in y, convex in
    x, and ∇²h = E − D C⁻¹D' is no less than E.

    Parameters
    ----------
    p, d : int
        The lengths of x and of y.
    m : int
        The examples.
    noise : float, default 0.5
        How far the examples lie from their mean.
    seed : int, default 0
        Draws the coefficients.

    Returns
    -------
    Quadratic
        The problem, and closed forms of its solution.
    """
    rng = _checked(seed, noise, p=p, d=d, m=m)
    C, E = (_definite_rows(rng, size, m, EIGENVALUES, noise) for size in (d, p))
    rows = _outer_rows(rng, p, d, m, noise)._replace(C=-C, E=E)
    f = _mean(rows)
    return Quadratic(Minimax(outer, _arrays(rows)), *_arrays((f, Inner(A=-f.C, B=-f.D.T, a=-f.c, b=-f.e))))


def quadratic_compositional(
    p: int = 3, d: int = 5, m: int = 7, n: int = 11, noise: float = 0.5, seed: int = 0
) -> Quadratic:
    """A `Compositional` problem with r(x; j) = R_j x + r_j and f(y; i) = ½ y'C_i y + c_i'y.

    The eigenvalues of ∇²h = R'C R run evenly between `EIGENVALUES`. It is the bilevel problem with A = I, B = −R, a =
    −r.

    Parameters
    ----------
    p, d : int
        The lengths of x and of y, with d ≥ p.
    m, n : int
        The outer and the inner examples.
    noise : float, default 0.5
        How far the examples lie from their mean.
    seed : int, default 0
        Draws the coefficients.

    Returns
    -------
    Quadratic
        The problem, and closed forms of its solution.
    """
    rng = _checked(seed, noise, p=p, d=d, m=m, n=n)
    f_rows, r_rows = _outer_of_y_rows(rng, d, m, noise), _map_rows(rng, p, d, n, noise)
    before = _hessian(*_as_bilevel(_mean(f_rows), _mean(r_rows)))
    r_rows = r_rows._replace(R=r_rows.R @ _congruence(before, _with_spectrum(rng, p, EIGENVALUES)))
    problem = Compositional(outer_of_y, inner_map, *_arrays((f_rows, r_rows)))
    return Quadratic(problem, *_arrays(_as_bilevel(_mean(f_rows), _mean(r_rows))))


def quadratic_conditional_compositional(
    p: int = 3, d: int = 5, m: int = 7, n: int = 11, noise: float = 0.5, ragged: bool = False, seed: int = 0
) -> Quadratic:
    """A `ConditionalCompositional` problem: `quadratic_compositional` with a map of its own for each outer example.

    The eigenvalues of ∇²h, the mean of R^i'C_i R^i over i, run evenly between `EIGENVALUES`.

    Parameters
    ----------
    p, d : int
        The lengths of x and of y, with d ≥ p.
    m, n : int
        The outer and the inner examples of each outer one.
    noise : float, default 0.5
        How far the examples lie from their mean.
    ragged : bool, default False
        Whether inner sets have between n/2 and n examples, in place of n.
    seed : int, default 0
        Draws the coefficients.

    Returns
    -------
    Quadratic
        The problem, and closed forms of its solution.
    """
    rng = _checked(seed, noise, p=p, d=d, m=m, n=n)
    counts = _counts(rng, m, n, ragged)
    f = _outer_of_y_rows(rng, d, m, noise)
    r_rows = _padded([_map_rows(rng, p, d, count, noise) for count in counts], n)
    before = _mean(_hessian(*_as_bilevel(f, _means_of_sets(r_rows, counts))))
    r_rows = r_rows._replace(R=r_rows.R @ _congruence(before, _with_spectrum(rng, p, EIGENVALUES)))
    problem = ConditionalCompositional(outer_of_y, inner_map, _arrays(f), _arrays(r_rows), counts if ragged else None)
    return Quadratic(problem, *_arrays(_as_bilevel(f, _means_of_sets(r_rows, counts))))


# The losses. The mean of quadratics over a batch is the quadratic of the means.


def outer(x: Array, y: Array, batch: Outer) -> Array:
    """The mean over the batch of ½ y'C_i y + x'D_i y + ½ x'E_i x + c_i'y + e_i'x."""
    return _outer_value(x, y, tree.mean(batch))


def outer_with_waves(x: Array, y: Array, batch: OuterWithWaves) -> Array:
    """The mean over the batch of the quadratic and of Σ_k α_ik cos(ω y_k) + β_ik sin(ω y_k)."""
    return outer(x, y, batch.quadratic) + _waves_value(y, tree.mean(batch.waves))


def inner(x: Array, y: Array, batch: Inner) -> Array:
    """The mean over the batch of ½ y'A_j y + y'B_j x + a_j'y + b_j'x."""
    A, B, a, b = tree.mean(batch)
    return 0.5 * y @ A @ y + y @ B @ x + a @ y + b @ x


def outer_of_y(y: Array, batch: OuterOfY) -> Array:
    """The mean over the batch of ½ y'C_i y + c_i'y."""
    C, c = tree.mean(batch)
    return 0.5 * y @ C @ y + c @ y


def inner_map(x: Array, batch: Map) -> Array:
    """The mean over the batch of R_j x + r_j."""
    R, r = tree.mean(batch)
    return R @ x + r


# The closed forms.


def _outer_value(x: Array, y: Array, f: Outer) -> Array:
    return 0.5 * y @ f.C @ y + x @ f.D @ y + 0.5 * x @ f.E @ x + f.c @ y + f.e @ x


def _waves_value(y: Array, waves: Waves) -> Array:
    return waves.alpha @ jnp.cos(FREQUENCY * y) + waves.beta @ jnp.sin(FREQUENCY * y)


def _inner_solution(g: Inner, x: Array) -> Array:
    return -jnp.linalg.solve(g.A, g.B @ x + g.a)


def _adjoint(f: Outer, g: Inner, x: Array) -> Array:
    return jnp.linalg.solve(g.A, f.C @ _inner_solution(g, x) + f.D.T @ x + f.c)


def _hessian(f: Outer, g: Inner, solve: Callable[[Array, Array], Array] = np.linalg.solve) -> Array:
    S = -solve(g.A, g.B)
    return f.E + f.D @ S + (f.D @ S).swapaxes(-1, -2) + S.swapaxes(-1, -2) @ f.C @ S


# Random coefficients, in numpy and float64.


def _as_bilevel(f: OuterOfY, r: Map) -> tuple[Outer, Inner]:
    """The coefficients of the same f and of g = ½‖y − R x − r‖²."""
    *m, d, p = r.R.shape
    A, D, E, zero = np.tile(np.eye(d), (*m, 1, 1)), np.zeros((*m, p, d)), np.zeros((*m, p, p)), np.zeros((*m, p))
    return Outer(f.C, D, E, f.c, e=zero), Inner(A, B=-r.R, a=-r.r, b=zero)


def _congruence(before: Array, after: Array) -> Array:
    """T with T' before T = after, both positive definite."""
    return np.linalg.solve(np.linalg.cholesky(before).T, np.linalg.cholesky(after).T)


def _outer_rows(rng: np.random.Generator, p: int, d: int, m: int, noise: float) -> Outer:
    return Outer(
        C=_definite_rows(rng, d, m, EIGENVALUES, noise),
        D=_rows(rng, (p, d), m, noise),
        E=_symmetric(_rows(rng, (p, p), m, noise)),
        c=_rows(rng, (d,), m, noise),
        e=_rows(rng, (p,), m, noise),
    )


def _inner_rows(rng: np.random.Generator, p: int, d: int, n: int, eigenvalues: Ends, noise: float) -> Inner:
    A = _definite_rows(rng, d, n, eigenvalues, noise)
    return Inner(A, B=_rows(rng, (d, p), n, noise), a=_rows(rng, (d,), n, noise), b=_rows(rng, (p,), n, noise))


def _outer_of_y_rows(rng: np.random.Generator, d: int, m: int, noise: float) -> OuterOfY:
    return OuterOfY(C=_definite_rows(rng, d, m, EIGENVALUES, noise), c=_rows(rng, (d,), m, noise))


def _map_rows(rng: np.random.Generator, p: int, d: int, n: int, noise: float) -> Map:
    if d < p:
        raise ValueError(f"d must be at least p, so that R x + r determines x; got d={d} and p={p}")
    return Map(R=_rows(rng, (d, p), n, noise), r=_rows(rng, (d,), n, noise))


def _rows(rng: np.random.Generator, shape: tuple[int, ...], count: int, noise: float) -> Array:
    deviations = rng.normal(size=(count, *shape))
    scale = 1.0 if len(shape) == 1 else 1 / np.sqrt(sum(shape))  # a matrix of norm about 1, however large
    return scale * (rng.normal(size=shape) + noise * (deviations - deviations.mean(0)))


def _definite_rows(rng: np.random.Generator, size: int, count: int, eigenvalues: Ends, noise: float) -> Array:
    """Symmetric matrices no less than eigenvalues[0] / (1 + noise), whose mean has the spectrum."""
    deviations = _symmetric(rng.normal(size=(count, size, size)))
    deviations -= deviations.mean(0)
    largest = max(np.linalg.norm(deviations, 2, axis=(1, 2)).max(), np.finfo(float).tiny)  # one example deviates by 0
    return _with_spectrum(rng, size, eigenvalues) + eigenvalues[0] * noise / (1 + noise) / largest * deviations


def _with_spectrum(rng: np.random.Generator, size: int, eigenvalues: Ends) -> Array:
    Q, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return Q * np.linspace(*eigenvalues, size) @ Q.T


def _symmetric(matrices: Array) -> Array:
    return (matrices + np.swapaxes(matrices, -1, -2)) / 2


def _counts(rng: np.random.Generator, m: int, n: int, ragged: bool) -> Array:
    return rng.integers((n + 1) // 2, n + 1, m) if ragged else np.full(m, n)


def _padded(sets: list[Any], n: int) -> Any:
    """Sets of rows as one tree (m, n, ...), with zeros behind the shorter ones."""

    def stacked(*leaves: Array) -> Array:
        return np.stack([np.pad(leaf, [(0, n - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)) for leaf in leaves])

    return jax.tree.map(stacked, *sets)


def _mean(rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.mean(0), rows)


def _with_means(rows: Any, *names: str) -> Any:
    """The rows of which the named coefficients are their means, in every row."""
    means = {name: jnp.broadcast_to(jnp.mean(getattr(rows, name), 0), getattr(rows, name).shape) for name in names}
    return rows._replace(**means)


def _means_of_sets(rows: Any, counts: Array) -> Any:
    """The mean of each set, whose padding is zero."""
    return jax.tree.map(lambda leaf: leaf.sum(1) / counts.reshape(-1, *(1,) * (leaf.ndim - 2)), rows)


def _arrays(rows: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float), rows)


def _checked(
    seed: int, noise: float, inner: Ends = EIGENVALUES, outer: Ends = EIGENVALUES, **sizes: int
) -> np.random.Generator:
    for name, size in sizes.items():
        checks.positive_integer(name, size)
    for name, (low, high) in {"inner_eigenvalues": inner, "outer_eigenvalues": outer}.items():
        if not 0 < low <= high < np.inf:
            raise ValueError(f"{name} must be a pair (low, high) with 0 < low ≤ high, got {(low, high)}")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise must be a non-negative number, got {noise!r}")
    return np.random.default_rng(seed)
