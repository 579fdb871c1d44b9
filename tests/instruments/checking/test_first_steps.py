"""`check` suggests step sizes."""

import math

import jax.numpy as jnp
import pytest

import wior
from faulty_losses import drawn
from wior.data import digits
from wior.instruments.check import check
from wior.instruments.checking import curvature, first_steps
from wior.instruments.checking.short_runs import ShortRuns
from wior.tasks import quadratic
from wior.tasks.data_cleaning import data_cleaning

QUADRATICS = {
    "bilevel": (quadratic.quadratic, (2, 3)),
    "conditional, ragged": (lambda: quadratic.quadratic_conditional(ragged=True), (2, 3)),
    "minimax": (quadratic.quadratic_minimax, 3),
    "compositional": (quadratic.quadratic_compositional, (2, 3)),
    "conditional compositional": (quadratic.quadratic_conditional_compositional, (2, 3)),
}


@pytest.mark.parametrize("name", QUADRATICS)
def test_the_suggested_step_sizes_come_near_the_minimum(name):
    make, batch_size = QUADRATICS[name]
    made = make()
    report = check(made.problem, jnp.zeros(3), jnp.zeros(5), batch_size=batch_size, show=False)
    assert report.ok, str(report)
    assert report.seconds_per_step > 0
    assert report.memory_bytes > 0
    algorithm = getattr(wior, report.method)(**report.step_sizes)
    result = wior.solve(made.problem, algorithm, jnp.zeros(3), jnp.zeros(5), batch_size=batch_size, steps=1000)
    start, end, least = (float(made.objective(x)) for x in (jnp.zeros(3), result.x, made.minimizer()))
    assert end - least < 0.05 * (start - least)


def test_the_suggested_step_sizes_do_not_diverge_where_y_is_slow():
    made = quadratic.quadratic(p=8, d=20, m=30, n=50, inner_eigenvalues=(0.05, 5.0), seed=2)
    x0, y0 = jnp.zeros(8), jnp.zeros(20)
    report = check(made.problem, x0, y0, batch_size=8, show=False)
    result = wior.solve(made.problem, wior.WiORBO(**report.step_sizes), x0, y0, batch_size=8, steps=4000)
    assert made.objective(result.x) < made.objective(x0)


def test_the_suggested_step_sizes_find_wrong_labels(monkeypatch):
    # of a fixed length: where the machine is busy, the seconds that all short runs have are too few for these
    monkeypatch.setattr(ShortRuns, "_steps_in_time", lambda self, wanted: min(wanted, 500))
    parts = digits()
    task = data_cleaning(parts.train, parts.clean, parts.test, sizes=(64, 16, 10), rate=0.4)
    report = check(task.problem, task.x0, task.y0(), batch_size=25, show=False)
    assert report.ok, str(report)
    assert 10 <= report.step_sizes["outer_lr"] <= 1000
    result = wior.solve(task.problem, wior.WiORBO(**report.step_sizes), task.x0, task.y0(), batch_size=25, steps=500)
    assert float(task.metrics(result.x, result.y)["auroc"]) > 0.95


def test_few_updates_of_a_visit_are_told_and_more_passes_suggested():
    made = quadratic.quadratic_conditional(m=4, n=6)
    own = drawn(made.problem, (2, 3))
    found = curvature.Spectrum(1.0, 2.0, 6, True)
    settings, (finding,) = first_steps.inner_settings(own, found)
    # two updates in a pass: (1 − 0.45)^(2 S) ≤ exp(−6)
    epochs = math.ceil(6 / (2 * -math.log(1 - 0.45)))
    assert settings == {"inner_lr": 0.45, "adjoint_lr": 0.45, "inner_epochs": epochs}
    assert finding[:2] == ("note", "inner_epochs")
    assert first_steps.inner_settings(own, found._replace(smallest=1e-3))[0]["inner_epochs"] == first_steps.MOST_EPOCHS
    assert first_steps.inner_settings(drawn(made.problem, (2, 1)), found._replace(smallest=2.0))[1] == []
    assert first_steps.inner_settings(own, found._replace(largest=0.0)) == ({}, [])


def test_numbers_are_rounded():
    assert [first_steps.rounded(value) for value in (0.1234, 12345.0)] == [0.12, 12000.0]
    assert [first_steps.rounded(value, down=True) for value in (0.199, 0.2, 0.5, 999, 1000)] == [
        0.1,
        0.2,
        0.5,
        500,
        1000,
    ]
