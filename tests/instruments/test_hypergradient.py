"""The exact hyper-gradient, against finite differences of the objective it reports."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runs
import wior


def problems():
    rng = np.random.default_rng(0)
    rows = lambda *shape: rng.normal(size=shape)
    yield "bilevel", runs.problem(), *runs.start()
    yield (
        "minimax",
        wior.Minimax(
            lambda x, y, b: jnp.mean(b @ y) * x[0] + jnp.sum(jnp.sin(x)) * y[1] - jnp.sum(jnp.cosh(y)), rows(6, 2)
        ),
        rows(3),
        np.zeros(2),
    )
    yield (
        "compositional",
        wior.Compositional(
            lambda y, b: jnp.mean(jnp.exp(b @ y / 4)),
            lambda x, b: jnp.mean(jnp.tanh(b @ x.reshape(3, 2)), 0),
            rows(5, 2),
            rows(8, 3),
        ),
        rows(6),
        np.zeros(2),
    )
    counts = np.array([4, 2, 3, 1])
    conditional = (rows(4, 2), rows(4, 4, 2))
    yield (
        "conditional",
        wior.ConditionalBilevel(
            lambda x, y, b: jnp.mean((b @ y) ** 2) + jnp.sum(jnp.cos(x)),
            lambda x, y, b: jnp.mean((b @ y - jnp.sin(b @ x[:2]) - x[2]) ** 2) + jnp.sum(jnp.cosh(y)),
            *conditional, counts=counts,
        ),
        rows(3),
        np.zeros(2),
    )  # fmt: skip
    yield (
        "conditional compositional",
        wior.ConditionalCompositional(
            lambda y, b: jnp.mean(jnp.exp(b @ y / 4)),
            lambda x, b: jnp.mean(jnp.tanh(b @ x.reshape(2, 2)), 0),
            *conditional,
            counts=counts,
        ),
        rows(4),
        np.zeros(2),
    )


@pytest.mark.parametrize(("problem", "x", "y"), [case[1:] for case in problems()], ids=[case[0] for case in problems()])
def test_it_is_the_derivative_of_the_objective(problem, x, y):
    x = jax.tree.map(jnp.asarray, x)
    found = wior.hypergradient(problem, x, y)
    leaves, structure = jax.tree.flatten(x)
    for number, leaf in enumerate(leaves):
        for place in np.ndindex(leaf.shape):
            shifted = [
                wior.hypergradient(
                    problem,
                    structure.unflatten(
                        [other.at[place].add(h) if i == number else other for i, other in enumerate(leaves)]
                    ),
                    y,
                ).objective
                for h in (1e-4, -1e-4, 2e-4, -2e-4)
            ]
            difference = (8 * (shifted[0] - shifted[1]) - (shifted[2] - shifted[3])) / 12e-4
            exact = jax.tree.leaves(found.gradient)[number][place]
            np.testing.assert_allclose(exact, difference, rtol=1e-6, atol=1e-9)
    assert found.inner_residual < 1e-9
    assert found.adjoint_residual < 1e-9


@pytest.mark.parametrize("rows", [3, 17, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5, 16, 1000))])
def test_reading_the_data_in_pieces_changes_nothing(rows):
    x, y = runs.start()
    whole, pieces = wior.hypergradient(runs.problem(), x, y), wior.hypergradient(runs.problem(), x, y, rows=rows)
    for a, b in zip(jax.tree.leaves(whole.gradient), jax.tree.leaves(pieces.gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_rows_of_a_per_example_leaf_keep_their_mark():
    x, y = runs.start()
    gradient = wior.hypergradient(runs.problem(), x, y).gradient
    assert isinstance(gradient["weights"], wior.PerExample)
    assert gradient["weights"].rows.shape == (runs.N,)
    assert np.all(gradient["weights"].rows != 0)


def test_an_inner_problem_without_a_minimum_is_an_error():
    problem = wior.Bilevel(
        lambda x, y, b: jnp.sum(x * y), lambda x, y, b: jnp.sum(y) * jnp.mean(b), np.ones((2, 1)), np.ones((2, 1))
    )
    with pytest.raises(RuntimeError, match="the inner problem was not solved: its residual norm is"):
        wior.hypergradient(problem, jnp.ones(2), jnp.ones(2))


def test_too_few_conjugate_gradient_steps_are_an_error():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 30)) * np.geomspace(1, 100, 30)
    problem = wior.Bilevel(lambda x, y, b: jnp.mean(b @ y), lambda x, y, b: jnp.mean((b @ y - x[0]) ** 2), rows, rows)
    with pytest.raises(RuntimeError, match=r"not solved.*limit=2"):
        wior.hypergradient(problem, jnp.ones(1), jnp.ones(30), limit=2)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"tolerance": 0.0}, ValueError, "tolerance must be"),
        ({"limit": 0}, ValueError, "limit must be"),
        ({"rows": 1.5}, TypeError, "rows must be"),
    ],
)
def test_bad_options(options, kind, message):
    with pytest.raises(kind, match=message):
        wior.hypergradient(runs.problem(), *runs.start(), **options)


def test_float32_reaches_its_own_tolerance():
    x, y = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), runs.start())
    single = wior.hypergradient(runs.problem(), x, y).gradient["dense"]
    double = wior.hypergradient(runs.problem(), *runs.start()).gradient["dense"]
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, double, rtol=2e-3)
