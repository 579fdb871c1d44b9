"""Experiments: verdicts, tuning, curves, folders that are whole and go on, and the commands run, compare and reproduce."""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import sys
from typing import Any, NamedTuple

import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest

import wior
from runs import run_main
from wior import baselines, cli, figures
from wior.data import files
from wior.experiments import cleaning, comparison, contest, few_shot, irm
from wior.experiments.claims import Claim, Ends, ahead, as_json, level, markdown, verdict
from wior.experiments.comparison import CALLS, Entrant, Outcome
from wior.experiments.contest import METHODS, PAPERS, Contest
from wior.experiments.experiment import Findings, Options, perform
from wior.experiments.named_tasks import TASKS, shorter
from wior.experiments.reproduce import EXPERIMENTS
from wior.orders import BY_NAME, Independent, RandomReshuffling
from wior.running import blocks
from wior.saving import folders
from wior.saving.folders import RunFolder
from wior.tasks.portfolio import portfolio
from wior.tasks.task import Measure

# verdicts


def ends(*values, largest=False):
    return Ends(np.array(values), largest)


def test_ahead_is_more_than_two_standard_errors_of_the_difference():
    one = ends(0.0, 2.0)  # mean 1, standard error 1
    assert one.error == pytest.approx(1.0)
    apart = 2 * 2**0.5  # two standard errors of the difference of two such
    for gap, expected in ((0.99 * apart, False), (1.01 * apart, True)):
        other = ends(0.0 + gap, 2.0 + gap)
        assert ahead(one, other) is expected
        assert not ahead(other, one)
        best = ends(0.0 + gap, 2.0 + gap, largest=True)
        assert ahead(best, ends(0.0, 2.0, largest=True)) is expected


def test_level_is_within_two_standard_errors_or_a_share_of_the_smaller():
    assert level(ends(1.0), ends(1.049))
    assert not level(ends(1.0), ends(1.06))
    assert level(ends(1.0), ends(1.06), share=0.1)
    assert level(ends(0.4), ends(0.409), share=0.0, within=0.01)
    assert not level(ends(0.4), ends(0.411), share=0.0, within=0.01)
    assert level(ends(-1.0), ends(-1.049), share=0.05)
    assert level(ends(0.0, 2.0), ends(2.0, 4.0))
    assert not level(ends(0.0, 2.0), ends(4.0, 6.0))


def test_of_one_seed_any_lead_counts():
    assert ends(1.0).error == 0
    assert ahead(ends(1.0), ends(1.0 + 1e-9))
    assert not ahead(ends(1.0), ends(1.0))
    assert str(ends(1.0)) == "1 ± 0"
    assert str(ends(1.0, 2.0, 3.0)) == "2 ± 1"


@pytest.mark.parametrize("bad", [(np.nan, 1.0), (np.inf, 1.0), (np.inf, np.inf), (np.inf, -np.inf), (np.nan,)])
@pytest.mark.parametrize("largest", [False, True])
def test_a_diverged_run_is_behind_and_level_with_nothing(bad, largest):
    diverged, fine = ends(*bad, largest=largest), ends(1.0, 2.0, largest=largest)
    assert ahead(fine, diverged)
    assert not ahead(diverged, fine)
    assert not ahead(diverged, diverged)
    assert not level(diverged, fine)
    assert not level(fine, diverged)
    assert not level(diverged, diverged)
    assert "±" in str(diverged)


def test_a_verdict_is_about_all_parts():
    assert verdict([True, True]) == "holds"
    assert verdict([True, False]) == "partly"
    assert verdict([False, False]) == "does not hold"


def test_claims_as_json_and_markdown():
    claims = [Claim("One.", "holds", "1 > 0."), Claim("Two.", "partly", "2 = 2.")]
    assert as_json(claims)[1] == {"text": "Two.", "verdict": "partly", "evidence": "2 = 2."}
    assert markdown(claims) == "- **holds**: One.\n  1 > 0.\n- **partly**: Two.\n  2 = 2."


# settings


def entrant(kind=wior.WiORComp, order=RandomReshuffling(), **fixed):
    return Entrant(f"{kind.__name__}, {type(order).__name__}", kind, order, fixed)


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


# curves made by hand


def outcome(metric, pace=0.5, settings=({"outer_lr": 1.0},), best=0, label="one"):
    metric = np.asarray(metric, float)
    steps = 10 * np.arange(metric.shape[1])
    history = {"gap": metric, "step": steps, **dict.fromkeys(CALLS, 3.0 * steps)}
    scores = np.array([float(i) for i in range(len(settings))])
    return Outcome(label, list(settings), scores, best, list(range(len(metric))), history, pace, 1.0)


