"""Comparisons: settings, curves, sweeps for each entrant, tables."""

import dataclasses
import functools
import itertools
import json

import jax.numpy as jnp
import numpy as np
import pytest

import wior
from small_comparisons import SEEDS, STEPS, assert_pictures, assert_tables, entrant, named, outcome, small_task
from wior import baselines, figures
from wior.experiments import cleaning, comparison, contest, few_shot, irm
from wior.experiments.comparison import CALLS, How
from wior.experiments.contest import METHODS
from wior.experiments.experiment import Options
from wior.orders import BY_NAME, Independent
from wior.running import block
from wior.tasks.task import Measure

GRID = {"outer_lr": (0.1, 0.2), "inner_lr": (0.3, 0.4)}


def test_other_rates_are_the_inner_one_unless_the_grid_has_them():
    assert entrant(wior.WiORBO).settings(GRID) == [
        {"outer_lr": outer, "inner_lr": inner, "adjoint_lr": inner} for outer in (0.1, 0.2) for inner in (0.3, 0.4)
    ]
    with_adjoint = GRID | {"adjoint_lr": (0.5, 0.6)}
    for kind, name in ((wior.WiORBO, "adjoint_lr"), (baselines.DLSGD, "neumann_lr")):
        made = entrant(kind).settings(with_adjoint)
        assert made == [
            {"outer_lr": outer, "inner_lr": inner, name: other}
            for outer, inner, other in itertools.product((0.1, 0.2), (0.3, 0.4), (0.5, 0.6))
        ]


def test_a_setting_is_there_once():
    assert entrant(wior.WiORMinimax).settings(GRID | {"adjoint_lr": (0.5, 0.6)}) == [
        {"outer_lr": outer, "inner_lr": inner} for outer in (0.1, 0.2) for inner in (0.3, 0.4)
    ]


def test_fixed_rates_are_not_tuned():
    fixed = entrant(wior.WiORBO, adjoint_lr=0.05, radius=2.0)
    assert fixed.settings(GRID) == [
        {"outer_lr": outer, "inner_lr": inner} for outer in (0.1, 0.2) for inner in (0.3, 0.4)
    ]
    assert fixed.algorithm(fixed.settings(GRID)[0]) == wior.WiORBO(0.1, 0.3, 0.05, radius=2.0)
    assert entrant(wior.WiORBO, inner_lr=0.5, adjoint_lr=0.5).settings(GRID) == [{"outer_lr": 0.1}, {"outer_lr": 0.2}]
    assert entrant(wior.WiORBO, outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5).settings(GRID) == [{}]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_can_be_made_of_a_grid(name):
    kind = METHODS[name]
    made = entrant(kind).settings(GRID)
    assert 2 <= len(made) <= 4
    for setting in made:
        assert isinstance(entrant(kind).algorithm(setting), kind)


def test_first_at_is_where_the_line_between_records_meets_the_target():
    falling = outcome([[9.0, 5.0, 1.0, 3.0], [7.0, 3.0, 1.0, 3.0]])  # mean 8, 4, 1, 3
    task = named()
    assert falling.first_at("gap", 6.0, task) == pytest.approx(5.0)
    assert falling.first_at("gap", 6.0, task, "seconds") == pytest.approx(2.5)
    assert falling.first_at("gap", 6.0, task, CALLS[0]) == pytest.approx(15.0)
    assert falling.first_at("gap", 4.0, task) == pytest.approx(10.0)
    assert falling.first_at("gap", 2.0, task) == pytest.approx(10 + 10 * 2 / 3)
    assert falling.first_at("gap", 8.0, task) == 0
    assert falling.first_at("gap", 100.0, task) == 0
    assert falling.first_at("gap", 0.5, task) == np.inf
    assert falling.first_at("gap", np.nan, task) == np.inf
    rising = outcome([[0.0, 0.4, 0.8]])
    assert rising.first_at("gap", 0.6, named(largest=True)) == pytest.approx(15.0)
    assert rising.first_at("gap", 0.9, named(largest=True)) == np.inf


def test_after_seconds_interpolates_every_seed_and_stays_at_the_end():
    one = outcome([[8.0, 4.0, 2.0], [6.0, 2.0, 2.0]], pace=0.1)  # records at 0, 1 and 2 seconds
    np.testing.assert_allclose(one.after_seconds("gap", 0.5, named()).values, [6, 4])
    np.testing.assert_allclose(one.after_seconds("gap", 1.5, named()).values, [3, 2])
    np.testing.assert_allclose(one.after_seconds("gap", 100.0, named()).values, [2, 2])
    assert one.after_seconds("gap", 1.0, named(largest=True)).largest


