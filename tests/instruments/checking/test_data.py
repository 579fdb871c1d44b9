"""`check` finds values in the data that are not finite, and types that disagree."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import wior
from faulty_losses import FEATURES, INPUTS, RNG, SETS, drawn, loss_of
from runs import enable_x64
from wior.instruments.check import check
from wior.instruments.checking import data, sample, values

# data


def test_values_that_are_not_finite_are_named_by_leaf_number_and_row():
    features = FEATURES.copy()
    features[[3, 9, 9], [0, 1, 2]] = [np.nan, np.inf, np.nan]
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean(b["a"] @ y), masked_loss, {"a": FEATURES}, {"a": FEATURES, "b": features}
    )
    found = sample.at_hand(problem, (8, 8), np.random.default_rng(0))
    seen = data.not_finite(found)
    (finding,) = data.data_findings(found, seen, harmful=True)
    assert finding.about == "inner_data['b']"
    assert finding.severity == "error"
    assert finding.message.startswith(
        "has values that are not finite (2 NaN, 1 infinite) in rows 3, 9; a loss or its derivative is not finite"
    )
    assert {level: list(np.flatnonzero(which)) for level, which in data.broken_places(found, seen).items()} == {
        "outer": [],
        "inner": [3, 9],
    }
    # the batches avoid these rows, and all that is measured can be
    assert not np.isin([place.inner for place in drawn(problem).places], [3, 9]).any()


def masked_loss(x, y, b):
    known = jnp.isfinite(b["b"])
    return jnp.mean((jnp.where(known, b["b"], 0) @ y - 1) ** 2) + x * jnp.sum(y**2)


def plain_loss(x, y, b):
    return jnp.mean((b["b"] @ y - 1) ** 2) + x * jnp.sum(y**2)


@pytest.mark.parametrize(("loss", "severity"), [(plain_loss, "error"), (masked_loss, "note")])
def test_rows_that_a_loss_masks_are_a_note(loss, severity):
    features = FEATURES.copy()
    features[5, 1] = np.nan
    problem = wior.Bilevel(lambda x, y, b: jnp.mean((b @ y) ** 2), loss, FEATURES, {"b": features})
    report = check(problem, jnp.ones(()), jnp.ones(INPUTS), batch_size=8, show=False)
    assert [(f.severity, f.about) for f in report.findings] == [(severity, "inner_data['b']")]
    assert report.ok == (severity == "note")
    assert math.isfinite(report.inner_curvature[0])


def test_padding_may_hold_anything():
    sets, counts = SETS.copy(), np.array([8, 3, 2, 8, 1, 5])
    sets[1, 3:] = np.nan
    problem = lambda sets: wior.ConditionalCompositional(
        lambda y, b: jnp.mean(b @ y), lambda x, b: jnp.mean(b, 0) * x, SETS[:, 0], sets, counts
    )
    assert data.not_finite(sample.at_hand(problem(sets), (2, 2), RNG)) == []
    sets[1, 2, 0] = np.nan
    (leaf,) = data.not_finite(sample.at_hand(problem(sets), (2, 2), RNG))
    assert (leaf.name, list(leaf.places), leaf.nans) == ("inner_data", [1], 1)
    losses = values.Losses(drawn(problem(sets), (2, 2)), jnp.ones(INPUTS), jnp.ones(INPUTS))
    assert values.harmful(losses, loss_of(losses.sample.problem, "inner"), leaf.places)  # in its last row, past a batch
    assert not values.harmful(losses, loss_of(losses.sample.problem, "outer"), leaf.places)


def test_data_without_a_finite_row_end_the_look(capsys):
    problem = wior.Bilevel(lambda x, y, b: jnp.mean(b @ y), plain_loss, FEATURES, {"b": np.full((9, INPUTS), np.nan)})
    report = check(problem, jnp.ones(()), jnp.ones(INPUTS), batch_size=4, show=False)
    assert [f.severity for f in report.findings] == ["error"]
    assert report.step_sizes == {}
    assert capsys.readouterr().out == ""
    assert "in rows 0, 1, 2, 3, 4 and 4 more" in str(report).replace("\n", " ").replace("                       ", "")


# types


def test_float64_that_becomes_float32_is_noted():
    given = {"w": np.zeros(2), "rows": wior.PerExample(np.zeros(3)), "plain": 0.5, "short": np.zeros(2, np.float32)}
    with enable_x64(False):
        used = wior.checks.floating("x0", given)
        (finding,) = data.rounded_leaves("x0", given, used)
        assert finding.severity == "note"
        assert finding.about == "x0['rows'], x0['w']"
        assert finding.message.startswith("is given in float64 and computed with in float32")
        assert data.rounded_leaves("x0", used, used) == []
    assert data.rounded_leaves("x0", given, wior.checks.floating("x0", given)) == []


def test_types_that_disagree_are_found():
    def said(x0, y0, rows_of, cast=lambda value: value):
        problem = wior.Bilevel(
            lambda x, y, b: jnp.mean(b @ y), lambda x, y, b: cast(jnp.mean((b @ y) ** 2) * x), rows_of, rows_of
        )
        return [f[:2] for f in data.type_findings(problem, x0, y0, (2, 2))]

    x0, y0 = jnp.ones(()), jnp.ones(INPUTS)
    short = lambda value: value.astype(jnp.float32)
    assert said(x0, y0, FEATURES) == []
    assert said(x0, y0, FEATURES, short) == [("warning", "inner")]
    assert said(short(x0), short(y0), FEATURES.astype(np.float32)) == []
    assert said(x0, y0, FEATURES.astype(np.float32)) == [("note", "outer_data, inner_data")]
    assert said(short(x0), y0, FEATURES) == [("note", "x0")]
