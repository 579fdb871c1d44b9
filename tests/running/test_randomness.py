"""Runs whose losses take a key: fresh for each batch, one for all of its derivatives, the same after a resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import baselines

ROWS = np.random.default_rng(0).normal(size=(24, 3))
SETS = np.random.default_rng(1).normal(size=(24, 5, 3))
X0, Y0 = jnp.zeros(()), jnp.ones(3)
GAMMA, RHO, ETA = 0.3, 0.2, 0.1


def outer(x, y, batch):
    return jnp.sum(y) + x * jnp.sum(y) + 0 * jnp.mean(batch)


def masked(x, y, batch, key):
    """The mask is in gradient and Hessian alike."""
    weights = jax.random.uniform(key, (3,)) + 0.5
    return jnp.sum(weights * (y**2 / 2 - x * y)) + 0 * jnp.mean(batch)


def dropout(x, y, batch, key):
    kept = batch * jax.random.bernoulli(key, 0.5, batch.shape)
    return jnp.mean((kept @ y - 1) ** 2) + jnp.exp(x) * jnp.sum(y**2)


def error(x, y, batch, key):
    return jnp.mean((batch @ y - 1) ** 2) + 0.1 * jnp.sum(y) * jax.random.normal(key)


def test_all_derivatives_of_a_batch_see_one_key_and_each_step_another():
    problem, weights = wior.Bilevel(outer, masked, ROWS, ROWS), []
    x, y, u = 0.0, np.ones(3), np.zeros(3)
    for steps in range(1, 6):
        method = wior.WiORBO(ETA, GAMMA, RHO)
        state = wior.solve(problem, method, X0, Y0, batch_size=4, steps=steps).state
        w = (y - state.y) / GAMMA / (y - x)  # ∇_y g = w (y − x)
        # ∇²_yy g u = w u, and ∇²_xy g u = −⟨w, u⟩, of the same w
        np.testing.assert_allclose(state.u, u - RHO * (w * u - (1 + x)), rtol=1e-9)
        np.testing.assert_allclose(state.x, x - ETA * (np.sum(y) + np.sum(w * u)), rtol=1e-9)
        x, y, u = float(state.x), np.asarray(state.y), np.asarray(state.u)
        weights.append(w)
    assert np.all((np.array(weights) >= 0.5) & (np.array(weights) <= 1.5))
    assert len(np.unique(np.round(weights, 6))) == 15


def test_every_batch_of_a_step_has_a_key_of_its_own():
    seen = []

    def noted(x, y, batch, key):
        jax.debug.callback(lambda data: seen.append(tuple(data.tolist())), jax.random.key_data(key), ordered=False)
        return jnp.sum(y**2) / 2 - x * jnp.sum(y) + 0 * jnp.mean(batch)

    problem = wior.Bilevel(outer, noted, ROWS, ROWS)
    method = baselines.AmIGO(0.1, 0.1, 0.1, inner_steps=3, adjoint_steps=2)
    wior.solve(problem, method, X0, Y0, batch_size=4, steps=4)
    jax.effects_barrier()
    assert len(set(seen)) == 4 * (3 + 2 + 1)


CASES = {
    "WiORBO": (wior.Bilevel(error, dropout, ROWS, ROWS), wior.WiORBO(0.1, 0.1, 0.1)),
    "SABA": (wior.Bilevel(error, dropout, ROWS, ROWS), baselines.SABA(0.05, 0.1, 0.1)),
    "SPABA": (wior.Bilevel(error, dropout, ROWS, ROWS), baselines.SPABA(0.05, 0.1, 0.1)),
    "WiORCBO": (wior.ConditionalBilevel(error, dropout, ROWS, SETS), wior.WiORCBO(0.1, 0.1, 0.1)),
    "ragged": (
        wior.ConditionalBilevel(error, dropout, ROWS, SETS, counts=np.arange(24) % 5 + 1),
        wior.WiORCBO(0.1, 0.1, 0.1),
    ),
    "RTMLMC": (wior.ConditionalBilevel(error, dropout, ROWS, SETS), baselines.RTMLMC(0.02, 0.1, 0.1, levels=2)),
}


@pytest.mark.parametrize("order", ["random-reshuffling", "herding"])
@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_has_the_same_bits(name, order, tmp_path):
    problem, method = CASES[name]
    run = lambda steps, **more: wior.solve(problem, method, X0, Y0, order=order, batch_size=4, steps=steps, **more)
    whole = run(9)
    run(5, checkpoint=tmp_path)
    resumed = run(9, checkpoint=tmp_path)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), whole.state, resumed.state))
    other = run(9, seed=1)
    assert other.x != whole.x


def test_streamed_data_give_the_same_bits():
    method = wior.WiORBO(0.1, 0.1, 0.1)
    streamed = wior.Bilevel(error, dropout, wior.Streamed(ROWS), wior.Streamed(ROWS))
    found = [wior.solve(problem, method, X0, Y0, batch_size=4, steps=9).y for problem in (CASES["WiORBO"][0], streamed)]
    np.testing.assert_array_equal(*found)


def test_the_runs_of_a_sweep_are_single_runs():
    problem, method = CASES["WiORBO"]
    found = wior.sweep(problem, method, X0, Y0, grid={"outer_lr": [0.1, 0.2]}, seeds=2, batch_size=4, steps=9)
    alone = wior.solve(problem, method, X0, Y0, batch_size=4, steps=9, seed=1)
    np.testing.assert_allclose(found.y[0, 1], alone.y, rtol=1e-12)


def test_instruments_use_a_fixed_key():
    problem, rows = wior.Bilevel(outer, dropout, ROWS, ROWS), jnp.asarray(ROWS)
    fixed = wior.Bilevel(outer, lambda x, y, b: dropout(x, y, b, jax.random.key(0)), rows, rows)
    np.testing.assert_array_equal(*(wior.hypergradient(one, X0, Y0).gradient for one in (problem, fixed)))
    report = wior.check(problem, X0, Y0, batch_size=8, show=False)
    assert not any("change places" in finding.message for finding in report.findings)
