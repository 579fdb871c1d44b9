"""Compositional problems whose outer loss has no data: one example, read once in every step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from methods import CLASSES, made
from streamed import assert_same_run, streamed
from wior.baselines import NASA, SCGD
from wior.orders import BY_NAME, RandomReshuffling
from wior.running.setup import run_key

N, P, D = 9, 3, 2
RNG = np.random.default_rng(0)
ROWS = {"a": RNG.normal(size=(N, D, P)), "b": RNG.normal(size=(N, D))}
X, Y = jnp.asarray(RNG.normal(size=P)), jnp.asarray(RNG.normal(size=D))
ETA, GAMMA, RHO = 0.05, 0.4, 0.3


def outer(y):
    return jnp.sum(jnp.sqrt(1 + y**2)) + 0.5 * y @ y


def inner(x, batch):
    return jnp.mean(batch["a"] @ x + batch["b"], 0)


def with_a_row(y, batch):
    return outer(y)


PROBLEM = wior.Compositional(outer, inner, None, ROWS)
OPTIONS = {"batch_size": 4, "steps": 15, "record_every": 15, "seed": 2}


def test_a_step_is_the_one_by_hand():
    result = wior.solve(PROBLEM, wior.WiORComp(ETA, GAMMA, RHO), X, Y, order="random-reshuffling", **OPTIONS)
    x, y, u = np.asarray(X), np.asarray(Y), np.zeros(D)
    key = jax.random.fold_in(jax.random.fold_in(run_key(2), 1), 0)
    for step in range(15):
        rows = np.asarray(RandomReshuffling().examples(key, step * 4, 4, N))
        a, b = ROWS["a"][rows].mean(0), ROWS["b"][rows].mean(0)
        f_y = y / np.sqrt(1 + y**2) + y
        x, y, u = x - ETA * a.T @ u, y - GAMMA * (y - a @ x - b), u - RHO * (u - f_y)
    np.testing.assert_allclose(result.x, x, rtol=1e-11)
    np.testing.assert_allclose(result.state.u, u, rtol=1e-11)
    last = {name: values[-1] for name, values in result.history.items()}
    assert (last["outer_gradients"], last["inner_gradients"], last["backward_passes"]) == (15, 15 * 4, 15 * 2)
    assert (last["outer_passes"], last["inner_passes"]) == (15, 15 * 4 / N)
    assert result.steps_per_epoch == N


TAKERS = [kind for kind in CLASSES if kind.solves in (wior.Compositional, wior.Bilevel)]
FIRST = ("WiORComp", "SCGD", "NASA", "WiORBO", "SABA", "StocBiO")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind.__name__ in FIRST else [pytest.mark.slow], id=kind.__name__) for kind in TAKERS],
)  # fmt: skip
def test_every_method_takes_it_as_a_single_row_that_is_not_read(kind):
    size = 3 if kind.fixed_batches else 4
    one = wior.solve(PROBLEM, made(kind), X, Y, **OPTIONS | {"batch_size": size})
    stated = wior.Compositional(with_a_row, inner, np.zeros((1, 1)), ROWS)
    other = wior.solve(stated, made(kind), X, Y, **OPTIONS | {"batch_size": (1, size)})
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    for name in ("outer_gradients", "inner_gradients", "hessian_products", "backward_passes"):
        np.testing.assert_array_equal(one.history[name], other.history[name])


@pytest.mark.parametrize("order", BY_NAME)
@pytest.mark.parametrize("method", [wior.WiORComp(ETA, GAMMA, RHO), SCGD(ETA, GAMMA), NASA(ETA, GAMMA)])
def test_every_order_streamed_and_resumed(method, order, tmp_path):
    solve = lambda problem, **more: wior.solve(
        problem, method, X, Y, order=order, **OPTIONS | {"record_every": 5} | more
    )
    whole = solve(PROBLEM)
    assert_same_run(whole, solve(streamed(PROBLEM, ["inner_data"])))
    solve(PROBLEM, checkpoint=tmp_path / "run", steps=5)
    np.testing.assert_array_equal(solve(PROBLEM, checkpoint=tmp_path / "run").x, whole.x)


def test_a_sweep_and_the_instruments_take_it():
    options = {name: value for name, value in OPTIONS.items() if name != "seed"}
    method = wior.WiORComp(ETA, GAMMA, RHO)
    together = wior.sweep(PROBLEM, method, X, Y, grid={"outer_lr": [0.01, ETA]}, seeds=[2], **options)
    np.testing.assert_allclose(together.x[1, 0], wior.solve(PROBLEM, method, X, Y, **OPTIONS).x, rtol=1e-11)
    a, b = ROWS["a"].mean(0), ROWS["b"].mean(0)
    y = a @ np.asarray(X) + b
    found = wior.hypergradient(PROBLEM, X, Y)
    np.testing.assert_allclose(found.gradient, a.T @ (y / np.sqrt(1 + y**2) + y), rtol=1e-9)
    measured = wior.order_error(PROBLEM, "random-reshuffling", X, Y, 3, passes=12)
    assert measured.largest["outer_gradient"].max() == 0
    report = wior.check(PROBLEM, X, Y, batch_size=4, show=False)
    assert report.ok
    assert report.heading == "Compositional: 1 outer and 9 inner examples, batches of 1 and 4"


def test_what_is_wrong_is_said():
    solve = lambda **more: wior.solve(PROBLEM, wior.WiORComp(ETA, GAMMA, RHO), X, Y, **OPTIONS | more)
    with pytest.raises(
        ValueError, match=r"batch_size is a pair, \(1, 4\), but a Compositional problem has one data set"
    ):
        solve(batch_size=(1, 4))
    with pytest.raises(ValueError, match="order is a pair"):
        solve(order=("incremental", "herding"))
    with pytest.raises(TypeError, match=r"outer is called as outer\(y\), and the function given is with_a_row"):
        wior.Compositional(with_a_row, inner, None, ROWS)
    with pytest.raises(TypeError, match="outer must be a function, got 3"):
        wior.Compositional(3, inner, None, ROWS)
    with pytest.raises(ValueError, match="outer must return one number"):
        wior.solve(wior.Compositional(lambda y: y, inner, None, ROWS), wior.WiORComp(ETA, GAMMA, RHO), X, Y, **OPTIONS)