def named(largest=False):
    return dataclasses.replace(small_task(), measures={"gap": Measure("gap", largest=largest)})


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


# comparisons


@functools.cache
def small_task():
    task = portfolio(assets=3, periods=20, factors=2, batch_size=4, steps=STEPS)
    return dataclasses.replace(task, grid={"outer_lr": (0.003, 0.03), "inner_lr": (0.5,)})


ENTRANTS = (entrant(), entrant(order=Independent()))
SEEDS, STEPS = 2, 40


@pytest.fixture(scope="module", autouse=True)
def small_portfolio():
    """The named task is the small one, whose programs all tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "portfolio", TASKS["portfolio"]._replace(make=shorter(lambda options: small_task())))
        yield


def now(name, steps, make):
    """A piece of work without a folder."""
    return make(lambda step, latest: None, None)


@functools.cache
def compared(largest=False):
    task = small_task()
    measures = {**task.measures, "gap": Measure("gap", largest=largest)}
    task = dataclasses.replace(task, measures=measures)
    return task, comparison.compare(task, ENTRANTS, SEEDS, now, timed=False)


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
        by_hand(task, one, [{"outer_lr": 0.02, "inner_lr": 0.5, "adjoint_lr": 0.5}]) and blocks.blocks._cache_size()
    )
    (found,) = comparison.compare(task, [one], SEEDS, now, timed=False, tuning_steps=8)
    assert blocks.blocks._cache_size() == chosen
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
    (bad,) = comparison.compare(task, ENTRANTS[:1], SEEDS, now, timed=True, tuning_steps=tuning_steps)
    (good,) = comparison.compare(task, [fine], SEEDS, now, timed=False, tuning_steps=tuning_steps)
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
    (found,) = comparison.compare(blind, ENTRANTS[:1], SEEDS, now)
    assert found.best is None


def test_one_run_by_itself_tells_the_pace():
    task, _ = compared()
    (found,) = comparison.compare(task, ENTRANTS[:1], SEEDS, now, timed=True)
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


def assert_tables(text, columns=None):
    """Every row of a Markdown table has as many cells as its title."""
    tables = [
        list(rows) for is_row, rows in itertools.groupby(text.splitlines(), lambda line: line.startswith("|")) if is_row
    ]
    assert tables
    for rows in tables:
        assert {row.count("|") for row in rows} == {rows[0].count("|") if columns is None else columns + 1}


def test_labels_cannot_break_a_table():
    labels = {one.label for one in (*irm.ENTRANTS, *cleaning.entrants(Options()), *few_shot.ENTRANTS)}
    labels |= {f"{kind.__name__}, {order}" for kind in METHODS.values() for order in BY_NAME}
    labels |= {measure.label for measure in small_task().measures.values()}
    assert len(labels) > 50
    assert not [label for label in labels if "|" in label or "\n" in label]


def assert_pictures(folder, name):
    picture = matplotlib.image.imread(folder / f"{name}.png")
    assert picture.shape[0] > 200
    assert picture.shape[1] > 400
    assert picture[..., :3].std() > 0.02
    pdf = (folder / f"{name}.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert b"%%EOF" in pdf[-32:]
    assert len(pdf) > 4000


def test_limits_show_where_curves_differ():
    curves = [np.array([[100.0, 3.0, 2.0, 1.0]]), np.array([[50.0, np.nan, 2.0, np.inf]])]
    low, high = figures.limits(curves, skip=0.25, margin=0.5)
    assert (low, high) == (0.0, 4.0)
    assert figures.limits([np.array([[np.nan, np.nan]])]) == (0.0, 1.0)
    assert figures.limits([]) == (0.0, 1.0)


def test_looks_of_entrants_differ():
    looks = figures.styles([str(i) for i in range(40)])
    assert len({(style.color, style.line) for style in looks.values()}) == 40


# what the figures conclude, on curves made by hand


def cleaning_outcomes(**last):
    """Clean losses that fall on straight lines from 4 to the given ends, F1 from 0.1 to one less a tenth of the loss."""
    task = dataclasses.replace(
        small_task(),
        measures={"clean_loss": Measure("loss"), "f1": Measure("F1", largest=True)},
        judged_by="clean_loss",
    )
    found = []
    for label, end in ({cleaning.SO: 1.0, cleaning.RR: 1.0, cleaning.WIR: 2.0, "MRBO": 3.0} | last).items():
        loss = np.linspace(4.0, end, 5) + np.array([[0.01], [-0.01]])
        one = outcome(loss, label=label)
        history = {**one.history, "clean_loss": loss, "f1": 1 - loss / 10}
        found.append(dataclasses.replace(one, history=history))
    return task, found


@pytest.mark.parametrize(
    ("last", "verdicts"),
    [
        ({}, ["holds", "holds", "holds", "partly"]),
        ({"MRBO": 0.5}, ["holds", "does not hold", "does not hold", "partly"]),
        ({cleaning.SO: 3.0}, ["does not hold", "does not hold", "does not hold", "partly"]),
        ({cleaning.WIR: 0.5}, ["holds", "does not hold", "does not hold", "does not hold"]),
        ({cleaning.WIR: 5.0}, None),
        ({cleaning.WIR: np.nan}, None),
        ({cleaning.RR: np.nan}, None),
    ],
    ids=["as the paper", "another is better", "orders differ", "WiR is better", "WiR goes up", "WiR diverged", "RR diverged"],
)  # fmt: skip
def test_cleaning_judges_its_claims(last, verdicts):
    found = cleaning.claims(*cleaning_outcomes(**last))
    assert verdicts is None or [claim.verdict for claim in found] == verdicts
    assert all(claim.evidence for claim in found)


def few_shot_outcomes(**last):
    task = dataclasses.replace(
        small_task(), measures={"accuracy": Measure("accuracy", largest=True)}, judged_by="accuracy"
    )
    found = []
    for label, end in ({few_shot.SO: 0.9, few_shot.RR: 0.9, few_shot.DLSGD: 0.7, few_shot.RTMLMC: 0.9} | last).items():
        accuracy = np.linspace(0.2, end, 5) + np.array([[0.001], [-0.001]])
        one = outcome(accuracy, label=label)
        found.append(dataclasses.replace(one, history={**one.history, "accuracy": accuracy}))
    panel = few_shot.PANELS[0]
    return {panel: task}, {panel: found}


@pytest.mark.parametrize(
    ("last", "verdicts"),
    [
        ({}, ["holds", "holds", "holds"]),
        ({few_shot.DLSGD: 0.95}, ["does not hold", "holds", "holds"]),
        ({few_shot.SO: 0.8}, ["holds", "partly", "partly"]),
        ({few_shot.RTMLMC: np.nan}, ["holds", "holds", "holds"]),
        ({few_shot.WIR: 0.7}, ["holds", "holds", "holds", "holds"]),
        ({few_shot.WIR: 0.75}, ["holds", "holds", "holds", "does not hold"]),
    ],
)
def test_few_shot_judges_its_claims(last, verdicts):
    assert [claim.verdict for claim in few_shot.claims(*few_shot_outcomes(**last))] == verdicts


def irm_outcomes(wir, so, rr):
    found = []
    for label, end in {irm.WIR: wir, irm.SO: so, irm.RR: rr, irm.HERDING: so}.items():
        gap = np.geomspace(100.0, end, 5) * np.array([[1.01], [0.99]])
        found.append(outcome(gap, label=label))
    return {"regime": (named(), found)}


@pytest.mark.parametrize(
    ("last", "expected", "transient"),
    [
        ((1.0, 0.1, 0.1), "holds", False),
        ((1.0, 0.1, 2.0), "partly", False),
        ((1.0, 2.0, 2.0), "does not hold", False),
        ((50.0, 50.0, 50.0), "does not hold", True),
    ],
)
def test_irm_judges_its_claim_and_says_where_it_is_too_early(last, expected, transient):
    (claim,) = irm.claims(irm_outcomes(*last))
    assert claim.verdict == expected
    assert ("transient" in claim.evidence) == transient


# folders


class Made(NamedTuple):
    """An experiment of three pieces, without a program."""

    claims: tuple[Claim, ...] = (Claim("It holds.", "holds", "3 > 2."), Claim("It may.", "partly", "2 = 2."))
    number: int = 1
    fail_at: str = ""
    error: Any = KeyboardInterrupt
    begun: Any = None  # a list of the pieces that were computed
    fail_late: bool = False

    TITLE = "Made up"
    FIGURE = "Of nothing."

    def settings(self, options):
        return {"number": self.number}

    def count(self, options):
        return 3

    def run(self, options, piece):
        def make(name, report, checkpoint):
            if self.begun is not None:
                self.begun.append(name)
            if name == self.fail_at:
                raise self.error
            return {"values": np.arange(3.0) * len(name)}

        arrays = {name: piece(name, 1, functools.partial(make, name)) for name in ("a", "b b", "c/c")}

        def draw(folder):
            figure = figures.new_figure(1, 1)
            figure.subplots().plot(arrays["a"]["values"])
            figures.save(figure, folder, "picture")
            if self.fail_late:
                raise self.error

        lines = [json.dumps({"name": name, "values": list(each["values"])}) for name, each in arrays.items()]
        return Findings(
            self.claims, {"number": self.number}, "Text.", draw, lambda path: path.write_text("\n".join(lines))
        )


FILES = {"config.json", "summary.json", "history.jsonl", "report.md", "picture.png", "picture.pdf"}


def made(out, experiment=Made(), options=Options(), **more):
    return perform(experiment, "made up", out, options, **more)


def test_a_run_leaves_one_whole_folder(tmp_path):
    out = tmp_path / "below" / "out"
    summary = made(out)
    assert list(out.parent.iterdir()) == [out]
    assert {path.name for path in out.iterdir()} == FILES == set(summary["files"])
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["claims"] == as_json(Made().claims)
    config = json.loads((out / "config.json").read_text())
    assert config["made_by"] == "wior made up"
    assert config["settings"] == {"number": 1}
    assert_pictures(out, "picture")


def test_the_report_has_the_verdicts(tmp_path):
    made(tmp_path / "out")
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.startswith("# Made up\n")
    assert "- **holds**: It holds.\n  3 > 2." in report
    assert "- **partly**: It may.\n  2 = 2." in report
    assert "A quick version" not in report
    made(tmp_path / "out", Made(claims=()), Options(quick=True))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Verdicts" not in report
    assert "A quick version" in report


def test_an_interrupted_run_goes_on_with_what_is_missing(tmp_path):
    out, begun = tmp_path / "out", []
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(begun=begun, fail_at="b b"))
    assert begun == ["a", "b b"]
    assert not out.exists()
    begun.clear()
    made(out, Made(begun=begun), resume=True)
    assert begun == ["b b", "c/c"]
    made(tmp_path / "undisturbed")
    for name in FILES:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "undisturbed"]


def test_a_run_that_fails_at_the_end_computes_nothing_again(tmp_path):
    out, begun = tmp_path / "out", []
    with pytest.raises(OSError, match="full"):
        made(out, Made(begun=begun, fail_late=True, error=OSError("disk full")))
    made(out, Made(begun=begun), resume=True)
    assert begun == ["a", "b b", "c/c"]
    assert {path.name for path in out.iterdir()} == FILES


def test_an_unfinished_run_is_refused_without_being_asked_to_go_on(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(fail_at="c/c"))
    with pytest.raises(
        FileExistsError, match=r"unfinished run; go on with it by --resume, or .* deleting .*\.out-unfinished"
    ):
        made(out)
    begun = []
    made(out, Made(begun=begun), resume=True)
    assert begun == ["c/c"]


@pytest.mark.parametrize(
    ("experiment", "options", "differs"),
    [
        (Made(number=2), Options(), "settings"),
        (Made(), Options(seeds=3), "options"),
        (Made(number=2), Options(quick=True), "options, settings"),
    ],
)
def test_another_run_is_not_taken_for_the_unfinished_one(tmp_path, experiment, options, differs):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(fail_at="c/c"))
    with pytest.raises(ValueError, match=rf"differs in {differs}\)"):
        made(out, experiment, options, resume=True)
    made(out, resume=True)


def test_a_run_may_be_finished_on_another_machine(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(fail_at="c/c"))
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    made(out, resume=True)
    assert json.loads((out / "config.json").read_text())["machine"] != "abacus"


@pytest.mark.parametrize("error", [KeyboardInterrupt, FileNotFoundError("no data")])
def test_a_run_that_computed_nothing_leaves_nothing(tmp_path, error):
    out = tmp_path / "out"
    with pytest.raises(error if isinstance(error, type) else type(error)):
        made(out, Made(fail_at="a", error=error))
    assert list(tmp_path.iterdir()) == []


def killed(out, **config):
    """What is left where the process of a run is killed in its first piece."""
    return RunFolder(out, {"made_by": "wior made up", **config})


def test_what_was_killed_before_its_first_piece_is_in_nobodys_way(tmp_path):
    out = tmp_path / "out"
    folder = killed(out, number=1)
    (folder.work / "checkpoints" / "a" / "metadata").mkdir(parents=True)  # of a run that never saved itself
    for number in (1, 2):
        again = killed(out, number=number)
        assert json.loads((again.work / "config.json").read_text())["number"] == number
        assert not list((again.work / "pieces").iterdir())
    (again.work / "checkpoints" / "a" / "40").mkdir(parents=True)  # one that did
    with pytest.raises(FileExistsError, match="--resume"):
        killed(out, number=2)
    assert RunFolder(out, {"made_by": "wior made up", "number": 2}, resume=True).work == folder.work


def test_runs_into_one_folder_do_not_mix_their_pieces(tmp_path):
    first = killed(tmp_path / "out", number=1)  # still at its first piece
    second = killed(tmp_path / "out", number=2)
    with pytest.raises(FileExistsError, match=r"another run into .* was begun meanwhile"):
        first.piece("a", lambda: {"values": np.ones(1)})
    with pytest.raises(FileExistsError, match=r"another run into .* was begun meanwhile"):
        first.finish()
    assert second.piece("a", lambda: {"values": np.zeros(1)})["values"] == 0
    with pytest.raises(FileExistsError, match="--resume"):
        killed(tmp_path / "out", number=1)


def test_a_damaged_configuration_is_another_run(tmp_path):
    out = tmp_path / "out"
    folder = killed(out)
    folder.piece("a", lambda: {"values": np.zeros(1)})
    for text in ("", "[1]", "{}"):
        (folder.work / "config.json").write_text(text)
        with pytest.raises(ValueError, match="is another one"):
            RunFolder(out, {"made_by": "wior made up"}, resume=True)


def test_pieces_keep_their_arrays(tmp_path):
    folder = killed(tmp_path / "out")
    arrays = {"scores": np.array([1.0, np.nan]), "step": np.arange(3), "about": np.array(json.dumps({"best": None}))}
    folder.piece("one (of two)", lambda: arrays)
    again = folder.piece("one (of two)", lambda: pytest.fail("computed again"))
    for name, values in arrays.items():
        np.testing.assert_array_equal(again[name], values)
        assert again[name].dtype == values.dtype


def test_an_earlier_run_is_replaced(tmp_path):
    out = tmp_path / "out"
    made(out)
    made(out, Made(number=2))
    assert json.loads((out / "summary.json").read_text())["number"] == 2
    assert list(tmp_path.iterdir()) == [out]


def test_an_earlier_run_stays_where_a_later_one_fails(tmp_path):
    out = tmp_path / "out"
    made(out)
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(number=2, fail_at="b b"))
    assert json.loads((out / "summary.json").read_text())["number"] == 1


@pytest.mark.parametrize(
    "content",
    [
        {"thesis.tex": "mine"},
        {"config.json": "{}"},
        {"config.json": "[]", "summary.json": "[]"},
        {"config.json": '{"made_by": "another program"}', "summary.json": '{"files": []}'},
        {"config.json": '{"made_by": "wior run irm"}', "summary.json": '{"files": ["summary.json"]}', "notes": "mine"},
    ],
)
def test_a_folder_that_is_not_ours_is_left_as_it_is(tmp_path, content):
    out = tmp_path / "out"
    out.mkdir()
    for name, text in content.items():
        (out / name).write_text(text)
    begun = []
    with pytest.raises(FileExistsError, match=f"{out} holds something other than an earlier run and was left as it is"):
        made(out, Made(begun=begun))
    assert begun == []
    assert {path.name: path.read_text() for path in out.iterdir()} == content
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_filled_by_another_during_the_run_loses_nothing(tmp_path):
    out, begun = tmp_path / "out", []

    class Other(Made):
        def run(self, options, piece):
            out.mkdir()
            (out / "notes").write_text("mine")
            return super().run(options, piece)

    with pytest.raises(FileExistsError, match="left as it is"):
        made(out, Other(begun=begun))
    assert (out / "notes").read_text() == "mine"
    (out / "notes").unlink()
    made(out, Made(begun=begun), resume=True)
    assert begun == ["a", "b b", "c/c"]


@pytest.mark.parametrize("key", EXPERIMENTS)
@pytest.mark.parametrize("quick", [False, True])
def test_an_experiment_says_what_it_will_do(key, quick):
    options = Options(quick=quick)
    assert EXPERIMENTS[key].TITLE
    assert EXPERIMENTS[key].FIGURE
    assert EXPERIMENTS[key].count(options) > 0
    settings = EXPERIMENTS[key].settings(options)
    assert json.loads(json.dumps(settings, allow_nan=False))


def test_no_two_pieces_of_an_experiment_are_one_file():
    everywhere = Options()
    pieces = {
        "irm": [f"{regime.name} {one.label}" for regime in irm.regimes(everywhere) for one in irm.ENTRANTS],
        "cleaning": [
            *(one.label for one in cleaning.entrants(everywhere)),
            *(f"{name} {one.label}" for name in cleaning.VARIANTS for one in cleaning.OURS),
        ],
        "omniglot": [f"{panel.name} {one.label}" for panel in few_shot.PANELS for one in few_shot.ENTRANTS],
        "compare": [f"{kind.__name__}, {order}" for kind in METHODS.values() for order in BY_NAME],
    }
    for key, names in pieces.items():
        assert len({folders._as_file_name(name) for name in names}) == len(names), key
        if key in EXPERIMENTS:
            assert EXPERIMENTS[key].count(everywhere) == len(names)


# the command line

COMPARE = ("compare", "portfolio", "--steps", "40", "--seeds", "2", "--orders", "independent,random-reshuffling")


def command(*arguments):
    """The command line in this process, where no test's own capture is at hand."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr(sys, "argv", ["wior", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def comparison_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    return folder / "out", command(*COMPARE, "--no-progress", "--out", str(folder / "out"))


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures take longer than such runs, and are looked at elsewhere."""
    monkeypatch.setattr(contest, "plot", lambda task, outcomes: figures.new_figure(1, 1))


def history(folder):
    """Every record, without the seconds."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def test_compare_prints_a_table_and_leaves_a_folder(comparison_run):
    out, (code, printed, errors) = comparison_run
    assert (code, errors) == (0, "")
    for text in ("WiORComp, independent", "WiORComp, random-reshuffling", "gap", "±", "step sizes", "Report, figures"):
        assert text in printed
    assert max(map(len, printed.splitlines())) <= 100
    assert list(out.parent.iterdir()) == [out]
    summary = json.loads((out / "summary.json").read_text())
    assert {path.name for path in out.iterdir()} == set(summary["files"])
    assert {"comparison.png", "comparison.pdf", "report.md", "history.jsonl"} <= set(summary["files"])
    assert_pictures(out, "comparison")
    assert_tables((out / "report.md").read_text(), columns=7)
    assert len(history(out)) == 2 * 2 * 41
    assert [row["steps"] for row in summary["methods"]] == [40, 40]
    assert all(len(row["grid"]) == 2 for row in summary["methods"])


