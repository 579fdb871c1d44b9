"""Minimax problems in which y, or x and y, has a row for each example: step by step a loop written by hand."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from streamed import assert_same_run, streamed
from wior.baselines import AGDA, SGDA
from wior.instruments.methods import classes
from wior.orders import BY_NAME, Independent, RandomReshuffling
from wior.running.setup import run_key

N, P, ETA, GAMMA = 11, 3, 0.07, 0.4
RNG = np.random.default_rng(0)
DATA = {"a": RNG.normal(size=(N, P)), "b": RNG.normal(size=N)}
X, PUSH, WEIGHTS = RNG.normal(size=P), RNG.normal(size=(N, P)), RNG.normal(size=N)


def attacked(x, y, batch):
    """Each example moved by an adversary of its own, and weighed by what x has of it."""
    error = jnp.sum((batch["a"] + y["push"]) * x["w"], 1) - batch["b"]
    each = jax.nn.sigmoid(x["weights"]) * jnp.sqrt(1 + error**2) - jnp.sum(y["push"] ** 2, 1)
    return jnp.mean(each) + 0.1 * x["w"] @ x["w"] - 0.5 * y["level"] ** 2 + y["level"] * jnp.sum(x["w"])


def derivatives(w, weights, push, level, rows):
    """By hand, of the mean over a batch: in w, in the weights and pushes of its rows, and in the level."""
    moved, size = DATA["a"][rows] + push, len(rows)
    error, weight = moved @ w - DATA["b"][rows], 1 / (1 + np.exp(-weights))
    root = np.sqrt(1 + error**2)
    slope = weight * error / root
    f_w = (slope[:, None] * moved).mean(0) + 0.2 * w + level
    f_weights = weight * (1 - weight) * root / size
    f_push = (slope[:, None] * w - 2 * push) / size
    return f_w, f_weights, f_push, -level + w.sum()


def start():
    x = {"w": jnp.asarray(X), "weights": wior.PerExample(jnp.asarray(WEIGHTS))}
    return x, {"push": wior.PerExample(jnp.asarray(PUSH)), "level": jnp.asarray(0.3)}


def by_hand(order, steps, batch, alternating=False):
    """The same run in numpy: rows that a batch holds twice are moved twice."""
    w, weights, push, level = X.copy(), WEIGHTS.copy(), PUSH.copy(), 0.3
    key = jax.random.fold_in(jax.random.fold_in(run_key(4), 0), 0)
    chunk = batch * (2 if alternating else 1)
    for step in range(steps):
        examples = np.asarray(order.examples(key, step * chunk, chunk, N))
        here, there = (examples[:batch], examples[batch:]) if alternating else (examples, examples)
        f_w, f_weights, f_push, f_level = derivatives(w, weights[here], push[here], level, here)
        w = w - ETA * f_w
        np.add.at(weights, here, -ETA * f_weights)
        if alternating:
            _, _, f_push, f_level = derivatives(w, weights[there], push[there], level, there)
        np.add.at(push, there, GAMMA * f_push)
        level = level + GAMMA * f_level
    return w, weights, push, level


PROBLEM = wior.Minimax(attacked, DATA)
OPTIONS = {"batch_size": 4, "steps": 25, "record_every": 25, "seed": 4}


@pytest.mark.parametrize("order", [RandomReshuffling(), Independent()], ids=repr)
@pytest.mark.parametrize("method", [wior.WiORMinimax, SGDA, AGDA])
def test_rows_of_y_move_as_in_a_loop_by_hand(method, order):
    result = wior.solve(PROBLEM, method(ETA, GAMMA), *start(), order=order, **OPTIONS)
    w, weights, push, level = by_hand(order, 25, 4, alternating=method is AGDA)
    found = (result.x["w"], result.x["weights"].rows, result.y["push"].rows, result.y["level"])
    for one, other in zip(found, (w, weights, push, level), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    # a batch of four examples, once for both derivatives or once for each
    passes = 2 if method is AGDA else 1
    assert result.history["backward_passes"][-1] == 25 * passes
    assert result.history["outer_gradients"][-1] == 25 * 4 * passes
    assert result.history["inner_gradients"][-1] == 0


def test_only_rows_of_y_that_were_met_move():
    result = wior.solve(
        PROBLEM, wior.WiORMinimax(ETA, GAMMA), *start(), **OPTIONS | {"steps": 2, "order": "incremental"}
    )
    moved = np.abs(np.asarray(result.y["push"].rows) - PUSH).max(1)
    assert (moved[:8] > 1e-6).all()
    np.testing.assert_array_equal(moved[8:], 0)


@pytest.mark.parametrize("method", [kind for kind in classes() if kind.solves is wior.Minimax])
@pytest.mark.parametrize("order", BY_NAME)
def test_rows_of_y_in_every_order_streamed_and_resumed(method, order, tmp_path):
    whole = wior.solve(PROBLEM, method(ETA, GAMMA), *start(), order=order, **OPTIONS)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(whole.state))
    assert_same_run(whole, wior.solve(streamed(PROBLEM), method(ETA, GAMMA), *start(), order=order, **OPTIONS))
    options = OPTIONS | {"order": order, "checkpoint": tmp_path / "run"}
    wior.solve(PROBLEM, method(ETA, GAMMA), *start(), **options | {"steps": 9})
    resumed = wior.solve(PROBLEM, method(ETA, GAMMA), *start(), **options)
    for one, other in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", [wior.WiORMinimax, AGDA])
def test_a_sweep_with_rows_of_y_is_its_runs(method):
    together = wior.sweep(PROBLEM, method(ETA, GAMMA), *start(), grid={"inner_lr": [0.1, GAMMA]}, seeds=[4], **{
        name: value for name, value in OPTIONS.items() if name != "seed"
    })  # fmt: skip
    alone = wior.solve(PROBLEM, method(ETA, GAMMA), *start(), **OPTIONS)
    np.testing.assert_allclose(together.y["push"].rows[1, 0], alone.y["push"].rows, rtol=1e-10)


def test_rows_alone_leave_an_order_that_learns_nothing_and_it_runs():
    game = lambda x, y, batch: jnp.mean((x - batch["b"]) ** 2 * y - y**2 + x**2 * 0.1)
    x, y = wior.PerExample(jnp.zeros(N)), wior.PerExample(jnp.ones(N))
    result = wior.solve(wior.Minimax(game, DATA), wior.WiORMinimax(0.1, 0.5), x, y, **OPTIONS | {"order": "herding"})
    assert np.isfinite(result.y.rows).all()


COPIES = r"""
import re, jax, jax.numpy as jnp, numpy as np, wior
from wior.running import block
from wior.running.arguments import Arguments
from wior.running.plan import start_at, stream_keys
from wior.running.setup import prepare, run_key

