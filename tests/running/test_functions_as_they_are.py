"""A result is that of the functions as they are now, whatever they read besides their arguments; nothing unchanged
compiles again.
"""

import dataclasses
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior.algorithms.algorithm import Algorithm, BatchKinds, Seen, State, one
from wior.orders import Order
from wior.saving import fingerprint

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(12, 3)), RNG.normal(size=12)
STRENGTH = 0.01  # the global that losses read
ALGORITHM = wior.WiORBO(0.1, 0.1, 0.1)


class Settings:
    def __init__(self, strength):
        self.strength = strength


def penalized(read):
    """An inner loss with a penalty whose strength it reads at every call, and not from its arguments."""
    return lambda x, y, b: jnp.mean((b[0] @ y - b[1]) ** 2) + read() * jnp.sum(y * y) + 0.1 * jnp.sum(x * y)


def outer(x, y, b):
    return jnp.mean((b[0] @ y - b[1]) ** 2) + 0.1 * jnp.sum(x * x)


def solved(inner, algorithm=ALGORITHM, **options):
    problem = wior.Bilevel(outer, inner, (A, B), (A, B))
    options = {"batch_size": 4, "steps": 30, **options}
    return wior.solve(problem, algorithm, jnp.ones(3), jnp.ones(3), **options)


def expected(strength):
    return solved(penalized(lambda: strength)).y


def test_a_global():
    global STRENGTH
    inner = penalized(lambda: STRENGTH)
    try:
        first = solved(inner).y
        STRENGTH = 1.0
        second = solved(inner).y
    finally:
        STRENGTH = 0.01
    np.testing.assert_array_equal(first, expected(0.01))
    np.testing.assert_array_equal(second, expected(1.0))
    assert np.abs(first - second).max() > 0.1


def test_an_attribute():
    settings = Settings(0.01)
    inner = penalized(lambda: settings.strength)
    first = solved(inner).y
    settings.strength = 1.0
    np.testing.assert_array_equal(solved(inner).y, expected(1.0))
    np.testing.assert_array_equal(first, expected(0.01))


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_a_captured_array(array):
    held = {"strength": array(0.01)}
    inner = penalized(lambda: held["strength"])
    first = solved(inner).y
    held["strength"] = array(1.0)
    second = solved(inner).y
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_array_equal(second, solved(penalized(lambda: array(1.0))).y)


def test_an_array_that_is_changed_in_place():
    strength = np.asarray([0.01])
    inner = penalized(lambda: jnp.asarray(strength)[0])
    first = solved(inner).y
    strength[0] = 1.0
    assert np.abs(first - solved(inner).y).max() > 0.1


def test_a_schedule():
    held = {"rate": 0.1}
    algorithm = wior.WiORBO(lambda step: held["rate"], 0.1, 0.1)
    inner = penalized(lambda: 0.01)
    first = solved(inner, algorithm).x
    held["rate"] = 1e-6
    second = solved(inner, algorithm).x
    assert np.abs(first - 1).max() > 0.01
    assert np.abs(second - 1).max() < 1e-3


def test_metrics():
    held = {"scale": 1.0}
    metrics = lambda x, y: {"size": held["scale"] * jnp.sum(y)}
    inner = penalized(lambda: 0.01)
    first = solved(inner, metrics=metrics).history["size"]
    held["scale"] = 100.0
    np.testing.assert_allclose(solved(inner, metrics=metrics).history["size"], 100 * first, rtol=1e-5)


def test_metrics_of_a_sweep():
    held = {"scale": 1.0, "strength": 0.01}
    inner = penalized(lambda: held["strength"])
    metrics = lambda x, y: {"size": held["scale"] * jnp.sum(y)}

    def swept():
        problem = wior.Bilevel(outer, inner, (A, B), (A, B))
        options = {"grid": {"outer_lr": [0.1, 0.2]}, "seeds": 2, "batch_size": 4, "steps": 30, "metrics": metrics}
        return wior.sweep(problem, ALGORITHM, jnp.ones(3), jnp.ones(3), **options)

    first = swept()
    held["scale"] = 100.0
    second = swept()
    np.testing.assert_array_equal(first.y, second.y)
    np.testing.assert_allclose(second.history["size"], 100 * first.history["size"], rtol=1e-5)
    held["strength"] = 1.0
    np.testing.assert_allclose(swept().y[0, 0], expected(1.0), rtol=1e-5)


