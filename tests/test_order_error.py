"""The paper's assumption on an order, measured: against a naive twin, and with the α that theory gives."""

import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior.orders import FlipFlop, Herding, Incremental, Independent, RandomReshuffling, ShuffleOnce

M, N, P, D = 60, 96, 2, 3


def problem():
    rng = np.random.default_rng(0)
    outer_data, inner_data = rng.normal(size=(M, D + P)), rng.normal(size=(N, D))

    def outer(x, y, b):
        return jnp.mean((b[:, :D] @ y + b[:, D:] @ x) ** 2)

    def inner(x, y, b):
        return jnp.mean((b @ y - jnp.sum(x)) ** 2) + jnp.sum(y**2)

    return wior.Bilevel(outer, inner, outer_data, inner_data)


X, Y = jnp.array([0.3, -0.7]), jnp.array([1.0, -2.0, 0.5])


def test_the_incremental_order_against_a_naive_twin():
    found = wior.order_error(problem(), Incremental(), X, Y, 4, passes=3)
    rows = np.asarray(problem().inner_data)
    gradient = lambda batch: np.mean(2 * (batch @ Y - jnp.sum(X))[:, None] * batch, 0) + 2 * Y
    full = gradient(rows)
    batches = [gradient(rows[4 * t : 4 * t + 4]) for t in range(N // 4)] * 3
    for k, largest, mean in zip(found.k, found.largest["inner_gradient"], found.mean["inner_gradient"], strict=True):
        errors = [np.sum((np.mean(batches[t : t + k], 0) - full) ** 2) for t in range(len(batches) - k + 1)]
        np.testing.assert_allclose(largest, max(errors), rtol=1e-9, atol=1e-20)
        np.testing.assert_allclose(mean, np.mean(errors), rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize(
    ("order", "alpha"),
    [
        (Independent(), 1),
        (RandomReshuffling(), 2),
        *(pytest.param(order, 2, marks=pytest.mark.slow) for order in (FlipFlop(), Herding(), Herding(balance="mean"))),
    ],
    ids=repr,
)
def test_alpha_is_one_for_independent_draws_and_two_for_permutations(order, alpha):
    found = wior.order_error(problem(), order, X, Y, 4, passes=64)
    for name in ("outer_gradient", "inner_gradient", "inner_products"):
        assert abs(found.alpha[name] - alpha) < 0.4, (name, found.alpha[name])
        bound = found.C[name] ** 2 * found.k ** -found.alpha[name]
        assert np.all(found.largest[name] <= bound * (1 + 1e-9))


def test_one_permutation_for_ever_has_no_error_over_whole_passes():
    found = wior.order_error(problem(), ShuffleOnce(), X, Y, (5, 8), passes=8)
    whole = found.k % (N // 8) == 0
    assert whole.sum() >= 2
    np.testing.assert_array_equal(found.largest["inner_gradient"][whole], 0)
    assert np.all(found.largest["inner_gradient"][~whole] > 0)


@pytest.mark.parametrize("balance", [pytest.param("pair", marks=pytest.mark.slow), "mean"])
def test_herding_lowers_the_error_of_random_reshuffling(balance):
    measure = lambda order: wior.order_error(problem(), order, X, Y, 2, passes=40, warmup=20)
    reshuffled, herded = measure(RandomReshuffling()), measure(Herding(balance=balance))
    for name in ("outer_gradient", "inner_gradient", "inner_products"):
        assert herded.C[name] < 0.9 * reshuffled.C[name], name
        assert np.median(herded.mean[name] / reshuffled.mean[name]) < 0.5, name


@pytest.mark.slow
def test_conditional_problems_are_measured_on_their_hypergradients():
    rng = np.random.default_rng(0)
    conditional = wior.ConditionalBilevel(
        lambda x, y, b: jnp.mean((b @ y) ** 2) + jnp.sum(x**2),
        lambda x, y, b: jnp.mean((b @ y - b @ x) ** 2) + jnp.sum(y**2),
        rng.normal(size=(30, 2)), rng.normal(size=(30, 5, 2)), counts=rng.integers(1, 6, 30),
    )  # fmt: skip
    x, y = jnp.array([1.0, -1.0]), jnp.zeros(2)
    found = wior.order_error(conditional, RandomReshuffling(), x, y, (3, 2), passes=32)
    assert list(found.largest) == ["hypergradient"]
    assert abs(found.alpha["hypergradient"] - 2) < 0.4
    # a batch of everything has no error: the mean of what was measured is the hyper-gradient
    everything = wior.order_error(conditional, Incremental(), x, y, (30, 2), passes=4)
    np.testing.assert_array_equal(everything.largest["hypergradient"], 0)


@pytest.mark.slow
@pytest.mark.parametrize("order", [RandomReshuffling(), Herding()], ids=repr)
def test_float32_is_measured_too(order):
    single = wior.order_error(problem(), order, X.astype(jnp.float32), Y.astype(jnp.float32), 4, passes=2)
    double = wior.order_error(problem(), order, X, Y, 4, passes=2)
    np.testing.assert_allclose(single.largest["outer_gradient"], double.largest["outer_gradient"], rtol=1e-2, atol=1e-6)


def test_the_plot_is_written(tmp_path):
    figure = wior.order_error(problem(), Herding(), X, Y, 4, passes=4).plot(tmp_path / "error.png")
    assert (tmp_path / "error.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(figure.axes) == 3


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"passes": 0}, ValueError, "passes must be a positive integer, got 0"),
        ({"batch_size": 0}, ValueError, "batch_size must be a positive integer, got 0"),
        ({"warmup": -1}, ValueError, "warmup must be a number of passes, zero or more, got -1"),
        ({"order": "herding"}, TypeError, "order must be one of wior.orders"),
        ({"x": jnp.arange(2)}, TypeError, "x has dtype"),
    ],
)
def test_bad_input(options, kind, message):
    arguments = {"order": Herding(), "x": X, "y": Y, "batch_size": 4} | options
    with pytest.raises(kind, match=message):
        wior.order_error(problem(), **arguments)