def test_an_interrupted_comparison_says_how_to_go_on_and_ends_as_if_undisturbed(
    comparison_run, undrawn, monkeypatch, capsys, tmp_path
):
    undisturbed, _ = comparison_run
    out, begun, run = tmp_path / "out", [], comparison._run

    def counted(task, one, *rest):
        begun.append(one.label)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return run(task, one, *rest)

    monkeypatch.setattr(comparison, "_run", counted)
    arguments = (*COMPARE, "--no-progress", "--out", str(out))
    code, printed, errors = run_main(monkeypatch, capsys, *arguments)
    assert (code, printed) == (130, "")
    assert errors == "wior: interrupted; 'wior compare portfolio --resume' with the same options goes on\n"
    assert begun == ["WiORComp, independent", "WiORComp, random-reshuffling"]
    code, printed, errors = run_main(monkeypatch, capsys, *arguments)
    assert (code, printed) == (1, "")
    assert "--resume" in errors
    code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--seeds", "3", "--resume")
    assert (code, printed) == (1, "")
    assert "differs in options" in errors
    code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--resume", "--json")
    assert (code, errors) == (0, "")
    assert begun[2:] == ["WiORComp, random-reshuffling"]
    assert history(out) == history(undisturbed)
    assert list(tmp_path.iterdir()) == [out]
    summary = json.loads(printed)
    assert summary.pop("folder") == str(out)
    assert summary == json.loads((out / "summary.json").read_text())


