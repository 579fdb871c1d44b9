"""A network under forward correction: its loss written out, and that it says nothing of rows that it learned from."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from opinion_rows import opinion_rows
from wior.cleaning.models import Network
from wior.cleaning.opinions import forward
from wior.cleaning.opinions.discriminants import best_loss
from wior.cleaning.opinions.forward import Batches, Learned, of_forward
from wior.cleaning.opinions.given import of_given
from wior.cleaning.opinions.table import counted_pairs
from wior.cleaning.opinions.taught import TaughtNetwork

ROWS = opinion_rows(count=300, pairs=60)
HIDDEN = 8


def learner(rows, steps):
    return TaughtNetwork(Network.standardizing(rows.features, (HIDDEN,), 3), jnp.asarray(rows.features), steps)


def opinion(rows, seed=0, notify=lambda _: None, steps=300):
    found = np.full((len(rows.given), 3), np.nan, np.float32)
    counts = counted_pairs(rows, np.full((len(rows.given), 3), np.log(1 / 3), np.float32))
    for part, logs in enumerate(of_forward(learner(rows, steps), rows, counts, seed, notify)):
        found[rows.parts == part] = logs
    return found


@pytest.fixture(scope="module")
def found():
    return opinion(ROWS)


def test_the_loss_written_out():
    model = Network.standardizing(ROWS.features, (HIDDEN,), 3)
    params, x = model.init(3), np.array([[2.0, 0, -1], [0.5, 1, 0], [-1, 0.2, 3]], np.float32)
    counts, l2 = np.array([[3.0, 1, 0], [0, 4, 2], [1, 0, 5]]) / 100, 0.02
    places, known = np.arange(10), np.flatnonzero(ROWS.known)[:7]
    t = np.exp(x) / np.exp(x).sum(1, keepdims=True)

    def p(rows):
        logits = np.asarray(model.logits(params, jnp.asarray(ROWS.features[rows])), float)
        return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    expected = -np.mean([np.log(p([row])[0] @ t[:, ROWS.given[row]]) for row in places])
    expected += forward.SHARE * -np.mean([np.log(p([row])[0, ROWS.right[row]]) for row in known])
    expected += -(counts * np.log(t)).sum() + l2 / 2 * sum(float((layer.weights**2).sum()) for layer in params)
    learned = Learned(*map(jnp.asarray, (ROWS.features, ROWS.given, ROWS.right, counts, l2)))
    value = forward.loss(model, (params, jnp.asarray(x)), learned, Batches(jnp.asarray(places), jnp.asarray(known)))
    assert float(value) == pytest.approx(expected, rel=1e-5)


def test_a_row_is_judged_by_a_network_that_did_not_learn_from_its_part(found):
    given, right = ROWS.given.copy(), ROWS.right.copy()
    here = ROWS.parts == 1
    given[here & ROWS.in_table] = (given[here & ROWS.in_table] + 1) % 3
    right[here & ROWS.known] = (right[here & ROWS.known] + 1) % 3
    other = opinion(dataclasses.replace(ROWS, given=given, right=right))
    np.testing.assert_array_equal(other[here], found[here])
    assert (other[~here] != found[~here]).any(1).all()


def test_it_knows_the_right_labels_better_than_a_model_of_given_ones():
    rows, true = opinion_rows(count=600, pairs=60, beside=0), opinion_rows(count=600, pairs=600, beside=0).right
    hidden = ~rows.known
    plain = of_given(rows, None, 0).logs
    assert best_loss(opinion(rows, steps=2000)[hidden], true[hidden]) < 0.9 * best_loss(plain[hidden], true[hidden])


def test_the_same_seed_gives_the_same_bits_and_every_part_is_told(found):
    told = []
    np.testing.assert_array_equal(opinion(ROWS, notify=told.append), found)
    assert told == [f"network under forward correction, part {part} of 5" for part in range(1, 6)]
    assert (opinion(ROWS, seed=1) != found).any(1).all()
