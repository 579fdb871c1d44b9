"""The bilevel noise model as an opinion: it learns from other parts alone, and knows more than chance."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from opinion_rows import opinion_rows
from wior.cleaning import choosing
from wior.cleaning.models import Network
from wior.cleaning.opinions import bilevel
from wior.cleaning.opinions.bilevel import of_bilevel
from wior.cleaning.opinions.discriminants import best_loss
from wior.cleaning.opinions.taught import TaughtNetwork

ROWS, TRUE = opinion_rows(count=300, pairs=60), opinion_rows(count=300, pairs=300).right


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(bilevel, "MOST_STEPS", 200)


def opinion(rows):
    learner = TaughtNetwork(Network.standardizing(rows.features, (), 3), jnp.asarray(rows.features), 1)
    found = np.full((len(rows.given), 3), np.nan, np.float32)
    for part, logs in enumerate(of_bilevel(learner, rows, 0, lambda _: None)):
        found[rows.parts == part] = logs
    return found


def test_it_learns_from_other_parts_and_knows_more_than_the_shares_of_classes():
    found = opinion(ROWS)
    hidden = ~ROWS.known
    shares = np.bincount(TRUE, minlength=3) / len(TRUE)
    assert best_loss(found[hidden], TRUE[hidden]) < -0.8 * (shares * np.log(shares)).sum()
    given, here = ROWS.given.copy(), ROWS.parts == 1
    given[here & ROWS.in_table] = (given[here & ROWS.in_table] + 1) % 3
    other = opinion(dataclasses.replace(ROWS, given=given))
    np.testing.assert_array_equal(other[here], found[here])
    assert (other[~here] != found[~here]).any(1).all()


def test_one_that_diverges_says_nothing(monkeypatch):
    monkeypatch.setattr(choosing, "learn", lambda *given: None)
    np.testing.assert_allclose(opinion(ROWS), np.log(1 / 3), rtol=1e-6)
