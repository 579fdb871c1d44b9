"""`check` measures the inner curvature."""

import jax.numpy as jnp
import numpy as np
import pytest

import wior
from faulty_losses import FEATURES, INPUTS, drawn
from wior.instruments.checking import curvature
from wior.tasks import quadratic


def test_the_ends_of_the_spectrum_are_those_of_the_hessian():
    matrix = np.random.default_rng(102).normal(size=(12, 12))
    matrix = matrix + matrix.T
    like = {"a": jnp.zeros((2, 4)), "b": jnp.zeros(4)}

    def product(v):
        out = matrix @ np.concatenate([np.ravel(v["a"]), v["b"]])
        return {"a": jnp.asarray(out[:8].reshape(2, 4)), "b": jnp.asarray(out[8:])}

    smallest, largest, products = curvature.spectrum(product, like)
    np.testing.assert_allclose([smallest, largest], np.linalg.eigvalsh(matrix)[[0, -1]], rtol=1e-9)
    assert products == 12
    assert curvature.spectrum(lambda v: v, like)[:2] == pytest.approx((1, 1))
    rough = curvature.spectrum(product, like, products=6)
    assert smallest - 1e-9 <= rough[0] <= 0.8 * smallest
    assert 0.8 * largest <= rough[1] <= largest + 1e-9


def test_the_inner_curvature_of_every_class():
    made = quadratic.quadratic(n=12)
    found = curvature.inner_curvature(drawn(made.problem, (7, 12)), jnp.zeros(3), jnp.zeros(5))
    np.testing.assert_allclose(found[:2], (0.5, 2.0), rtol=1e-9)
    saddle = quadratic.quadratic_minimax()
    found = curvature.inner_curvature(drawn(saddle.problem, (7, 7)), jnp.zeros(3), jnp.zeros(5))
    np.testing.assert_allclose(found[:2], np.linalg.eigvalsh(saddle.g.A)[[0, -1]], rtol=1e-9)
    sets = quadratic.quadratic_conditional(m=3, n=4)
    found = curvature.inner_curvature(drawn(sets.problem, (3, 4)), jnp.zeros(3), jnp.zeros(5))
    ends = np.linalg.eigvalsh(sets.g.A)
    assert ends.min() <= found.smallest <= found.largest <= ends.max() + 1e-9
    maps = quadratic.quadratic_compositional()
    assert curvature.inner_curvature(drawn(maps.problem, (2, 3)), jnp.zeros(3), jnp.zeros(5))[:2] == (1, 1)


def curved(inner, y0=None):
    y0 = jnp.ones(INPUTS) if y0 is None else y0
    problem = wior.Bilevel(lambda x, y, b: jnp.mean(b @ y), inner, FEATURES, FEATURES)
    own = drawn(problem)
    return curvature.curvature_findings(own, curvature.inner_curvature(own, jnp.ones(()), y0), y0)


def test_an_inner_problem_that_is_not_convex_is_found():
    assert curved(lambda x, y, b: jnp.mean((b @ y - x) ** 2) + jnp.sum(y**2)) == []
    (finding,) = curved(lambda x, y, b: jnp.mean((b @ y - x) ** 2) - 5 * jnp.sum(y[:2] ** 2))
    assert finding[:2] == ("warning", "inner")
    assert finding.message.startswith("is not convex in y: its Hessian in y has eigenvalues from -")
    (finding,) = curved(lambda x, y, b: -jnp.mean((b @ y - x) ** 2) - jnp.sum(y**2))
    assert finding[:2] == ("error", "inner")
    assert "look at its sign" in finding.message
    (finding,) = curved(lambda x, y, b: jnp.mean((b[:, :3] @ y[:3] - x) ** 2))
    assert finding[:2] == ("note", "inner")
    assert "is not strongly convex in y" in finding.message
    (finding,) = curved(lambda x, y, b: jnp.mean(b @ y))
    assert finding[:2] == ("warning", "inner")
    assert "has no curvature in y" in finding.message


def test_a_minimax_objective_with_the_wrong_sign_is_an_error():
    def said(sign):
        problem = wior.Minimax(lambda x, y, b: jnp.mean(b @ (x * y)) + sign * jnp.sum(y**2), FEATURES)
        own, y0 = drawn(problem), jnp.ones(INPUTS)
        return [f[:2] for f in curvature.curvature_findings(own, curvature.inner_curvature(own, y0, y0), y0)]

    assert said(-1) == []
    assert said(1) == [("error", "objective")]