n = 300_007
data = np.random.default_rng(0).random((n, 2), np.float32)
game = lambda x, y, b: jnp.mean(jax.nn.sigmoid(x["r"]) * (b @ x["w"] + y) ** 2 - 3 * y**2)
x, y = {"w": jnp.zeros(2), "r": wior.PerExample(jnp.zeros(n))}, wior.PerExample(jnp.zeros(n))
for method in (wior.WiORMinimax(0.1, 0.1), wior.baselines.AGDA(0.1, 0.1)):
    given = Arguments(wior.orders.RandomReshuffling(), 5, steps=9, record_every=9)
    setup = prepare(wior.Minimax(game, data), method, x, y, given)
    keys = stream_keys(setup.plan, run_key(0))
    carry = block.begin(setup.plan, setup.problem, setup.algorithm, keys, setup.x, setup.y)
    arguments = (setup.problem, setup.algorithm, carry, keys, start_at(setup.plan, 0), np.int32(1))
    text = block.one_run.lower(setup.plan, *arguments).compile().as_text()
    assert "f32[300007]" in text
    assert not re.search(r"= f32\[300007\]\S* copy\(", text), method
    print("no copies")
"""


def test_a_step_copies_no_table_of_rows():
    """In a process of its own, with the compiler as users have it."""
    done = subprocess.run([sys.executable, "-c", COPIES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("no copies") == 2


def test_the_hypergradient_is_that_of_the_best_rows():
    """max over y of −(y − c)² · k + … is known: each row answers by itself."""
    game = lambda x, y, batch: jnp.mean((x * batch["b"]) * y - y**2) + 0.5 * x**2
    x, y0 = jnp.asarray(0.7), wior.PerExample(jnp.ones(N))
    found = wior.hypergradient(wior.Minimax(game, DATA), x, y0, rows=4)
    np.testing.assert_allclose(found.y.rows, 0.7 * DATA["b"] / 2, rtol=1e-8)
    np.testing.assert_allclose(found.gradient, 0.7 + 0.7 * (DATA["b"] ** 2).mean() / 2, rtol=1e-8)
    weighted = lambda x, y, batch: jnp.mean(jax.nn.sigmoid(x["r"]) * batch["b"] * y["z"] - y["z"] ** 2)
    rows = {"r": wior.PerExample(jnp.asarray(WEIGHTS))}
    found = wior.hypergradient(wior.Minimax(weighted, DATA), rows, {"z": jnp.asarray(0.2)})
    weight = 1 / (1 + np.exp(-WEIGHTS))
    z = (weight * DATA["b"]).mean() / 2
    np.testing.assert_allclose(found.gradient["r"].rows, weight * (1 - weight) * DATA["b"] * z / N, rtol=1e-6)


def test_check_takes_rows_of_y():
    report = wior.check(PROBLEM, *start(), batch_size=4, show=False)
    assert [finding.severity for finding in report.findings if finding.severity == "error"] == []
    assert set(report.step_sizes) == {"outer_lr", "inner_lr"}
    of_company = lambda x, y, batch: attacked(x, y, batch) * (1 + jnp.mean(y["push"]))
    report = wior.check(wior.Minimax(of_company, DATA), *start(), batch_size=4, show=False)
    assert "rows" in next(finding.message for finding in report.findings if finding.about == "objective")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda x, y: wior.solve(PROBLEM, wior.WiORBO(0.1, 0.1, 0.1), x, y, **OPTIONS), "y0 has a PerExample leaf; only x may have one row for each example, and y of a Minimax problem under its own methods: those of Bilevel problems solve for all of y at once"),
        (lambda x, y: wior.solve(PROBLEM, wior.WiORMinimax(0.1, 0.1), x, y | {"push": wior.PerExample(jnp.zeros((5, P)))}, **OPTIONS), "y0['push'] is PerExample with shape (5, 3); its first axis must be 11"),
        (lambda x, y: wior.order_error(PROBLEM, "independent", x, y, 4), "order_error compares derivatives that all examples of a Minimax problem share"),
        (lambda x, y: wior.solve(wior.Minimax(attacked, DATA, DATA), wior.WiORMinimax(0.1, 0.1), x, y, **OPTIONS), "x0 has a PerExample leaf, and the problem has two data sets: a batch of one has no rows of the other's examples. Give one data set, without ascent_data"),
    ],
    ids=["bilevel", "rows", "order error", "two data sets"],
)  # fmt: skip
def test_what_rows_of_y_cannot_be(run, message):
    with pytest.raises((TypeError, ValueError)) as error:
        run(*start())
    assert message in str(error.value)


MESH = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np, wior
rng = np.random.default_rng(0)
data, more = rng.normal(size=(12, 3)), rng.normal(size=(16, 3))
robust = lambda x, y, b: jnp.mean(jnp.sum((b + y) * x, 1) ** 2 - 9 * jnp.sum(y**2, 1)) + 0.1 * x @ x
game = lambda x, y, b: jnp.mean(jnp.sum(x * y * (1 + b) + 0.5 * (x - b) ** 2, 1)) - 0.5 * y @ y
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
attacks = wior.PerExample(rng.normal(size=(12, 3)))
cases = [
    (wior.Minimax(robust, data), attacks, [mesh, wior.Layout(mesh, rows="batch", data="batch")]),
    (wior.Minimax(game, data, more), jnp.ones(3), [mesh, wior.Layout(mesh, data="batch")]),
]
for method in (wior.WiORMinimax(0.05, 0.1), wior.baselines.AGDA(0.05, 0.1)):
    for problem, y, layouts in cases:
        for layout in layouts:
            run = lambda **more: wior.solve(problem, method, jnp.ones(3), y, batch_size=4, steps=20, **more).state
            for one, other in zip(jax.tree.leaves(run()), jax.tree.leaves(run(mesh=layout)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
            print("equal")
"""


@pytest.mark.slow
def test_both_kinds_of_minimax_problems_on_two_devices():
    done = subprocess.run([sys.executable, "-c", MESH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("equal") == 2 * 2 * 2
