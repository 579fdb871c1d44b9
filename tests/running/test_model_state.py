"""Losses that return a new model state: carried by the run, changed by inner gradients alone unless asked."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import baselines

ROWS = np.random.default_rng(0).normal(size=(24, 3)) + 2
X0, Y0, START = jnp.ones(()), jnp.ones(3), {"mean": jnp.zeros(3)}
ETA, GAMMA, RHO = 0.05, 0.1, 0.1


def outer(x, y, batch, state):
    return jnp.mean(((batch - state["mean"]) @ y - 1) ** 2)


def inner(x, y, batch, state):
    mean = batch.mean(0)
    loss = jnp.mean(((batch - mean) @ y - x) ** 2) + jnp.exp(x) * jnp.sum(y**2)
    return loss, {"mean": 0.9 * state["mean"] + 0.1 * mean}


def posed(**more):
    return wior.Bilevel(outer, inner, ROWS, ROWS, model_state=START, **more)


def run(problem, method, steps=6, **more):
    return wior.solve(problem, method, X0, Y0, order="shuffle-once", batch_size=4, steps=steps, **more)


def wiorbo_by_hand(batches):
    """All derivatives of a step see the state from before it."""
    x, y, u, mean = 1.0, np.ones(3), np.zeros(3), np.zeros(3)
    for xi, zeta in batches:
        f = xi - mean
        f_y = 2 * f.T @ (f @ y - 1) / len(f)
        g, weight = zeta - zeta.mean(0), np.exp(x)
        g_y = 2 * g.T @ (g @ y - x) / len(g) + 2 * weight * y
        hessian = 2 * g.T @ g / len(g) + 2 * weight * np.eye(3)
        cross = -2 * g.mean(0) + 2 * weight * y
        mean = 0.9 * mean + 0.1 * zeta.mean(0)
        y, u, x = y - GAMMA * g_y, u - RHO * (hessian @ u - f_y), x + ETA * cross @ u
    return x, y, u, mean


def indices(problem, steps):
    """The batches that a run reads, outer and inner, told by losses that take note of them."""
    noted = {"outer": {}, "inner": {}}

    def note(level):
        def loss(x, y, batch):
            jax.debug.callback(lambda at, rows: noted[level].setdefault(int(at), rows), jnp.round(x), batch)
            return jnp.sum(y**2) + jnp.sum(x * y)

        return loss

    @dataclasses.dataclass(frozen=True)
    class Reader(wior.WiORBO):
        def step(self, problem, state, draws):
            xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
            problem.outer(state.x, state.y, xi.data), problem.inner(state.x, state.y, zeta.data)
            _, seen = super().step(problem, state, draws)
            return state._replace(x=state.x + 1), seen

    reading = wior.Bilevel(note("outer"), note("inner"), ROWS, ROWS)
    run(reading, Reader(ETA, GAMMA, RHO), steps)
    jax.effects_barrier()
    return [(np.asarray(noted["outer"][k]), np.asarray(noted["inner"][k])) for k in range(1, steps + 1)]


def test_a_run_is_the_loop_by_hand():
    result = run(posed(), wior.WiORBO(ETA, GAMMA, RHO))
    x, y, u, mean = wiorbo_by_hand(indices(posed(), 6))
    np.testing.assert_allclose(result.model_state["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(result.y, y, rtol=1e-10)
    np.testing.assert_allclose(result.state.u, u, rtol=1e-10)
    np.testing.assert_allclose(result.x, x, rtol=1e-10)


def test_products_leave_the_state_as_it_is():
    """AmIGO makes three inner steps, five Hessian products and a Jacobian product: three changes of the state."""
    counting = lambda x, y, batch, state: (jnp.sum(y**2) + x * jnp.sum(y) + 0 * jnp.mean(batch), state + 1)
    read = lambda x, y, batch: jnp.sum(y) + 0 * jnp.mean(batch)
    problem = wior.Bilevel(read, counting, ROWS, ROWS, model_state=jnp.zeros((), jnp.int32))
    changes = {
        baselines.AmIGO(0.1, 0.1, 0.1, inner_steps=3, adjoint_steps=5): 3,
        baselines.AIDCG(0.1, 0.1, inner_steps=2): 2,
        baselines.Reverse(0.1, 0.1, inner_steps=4): 4,
        baselines.Reverse(0.1, 0.1, inner_steps=4, checkpoints=2): 4,
        baselines.SABA(0.1, 0.1, 0.1): 1,
        baselines.SUSTAIN(0.1, 0.1, 0.1): 2,  # at this iterate and at the one before
    }
    for method, each in changes.items():
        assert int(run(problem, method, steps=4).model_state) == 4 * each, method


def test_the_outer_loss_changes_the_state_where_asked():
    pair = lambda x, y, batch, state: (outer(x, y, batch, state), {"mean": state["mean"] + 1})
    frozen = wior.Bilevel(pair, inner, ROWS, ROWS, model_state=START)
    both = wior.Bilevel(pair, inner, ROWS, ROWS, model_state=START, update_state_by="both")
    states = [run(one, wior.WiORBO(ETA, GAMMA, RHO)).model_state["mean"] for one in (posed(), frozen, both)]
    np.testing.assert_array_equal(states[0], states[1])
    added = sum(0.9**k for k in range(1, 7))  # one before each of six means
    np.testing.assert_allclose(states[2] - states[0], np.full(3, added), rtol=1e-10)


@pytest.mark.parametrize("order", ["random-reshuffling", "herding"])
def test_a_resumed_run_has_the_same_bits(order, tmp_path):
    method = baselines.AmIGO(ETA, GAMMA, RHO, inner_steps=2, adjoint_steps=2)
    go = lambda steps, **more: wior.solve(posed(), method, X0, Y0, order=order, batch_size=4, steps=steps, **more)
    whole = go(7)
    go(4, checkpoint=tmp_path)
    resumed = go(7, checkpoint=tmp_path)
    np.testing.assert_array_equal(whole.model_state["mean"], resumed.model_state["mean"])
    np.testing.assert_array_equal(whole.x, resumed.x)


def test_metrics_take_the_model_state():
    metrics = lambda x, y, model_state: {"first": model_state["mean"][0]}
    result = run(posed(), wior.WiORBO(ETA, GAMMA, RHO), metrics=metrics, record_every=2)
    assert result.history["first"][0] == 0
    assert result.history["first"][-1] == result.model_state["mean"][0]
    found = wior.sweep(
        posed(), wior.WiORBO(ETA, GAMMA, RHO), X0, Y0, grid={"outer_lr": [ETA, 2 * ETA]}, seeds=3, batch_size=4,
        steps=6, metrics=metrics, order="shuffle-once",
    )  # fmt: skip
    assert found.model_state["mean"].shape == (2, 3, 3)
    np.testing.assert_allclose(found.final("first")[0, 0], result.model_state["mean"][0], rtol=1e-12)
    without = wior.Bilevel(lambda x, y, b: jnp.sum(y), lambda x, y, b: jnp.sum(y**2) + x * y[0], ROWS, ROWS)
    with pytest.raises(TypeError, match="metrics has a parameter `model_state`, and the problem has no model_state"):
        run(without, wior.WiORBO(ETA, GAMMA, RHO), metrics=metrics)


def test_the_end_of_a_run_is_a_new_start():
    result = run(posed(), wior.WiORBO(ETA, GAMMA, RHO))
    later = dataclasses.replace(posed(), model_state=result.model_state)
    np.testing.assert_array_equal(later.model_state["mean"], result.model_state["mean"])
    assert later.outer(X0, Y0, ROWS) == outer(X0, Y0, ROWS, result.model_state)
    assert jax.tree.map(lambda leaf: leaf, later).model_state is not None


def test_what_a_loss_returns():
    alone = lambda x, y, batch, state: inner(x, y, batch, state)[0]
    with pytest.raises(TypeError, match=r"inner takes the model state and must return a pair, \(loss, new_state\)"):
        run(wior.Bilevel(outer, alone, ROWS, ROWS, model_state=START), wior.WiORBO(ETA, GAMMA, RHO))
    other = lambda x, y, batch, state: (alone(x, y, batch, state), {"mean": jnp.zeros(2)})
    with pytest.raises(ValueError, match=r"inner must return a new state with the structure, shapes and types of"):
        run(wior.Bilevel(outer, other, ROWS, ROWS, model_state=START), wior.WiORBO(ETA, GAMMA, RHO))


def test_a_model_state_may_hold_a_key(tmp_path):
    def noisy(x, y, batch, state):
        value, own = inner(x, y, batch, {"mean": state["mean"]})
        noise = jax.random.normal(state["key"], y.shape)
        return value + jnp.sum(noise * y), own | {"key": jax.random.fold_in(state["key"], 1)}

    seen = lambda x, y, batch, state: outer(x, y, batch, {"mean": state["mean"]})
    problem = wior.Bilevel(seen, noisy, ROWS, ROWS, model_state=START | {"key": jax.random.key(5)})
    go = lambda steps, **more: wior.solve(
        problem, wior.WiORBO(ETA, GAMMA, RHO), X0, Y0, batch_size=4, steps=steps, **more
    )
    whole = go(5)
    go(2, checkpoint=tmp_path)
    resumed = go(5, checkpoint=tmp_path)
    expected = jax.random.key(5)
    for _ in range(5):
        expected = jax.random.fold_in(expected, 1)
    for result in (whole, resumed):
        np.testing.assert_array_equal(jax.random.key_data(result.model_state["key"]), jax.random.key_data(expected))
    np.testing.assert_array_equal(whole.x, resumed.x)
