"""The corrected model: what is held out is not known, and what is chosen has the smallest loss on it."""

import numpy as np
import pytest

from opinion_rows import log_probabilities, opinion_rows
from wior.cleaning.opinions import corrected
from wior.cleaning.opinions.corrected import FOLDS, PASSES, USUAL_PASSES, Chosen, Pass, chosen, of_right, without
from wior.cleaning.opinions.discriminants import best_loss, log_normalized
from wior.cleaning.opinions.given import of_given
from wior.cleaning.opinions.table import LEAST, counted_pairs, memberships_of, tables

ROWS = opinion_rows()


def test_rows_without_some_are_as_if_nobody_had_looked_at_them():
    places = np.flatnonzero(ROWS.known)[::3]
    found = without(ROWS, places)
    assert (found.right[places] == -1).all()
    assert not found.paired[places].any()
    assert not set(places) & set(found.pairs)
    others = np.setdiff1d(np.arange(len(ROWS.given)), places)
    np.testing.assert_array_equal(found.right[others], ROWS.right[others])
    np.testing.assert_array_equal(found.paired[others], ROWS.paired[others])
    np.testing.assert_array_equal(found.given, ROWS.given)
    assert (ROWS.right[places] >= 0).all()


class Recorded:
    """Passes of which some say the right labels, in the place of those that are learned."""

    def __init__(self, good):
        self.good, self.asked = good, []

    def __call__(self, made, rows, counts, starts, passes, notify, what):
        self.asked.append((rows, counts, tuple(starts), passes, what))
        for start in starts:
            for number in range(1, passes + 1):
                logs = log_probabilities(ROWS, seed=number)
                if (start, number) == self.good:
                    logs = log_normalized(logs + 2 * np.eye(3, dtype=np.float32)[ROWS.right])
                yield Pass(logs, start, number)


STARTS = {"the pairs": None, "the verified rows": None}


@pytest.mark.parametrize("good", [("the pairs", 2), ("the verified rows", 3), ("the verified rows", 1)])
def test_start_and_passes_are_those_that_rows_held_out_like_best(monkeypatch, good):
    recorded = Recorded(good)
    monkeypatch.setattr(corrected, "_passes", recorded)
    found = chosen(None, ROWS, lambda rows: rows, STARTS, lambda _: None)
    assert found[:2] == good
    known = np.flatnonzero(ROWS.known)
    expected = log_normalized(log_probabilities(ROWS, seed=good[1]) + 2 * np.eye(3, dtype=np.float32)[ROWS.right])
    np.testing.assert_array_equal(found.held_out, expected[known])
    folds = recorded.asked[:]
    of_right(None, ROWS, lambda rows: rows, STARTS, found, lambda _: None)
    last = recorded.asked[-1]
    assert len(folds) == FOLDS
    held = [np.setdiff1d(known, np.flatnonzero(rows.known)) for rows, *_ in folds]
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), known)  # each of them once
    for places, (rows, counts, starts, passes, _) in zip(held, folds, strict=True):
        assert not rows.paired[places].any()
        assert counts is rows  # pairs are counted without those held out
        assert (starts, passes) == (tuple(STARTS), PASSES)
    assert last[0] is ROWS
    assert last[2:] == ((good[0],), good[1], "all verified rows")


def test_few_verified_rows_choose_nothing(monkeypatch):
    recorded = Recorded(("the verified rows", 3))
    monkeypatch.setattr(corrected, "_passes", recorded)
    few = without(ROWS, np.flatnonzero(ROWS.known)[: ROWS.known.sum() - corrected.ENOUGH + 1])
    assert chosen(None, few, lambda rows: rows, STARTS, lambda _: None) == ("the pairs", USUAL_PASSES, None)
    assert not recorded.asked


def test_a_pass_learns_from_memberships_and_its_table_from_them_too():
    """Two passes written out; the temperature is the one under which labels are likeliest."""
    made, plain, *_ = of_given(ROWS, None, 0)
    counts = counted_pairs(ROWS, plain)
    start = {"the pairs": lambda rows: (plain, tables(rows, counted_pairs(rows, plain)))}
    found = list(corrected._passes(made, ROWS, counts, start, 2, lambda _: None, ""))
    logs, shares = plain, tables(ROWS, counts)
    for one in found:
        memberships = memberships_of(logs, shares, ROWS)
        shares = tables(ROWS, counts, memberships)
        scores = made.scores(*made.sums(memberships)).astype(float)
        losses = []
        for temperature in corrected.TEMPERATURES:
            p = np.exp(scores / temperature - (scores / temperature).max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            loss = 0.0
            for at in range(len(ROWS.given)):
                if ROWS.right[at] >= 0:
                    loss -= np.log(p[at, ROWS.right[at]])
                else:
                    loss -= np.log(p[at] @ shares.mean(0)[:, ROWS.given[at]] + LEAST)
            losses.append(loss)
        logs = log_normalized(scores / corrected.TEMPERATURES[np.argmin(losses)])
        np.testing.assert_allclose(one.logs, logs, rtol=1e-3, atol=1e-4)


def test_the_corrected_model_knows_the_right_labels_better_than_that_of_given_ones():
    rows = opinion_rows(count=900, pairs=90, beside=0)
    true = opinion_rows(count=900, pairs=900, beside=0).right
    made, plain, *_ = of_given(rows, None, 0)
    counts = lambda some: counted_pairs(some, plain)
    start = {"the pairs": lambda some: (plain, tables(some, counts(some)))}
    found = of_right(made, rows, counts, start, Chosen("the pairs", 2), lambda _: None)
    hidden = ~rows.known
    assert best_loss(found[hidden], true[hidden]) < 0.9 * best_loss(plain[hidden], true[hidden])
    assert np.mean(found.argmax(1) == true) > np.mean(plain.argmax(1) == true)