def test_the_hypergradient():
    held = {"strength": 0.01}
    problem = wior.Bilevel(outer, penalized(lambda: held["strength"]), (A, B), (A, B))
    x, y = jnp.ones(3), jnp.ones(3)
    first = wior.hypergradient(problem, x, y).gradient
    held["strength"] = 1.0
    second = wior.hypergradient(problem, x, y).gradient
    fresh = wior.Bilevel(outer, penalized(lambda: 1.0), (A, B), (A, B))
    np.testing.assert_array_equal(second, wior.hypergradient(fresh, x, y).gradient)
    assert np.abs(first - second).max() > 1e-3


def test_the_errors_of_an_order():
    held = {"scale": 1.0}
    inner = lambda x, y, b: held["scale"] * jnp.mean((b[0] @ y - b[1]) ** 2) + jnp.sum(x * y)
    problem = wior.Bilevel(outer, inner, (A, B), (A, B))

    def largest():
        found = wior.order_error(problem, wior.orders.ShuffleOnce(), jnp.ones(3), jnp.ones(3), batch_size=4, passes=12)
        return np.asarray(found.largest["inner_gradient"])

    first = largest()
    held["scale"] = 2.0
    np.testing.assert_allclose(largest(), 4 * first, rtol=1e-3)  # it is squared


def test_a_derivative_of_ones_own():
    held = {"scale": 1.0}

    @jax.custom_vjp
    def steep(y):
        return jnp.sum(y * y)

    steep.defvjp(lambda y: (steep(y), y), lambda y, g: (held["scale"] * g * 2 * y,))
    inner = lambda x, y, b: jnp.mean((b[0] @ y - b[1]) ** 2) + steep(y) + 0.1 * jnp.sum(x * y)
    first = solved(inner).y
    held["scale"] = 0.1
    second = solved(inner).y
    assert np.abs(first - second).max() > 0.05


@dataclasses.dataclass(frozen=True)
class Descent(Algorithm):
    """A method of one's own, whose step reads a global."""

    inner_lr: float

    solves = wior.Bilevel
    step_sizes = {"y": "inner_lr"}

    @property
    def batch_kinds(self):
        return BatchKinds((1,), (1,))

    def init(self, problem, x, y):
        return State(x, y)

    def step(self, problem, state, draws):
        batch = problem.inner_batch(draws.inner[0][0])
        g_y = jax.grad(lambda y: problem.inner(state.x, y, batch.data))(state.y)
        y = jax.tree.map(lambda v, g: v - STRENGTH * self.inner_lr * g, state.y, g_y)
        return State(state.x, y), Seen((one(state.x),), (one(g_y),))


def test_a_step_of_ones_own():
    global STRENGTH
    inner = penalized(lambda: 0.01)
    try:
        first = solved(inner, Descent(0.1)).y
        STRENGTH = 1.0
        second = solved(inner, Descent(0.1)).y
    finally:
        STRENGTH = 0.01
    assert np.abs(first - 1).max() < 0.1 < np.abs(second - 1).max()


FIRST = {"example": 0}


@dataclasses.dataclass(frozen=True)
class Always(Order):
    """An order of one's own that reads a global."""

    repeats_within_pass = True

    def run(self, key, first_pass, offset, length, n):
        return jnp.full(length, FIRST["example"], jnp.int32)

    def one_pass(self, key, number, n, count=None):
        return jnp.full(n, FIRST["example"], jnp.int32)


def test_an_order_of_ones_own():
    inner = penalized(lambda: 0.01)
    first = solved(inner, order=Always()).y
    FIRST["example"] = 5
    assert np.abs(first - solved(inner, order=Always()).y).max() > 0.01


