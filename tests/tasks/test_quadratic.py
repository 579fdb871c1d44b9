"""The closed forms of the quadratic problems, against naive dense algebra on their data and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from runs import enable_x64
from wior.problems.restated import restated
from wior.tasks.quadratic import (
    EIGENVALUES,
    Quadratic,
    quadratic,
    quadratic_compositional,
    quadratic_conditional,
    quadratic_conditional_compositional,
    quadratic_minimax,
)

P, D = 3, 5
X = np.array([0.7, -1.3, 0.4])

MADE = {
    "bilevel": quadratic(),
    "minimax": quadratic_minimax(),
    "compositional": quadratic_compositional(),
    "conditional": quadratic_conditional(),
    "conditional, ragged": quadratic_conditional(ragged=True),
    "conditional compositional": quadratic_conditional_compositional(),
    "conditional compositional, ragged": quadratic_conditional_compositional(ragged=True),
}
every = pytest.mark.parametrize("name", MADE)


@jax.jit
def closed_forms(f, g, x):
    """What a `Quadratic` knows, compiled once for all problems of the same shapes."""
    known = Quadratic(None, f, g)
    return {
        "inner_solution": known.inner_solution(x),
        "adjoint": known.adjoint(x),
        "objective": known.objective(x),
        "hypergradient": known.hypergradient(x),
        "hessian": known.hessian(),
        "minimizer": known.minimizer(),
    }


def closed(name, x=X):
    return closed_forms(MADE[name].f, MADE[name].g, x)


def f(x, y, rows):
    """The mean outer loss, written out example by example."""
    return np.mean(
        [
            y @ C @ y / 2 + x @ D @ y + x @ E @ x / 2 + c @ y + e @ x
            for C, D, E, c, e in zip(*map(np.asarray, rows), strict=True)
        ]
    )


def f_of_y(y, rows):
    return np.mean([y @ C @ y / 2 + c @ y for C, c in zip(*map(np.asarray, rows), strict=True)])


def minimum_of(A, B, a, x):
    return np.linalg.solve(np.mean(A, 0), -np.mean(B, 0) @ x - np.mean(a, 0))


def sets(problem):
    """The outer example and the inner rows of each inner set, without the padding."""
    m, n = problem.sizes().values()
    counts = np.full(m, n) if problem.counts is None else np.asarray(problem.counts)
    outer, inner = (list(map(np.asarray, rows)) for rows in (problem.outer_data, problem.inner_data))
    for i, count in enumerate(counts):
        yield [rows[i : i + 1] for rows in outer], [rows[i, :count] for rows in inner]


def naive_objective(name, x):
    """h(x) from the rows of the problem's data, in numpy."""
    problem = MADE[name].problem
    if name == "bilevel":
        A, B, a, _ = problem.inner_data
        return f(x, minimum_of(A, B, a, x), problem.outer_data)
    if name == "minimax":
        C, D, _, c, _ = map(np.asarray, problem.data)
        return f(x, minimum_of(C, np.swapaxes(D, 1, 2), c, x), problem.data)
    if name == "compositional":
        R, r = problem.inner_data
        return f_of_y(np.mean(R, 0) @ x + np.mean(r, 0), problem.outer_data)
    if name.startswith("conditional compositional"):
        return np.mean([f_of_y(R.mean(0) @ x + r.mean(0), xi) for xi, (R, r) in sets(problem)])
    return np.mean([f(x, minimum_of(A, B, a, x), xi) for xi, (A, B, a, _) in sets(problem)])


def differences(function, x, step=1e-4):
    return np.array([(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))])


@every
def test_objective_is_the_naive_one(name):
    np.testing.assert_allclose(closed(name)["objective"], naive_objective(name, X), rtol=1e-12)


@every
def test_hypergradient_agrees_with_finite_differences(name):
    expected = differences(lambda x: naive_objective(name, x), X)
    np.testing.assert_allclose(closed(name)["hypergradient"], expected, rtol=1e-6)


@every
def test_hessian_agrees_with_finite_differences(name):
    expected = differences(lambda x: closed(name, x)["hypergradient"], X)
    np.testing.assert_allclose(closed(name)["hessian"], expected, rtol=1e-6, atol=1e-8)


@every
def test_minimizer_has_zero_gradient_and_is_a_minimum(name):
    x = np.asarray(closed(name)["minimizer"])
    np.testing.assert_allclose(closed(name, x)["hypergradient"], np.zeros(P), atol=1e-11)
    assert np.linalg.eigvalsh(closed(name)["hessian"]).min() >= EIGENVALUES[0] - 1e-12