def test_the_edge_is_that_of_several_values():
    def edge(best, outer=(0.1, 0.2, 0.3), inner=(1.0, 2.0)):
        settings = [{"outer_lr": o, "inner_lr": i} for o in outer for i in inner]
        return outcome([[1.0]], settings=settings, best=best).at_edge

    assert edge(0) == edge(1) == edge(4) == ["outer_lr"]
    assert edge(2) == edge(3) == []  # of two values one is always the smallest
    assert edge(4, outer=(0.1,), inner=(1.0, 2.0, 3.0, 4.0, 5.0)) == ["inner_lr"]
    assert edge(None) == []


ENTRANTS = (entrant(), entrant(order=Independent()))


def now(name, steps, make):
    """A piece of work without a folder."""
    return make(lambda step, latest: None, None)


@functools.cache
def compared(largest=False):
    task = small_task()
    measures = {**task.measures, "gap": Measure("gap", largest=largest)}
    task = dataclasses.replace(task, measures=measures)
    return task, comparison.compare(task, ENTRANTS, How(SEEDS, timed=False), now)


def by_hand(task, one, settings, seeds=SEEDS):
    return wior.sweep(
        task.problem,
        one.algorithm(settings[0]),
        task.x0,
        task.y0,
        grid=settings,
        seeds=seeds,
        steps=task.steps,
        metrics=task.metrics,
        record_every=1,
        order=one.order,
        batch_size=task.batch_size,
    )


@pytest.mark.parametrize("largest", [False, True])
def test_a_comparison_is_a_sweep_for_each_entrant_and_the_best_of_its_settings(largest):
    task, outcomes = compared(largest)
    assert [one.label for one in outcomes] == [one.label for one in ENTRANTS]
    for one, found in zip(ENTRANTS, outcomes, strict=True):
        settings = [{"outer_lr": rate, "inner_lr": 0.5, "adjoint_lr": 0.5} for rate in (0.003, 0.03)]
        assert found.settings == settings
        run = by_hand(task, one, settings)
        scores = run.final("gap").mean(-1)
        np.testing.assert_array_equal(found.scores, scores)
        assert found.best == (np.argmax(scores) if largest else np.argmin(scores))
        for name in ("gap", "distance", "loss"):
            np.testing.assert_array_equal(found.history[name], run.history[name][found.best])
        np.testing.assert_array_equal(found.history["step"], run.history["step"])
        for name in CALLS:
            np.testing.assert_array_equal(found.history[name], run.history[name][found.best, 0])
        assert found.seeds == [0, 1]
        assert found.pace > 0


def test_both_criteria_choose_another_setting():
    assert [one.best for one in compared()[1]] != [one.best for one in compared(largest=True)[1]]


@pytest.mark.parametrize("rates", [(0.003, 0.01, 0.03, 0.001), (0.003, 0.01, 0.03)])
def test_tuning_by_short_runs_ends_in_runs_of_the_chosen_setting_and_is_one_program(rates):
    task = dataclasses.replace(small_task(), grid={"outer_lr": rates, "inner_lr": (0.5,)})
    one = ENTRANTS[0]
    # of two runs at once, as tuning with one seed and the runs of two seeds are
    chosen = (
        by_hand(task, one, [{"outer_lr": 0.02, "inner_lr": 0.5, "adjoint_lr": 0.5}]) and block.many_runs._cache_size()
    )
    (found,) = comparison.compare(task, [one], How(SEEDS, timed=False, tuning_steps=8), now)
    assert block.many_runs._cache_size() == chosen
    short = dataclasses.replace(task, steps=8)
    scores = [by_hand(short, one, [setting] * 2, seeds=1).final("gap")[0, 0] for setting in found.settings]
    np.testing.assert_array_equal(found.scores, scores)
    assert found.best == np.argmin(scores)
    long = by_hand(task, one, [found.setting])
    np.testing.assert_array_equal(found.history["gap"], long.history["gap"][0])
    assert found.history["step"][-1] == task.steps


@pytest.mark.parametrize("tuning_steps", [None, 20])
def test_a_grid_that_diverges_is_reported_and_does_not_stop_the_others(tuning_steps, tmp_path):
    task = dataclasses.replace(small_task(), grid={"outer_lr": (1e60, 1e80), "inner_lr": (0.5,)})
    fine = dataclasses.replace(entrant(outer_lr=0.01, inner_lr=0.5, adjoint_lr=0.5), label="fine")
    (bad,) = comparison.compare(task, ENTRANTS[:1], How(SEEDS, tuning_steps=tuning_steps), now)
    (good,) = comparison.compare(task, [fine], How(SEEDS, timed=False, tuning_steps=tuning_steps), now)
    outcomes = [bad, good]
    assert (bad.best, bad.setting, bad.at_edge) == (None, None, [])
    assert not np.isfinite(bad.scores).any()
    assert good.setting == {}
    assert np.isfinite(good.history["gap"]).all()
    rows = comparison.rows(task, outcomes)
    assert [(row["label"], row["diverged"]) for row in rows] == [("fine", False), (bad.label, True)]
    assert rows[1]["gap"] == {"mean": None, "std": None, "seeds": [None, None]}
    json.dumps(rows, allow_nan=False)
    assert "diverged" in comparison.table(task, rows)
    comparison.write_history(tmp_path / "history.jsonl", {"": outcomes})
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert any(line["gap"] is None for line in lines)
    if tuning_steps is None:
        figures.save(contest.plot(task, outcomes), tmp_path, "picture")
        assert_pictures(tmp_path, "picture")