def test_a_piece_that_was_interrupted_goes_on_from_its_checkpoint(
    comparison_run, undrawn, monkeypatch, capsys, tmp_path
):
    undisturbed, _ = comparison_run
    out, told, run, interrupt = tmp_path / "out", [], comparison._run, [True]

    def interrupted(*args):
        *rest, _, checkpoint = args

        def report(step, latest):
            told.append(step)
            if interrupt and step >= 20:
                raise KeyboardInterrupt

        return run(*rest, report, dataclasses.replace(checkpoint, every_steps=8))

    monkeypatch.setattr(comparison, "_run", interrupted)
    options = ("--steps", "40", "--seeds", "2", "--no-progress", "--out", str(out))
    arguments = ("compare", "portfolio", "--orders", "random-reshuffling", *options)
    assert run_main(monkeypatch, capsys, *arguments)[0] == 130
    assert [path.name for path in tmp_path.iterdir()] == [".out-unfinished"]
    assert run_main(monkeypatch, capsys, *arguments)[0] == 1
    told.clear()
    interrupt.clear()
    assert run_main(monkeypatch, capsys, *arguments, "--resume")[0] == 0
    assert min(told) > 16
    expected = [line for line in history(undisturbed) if line["label"] == "WiORComp, random-reshuffling"]
    assert history(out) == expected
    assert list(tmp_path.iterdir()) == [out]