@pytest.mark.parametrize("name", [name for name in MADE if name != "minimax"])
def test_hessian_has_the_chosen_spectrum(name):
    expected = np.linspace(*EIGENVALUES, P)
    np.testing.assert_allclose(np.linalg.eigvalsh(closed(name)["hessian"]), expected, rtol=1e-10)


@pytest.mark.parametrize("make", [quadratic, quadratic_conditional])
def test_spectra_are_those_asked_for(make):
    made = make(inner_eigenvalues=(0.1, 10.0), outer_eigenvalues=(0.3, 7.0), noise=2.0, seed=3)
    inner = np.linalg.eigvalsh(made.g.A)
    np.testing.assert_allclose(inner, np.broadcast_to(np.linspace(0.1, 10, D), inner.shape), rtol=1e-10)
    hessian = closed_forms(made.f, made.g, X)["hessian"]
    np.testing.assert_allclose(np.linalg.eigvalsh(hessian), np.linspace(0.3, 7, P), rtol=1e-10)
    # each example is strongly convex in y by itself, the hardest one just as documented
    assert np.linalg.eigvalsh(made.problem.inner_data.A).min() >= 0.1 / 3 - 1e-12


def test_minimax_is_concave_in_y_and_convex_in_x_for_each_example():
    data = MADE["minimax"].problem.data
    np.testing.assert_allclose(np.linalg.eigvalsh(-np.mean(data.C, 0)), np.linspace(*EIGENVALUES, D), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.eigvalsh(np.mean(data.E, 0)), np.linspace(*EIGENVALUES, P), rtol=1e-12)
    assert np.linalg.eigvalsh(data.C).max() < 0 < np.linalg.eigvalsh(data.E).min()


@every
def test_inner_solution_and_adjoint_solve_the_problem_as_posed(name):
    """∇_y g = 0 and ∇²_yy g u = ∇_y f, differentiated through the losses that algorithms see."""
    problem, known = MADE[name].problem, closed(name)
    problem = restated(problem, wior.Bilevel, wior.ConditionalBilevel)

    @jax.jit
    def residuals(y, u, xi, zeta):
        g_y, g_yy_u = jax.jvp(lambda y: jax.grad(problem.inner, 1)(X, y, zeta), (y,), (u,))
        return g_y, g_yy_u - jax.grad(problem.outer, 1)(X, y, xi)

    y, u, xi, zeta = known["inner_solution"], known["adjoint"], problem.outer_data, problem.inner_data
    if name.startswith("conditional"):
        (xi, zeta), *_ = ((type(xi)(*outer), type(zeta)(*inner)) for outer, inner in sets(problem))
        y, u = y[0], u[0]
    for residual in residuals(y, u, xi, zeta):
        np.testing.assert_allclose(residual, np.zeros(D), atol=1e-11)


def test_no_noise_makes_all_examples_alike():
    for rows in jax.tree.leaves((quadratic(noise=0.0).problem, quadratic_compositional(noise=0.0).problem)):
        np.testing.assert_allclose(rows, np.broadcast_to(rows[:1], rows.shape))


def test_ragged_counts_differ_and_padding_is_zero():
    problem = MADE["conditional, ragged"].problem
    counts = np.asarray(problem.counts)
    assert len(set(counts)) > 1
    assert counts.min() >= 6
    assert counts.max() <= 11
    padding = np.arange(11) >= counts[:, None]
    assert padding.any()
    for leaf in problem.inner_data:
        assert not np.asarray(leaf)[padding].any()


def test_type_follows_jax():
    with enable_x64(False):
        made = quadratic()
        assert {leaf.dtype for leaf in jax.tree.leaves(made.problem)} == {jnp.dtype("float32")}
        in_float32 = np.asarray(made.problem.inner_data.A)
    np.testing.assert_allclose(in_float32, MADE["bilevel"].problem.inner_data.A, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (quadratic, {"p": 0}, "p must be a positive integer, got 0"),
        (quadratic, {"noise": -0.1}, "noise must be a non-negative number, got -0.1"),
        (quadratic, {"inner_eigenvalues": (0.0, 1.0)}, r"inner_eigenvalues must be a pair .* got \(0.0, 1.0\)"),
        (quadratic_conditional, {"outer_eigenvalues": (2.0, 1.0)}, r"outer_eigenvalues must be .* got \(2.0, 1.0\)"),
        (quadratic_compositional, {"p": 6}, "d must be at least p, .* got d=5 and p=6"),
        (quadratic_conditional_compositional, {"p": 6}, "d must be at least p, .* got d=5 and p=6"),
    ],
)
def test_impossible_requests_are_named(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)
