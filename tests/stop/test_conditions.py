"""Conditions that end a run: on histories written by hand, in runs, and across a resume."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import runs
import wior
from wior.stop import AtLeast, AtMost, HypergradientNorm, Patience, RelativeChange


def first_record(condition, values):
    """The record at which a condition first holds on a column of these values; None where it never does."""
    column = np.asarray(values, float)
    held = [condition.holds({"loss": column[: i + 1]}) for i in range(len(column))]
    return held.index(True) if any(held) else None


@pytest.mark.parametrize(
    ("condition", "values", "expected"),
    [
        (AtMost("loss", 1.0), [3, 2, 1, 0], 2),
        (AtMost("loss", 1.0), [3, np.nan, np.inf, -np.inf], 3),
        (AtLeast("loss", 2.0), [0, 1, np.nan, 2], 3),
        (AtLeast("loss", 2.0), [0, 1, 1.999], None),
        (Patience("loss", 2), [3, 2, 1, 1, 1], 4),
        (Patience("loss", 2), [3, 2, 4, 1, 4, 5], 5),
        (Patience("loss", 1), [3, 2, 1, 0], None),
        (Patience("loss", 2), [np.nan, np.nan, 1, 2, 2], 4),
        (Patience("loss", 2), [np.nan, np.nan, np.nan], 2),
        (Patience("loss", 2, largest=True), [1, 2, 3, 3, 2], 4),
        (Patience("loss", 2, by=0.5), [3, 2.8, 2.6, 2.2, 2.1], 2),  # in two records 0.4 is won
        (Patience("loss", 2, by=0.5), [3, 2.8, 2.4, 2.0, 1.7], None),
        (RelativeChange("loss", below=0.1), [4, 2, 1.85, 1.0], 2),
        (RelativeChange("loss", below=0.1, records=2), [4, 4, 2, 1.9, 1.9], 4),
        (RelativeChange("loss", below=0.1), [-4, -4.3], 1),
        (RelativeChange("loss", below=0.1), [np.nan, np.nan, np.inf, np.inf], None),
        (RelativeChange("loss", below=0.1), [0, 0], 1),
    ],
)
def test_the_record_at_which_a_condition_holds(condition, values, expected):
    assert first_record(condition, values) == expected


def test_they_are_written_as_they_are_made():
    made = [
        AtMost("loss", 0.5), Patience("loss", 10), Patience("a", 3, by=0.1, largest=True),
        RelativeChange("a", below=0.01), HypergradientNorm(below=0.5),
    ]  # fmt: skip
    assert [repr(one) for one in made] == [
        "AtMost('loss', 0.5)", "Patience('loss', 10)", "Patience('a', 3, by=0.1, largest=True)",
        "RelativeChange('a', below=0.01)", "HypergradientNorm(below=0.5)",
    ]  # fmt: skip
    assert all(eval(repr(one), {**vars(wior.stop)}) == one for one in made)


def test_the_first_of_a_list_that_holds_ends_the_run_and_is_named():
    whole = runs.solve(steps=200, record_every=5)
    target = float(whole.history["size"][10])
    first = int(np.argmax(whole.history["size"] <= target))
    conditions = [AtLeast("step", 190), AtMost("size", target)]
    stopped = runs.solve(steps=200, record_every=5, stop=conditions)
    assert stopped.stopped_by == repr(conditions[1])
    assert stopped.steps == whole.history["step"][first]
    np.testing.assert_array_equal(stopped.history["size"], whole.history["size"][: first + 1])
    early = runs.solve(steps=200, record_every=5, stop=[AtLeast("step", 5), AtMost("size", target)])
    assert (early.steps, early.stopped_by) == (5, "AtLeast('step', 5)")
    both = runs.solve(steps=200, record_every=5, stop=AtMost("size", target), tolerance=("size", target))
    assert (both.steps, both.stopped_by) == (stopped.steps, "tolerance")
    never = runs.solve(steps=20, stop=AtMost("size", -1.0))
    assert (never.steps, never.stopped_by) == (20, "steps")


def test_a_budget_of_derivatives():
    result = runs.solve(steps=200, record_every=1, stop=AtLeast("outer_gradients", 100))
    assert result.history["outer_gradients"][-2:].tolist() == [99, 102]


def test_patience_survives_a_resume(tmp_path):
    """Cut into three, the run ends at the record at which the whole one does."""
    metrics = lambda x, y: {"far": jnp.abs(x["dense"][0] - 0.4)}
    options = {"metrics": metrics, "record_every": 2, "stop": [Patience("far", 6)]}
    whole = runs.solve(steps=400, **options)
    assert whole.stopped_by == "Patience('far', 6)"
    assert 20 < whole.steps < 400
    cuts = [whole.steps // 2 // 2 * 2, whole.steps - 4, 400]
    for steps in cuts:
        found = runs.solve(steps=steps, checkpoint=tmp_path / "run", **options)
    assert (found.steps, found.stopped_by) == (whole.steps, whole.stopped_by)
    np.testing.assert_array_equal(found.history["far"], whole.history["far"])
    again = runs.solve(steps=400, checkpoint=tmp_path / "run", **options)
    assert (again.steps, again.stopped_by, len(again.history["far"])) == (
        whole.steps,
        whole.stopped_by,
        len(whole.history["far"]),
    )


def test_the_norm_of_the_hypergradient_is_recorded_and_ends_a_run():
    """h(x) = mean (x + b̄ − a)², so that its gradient is 2 (x + b̄ − ā)."""
    a, b = np.arange(1.0, 9.0), np.arange(8.0)
    outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    problem = wior.Bilevel(outer, inner, a, b)
    result = wior.solve(
        problem, wior.WiORBO(0.05, 0.4, 0.4), 0.0, 0.0, batch_size=8, steps=500, record_every=10,
        metrics=lambda x, y: {"x": x}, stop=[HypergradientNorm(below=1e-3)],
    )  # fmt: skip
    norm = result.history["hypergradient_norm"]
    np.testing.assert_allclose(norm, np.abs(2 * (result.history["x"] + b.mean() - a.mean())), rtol=1e-6, atol=1e-10)
    assert result.stopped_by == "HypergradientNorm(below=0.001)"
    assert norm[-1] <= 1e-3 < norm[-2]


BAD = {
    "no condition": ({"stop": 3}, TypeError, "stop must be one of wior.stop, for example wior.stop.Patience('loss', 10), or a list of them; got 3"),
    "a class": ({"stop": [Patience]}, TypeError, "stop must be one of wior.stop with what it takes, for example"),
    "an unknown column": ({"stop": AtMost("loss", 1)}, ValueError, "stop: AtMost('loss', 1) reads 'loss'; a history of this run has step, outer_passes"),
    "a metric of its name": (
        {"stop": HypergradientNorm(1.0), "metrics": lambda x, y: {"hypergradient_norm": 0.0}}, ValueError,
        "metrics may not use the name 'hypergradient_norm', which a condition of stop measures",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_conditions_are_refused_before_the_run(options, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        runs.solve(**options)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: AtMost(3, 1.0), TypeError, "column must be the name of a metric, got 3"),
        (lambda: AtLeast("a", np.nan), ValueError, "value must be a finite number, got nan"),
        (lambda: Patience("a", 0), ValueError, "records must be a positive integer, got 0"),
        (lambda: RelativeChange("a", below=0), ValueError, "below must be a positive finite number, got 0"),
        (lambda: HypergradientNorm("a"), TypeError, "below must be a positive finite number, got 'a' of type str"),
    ],
)
def test_bad_values_of_conditions(make, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make()


def test_streamed_data_have_no_exact_hypergradient():
    problem = runs.problem()
    streamed = wior.Bilevel(
        runs.outer,
        runs.inner,
        {k: wior.Streamed(np.asarray(v)) for k, v in problem.outer_data.items()},
        problem.inner_data,
    )
    with pytest.raises(
        ValueError, match=r"outer data are streamed, and wior\.stop\.HypergradientNorm reads all of them"
    ):
        runs.solve(problem=streamed, stop=HypergradientNorm(1.0))