def test_run_is_one_method_under_one_order(comparison_run, undrawn, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    arguments = (
        "run",
        "portfolio",
        "--method",
        "WiORComp",
        "--outer-lr",
        "0.003,0.03",
        "--seeds",
        "2",
        "--steps",
        "40",
    )
    code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--json", "--no-progress")
    assert (code, errors) == (0, "")
    summary = json.loads(printed)
    assert [path.name for path in tmp_path.iterdir()] == ["wior-run-portfolio"] == [summary["folder"]]
    (row,) = summary["methods"]
    assert row["label"] == "WiORComp, random-reshuffling"
    both = json.loads((comparison_run[0] / "summary.json").read_text())["methods"]
    (same,) = (other for other in both if other["label"] == row["label"])
    for name in ("setting", "gap", "grid"):
        assert row[name] == same[name]
    code, printed, _ = run_main(monkeypatch, capsys, *arguments)  # again, over the folder, with its progress on stderr
    assert code == 0
    assert "WiORComp" in printed
    assert "wior-run-portfolio/" in printed


def test_a_contest_takes_the_methods_of_the_problem_and_of_what_it_is_restated_as():
    assert set(PAPERS.values()) == {"wiorbo", "wiorcbo", "wiorcomp", "wiorccomp", "wiorminimax"}
    assert Contest("portfolio").methods == ("wiorcomp",)
    assert Contest("portfolio", methods=("WiORBO", "scgd")).methods == ("wiorbo", "scgd")
    herded = Contest("portfolio", orders=("herding",), steps=7, batch_size=3, outer_lr=(0.5,))
    task = herded.task(Options(quick=True))
    assert (task.steps, task.batch_size, task.grid["outer_lr"]) == (7, 3, (0.5,))
    assert Contest("portfolio").task(Options(quick=True)).steps == STEPS // 10
    (one,) = herded.entrants(task)
    assert (one.label, one.order) == ("WiORComp, herding", BY_NAME["herding"])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("run", "protfolio"), "task must be one of auc, auc-ijcnn1, cleaning"),
        (("compare", "portfolio", "--methods", "wiorcomp,adam"), "got adam"),
        (("run", "portfolio", "--order", "sorted"), "order must be one of"),
        (("compare", "portfolio", "--orders", ","), "got none"),
        (("run", "portfolio", "--outer-lr", "0.1,fast"), "--outer-lr must be numbers with commas between, got '0.1,fast'"),
        (("run", "portfolio", "--inner-lr", "-1"), "--inner-lr must be positive"),
        (("run", "portfolio", "--inner-lr", "nan"), "--inner-lr must be positive"),
        (("run", "portfolio", "--outer-lr", "inf"), "--outer-lr must be positive"),
        (("run", "portfolio", "--steps", "0"), "--steps"),
        (("run", "portfolio", "--batch-size", "few"), "--batch-size"),
        (("compare", "portfolio", "--seeds", "0"), "--seeds"),
        (("run", "portfolio", "--method", "wiorcbo"), "WiORCBO solves ConditionalBilevel problems; portfolio is Compositional"),
        (("run", "irm", "--method", "wiorbo"), "WiORBO solves Bilevel problems; irm is ConditionalBilevel"),
        (("reproduce", "figure1"), "figure1"),
        (("reproduce",), "Missing argument"),
        (("run",), "Missing argument"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line(monkeypatch, capsys, tmp_path, arguments, part):
    monkeypatch.chdir(tmp_path)
    code, printed, errors = run_main(monkeypatch, capsys, *arguments)
    assert (code, printed) == (2, "")
    assert errors.startswith("wior: ")
    assert errors.count("\n") == 1
    assert part in errors
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_panel_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, printed, errors = run_main(monkeypatch, capsys, "reproduce", "omniglot", "--only", "5x1,7x7", "--no-progress")
    assert (code, printed) == (2, "")
    assert "--only must name panels, some of 5x1, 5x5, 20x1, 20x5; got 7x7" in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_data_are_one_line_and_leave_nothing(monkeypatch, capsys, tmp_path):
    for name in ("empty", "cache", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("WIOR_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def no_network(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(files, "download", no_network)
    for arguments in (("run", "ridge-ijcnn1"), ("reproduce", "cleaning"), ("reproduce", "omniglot", "--quick")):
        for _ in range(2):  # the second time nothing is in the way
            code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--no-progress")
            assert (code, printed) == (1, "")
            assert errors.startswith("wior: ")
            assert errors.count("\n") == 1
            assert "no network" in errors
            assert list((tmp_path / "here").iterdir()) == []


def test_strict_wants_every_claim_to_hold(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for claims, expected in ((Made().claims, 3), (Made().claims[:1], 0)):
        monkeypatch.setitem(EXPERIMENTS, "irm", Made(claims=claims))
        for strict, code in (((), 0), (("--strict",), expected)):
            found, printed, errors = run_main(monkeypatch, capsys, "reproduce", "irm", "--no-progress", *strict)
            assert (found, errors) == (code, "")
            assert "holds  It holds." in printed
            assert ("partly  It may." in printed) == (len(claims) > 1)
            assert "wior-reproduce-irm/" in printed


def test_a_folder_of_any_name_is_shown_as_it_is(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "irm", Made())
    code, printed, _ = run_main(monkeypatch, capsys, "reproduce", "irm", "--no-progress", "--out", "runs[red][bold]")
    assert code == 0
    assert "runs[red][bold]/" in printed


def test_a_traceback_of_an_experiment_is_shown_on_request_only(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "irm", Made(fail_at="b b", error=RuntimeError("first line\nsecond line")))
    found = run_main(monkeypatch, capsys, "reproduce", "irm", "--no-progress")
    assert found == (1, "", "wior: first line second line\n")
    monkeypatch.setattr(sys, "argv", ["wior", "reproduce", "irm", "--no-progress", "--debug", "--resume"])
    with pytest.raises(RuntimeError, match="first line"):
        cli.main()


def test_tasks_lists_them_all(monkeypatch, capsys):
    code, printed, errors = run_main(monkeypatch, capsys, "tasks")
    assert (code, errors) == (0, "")
    assert len(TASKS) >= 10
    for name, task in TASKS.items():
        assert f" {name} " in printed
        assert task.problem.__name__ in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_only_is_for_figures_with_panels(monkeypatch, capsys):
    code, _, said = run_main(monkeypatch, capsys, "reproduce", "irm", "--only", "5x1")
    assert code == 2
    assert "--only is for figures with panels" in said


def test_the_pieces_stay_where_the_folder_cannot_get_its_name(tmp_path, monkeypatch):
    folder = folders.RunFolder(tmp_path / "out", {"made_by": "wior test"})
    folder.piece("one", lambda: {"numbers": np.arange(3)})

    def fail(staged, path):
        raise OSError("no")

    monkeypatch.setattr(folders, "put_in_place", fail)
    with pytest.raises(OSError, match="no"):
        folder.finish()
    monkeypatch.undo()
    again = folders.RunFolder(tmp_path / "out", {"made_by": "wior test"}, resume=True)
    np.testing.assert_array_equal(again.piece("one", lambda: pytest.fail("made again"))["numbers"], np.arange(3))


def test_every_named_task_has_its_quick_version_once():
    """Drawings have a quick version of their own, which is not cut again."""
    full, quick = (Contest("few-shot").task(Options(quick=quick)).steps for quick in (False, True))
    assert (full, quick) == (few_shot.GLYPHS.steps, few_shot.GLYPHS.quick["steps"])
    full, quick = (Contest("portfolio").task(Options(quick=quick)).steps for quick in (False, True))
    assert quick == full // 10