def test_nothing_unchanged_compiles_again():
    compiled = []
    listener = lambda name, seconds, **more: (
        compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    inner, metrics = penalized(lambda: STRENGTH), lambda x, y: {"size": jnp.sum(y)}
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        solved(inner, metrics=metrics)
        assert compiled
        compiled.clear()
        solved(inner, metrics=metrics)
        assert not compiled
        wior.solve(
            wior.Bilevel(outer, inner, (A + 1, B), (A, 2 * B)),
            dataclasses.replace(ALGORITHM, outer_lr=0.2),
            jnp.zeros(3),
            jnp.zeros(3),
            batch_size=4,
            steps=30,
            metrics=metrics,
        )
        assert not compiled  # other data, other numbers, the same program
    finally:
        jax.monitoring.clear_event_listeners()


def test_a_model_of_ones_own_in_the_cleaner():
    from wior.cleaning.models import Custom, all_log_probabilities

    held = {"scale": 1.0}
    model = Custom(lambda params, features: held["scale"] * features @ params, jnp.ones((3, 2)))
    params = jnp.asarray(np.random.default_rng(1).normal(size=(3, 2)))
    first = all_log_probabilities(model.as_now(A), params, A)
    held["scale"] = 3.0
    second = all_log_probabilities(model.as_now(A), params, A)
    np.testing.assert_allclose(second, jax.nn.log_softmax(3.0 * A @ np.asarray(params)), atol=1e-5)
    assert np.abs(first - second).max() > 0.1
    assert model.as_now(A).function == model.as_now(A).as_now(A).function


def fingerprint_of(function):
    return fingerprint.fingerprint(function, jnp.ones(3))


def test_fingerprints_see_what_nested_programs_close_over():
    def helped(array):
        helper = jax.jit(lambda y: jnp.sum(y * array))
        return lambda y: jax.lax.cond(y[0] > 0, helper, lambda y: 2 * helper(y), y)

    one_of, other = np.asarray([1.0, 2.0, 3.0]), np.asarray([1.0, 2.0, 4.0])
    assert fingerprint_of(helped(one_of)) == fingerprint_of(helped(one_of.copy()))
    assert fingerprint_of(helped(one_of)) != fingerprint_of(helped(other))
    assert fingerprint_of(helped(jnp.asarray(one_of))) != fingerprint_of(helped(jnp.asarray(other)))


def test_fingerprints_of_code():
    def measured(scale, limit):
        return lambda x, y: {"size": scale * float(y[y > limit].mean())}

    assert fingerprint.of_code(measured(1.0, 0)) == fingerprint.of_code(measured(1.0, 0))
    assert fingerprint.of_code(measured(1.0, 0)) != fingerprint.of_code(measured(2.0, 0))
    assert fingerprint.of_code(measured(1.0, 0)) != fingerprint.of_code(measured(1.0, 1))
    assert fingerprint.of_code(measured(np.ones(2), 0)) != fingerprint.of_code(measured(np.zeros(2), 0))


@pytest.mark.parametrize("primal", [jnp.sign, jax.nn.relu])
def test_a_rule_of_ones_own_for_a_function_of_jax(primal):
    held = {"scale": 1.0}
    straight = jax.custom_vjp(primal)
    straight.defvjp(lambda y: (primal(y), None), lambda _, g: (held["scale"] * g,))
    inner = lambda x, y, b: jnp.mean((b[0] @ straight(y + 0.1) - b[1]) ** 2) + 0.1 * jnp.sum(x * y) + jnp.sum(y * y)
    first = solved(inner).y
    held["scale"] = 0.1
    assert np.abs(first - solved(inner).y).max() > 0.01


def test_a_rule_of_ones_own_in_the_cleaner_and_the_hypergradient():
    from wior.cleaning.models import Custom

    held = {"scale": 1.0}
    bent = jax.custom_jvp(jnp.tanh)
    bent.defjvps(lambda tangent, value, params: held["scale"] * tangent)
    model = Custom(lambda params, features: features @ bent(params), jnp.ones((3, 2)))
    problem = wior.Bilevel(outer, lambda x, y, b: jnp.sum((bent(y) - x) ** 2) + jnp.sum(y * y), (A, B), (A, B))
    losses = lambda: fingerprint.of_losses(problem, jnp.ones(3), jnp.zeros(3), (12, 12))
    first, second = model.as_now(A).function, losses()
    assert (model.as_now(A).function, losses()) == (first, second)
    held["scale"] = 0.5
    assert model.as_now(A).function != first
    assert losses() != second


def test_rows_that_only_large_batches_have():
    weights = np.ones(12)
    inner = lambda x, y, b: jnp.mean(weights[: len(b[1])] * (b[0] @ y - b[1]) ** 2) + 0.1 * jnp.sum((x - y) ** 2)
    problem = wior.Bilevel(outer, inner, (A, B), (A, B))
    first = wior.hypergradient(problem, jnp.ones(3), jnp.ones(3)).gradient
    large = lambda: solved(inner, wior.baselines.VRBO(0.1, 0.1, 0.1), steps=8).y
    before = large()
    weights[5:] = 9.0
    assert np.abs(first - wior.hypergradient(problem, jnp.ones(3), jnp.ones(3)).gradient).max() > 1e-3
    assert np.abs(before - large()).max() > 1e-3


def test_metrics_that_read_a_clock_are_called():
    calls = []

    def metrics(x, y):
        calls.append(0)
        return {"size": jnp.sum(y), "calls": len(calls)}

    found = solved(penalized(lambda: 0.01), metrics=metrics, record_every=10).history["calls"]
    assert len(set(found.tolist())) == len(found) == 4


def test_metrics_that_are_dataclasses():
    @dataclasses.dataclass
    class Scaled:
        scale: np.ndarray

        def __call__(self, x, y):
            return {"size": jnp.sum(self.scale * y)}

    metrics = Scaled(np.ones(3))
    first = solved(penalized(lambda: 0.01), metrics=metrics).history["size"]
    metrics.scale = np.full(3, 2.0)
    np.testing.assert_allclose(solved(penalized(lambda: 0.01), metrics=metrics).history["size"], 2 * first, rtol=1e-6)


class Measured:
    """Metrics that cannot be compiled, with attributes that they read and one that they count in."""

    def __init__(self, last):
        self.a, self.b, self.c, self.d, self.last = *(np.full(3, float(i)) for i in range(4)), last
        self.calls = 0

    def __call__(self, x, y):
        self.calls += 1
        return {"size": float(np.sum(np.asarray(y) * self.last))}


def test_code_is_known_by_all_that_it_reads_and_not_by_what_it_counts():
    one, same, other = Measured(np.ones(3)), Measured(np.ones(3)), Measured(np.zeros(3))
    same(0.0, 1.0)
    assert fingerprint.of_code(one) == fingerprint.of_code(same) != fingerprint.of_code(other)
    settings = dict.fromkeys("abcdefgh", 0.0)
    reads = lambda x, y: {"size": settings["h"]}
    before = fingerprint.of_code(reads)
    settings["h"] = 1.0
    assert fingerprint.of_code(reads) != before


SAME_EVERYWHERE = """
    import jax, jax.numpy as jnp, numpy as np
    from wior.saving import fingerprint
    host = lambda v: np.asarray(v) * 2
    called = lambda y: jnp.sum(jax.pure_callback(host, jax.ShapeDtypeStruct((3,), jnp.float32), y))
    names = {"alpha", "beta", "gamma", "delta"}
    eager = lambda x, y: {"size": 1.0 if "alpha" in {"beta", "gamma", "alpha"} else names}
    print(fingerprint.fingerprint(called, jnp.ones(3, jnp.float32)), fingerprint.of_code(eager))
"""


def test_fingerprints_are_the_same_in_every_process():
    def printed(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", textwrap.dedent(SAME_EVERYWHERE)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert printed("1") == printed("2") != ""
