"""Steps of every baseline against its formula."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
import wior.baselines as of
from baseline_twins import (
    BILEVEL,
    METHODS,
    PROBLEMS,
    THREE,
    At,
    F,
    bent,
    bent_inner,
    bome,
    bome_parts,
    descended,
    reverse,
    saga,
)
from chance import CHANCES, drawn, keys, large_batches, random_batches, reserves
from twins import X, Y, close, mean, stepped
from wior.problems.fixed_batches import InFixedBatches
from wior.tasks import quadratic


@pytest.mark.parametrize("start", CHANCES)
@pytest.mark.parametrize("name", METHODS)
def test_three_steps_are_the_formula(name, start):
    """From the first step on, or later from a state in which every memory is filled."""
    (algorithm, twin), rng = METHODS[name], np.random.default_rng(start)
    problem = PROBLEMS[algorithm.solves]
    first = algorithm.init(problem, jnp.asarray(X), jnp.asarray(Y))
    if start > 0:
        first = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), first)
    state, s = first, SimpleNamespace(**jax.tree.map(np.asarray, first)._asdict())
    for t, chance in enumerate(CHANCES[start], start):
        outer, inner = random_batches(rng, algorithm.streams, (np.arange(7), np.arange(11)))
        draws = drawn(outer, inner, t, keys()[chance], reserves(7, 11))
        luck = SimpleNamespace(length=chance[0], coin=chance[1], large=large_batches)
        state = stepped(problem, algorithm, state, draws)
        expected = twin(algorithm, s, outer, inner, t, luck)
        assert set(expected) == set(state._fields)
        for field, value in expected.items():
            close(getattr(state, field), np.concatenate(value) if isinstance(value, tuple) else value)
        s = SimpleNamespace(**expected)
    for before, after in zip(jax.tree.leaves(first), jax.tree.leaves(state), strict=True):
        assert np.abs(after - before).max() > 1e-3


def test_every_baseline_has_a_twin():
    beside = {
        "WiRBO",
        "SABA",
        "DLSGD",
        "RTMLMC",
        "BSGD",
    }  # the first in tests/algorithms, the others in test_conditional_steps.py and below
    assert {type(algorithm).__name__ for algorithm, _ in METHODS.values()} | beside == set(wior.baselines.__all__)


def test_the_twin_of_reverse_is_the_derivative_of_f_at_the_end_of_the_steps():
    """By a complex step, which has no truncation error: f(x, y_K(x)) is a polynomial in x."""
    (a, _), rng = METHODS["Reverse"], np.random.default_rng(5)
    outer, inner = random_batches(rng, a.streams, (np.arange(7), np.arange(11)))
    C, D, E, c, e = mean(F, outer[0][0])

    def value(x):
        y = At(x, Y).after_sgd(a.inner_lr, inner[0]).y
        return y @ C @ y / 2 + x @ D @ y + x @ E @ x / 2 + c @ y + e @ x

    derivative = [value(X + 1e-30j * unit).imag / 1e-30 for unit in np.eye(3)]
    twin = reverse(a, SimpleNamespace(x=X, y=Y), outer, inner, 0, None)
    np.testing.assert_allclose(X - a.outer_lr * np.array(derivative), twin["x"], rtol=1e-12)


def test_bome_adds_nothing_of_q_where_f_alone_brings_it_down():
    algorithm, rng, signs = of.BOME(0.07, 0.11, inner_steps=3, control=0.02), np.random.default_rng(6), set()
    for _ in range(6):
        s = SimpleNamespace(x=rng.normal(size=3), y=rng.normal(size=5))
        outer, inner = random_batches(rng, algorithm.streams, (np.arange(7), np.arange(11)))
        state = algorithm.init(BILEVEL, jnp.asarray(s.x), jnp.asarray(s.y))
        found = stepped(BILEVEL, algorithm, state, drawn(outer, inner, 1, keys()[0, False], reserves(7, 11)))
        close(found, np.concatenate(list(bome(algorithm, s, outer, inner, 1, None).values())))
        signs.add(bool(bome_parts(algorithm, s, outer, inner)[2] > 0))
    assert signs == {False, True}


def test_steps_of_saba_are_the_formula():
    """Slots come again before all have been met, and after."""
    made = bent(quadratic.quadratic(m=8, n=12), bent_inner)
    problem, algorithm = InFixedBatches(made, (2, 3)), of.SABA(*THREE)
    state = algorithm.init(problem, jnp.asarray(X), jnp.asarray(Y))._replace(u=jnp.asarray(Y[::-1]))
    s, of_outer, of_inner, distances = SimpleNamespace(x=X, y=Y, u=Y[::-1]), {}, {}, []
    for t, (i, j) in enumerate([(1, 2), (3, 0), (1, 2), (1, 0), (0, 3), (2, 1), (3, 2), (1, 3)]):
        state = stepped(problem, algorithm, state, drawn([[[i]]], [[[j]]], t, keys()[0, False], None))
        at, xi, zeta = At(s.x, s.y, made.outer_data, made.inner_data), 2 * i + np.arange(2), 3 * j + np.arange(3)
        f_x, f_y = saga(of_outer, i, (at.f_x(xi), at.f_y(xi)))
        g_y, g_yy_u, g_xy_u = saga(of_inner, j, (at.g_y(zeta), at.H(zeta) @ s.u, at.J(zeta) @ s.u))
        s = SimpleNamespace(**descended(algorithm, s, f_x - g_xy_u, g_y, g_yy_u - f_y))
        close(state[:3], np.concatenate([s.x, s.y, s.u]))
        distances.append(np.abs(f_x - at.f_x(xi)).max())
    np.testing.assert_array_equal(np.array(distances) > 1e-6, [False, False, True, True, False, False, True, True])
