"""Sweeps: many runs at once, and the setting that they choose."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import wior
from twins import BILEVEL, BRIEFLY, X, Y, same
from wior.orders import Incremental, RandomReshuffling, ShuffleOnce


@pytest.mark.parametrize(
    ("order", "side_by_side"), [(RandomReshuffling(), True), (ShuffleOnce(), False)], ids=["in step", "one by one"]
)
def test_runs_at_once_are_runs_one_at_a_time(order, side_by_side, monkeypatch):
    monkeypatch.setattr(importlib.import_module("wior.running.sweep"), "in_step", lambda y: side_by_side)
    problem, algorithm, x, y, batch_size = problems.bilevel()
    options = BRIEFLY | {"order": order, "batch_size": batch_size}
    seeds, rates = [0, 3], [0.02, 0.05]
    together = wior.sweep(problem, algorithm, x, y, grid={"outer_lr": rates}, seeds=seeds, **options)
    for i, rate in enumerate(rates):
        for j, seed in enumerate(seeds):
            one = wior.solve(problem, wior.WiORBO(rate, 0.1, 0.1), x, y, seed=seed, **options)
            run = jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], (together.x, together.y))
            same(run, (one.x, one.y), tolerance=1e-10)


def gap(x, y):
    return {"gap": BILEVEL.objective(x) - BILEVEL.objective(BILEVEL.minimizer()), "finite": jnp.mean(jnp.isfinite(x))}


@functools.cache
def swept(rates=(0.001, 1e4, 0.02), **options):
    """Three step sizes: one too small, one with which every run diverges, a good one."""
    algorithm = wior.WiORBO(0.1, 0.4, 0.4)
    options = {"seeds": 2, "order": Incremental(), "batch_size": (7, 11), "steps": 300, "record_every": 300} | options
    grid = {"outer_lr": rates}
    return wior.sweep(BILEVEL.problem, algorithm, jnp.asarray(X), jnp.asarray(Y), grid=grid, metrics=gap, **options)


def test_a_sweep_names_the_best_setting():
    result = swept(best_by="gap")
    assert (result.best, result.best_index, result.best_by) == ({"outer_lr": 0.02}, 2, "gap")
    final = result.final("gap")
    assert final.shape == (3, 2)
    assert (final[2] < final[0]).all()
    assert not np.isfinite(final[1]).any()


def test_the_largest_may_be_the_best_and_a_diverging_run_is_not():
    assert swept(best_by="gap", largest=True).best == {"outer_lr": 0.001}


def test_a_setting_that_diverges_is_not_the_best_where_the_metric_does_not_show_it():
    assert swept(best_by="finite").best != {"outer_lr": 1e4}


def test_a_sweep_without_a_finite_run_says_so():
    with pytest.raises(ValueError, match="every setting of the grid diverged: 'gap' is not finite"):
        swept(rates=(1e4, 1e5), best_by="gap")


def swept_over_inner_epochs(inner_epochs):
    problem, algorithm, x, y, batch_size = problems.conditional_compositional()
    options = BRIEFLY | {"order": Incremental(), "batch_size": batch_size}
    grid = {"inner_epochs": inner_epochs, "outer_lr": [0.05, 0.1]}
    one = lambda **setting: wior.solve(
        problem, wior.WiORCComp(inner_lr=0.1, adjoint_lr=0.1, **setting), x, y, **options
    )
    return wior.sweep(problem, algorithm, x, y, grid=grid, seeds=1, **options), one


def test_a_sweep_may_run_over_what_changes_the_program():
    result, one = swept_over_inner_epochs([2, 1])
    assert result.settings == [{"inner_epochs": s, "outer_lr": rate} for s in (2, 1) for rate in (0.05, 0.1)]
    for i in (1, 2):
        alone = one(**result.settings[i])
        same(jax.tree.map(lambda leaf, i=i: leaf[i, 0], result.x), alone.x, tolerance=1e-10)
        np.testing.assert_array_equal(result.history["inner_gradients"][i, 0], alone.history["inner_gradients"])


def test_a_sweep_over_inner_epochs_counts_their_passes():
    """The algorithm given makes two passes over each inner set, and every setting of the grid one."""
    result, _ = swept_over_inner_epochs([1])
    np.testing.assert_allclose(result.history["inner_passes"], result.history["outer_passes"])
