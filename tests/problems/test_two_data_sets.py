"""Minimax problems in which x descends on one data set and y ascends on another: a loop by hand, and every method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from methods import CLASSES, made
from streamed import assert_same_run, streamed
from wior.baselines import AGDA, SGDA
from wior.orders import BY_NAME, FlipFlop, RandomReshuffling
from wior.running.setup import run_key

N, M, P = 7, 12, 3
RNG = np.random.default_rng(3)
DESCENT, ASCENT = RNG.normal(size=(N, P)), RNG.normal(size=(M, P)) + 0.3
X, Y = jnp.asarray(RNG.normal(size=P)), jnp.asarray(RNG.normal(size=P))
ETA, GAMMA = 0.05, 0.2


def game(x, y, batch):
    return jnp.mean(jnp.sum(x * y * (1 + batch) + 0.5 * (x - batch) ** 2, 1)) - 0.5 * y @ y


PROBLEM = wior.Minimax(game, DESCENT, ascent_data=ASCENT)
METHODS = (wior.WiORMinimax, SGDA, AGDA)
OPTIONS = {"batch_size": (2, 5), "steps": 20, "record_every": 20, "seed": 6}


def by_hand(orders, steps, batches, alternating):
    x, y, key = np.asarray(X), np.asarray(Y), run_key(6)
    keys = [jax.random.fold_in(jax.random.fold_in(key, level), 0) for level in (0, 1)]
    for step in range(steps):
        of_x, of_y = (
            data[np.asarray(order.examples(own, step * batch, batch, len(data)))]
            for data, order, own, batch in zip((DESCENT, ASCENT), orders, keys, batches, strict=True)
        )
        new = x - ETA * (y * (1 + of_x) + x - of_x).mean(0)
        at = new if alternating else x
        y = y + GAMMA * ((at * (1 + of_y)).mean(0) - y)
        x = new
    return x, y


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("orders", [(RandomReshuffling(), FlipFlop()), (FlipFlop(),) * 2], ids=["two orders", "one"])
def test_both_sides_move_on_data_of_their_own(method, orders):
    order = orders if orders[0] != orders[1] else orders[0]
    result = wior.solve(PROBLEM, method(ETA, GAMMA), X, Y, order=order, **OPTIONS)
    x, y = by_hand(orders, 20, (2, 5), method is AGDA)
    np.testing.assert_allclose(result.x, x, rtol=1e-11)
    np.testing.assert_allclose(result.y, y, rtol=1e-11)
    last = {name: values[-1] for name, values in result.history.items()}
    assert last["outer_gradients"] == 20 * 2
    assert last["inner_gradients"] == 20 * 5
    assert last["backward_passes"] == 20 * 2
    assert (last["outer_passes"], last["inner_passes"]) == (20 * 2 / N, 20 * 5 / M)
    assert result.steps_per_epoch == np.lcm(N, M)


def test_one_batch_size_serves_both():
    result = wior.solve(PROBLEM, wior.WiORMinimax(ETA, GAMMA), X, Y, order="flip-flop", **OPTIONS | {"batch_size": 3})
    x, y = by_hand((FlipFlop(),) * 2, 20, (3, 3), False)
    np.testing.assert_allclose(result.x, x, rtol=1e-11)
    np.testing.assert_allclose(result.y, y, rtol=1e-11)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("order", BY_NAME)
def test_every_order_streamed_and_resumed(method, order, tmp_path):
    solve = lambda problem, **more: wior.solve(
        problem, method(ETA, GAMMA), X, Y, **OPTIONS | {"order": order, "record_every": 5} | more
    )
    whole = solve(PROBLEM)
    assert_same_run(whole, solve(streamed(PROBLEM)))
    solve(PROBLEM, checkpoint=tmp_path / "run", steps=10)
    resumed = solve(PROBLEM, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(resumed.x, whole.x)
    np.testing.assert_array_equal(resumed.y, whole.y)


def test_one_side_may_be_streamed():
    problem = streamed(PROBLEM, ["ascent_data"])
    assert list(problem.streamed()) == ["inner"]
    solve = lambda problem: wior.solve(problem, wior.WiORMinimax(ETA, GAMMA), X, Y, **OPTIONS)
    assert_same_run(solve(PROBLEM), solve(problem))


def test_a_sweep_is_its_runs():
    options = {name: value for name, value in OPTIONS.items() if name != "seed"}
    together = wior.sweep(PROBLEM, AGDA(ETA, GAMMA), X, Y, grid={"outer_lr": [0.01, ETA]}, seeds=[2, 6], **options)
    alone = wior.solve(PROBLEM, AGDA(ETA, GAMMA), X, Y, **OPTIONS)
    np.testing.assert_allclose(together.x[1, 1], alone.x, rtol=1e-11)


BILEVEL = [kind for kind in CLASSES if kind.solves is wior.Bilevel]
FIRST = ("WiORBO", "SOBA", "AIDCG")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind.__name__ in FIRST else [pytest.mark.slow], id=kind.__name__) for kind in BILEVEL],
)  # fmt: skip
def test_methods_of_bilevel_problems_are_those_of_the_restated_one(kind):
    """With f on the one data set and −f, as the inner loss, on the other."""
    stated = wior.Bilevel(game, lambda x, y, batch: -game(x, y, batch), DESCENT, ASCENT)
    size = (1, 3) if kind.fixed_batches else (2, 5)
    solve = lambda problem: wior.solve(problem, made(kind), X, Y, **OPTIONS | {"batch_size": size})
    one, other = solve(PROBLEM), solve(stated)
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_the_instruments_take_both():
    stated = wior.Bilevel(game, lambda x, y, batch: -game(x, y, batch), DESCENT, ASCENT)
    one, other = (wior.hypergradient(problem, X, Y) for problem in (PROBLEM, stated))
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-9)
    measured = wior.order_error(PROBLEM, "random-reshuffling", X, Y, (1, 3), passes=12)
    assert measured.batches_in_pass["inner_gradient"] == M / 3
    report = wior.check(PROBLEM, X, Y, batch_size=(2, 5), show=False)
    assert report.heading == "Minimax: 7 outer and 12 inner examples, batches of 2 and 5"
    assert report.ok
    assert set(report.step_sizes) == {"outer_lr", "inner_lr"}
    bad = np.where(np.arange(M)[:, None] == 4, np.nan, ASCENT)
    report = wior.check(wior.Minimax(game, DESCENT, ascent_data=bad), X, Y, batch_size=(2, 5), show=False)
    assert [finding.about for finding in report.findings] == ["ascent_data"]
    assert "in row 4" in report.findings[0].message


def test_a_method_that_reads_one_data_set_is_refused():
    class Own(wior.WiORMinimax):
        def batch_kinds_for(self, problem):
            return self.batch_kinds

    with pytest.raises(TypeError, match="Own reads one data set, and the Minimax problem has two"):
        wior.solve(PROBLEM, Own(ETA, GAMMA), X, Y, **OPTIONS)


def test_wrong_data_name_their_argument():
    with pytest.raises(ValueError, match=r"ascent_data\['a'\] has 4, ascent_data\['b'\] has 3"):
        wior.Minimax(game, DESCENT, {"a": np.ones(4), "b": np.ones(3)})
    summed = lambda x, y, batch: jnp.sum(batch * x) if len(batch) == 2 else batch[:, 0]
    with pytest.raises(ValueError, match="objective on ascent_data must return one number"):
        wior.solve(wior.Minimax(summed, DESCENT, ASCENT), wior.WiORMinimax(ETA, GAMMA), X, Y, **OPTIONS)
