"""`check` finds indices out of range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from faulty_losses import (
    CLASSES,
    X0,
    Y0,
    by_one_hot,
    by_place,
    by_take,
    clipped,
    filled,
    range_said,
    softmax,
    with_label,
)
from wior.instruments.checking import values


@pytest.mark.parametrize("row_loss", [by_place, by_take])
def test_an_index_out_of_range_is_found_in_one_row_of_all(row_loss):
    (finding,) = range_said(softmax(row_loss, with_label(CLASSES)), "inner", X0, Y0)
    assert finding.severity == "error"
    assert finding.message.startswith(
        "uses the index 3 on an axis of length 3 of an array of shape (8, 3), on row 17 of inner_data "
        "(faulty_losses.py:"
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
