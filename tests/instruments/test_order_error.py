"""The paper's assumption on an order, measured: against a naive twin, and with the α that theory gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior.orders import FlipFlop, Herding, Incremental, Independent, RandomReshuffling, ShuffleOnce

M, N, P, D = 60, 96, 2, 3


@functools.cache  # so that measurements of one shape are one program
def problem():
    rng = np.random.default_rng(0)
    outer_data, inner_data = rng.normal(size=(M, D + P)), rng.normal(size=(N, D))

    def outer(x, y, b):
        return jnp.mean((b[:, :D] @ y + b[:, D:] @ x) ** 2)

    def inner(x, y, b):
        return jnp.mean((b @ y - jnp.sum(x)) ** 2) + jnp.sum(y**2)

    return wior.Bilevel(outer, inner, outer_data, inner_data)


X, Y = jnp.array([0.3, -0.7]), jnp.array([1.0, -2.0, 0.5])


@pytest.mark.filterwarnings("ignore:passes=.* are too few to fit")
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


@functools.cache
def drawn_problem(n):
    rng = np.random.default_rng(0)
    outer = lambda x, y, b: jnp.mean((b[:, :D] @ y + b[:, D:] @ x) ** 2)
    inner = lambda x, y, b: jnp.mean((b @ y - jnp.sum(x)) ** 2) + jnp.sum(y**2)
    return wior.Bilevel(outer, inner, rng.normal(size=(n, D + P)), rng.normal(size=(n, D)))


@pytest.mark.parametrize("passes", [12, 20, 40])
@pytest.mark.parametrize(("n", "batch"), [(64, 1), (64, 4), (256, 4), (64, 5)])
def test_alpha_of_one_permutation_does_not_hang_on_the_number_of_passes(n, batch, passes):
    found = wior.order_error(drawn_problem(n), ShuffleOnce(), X, Y, batch, passes=passes)
    np.testing.assert_allclose(list(found.alpha.values()), 2, atol=1e-6 if n % batch == 0 else 0.05)


@pytest.mark.parametrize(
    ("order", "alpha", "near"), [(Independent(), 1, 0.35), (RandomReshuffling(), 2, 0.25)], ids=repr
)
def test_alpha_of_the_other_orders_at_few_passes(order, alpha, near):
    for passes in (12, 20, 40):
        found = [wior.order_error(drawn_problem(64), order, X, Y, 4, passes=passes, seed=seed) for seed in range(4)]
        for name in found[0].alpha:
            assert abs(np.mean([one.alpha[name] for one in found]) - alpha) < near, (name, passes)


def test_too_few_passes_are_said():
    with pytest.warns(
        UserWarning, match=r"passes=11 are too few to fit α and C, which are NaN; give passes=12 or more"
    ):
        found = wior.order_error(drawn_problem(64), RandomReshuffling(), X, Y, 4, passes=11)
    assert np.isnan([*found.alpha.values(), *found.C.values()]).all()
    assert np.isfinite([found.C_at["inner_gradient"][1], found.C_at["inner_gradient"][2]]).all()


def test_constants_at_a_fixed_alpha_and_for_single_examples():
    found = wior.order_error(problem(), RandomReshuffling(), X, Y, 1, passes=12)
    rows = np.asarray(problem().inner_data)
    gradients = np.stack([2 * (row @ Y - jnp.sum(X)) * row + 2 * Y for row in rows])
    furthest = np.max(np.linalg.norm(gradients - gradients.mean(0), axis=1))
    np.testing.assert_allclose(found.A["inner_gradient"], furthest, rtol=1e-9)
    for name, largest in found.largest.items():
        for alpha in (1, 2):
            want = max(np.sqrt(value * k**alpha) for k, value in zip(found.k.tolist(), largest, strict=True))
            np.testing.assert_allclose(found.C_at[name][alpha], want, rtol=1e-12)
        assert found.A[name] <= found.C_at[name][1] <= found.C_at[name][2]


def test_leaves_of_u_of_equal_shape_are_drawn_apart():
    rows = np.random.default_rng(0).normal(size=(24, 3)) * [1, 2, 3]
    inner = lambda x, y, b: jnp.mean((b @ y["a"]) ** 2 + (b @ y["b"]) ** 2) + jnp.sum(x * y["a"])
    outer = lambda x, y, b: jnp.mean(b @ y["a"]) + jnp.sum(x**2)
    two = wior.Bilevel(outer, inner, rows, rows)
    y = {"a": jnp.ones(3), "b": jnp.ones(3)}
    measure = lambda u: wior.order_error(two, RandomReshuffling(), jnp.ones(3), y, 1, passes=12, u=u)
    drawn = [jax.random.normal(key, (3,)) for key in jax.random.split(jax.random.key(0))]
    length = np.linalg.norm(np.concatenate(drawn))
    want = measure({"a": drawn[0] / length, "b": drawn[1] / length})
    np.testing.assert_allclose(measure(None).largest["inner_products"], want.largest["inner_products"], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:passes=.* are too few to fit")
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


@pytest.mark.filterwarnings("ignore:passes=.* are too few to fit")
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


@pytest.mark.filterwarnings("ignore:passes=.* are too few to fit")
@pytest.mark.slow
@pytest.mark.parametrize("order", [RandomReshuffling(), Herding()], ids=repr)
def test_float32_is_measured_too(order):
    single = wior.order_error(problem(), order, X.astype(jnp.float32), Y.astype(jnp.float32), 4, passes=2)
    double = wior.order_error(problem(), order, X, Y, 4, passes=2)
    np.testing.assert_allclose(single.largest["outer_gradient"], double.largest["outer_gradient"], rtol=1e-2, atol=1e-6)


@pytest.mark.filterwarnings("ignore:passes=.* are too few to fit")
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
        ({"order": 3}, TypeError, "order must be one of wior.orders"),
        ({"x": jnp.arange(2)}, TypeError, "x has dtype"),
    ],
)
def test_bad_input(options, kind, message):
    arguments = {"order": Herding(), "x": X, "y": Y, "batch_size": 4} | options
    with pytest.raises(kind, match=message):
        wior.order_error(problem(), **arguments)