def test_a_run_whose_numbers_are_not_finite_is_diverged_whatever_its_metric_says():
    """Such as accuracy, which of NaN is the share of the first class."""
    task = small_task()
    blind = dataclasses.replace(
        task,
        metrics=lambda x, y: {"accuracy": jnp.mean(jnp.argmax(jnp.stack([x, -x]), 0) == 0)},
        measures={"accuracy": Measure("accuracy", largest=True)},
        judged_by="accuracy",
        grid={"outer_lr": (1e60, 1e80), "inner_lr": (0.5,)},
    )
    (found,) = comparison.compare(blind, ENTRANTS[:1], How(SEEDS), now)
    assert found.best is None


def test_one_run_by_itself_tells_the_pace():
    task, _ = compared()
    (found,) = comparison.compare(task, ENTRANTS[:1], How(SEEDS), now)
    assert 0 < found.pace < 0.1
    np.testing.assert_array_equal(found.seconds, found.pace * found.history["step"])


def test_the_history_has_a_line_for_each_record(tmp_path):
    _, outcomes = compared()
    path = tmp_path / "history.jsonl"
    comparison.write_history(path, {"first": outcomes, "second": outcomes[:1]})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    steps = list(range(STEPS + 1))
    found = [(line["group"], line["label"], line["seed"], line["step"]) for line in lines]
    assert found == [
        (group, one.label, seed, step)
        for group, some in (("first", outcomes), ("second", outcomes[:1]))
        for one in some
        for seed in (0, 1)
        for step in steps
    ]
    for line, (one, seed, record) in zip(lines, itertools.product(outcomes, (0, 1), range(STEPS + 1)), strict=False):
        assert line["gap"] == one.history["gap"][seed, record]
        assert line["distance"] == one.history["distance"][seed, record]
        assert line["seconds"] == pytest.approx(one.pace * line["step"])
        assert line["outer_gradients"] == 4 * line["step"]


def test_rows_are_the_best_first_and_the_table_has_them_all():
    for largest in (False, True):
        task, outcomes = compared(largest)
        rows = comparison.rows(task, outcomes)
        means = [row["gap"]["mean"] for row in rows]
        assert means == sorted(means, reverse=largest)
        by = {one.label: one for one in outcomes}
        for row in rows:
            one = by[row["label"]]
            assert row["setting"] == one.setting
            assert row["steps"] == 40
            assert row["gap"]["seeds"] == list(one.history["gap"][:, -1])
            assert row["gap"]["std"] == pytest.approx(np.std(one.history["gap"][:, -1], ddof=1))
            assert [cell["gap"] for cell in row["grid"]] == list(one.scores)
            assert row["outer_gradients"] == 160
        json.dumps(rows, allow_nan=False)
        assert_tables(comparison.table(task, rows), columns=1 + 3 + 3)
        assert comparison.table(task, rows).count("\n") == 1 + len(rows)


def test_labels_cannot_break_a_table():
    labels = {one.label for one in (*irm.ENTRANTS, *cleaning.entrants(Options()), *few_shot.ENTRANTS)}
    labels |= {f"{kind.__name__}, {order}" for kind in METHODS.values() for order in BY_NAME}
    labels |= {measure.label for measure in small_task().measures.values()}
    assert len(labels) > 50
    assert not [label for label in labels if "|" in label or "\n" in label]


def test_limits_show_where_curves_differ():
    curves = [np.array([[100.0, 3.0, 2.0, 1.0]]), np.array([[50.0, np.nan, 2.0, np.inf]])]
    low, high = figures.limits(curves, skip=0.25, margin=0.5)
    assert (low, high) == (0.0, 4.0)
    assert figures.limits([np.array([[np.nan, np.nan]])]) == (0.0, 1.0)
    assert figures.limits([]) == (0.0, 1.0)


def test_looks_of_entrants_differ():
    looks = figures.styles([str(i) for i in range(40)])
    assert len({(style.color, style.line) for style in looks.values()}) == 40
