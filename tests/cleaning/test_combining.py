"""Opinions weighted as verified rows like best: the gradient, known mixtures, Bayes' rule."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

from opinion_rows import log_probabilities, opinion_rows
from wior.cleaning import combining
from wior.cleaning.combining import FLOOR, MOST_WEIGHT, TOWARDS_FIRST, Opinion, combine
from wior.cleaning.judging import unhelpful
from wior.cleaning.opinions.discriminants import log_normalized
from wior.cleaning.opinions.table import LEAST, counted_pairs, likeliest_tables

ROWS = opinion_rows()
OPINIONS = [Opinion(name, log_probabilities(ROWS, seed, 2.0)) for seed, name in enumerate(["one", "two", "three"])]
COUNTS = counted_pairs(ROWS, OPINIONS[0].logs)


def loss(weights, rows=ROWS, opinions=OPINIONS):
    """Written out, row by row."""
    total = TOWARDS_FIRST * ((np.asarray(weights) - np.eye(len(weights))[0]) ** 2).sum()
    for at in np.flatnonzero(rows.known):
        together = sum(
            weight * np.log(np.exp(one.logs[at].astype(float)) + FLOOR)
            for weight, one in zip(weights, opinions, strict=True)
        )
        total -= together[rows.right[at]] - np.log(np.exp(together).sum())
    return total


def test_the_slope_is_that_of_finite_differences(monkeypatch):
    seen = {}

    def record(function, start, **options):
        seen["function"] = function
        return minimize(function, start, **options)

    monkeypatch.setattr(combining, "minimize", record)
    combine(ROWS, OPINIONS, COUNTS)
    for point in (np.array([1.0, 0.0, 0.0]), np.array([0.4, 1.3, 0.2])):
        value, slope = seen["function"](point)
        assert value == pytest.approx(loss(point), rel=1e-5)
        numeric = [(loss(point + 1e-4 * one) - loss(point - 1e-4 * one)) / 2e-4 for one in np.eye(3)]
        np.testing.assert_allclose(slope, numeric, rtol=1e-3, atol=1e-3)


def test_weights_are_where_the_loss_is_smallest():
    found = np.array(list(combine(ROWS, OPINIONS, COUNTS).weights.values()))
    best = minimize(loss, found, bounds=[(0, MOST_WEIGHT)] * 3, method="Nelder-Mead", options={"xatol": 1e-4}).x
    np.testing.assert_allclose(found, best, atol=5e-3)


def test_the_weights_of_a_known_mixture_are_found():
    """Right labels drawn with log odds of 0.5 of the first and 1.5 of the second opinion, and none of the third."""
    many = opinion_rows(count=3000, pairs=3000, beside=0)
    opinions = [Opinion(name, log_probabilities(many, seed, 1.5)) for seed, name in enumerate("abc")]
    p = np.exp(log_normalized(0.5 * opinions[0].logs + 1.5 * opinions[1].logs)).astype(float)
    rng = np.random.default_rng(0)
    right = np.array([rng.choice(3, p=one / one.sum()) for one in p], np.int32)
    found = combine(dataclasses.replace(many, right=right), opinions, np.zeros((5, 3, 3)))
    assert list(found.weights) == ["a", "b", "c"]
    np.testing.assert_allclose(list(found.weights.values()), [0.5, 1.5, 0.0], atol=0.12)


def test_without_verified_rows_the_first_opinion_is_believed():
    none = opinion_rows(pairs=0, beside=0)
    opinions = [Opinion(name, log_probabilities(none, seed)) for seed, name in enumerate("ab")]
    found = combine(none, opinions, np.zeros((5, 3, 3)))
    assert found.weights == {"a": 1.0, "b": 0.0}
    assert np.isnan(found.loss)
    assert len(found.gains) == 0
    alone = combine(none, opinions[:1], np.zeros((5, 3, 3)))
    np.testing.assert_array_equal(found.posterior, alone.posterior)


def test_the_posterior_is_by_bayes_rule_with_the_table_of_the_part():
    found = combine(ROWS, OPINIONS, COUNTS)
    weights = list(found.weights.values())
    logs = [np.log(np.exp(one.logs.astype(float)) + FLOOR) for one in OPINIONS]
    together = sum(weight * one for weight, one in zip(weights, logs, strict=True))
    together -= np.log(np.exp(together).sum(1, keepdims=True))
    np.testing.assert_allclose(found.tables, likeliest_tables(together, ROWS, COUNTS, 5), rtol=1e-3)
    for at in range(len(ROWS.given)):
        p = np.exp(together[at])
        if ROWS.given[at] >= 0:
            p = p * (found.tables[ROWS.parts[at]][:, ROWS.given[at]] + LEAST)
        np.testing.assert_allclose(found.posterior[at], p / p.sum(), rtol=1e-3, atol=1e-5)
    known = np.flatnonzero(ROWS.known)
    own = together[known, ROWS.right[known]]
    assert found.loss == pytest.approx(-own.mean(), rel=1e-4)
    shares = (np.bincount(ROWS.right[known], minlength=3) + 1) / (len(known) + 3)
    np.testing.assert_allclose(found.gains, own - np.log(shares[ROWS.right[known]]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("gains", "useless"),
    [
        (np.full(9, -1.0), False),  # too few to say
        (np.resize([0.5, -0.5], 40), True),
        (np.resize([0.5, -0.1], 40), False),
        (np.resize([2.0, -1.9], 40), True),
    ],
)
def test_models_that_are_no_better_than_the_shares_of_the_classes_are_of_no_use(gains, useless):
    standard_error = gains.std(ddof=1) / np.sqrt(len(gains))
    found = dataclasses.replace(combine(ROWS, OPINIONS, COUNTS), gains=gains)
    assert unhelpful(found) == useless
    if len(gains) >= 10:
        assert useless == (gains.mean() < 2 * standard_error)
