"""`check`: each fault is found in a problem that has it, and in the same problem without it nothing is; the step sizes it suggests converge."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_tasks import SMALL

import problems
import wior
from runs import enable_x64
from wior.data import digits
from wior.instruments.check import Report, _movement_findings, check
from wior.instruments.checking import curvature, data, first_steps, rows, sample, values
from wior.tasks import data_cleaning, mlp, mlp_init, quadratic

RNG = np.random.default_rng(0)
N, INPUTS, CLASSES = 40, 4, 3
FEATURES = RNG.normal(size=(N, INPUTS))
LABELS = RNG.integers(0, CLASSES, N)
SETS = RNG.normal(size=(6, 8, INPUTS))
X0, Y0 = {"ridge": jnp.zeros(CLASSES)}, jnp.asarray(0.1 * RNG.normal(size=(INPUTS, CLASSES)))


def drawn(problem, batches=(8, 8)):
    """Real batches of a problem, as `check` draws them."""
    found = sample.at_hand(problem, batches, np.random.default_rng(0))
    return sample.draw(found, data.broken_places(found, data.not_finite(found)), batches)


def loss_of(problem, name):
    return next(loss for loss in sample.losses_of(problem) if loss.name == name)


def rows_said(problem, name, x, y, batches=(8, 8)):
    return rows.row_findings(drawn(problem, batches), loss_of(problem, name), x, y)


def range_said(problem, name, x, y, batches=(8, 8)):
    return values.out_of_range(values.Losses(drawn(problem, batches), x, y), loss_of(problem, name))


def softmax(row_loss, labels=LABELS, over=jnp.mean):
    """A softmax regression with a ridge for each class; `row_loss(log_probabilities, labels)` gives one loss for each row."""
    outer = lambda x, y, b: jnp.mean(row_loss(jax.nn.log_softmax(b[0] @ y), b[1]))
    inner = lambda x, y, b: over(row_loss(jax.nn.log_softmax(b[0] @ y), b[1])) + jnp.sum(jnp.exp(x["ridge"]) * y**2)
    return wior.Bilevel(outer, inner, (FEATURES, LABELS), (FEATURES, labels))


def by_place(scores, labels):
    return -scores[jnp.arange(len(labels)), labels]


def by_take(scores, labels):
    return -jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]


def by_one_hot(scores, labels):
    return -jnp.sum(scores * jax.nn.one_hot(labels, CLASSES), 1)


def clipped(scores, labels):
    return -jnp.take_along_axis(scores, labels[:, None], 1, mode="clip")[:, 0]


def filled(scores, labels):
    return -scores.at[jnp.arange(len(labels)), labels].get(mode="fill", fill_value=0)


def with_label(label, row=17):
    labels = LABELS.copy()
    labels[row] = label
    return labels


# indices out of range


@pytest.mark.parametrize("row_loss", [by_place, by_take])
def test_an_index_out_of_range_is_found_in_one_row_of_all(row_loss):
    (finding,) = range_said(softmax(row_loss, with_label(CLASSES)), "inner", X0, Y0)
    assert finding.severity == "error"
    assert finding.message.startswith(
        "uses the index 3 on an axis of length 3 of an array of shape (8, 3), on row 17 of inner_data (test_check.py:"
    )
    assert 'mode="clip" or a fill_value' in finding.message
    assert range_said(softmax(row_loss, with_label(CLASSES)), "outer", X0, Y0) == []
    assert range_said(softmax(row_loss), "inner", X0, Y0) == []


def test_labels_beyond_the_classes_of_one_hot_are_found():
    (finding,) = range_said(softmax(by_one_hot, with_label(5)), "inner", X0, Y0)
    assert finding.severity == "warning"
    assert finding.message.startswith(
        "gives the label 5 to one_hot with 3 classes, on row 17 of inner_data: it becomes a row of zeros"
    )
    assert range_said(softmax(by_one_hot, with_label(-1)), "inner", X0, Y0) == []  # often means: no label
    assert range_said(softmax(by_one_hot), "inner", X0, Y0) == []


@pytest.mark.parametrize("row_loss", [clipped, filled])
def test_indices_out_of_range_on_purpose_are_not_reported_and_others_beside_them_are(row_loss):
    both = lambda scores, labels: row_loss(scores, labels) + jnp.arange(4.0)[labels]
    assert range_said(softmax(row_loss, with_label(CLASSES)), "inner", X0, Y0) == []
    assert range_said(softmax(both, with_label(CLASSES)), "inner", X0, Y0) == []
    (finding,) = range_said(softmax(both, with_label(4)), "inner", X0, Y0)
    assert finding.message.startswith("uses the index 4 on an axis of length 4 of an array of shape (4,), on row 17")


def test_reads_on_purpose_have_the_value_they_had():
    table, index = jnp.asarray(np.random.default_rng(101).normal(size=(5, 3))), jnp.array([[0, 7], [-9, 2]])
    for read in (
        lambda t, i: jnp.take(t, i, axis=0, mode="clip"),
        lambda t, i: t.at[i].get(mode="fill", fill_value=0.5),
        lambda t, i: t.at[i, i].get(mode="fill", fill_value=0.5),
    ):
        error, value = values.range_checked(jax.jit(read))(table, index)
        assert error.get() is None
        np.testing.assert_array_equal(value, read(table, index))


def test_indices_of_the_other_classes():
    table = jnp.arange(3.0)
    saddle = lambda x, y, b: jnp.mean(table[b] * x * y) - y**2
    for places, wrong in ((np.array([0, 1, 2, 2, 1]), 0), (np.array([0, 1, 2, 5, 1]), 1)):
        assert len(range_said(wior.Minimax(saddle, places), "objective", 1.0, 1.0, (2, 2))) == wrong
    sets = np.tile(np.arange(3), (4, 2))
    sets[2, 4] = 3
    inner = lambda x, y, b: jnp.mean((y - table[b] * x) ** 2)
    problem = lambda counts: wior.ConditionalBilevel(lambda x, y, b: jnp.mean(b * y), inner, np.ones(4), sets, counts)
    (finding,) = range_said(problem(None), "inner", 1.0, 1.0, (2, 2))
    assert "on row 4 of the inner set of example 2" in finding.message
    assert range_said(problem(np.array([6, 6, 4, 6])), "inner", 1.0, 1.0, (2, 2)) == []  # it is padding there


# values that are not finite


def test_a_derivative_that_is_not_finite_is_named_with_its_line_and_row():
    features = np.abs(FEATURES)
    features[11] = 0
    outer = lambda x, y, b: jnp.mean((b @ y) ** 2)

    def said(root):
        problem = wior.Bilevel(outer, lambda x, y, b: jnp.mean(root(b @ y)) + x * jnp.sum(y**2), FEATURES, features)
        losses = values.Losses(drawn(problem), jnp.ones(()), jnp.ones(INPUTS))
        return values.not_finite_at_start(losses, loss_of(problem, "inner"))

    (finding,) = said(lambda a: jnp.where(a > 0, jnp.sqrt(a), 0.0))
    assert finding.severity == "error"
    assert finding.message.startswith(
        "has a derivative that is not finite at x0, y0 on row 11 of inner_data; it begins with "
    )
    assert "at test_check.py:" in finding.message
    assert said(lambda a: jnp.where(a > 0, jnp.sqrt(jnp.where(a > 0, a, 1.0)), 0.0)) == []
    (finding,) = said(jnp.log)
    assert finding.message.startswith("is not finite at x0, y0 on row 11")


# sums and rows that depend on each other


def test_a_sum_is_told_from_a_mean():
    assert rows_said(softmax(by_take), "inner", X0, Y0) == []
    assert rows_said(softmax(by_take), "outer", X0, Y0) == []
    (finding,) = rows_said(softmax(by_take, over=jnp.sum), "inner", X0, Y0)
    assert finding.severity == "error"
    assert "is not a mean over the rows of its batch: 4 rows give" in finding.message
    assert "a sum over rows beside a term without rows (a penalty)" in finding.message
    plain = wior.Minimax(lambda x, y, b: jnp.sum((b @ y) * x), FEATURES)
    (finding,) = rows_said(plain, "objective", jnp.ones(()), jnp.ones(INPUTS))
    assert "It is a sum over rows: use jnp.mean" in finding.message


def test_a_sum_whose_value_is_zero_at_the_start_is_found_by_its_derivatives():
    problem = lambda over: wior.Minimax(lambda x, y, b: over((b @ y) * x) - jnp.sum(y**2), FEATURES)
    (finding,) = rows_said(problem(jnp.sum), "objective", jnp.zeros(()), jnp.zeros(INPUTS))
    assert finding.severity == "error"
    assert rows_said(problem(jnp.mean), "objective", jnp.zeros(()), jnp.zeros(INPUTS)) == []


@pytest.mark.parametrize("counts", [None, np.array([8, 3, 2, 8, 1, 5])])
def test_sums_of_the_compositional_and_conditional_classes(counts):
    x, y = jnp.ones(INPUTS), jnp.ones(INPUTS)
    outer = lambda y, b: jnp.mean((b @ y) ** 2)
    for over, number in ((jnp.mean, 0), (jnp.sum, 1)):
        map_of = lambda x, b, over=over: over(b, 0) * x
        if counts is None:
            problem = wior.Compositional(outer, map_of, FEATURES, FEATURES)
            assert len(rows_said(problem, "inner", x, y)) == number
        problem = wior.ConditionalCompositional(outer, map_of, SETS[:, 0], SETS, counts)
        assert len(rows_said(problem, "inner", x, y, (2, 4))) == number
        inner = lambda x, y, b, over=over: over((b @ y - b @ x) ** 2)
        problem = wior.ConditionalBilevel(lambda x, y, b: outer(y, b), inner, SETS[:, 0], SETS, counts)
        assert len(rows_said(problem, "inner", x, y, (2, 4))) == number
        assert rows_said(problem, "outer", x, y, (2, 4)) == []


def standardized(a):
    return (a - a.mean(0)) / (a.std(0) + 1e-3)


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, b: jnp.mean((standardized(b @ y) - 1) ** 2 * b[:, :1]),  # batch normalization
        lambda y, b: jnp.mean(jax.nn.logsumexp((b @ y) @ (b @ y).T, 1)),  # negatives from the batch
        lambda y, b: jnp.sqrt(jnp.mean((b @ y) ** 2)),
        lambda y, b: jnp.sum(b[:, 0] ** 2 * (b @ y)[:, 0]) / jnp.sum(b[:, 0] ** 2),
    ],
    ids=["batch norm", "contrastive", "root", "weights"],
)
def test_rows_that_depend_on_each_other_are_found_and_are_not_called_a_sum(loss):
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean((b @ y) ** 2), lambda x, y, b: loss(y, b) + jnp.sum(y**2), FEATURES, FEATURES
    )
    (finding,) = rows_said(problem, "inner", X0, Y0)
    assert finding.severity == "warning"
    assert finding.message.startswith(
        "is not a mean over the rows of its batch: what a row adds depends on the other rows"
    )
    assert rows_said(problem, "outer", X0, Y0) == []


def weighted(normalize):
    def inner(x, y, b):
        weights = jax.nn.sigmoid(x["weights"])
        each = (b @ y - 1) ** 2
        return (jnp.sum(weights * each) / jnp.sum(weights) if normalize else jnp.mean(weights * each)) + jnp.sum(y**2)

    return wior.Bilevel(lambda x, y, b: jnp.mean((b @ y) ** 2), inner, FEATURES, FEATURES)


def test_weights_of_rows_that_are_normalized_within_the_batch_are_found_where_they_are_equal_at_the_start():
    x0, y0 = {"weights": wior.PerExample(jnp.zeros(N))}, jnp.zeros(INPUTS)
    (finding,) = rows_said(weighted(True), "inner", x0, y0)
    assert "weights divided by their sum in the batch" in finding.message
    assert rows_said(weighted(False), "inner", x0, y0) == []
    assert rows_said(weighted(False), "outer", x0, y0) == []


def test_noise_with_a_key_that_never_changes_is_found():
    def dropped(keep):
        def inner(x, y, b):
            kept = jax.random.bernoulli(jax.random.key(0), keep, b.shape)
            return jnp.mean(((b * kept) @ y) ** 2) + jnp.sum(y**2)

        return wior.Bilevel(lambda x, y, b: jnp.mean((b @ y) ** 2), inner, FEATURES, FEATURES)

    (finding,) = rows_said(dropped(0.5), "inner", X0, Y0)
    assert finding.severity == "warning"
    assert "changes when the rows of its batch change places" in finding.message
    assert rows_said(dropped(1.0), "inner", X0, Y0) == []


def test_a_loss_that_knows_its_batch_size_is_skipped_with_a_note_and_its_rows_are_compared_all_the_same():
    def of_eight(loss):
        g = lambda x, y, b: loss((b.reshape(8, INPUTS) @ y) ** 2) + jnp.sum(y**2)
        return wior.Bilevel(lambda x, y, b: jnp.mean((b @ y) ** 2), g, FEATURES, FEATURES)

    (finding,) = rows_said(of_eight(jnp.mean), "inner", X0, Y0)
    assert finding == (
        "note",
        "inner",
        "cannot be called with 4 rows, so whether it is a mean over its rows was not checked.",
    )
    (finding,) = rows_said(of_eight(jnp.std), "inner", X0, Y0)
    assert finding.severity == "warning"


def test_a_representation_in_which_rows_depend_on_each_other_is_an_error():
    def said(represent, represent_outer):
        problem = wior.ConditionalBilevel(
            lambda features, y, b: jnp.mean((features @ y - 1) ** 2),
            lambda features, y, b: jnp.mean((features @ y - 1) ** 2) + jnp.sum(y**2),
            SETS[:, 0],
            SETS,
            represent=represent,
            represent_outer=represent_outer,
        )
        return rows.representation_findings(drawn(problem, (3, 4)), jnp.ones(INPUTS))

    alone, together = lambda x, b: jnp.tanh(b * x), lambda x, b: standardized(b * x)
    assert said(alone, alone) == []
    assert [(f.severity, f.about) for f in said(together, alone)] == [("error", "represent")]
    assert [(f.severity, f.about) for f in said(together, together)] == [
        ("error", "represent"),
        ("error", "represent_outer"),
    ]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_rounding_is_no_dependence(dtype):
    def inner(x, y, b):
        hidden = jnp.tanh(b[0].astype(dtype) @ y.astype(dtype) * 30)
        return jnp.mean(by_take(jax.nn.log_softmax(hidden), b[1]).astype(jnp.float32)) - 1.1

    problem = wior.Bilevel(lambda x, y, b: jnp.mean(b[0] @ y), inner, (FEATURES, LABELS), (FEATURES, LABELS))
    assert rows_said(problem, "inner", X0, Y0.astype(jnp.float32), (8, 32)) == []


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


# leaves that cannot move


def test_leaves_that_cannot_move_are_findings():
    def said(x0):
        problem = wior.Bilevel(
            lambda x, y, b: jnp.mean((b @ y) ** 2),
            lambda x, y, b: jnp.mean((b @ y - 1) ** 2) + x["a"] * jnp.sum(y**2),
            FEATURES,
            FEATURES,
        )
        return [f[:2] for f in _movement_findings(problem, x0, jnp.ones(INPUTS), (4, 4))]

    assert said({"a": jnp.ones(())}) == []
    unused = wior.Bilevel(
        lambda x, y, b: jnp.mean(b @ y), lambda x, y, b: jnp.mean((b @ y) ** 2) * x["a"], FEATURES, FEATURES
    )
    (finding,) = _movement_findings(unused, {"a": jnp.ones(()), "b": jnp.ones(2)}, jnp.ones(INPUTS), (4, 4))
    assert finding == ("warning", "x0['b']", "cannot move: neither outer nor inner depends on it.")
    stuck = wior.Bilevel(lambda x, y, b: jnp.mean(b @ y), lambda x, y, b: jnp.mean((b @ y) ** 2), FEATURES, FEATURES)
    (finding,) = _movement_findings(stuck, jnp.ones(()), jnp.ones(INPUTS), (4, 4))
    assert (finding.severity, finding.about) == ("error", "x0")


# curvature


def test_the_ends_of_the_spectrum_are_those_of_the_hessian():
    matrix = np.random.default_rng(102).normal(size=(12, 12))
    matrix = matrix + matrix.T
    like = {"a": jnp.zeros((2, 4)), "b": jnp.zeros(4)}

    def product(v):
        out = matrix @ np.concatenate([np.ravel(v["a"]), v["b"]])
        return {"a": jnp.asarray(out[:8].reshape(2, 4)), "b": jnp.asarray(out[8:])}

    smallest, largest, products = curvature.spectrum(product, like)
    np.testing.assert_allclose([smallest, largest], np.linalg.eigvalsh(matrix)[[0, -1]], rtol=1e-9)
    assert products == 12
    assert curvature.spectrum(lambda v: v, like)[:2] == pytest.approx((1, 1))
    rough = curvature.spectrum(product, like, products=6)
    assert smallest - 1e-9 <= rough[0] <= 0.8 * smallest
    assert 0.8 * largest <= rough[1] <= largest + 1e-9


def test_the_inner_curvature_of_every_class():
    made = quadratic.quadratic(n=12)
    found = curvature.inner_curvature(drawn(made.problem, (7, 12)), jnp.zeros(3), jnp.zeros(5))
    np.testing.assert_allclose(found[:2], (0.5, 2.0), rtol=1e-9)
    saddle = quadratic.quadratic_minimax()
    found = curvature.inner_curvature(drawn(saddle.problem, (7, 7)), jnp.zeros(3), jnp.zeros(5))
    np.testing.assert_allclose(found[:2], np.linalg.eigvalsh(saddle.g.A)[[0, -1]], rtol=1e-9)
    sets = quadratic.quadratic_conditional(m=3, n=4)
    found = curvature.inner_curvature(drawn(sets.problem, (3, 4)), jnp.zeros(3), jnp.zeros(5))
    ends = np.linalg.eigvalsh(sets.g.A)
    assert ends.min() <= found.smallest <= found.largest <= ends.max() + 1e-9
    maps = quadratic.quadratic_compositional()
    assert curvature.inner_curvature(drawn(maps.problem, (2, 3)), jnp.zeros(3), jnp.zeros(5))[:2] == (1, 1)


def curved(inner, y0=None):
    y0 = jnp.ones(INPUTS) if y0 is None else y0
    problem = wior.Bilevel(lambda x, y, b: jnp.mean(b @ y), inner, FEATURES, FEATURES)
    own = drawn(problem)
    return curvature.curvature_findings(own, curvature.inner_curvature(own, jnp.ones(()), y0), y0)


def test_an_inner_problem_that_is_not_convex_is_found():
    assert curved(lambda x, y, b: jnp.mean((b @ y - x) ** 2) + jnp.sum(y**2)) == []
    (finding,) = curved(lambda x, y, b: jnp.mean((b @ y - x) ** 2) - 5 * jnp.sum(y[:2] ** 2))
    assert finding[:2] == ("warning", "inner")
    assert finding.message.startswith("is not convex in y: its Hessian in y has eigenvalues from -")
    (finding,) = curved(lambda x, y, b: -jnp.mean((b @ y - x) ** 2) - jnp.sum(y**2))
    assert finding[:2] == ("error", "inner")
    assert "look at its sign" in finding.message
    (finding,) = curved(lambda x, y, b: jnp.mean((b[:, :3] @ y[:3] - x) ** 2))
    assert finding[:2] == ("note", "inner")
    assert "is not strongly convex in y" in finding.message
    (finding,) = curved(lambda x, y, b: jnp.mean(b @ y))
    assert finding[:2] == ("warning", "inner")
    assert "has no curvature in y" in finding.message


def test_a_minimax_objective_with_the_wrong_sign_is_an_error():
    def said(sign):
        problem = wior.Minimax(lambda x, y, b: jnp.mean(b @ (x * y)) + sign * jnp.sum(y**2), FEATURES)
        own, y0 = drawn(problem), jnp.ones(INPUTS)
        return [f[:2] for f in curvature.curvature_findings(own, curvature.inner_curvature(own, y0, y0), y0)]

    assert said(-1) == []
    assert said(1) == [("error", "objective")]


# step sizes


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


def test_the_suggested_step_sizes_find_wrong_labels():
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
    found = curvature.Curvature(1.0, 2.0, 6, True)
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


# streamed data


class Source:
    """Rows that are counted as they are read."""

    def __init__(self, array):
        self.array, self.read = array, set()

    def __len__(self):
        return len(self.array)

    def __getitem__(self, numbers):
        self.read |= set(np.asarray(numbers).tolist())
        return self.array[numbers]


def test_of_streamed_data_some_rows_are_read_and_they_are_named_by_their_numbers():
    array = np.random.default_rng(103).normal(size=(5000, INPUTS))
    array[::2, 1] = np.nan
    source = Source(array)
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean((b @ y) ** 2), lambda x, y, b: jnp.mean((b @ y - 1) ** 2), FEATURES, source
    )
    found = sample.at_hand(problem, (8, 8), np.random.default_rng(0))
    assert len(source.read) <= sample.ROWS + 1
    (leaf,) = data.not_finite(found)
    (finding,) = data.data_findings(found, [leaf], harmful=True)
    named = [int(number) for number in finding.message.split(" in rows ")[1].split(" and ")[0].split(", ")]
    assert all(np.isnan(array[number, 1]) for number in named)
    assert "of the 512 rows looked at" in finding.message
    own = drawn(problem)
    assert all(np.isfinite(array[own.number("inner", place)]).all() for one in own.places for place in one.inner)


@pytest.mark.parametrize("streamed", [False, True])
def test_streamed_data_give_the_findings_of_resident_data(streamed):
    labels = with_label(CLASSES, 33)
    mark = wior.Streamed if streamed else lambda array: array
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean(by_place(jax.nn.log_softmax(b[0] @ y), b[1])),
        lambda x, y, b: jnp.sum(by_place(jax.nn.log_softmax(b[0] @ y), b[1]) * jnp.exp(x)),
        (mark(FEATURES), mark(LABELS)),
        (mark(FEATURES), mark(labels)),
    )
    report = check(problem, wior.PerExample(jnp.zeros(N)), Y0, batch_size=8, show=False)
    assert [f[:2] for f in report.findings if f.severity != "note"] == [("error", "inner"), ("error", "inner")]
    assert "row 33 of inner_data" in report.findings[0].message
    assert report.step_sizes["outer_lr"] > 0


def test_streamed_inner_sets():
    made = quadratic.quadratic_conditional_compositional(ragged=True)
    mark = lambda tree: jax.tree.map(lambda leaf: wior.Streamed(np.asarray(leaf)), tree)
    problem = dataclasses.replace(
        made.problem, outer_data=mark(made.problem.outer_data), inner_data=mark(made.problem.inner_data)
    )
    report = check(problem, jnp.zeros(3), jnp.zeros(5), batch_size=(2, 3), show=False)
    assert report.ok, str(report)
    assert report.step_sizes["outer_lr"] > 0


# no false alarm


def sound(problem, x, y, batches):
    """The findings on real batches that are no notes, without the short runs."""
    own = drawn(problem, batches)
    losses = values.Losses(own, x, y)
    found = [
        *data.type_findings(problem, x, y, batches),
        *_movement_findings(problem, x, y, batches),
        *rows.representation_findings(own, x),
        *curvature.curvature_findings(own, curvature.inner_curvature(own, x, y), y),
    ]
    for loss in sample.losses_of(problem):
        found += values.out_of_range(losses, loss) + values.not_finite_at_start(losses, loss)
        found += rows.row_findings(own, loss, x, y)
    return [finding for finding in found if finding.severity != "note"]


# of the conditional ones those whose sets are ragged, which are longer programs
OTHERS = ("bilevel, drawn separately", "conditional bilevel", "conditional compositional")


@pytest.mark.parametrize("name", [name for name in problems.CASES if name not in OTHERS])
def test_no_false_alarm_on_the_problems_of_the_tests(name):
    case = problems.CASES[name]()
    batches = case.batch_size if isinstance(case.batch_size, tuple) else (case.batch_size,) * 2
    assert sound(case.problem, case.x0, case.y0, batches) == []


@pytest.mark.parametrize("name", SMALL)
def test_no_false_alarm_on_the_tasks(name):
    task = SMALL[name][0]()
    batches = task.batch_size if isinstance(task.batch_size, tuple) else (task.batch_size,) * 2
    assert sound(task.problem, task.x0, task.y0, batches) == []


# the report and its arguments


def test_the_report_is_printed_and_is_no_wider_than_a_terminal(capsys):
    problem = softmax(by_place, with_label(CLASSES), jnp.sum)
    report = check(problem, X0, Y0, batch_size=8)
    printed = capsys.readouterr().out
    assert printed == f"{report}\n"
    assert max(map(len, printed.splitlines())) <= 100
    assert printed.startswith("Bilevel: 40 outer and 40 inner examples, batches of 8 and 8\n")
    assert "error    inner         uses the index 3" in printed
    assert "first steps     wior.WiORBO(outer_lr=" in printed
    assert not report.ok
    assert isinstance(report, Report)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.findings = ()


def test_arguments_are_checked():
    problem = softmax(by_take)
    with pytest.raises(TypeError, match="must be one of wior's problems"):
        check(3, X0, Y0)
    with pytest.raises(ValueError, match="batch_size must be a positive integer, got 0"):
        check(problem, X0, Y0, batch_size=0)
    with pytest.raises(ValueError, match="one data set"):
        check(wior.Minimax(lambda x, y, b: jnp.mean(b) * x * y, FEATURES), 1.0, 1.0, batch_size=(2, 3))
    with pytest.raises(TypeError, match="seed must be an integer"):
        check(problem, X0, Y0, seed=0.5)
    with pytest.raises(TypeError, match="show must be True or False, got 'yes'"):
        check(problem, X0, Y0, show="yes")
    with pytest.raises(TypeError, match="x0 has dtype int"):
        check(problem, 1, Y0)


def test_what_a_loss_raises_is_raised():
    with pytest.raises(ValueError, match="it returns an array of shape \\(8,\\), one loss for each row: take the mean"):
        check(softmax(by_take, over=lambda each: each), X0, Y0, batch_size=8)

    def broken(x, y, b):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        check(wior.Bilevel(broken, broken, FEATURES, FEATURES), X0, Y0)


def test_a_network_is_a_note_and_no_warning():
    y0 = mlp_init(jax.random.key(0), (INPUTS, 6, CLASSES))
    cross_entropy = lambda y, b: jnp.mean(by_take(jax.nn.log_softmax(mlp(y, b[0])), b[1]))
    problem = wior.Bilevel(
        lambda x, y, b: cross_entropy(y, b),
        lambda x, y, b: cross_entropy(y, b) + jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y)),
        (FEATURES, LABELS),
        (FEATURES, LABELS),
    )
    assert sound(problem, jnp.asarray(-5.0), y0, (8, 8)) == []


def test_functions_are_taken_as_they_are_now():
    held = {"strength": 0.01}
    inner = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2) + jnp.exp(x) * held["strength"] * jnp.sum(y * y)
    outer = lambda x, y, batch: held["strength"] * jnp.mean((batch @ y - 1) ** 2)
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    problem = wior.Bilevel(outer, inner, rows, rows)

    def looked_at():
        return check(problem, jnp.zeros(()), jnp.zeros(3), batch_size=8, show=False)

    first = looked_at()
    held["strength"] = 5.0
    second = looked_at()
    fresh = lambda function: lambda *args: function(*args)
    other = wior.Bilevel(fresh(outer), fresh(inner), rows, rows)
    expected = check(other, jnp.zeros(()), jnp.zeros(3), batch_size=8, show=False)
    assert second.inner_curvature == expected.inner_curvature != first.inner_curvature
    assert second.step_sizes["inner_lr"] == expected.step_sizes["inner_lr"] != first.step_sizes["inner_lr"]
