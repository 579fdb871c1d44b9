"""The table of which class is labeled how: pairs counted, memberships, and Bayes' rule, each against a loop."""

import dataclasses

import numpy as np
import pytest

from opinion_rows import log_probabilities, opinion_rows
from wior.cleaning.opinions import table
from wior.cleaning.opinions.table import (
    JUDGED_WITH,
    LEAST,
    counted_pairs,
    likeliest_tables,
    memberships_of,
    posterior_of,
    tables,
    trusting,
)

ROWS = opinion_rows()
LOGS = log_probabilities(ROWS)
PLAIN = log_probabilities(ROWS, seed=1)


def test_pairs_are_counted_but_for_those_of_the_part():
    rows = ROWS
    mean = rows.weights[rows.pairs].mean()
    expected = np.zeros((5, 3, 3))
    for part in range(5):
        for at in np.flatnonzero(rows.known & (rows.parts != part)):
            if rows.paired[at]:
                expected[part, rows.right[at], rows.given[at]] += rows.weights[at] / mean
            else:  # verified beside the table: as a model of given labels would have labeled it
                expected[part, rows.right[at]] += np.exp(PLAIN[at])
    np.testing.assert_allclose(counted_pairs(rows, PLAIN), expected, rtol=1e-5)


def test_how_rarely_rows_are_drawn_changes_nothing():
    """Weights of a thousand and of one are the same where all are equal."""
    known = dataclasses.replace(ROWS, weights=np.where(ROWS.paired, 1.0, 0.0))
    rare = dataclasses.replace(ROWS, weights=np.where(ROWS.paired, 1000.0, 0.0))
    np.testing.assert_allclose(counted_pairs(rare, PLAIN), counted_pairs(known, PLAIN), rtol=1e-12)


def test_pairs_that_were_looked_at_because_of_their_score_are_not_counted():
    drawn = ROWS.pairs[::2]
    weights = np.zeros_like(ROWS.weights)
    weights[drawn] = 1.0
    some = dataclasses.replace(ROWS, weights=weights)
    right = np.where(np.isin(np.arange(len(ROWS.given)), ROWS.pairs[1::2]), -1, ROWS.right)
    none = dataclasses.replace(some, right=right, paired=ROWS.paired & (right >= 0))
    np.testing.assert_allclose(counted_pairs(some, PLAIN), counted_pairs(none, PLAIN))


def test_a_table_is_pairs_and_what_is_trusted():
    counts = counted_pairs(ROWS, PLAIN)
    found = tables(ROWS, counts)
    for part in range(5):
        for right in range(3):
            row = counts[part, right] + 20 * (0.8 * np.eye(3)[right] + 0.2 / 3)
            np.testing.assert_allclose(found[part, right], row / row.sum())
    np.testing.assert_allclose(trusting(3).sum(1), 1)


def test_memberships_of_rows_that_nobody_verified_say_the_rest():
    counts, memberships = counted_pairs(ROWS, PLAIN), np.exp(LOGS)
    found = tables(ROWS, counts, memberships, 7.0)
    for part in range(5):
        shares = np.full((3, 3), 1 / 3)
        for at in range(len(ROWS.given)):
            if ROWS.parts[at] != part and ROWS.right[at] < 0 and ROWS.given[at] >= 0:
                shares[:, ROWS.given[at]] += memberships[at]
        total = counts[part] + 7 * shares / shares.sum(1, keepdims=True)
        np.testing.assert_allclose(found[part], total / total.sum(1, keepdims=True), rtol=1e-5)


def naive_posterior(logs, found, rows):
    expected = np.empty(logs.shape)
    for at, given in enumerate(rows.given):
        p = np.exp(logs[at].astype(float))
        if given >= 0:
            p *= found[rows.parts[at]][:, given] + LEAST
        expected[at] = p / p.sum()
    return expected


def test_bayes_rule():
    found = np.random.default_rng(2).dirichlet(np.ones(3), (5, 3))
    np.testing.assert_allclose(np.exp(posterior_of(LOGS, found, ROWS)), naive_posterior(LOGS, found, ROWS), rtol=1e-5)


def test_verified_rows_belong_to_their_class_alone():
    found = np.random.default_rng(2).dirichlet(np.ones(3), (5, 3))
    memberships = memberships_of(LOGS, found, ROWS)
    np.testing.assert_array_equal(memberships[ROWS.known], np.eye(3)[ROWS.right[ROWS.known]])
    np.testing.assert_allclose(memberships[~ROWS.known], naive_posterior(LOGS, found, ROWS)[~ROWS.known], rtol=1e-5)


def test_the_likeliest_table_is_that_by_which_labels_were_made_wrong():
    """A model that knows the right labels, and no pairs: 30% of each class have the label of the next one."""
    rows = opinion_rows(count=6000, pairs=0, beside=0)
    true = opinion_rows(count=6000, pairs=6000, beside=0).right
    logs = np.log(0.97 * np.eye(3)[true] + 0.01).astype(np.float32)
    found = likeliest_tables(logs, rows, np.zeros((5, 3, 3)), 10)
    expected = 0.7 * np.eye(3) + 0.3 * np.roll(np.eye(3), 1, 1)
    np.testing.assert_allclose(found, np.broadcast_to(expected, (5, 3, 3)), atol=0.035)
    counts = np.zeros((5, 3, 3))
    once = tables(rows, counts, memberships_of(logs, tables(rows, counts), rows), JUDGED_WITH)
    np.testing.assert_allclose(likeliest_tables(logs, rows, counts, 1), once)


def test_for_very_many_classes_the_table_is_one_number(monkeypatch):
    """The posterior is that of (1 − e) I + e times the shares of the given labels, written out."""
    monkeypatch.setattr(table, "MOST_CLASSES", 2)
    counts = counted_pairs(ROWS, PLAIN)
    assert counts.shape == (5, 0, 0)
    np.testing.assert_allclose(tables(ROWS, counts), 0.2, rtol=1e-12)
    wrong = np.array([0.1, 0.2, 0.3, 0.25, 0.05])
    labeled = ROWS.given[ROWS.in_table]
    shares = np.bincount(labeled, minlength=3) / len(labeled)
    explicit = np.array([(1 - e) * np.eye(3) + e * shares for e in wrong])
    found = np.exp(posterior_of(LOGS, wrong, ROWS))
    np.testing.assert_allclose(found, naive_posterior(LOGS, explicit, ROWS), rtol=1e-4)


def test_the_share_of_wrong_labels_of_very_many_classes_is_that_of_the_other_parts(monkeypatch):
    monkeypatch.setattr(table, "MOST_CLASSES", 2)
    memberships = np.exp(LOGS)
    found = tables(ROWS, counted_pairs(ROWS, PLAIN), memberships)
    for part in range(5):
        own = [
            1 - memberships[at, given] for at, given in enumerate(ROWS.given) if given >= 0 and ROWS.parts[at] != part
        ]
        assert found[part] == pytest.approx(np.mean(own), rel=1e-5)
