"""`check` finds sums, and rows that depend on each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from faulty_losses import FEATURES, INPUTS, LABELS, SETS, X0, Y0, N, by_take, drawn, rows_said, softmax
from wior.instruments.checking import rows


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
