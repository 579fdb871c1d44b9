"""Scores by pairs: the logistic regression written out, parts held out, and the threshold with the highest F1."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

from opinion_rows import log_probabilities, opinion_rows
from wior.cleaning.calibration import FARTHEST, HEAVIEST, LEAST_RIDGE, RIDGE, best_threshold, calibrated

ROWS = opinion_rows(pairs=60)
POSTERIOR = np.exp(log_probabilities(ROWS, sharpness=2.5))


def traits(rows, posterior):
    own = posterior[np.arange(len(rows.given)), rows.given].astype(float)
    odds = np.clip(np.log((1 - own) / own), -FARTHEST, FARTHEST)
    return np.column_stack([np.ones(len(odds)), odds, rows.given == 0, rows.given == 1, rows.given == 2])


def naive(rows, posterior, pairs):
    """A ridge towards the posterior's own odds, minimized without derivatives of ours."""
    t, wrong = traits(rows, posterior), (rows.right != rows.given).astype(float)
    weights = np.minimum(rows.weights / rows.weights[rows.pairs].mean(), HEAVIEST)
    ridge, towards = np.array([LEAST_RIDGE, RIDGE, RIDGE, RIDGE, RIDGE]), np.array([0, 1, 0, 0, 0])

    def loss(numbers):
        total = (ridge * (numbers - towards) ** 2).sum() / 2
        for at in pairs:
            p = 1 / (1 + np.exp(-t[at] @ numbers))
            total -= weights[at] * np.log(p if wrong[at] else 1 - p)
        return total

    numbers = minimize(loss, towards, method="BFGS", options={"gtol": 1e-6}).x
    return 1 / (1 + np.exp(t @ numbers))


def test_scores_are_those_of_a_logistic_regression_on_pairs():
    found = calibrated(ROWS, POSTERIOR)
    expected = naive(ROWS, POSTERIOR, ROWS.pairs)
    np.testing.assert_allclose(found.scores[ROWS.in_table], expected[ROWS.in_table], atol=2e-4)
    np.testing.assert_array_equal(found.scores[~ROWS.in_table], 1)


def test_a_pair_is_judged_by_pairs_of_other_parts():
    found = calibrated(ROWS, POSTERIOR)
    for part in range(5):
        others = ROWS.pairs[ROWS.parts[ROWS.pairs] != part]
        here = np.setdiff1d(ROWS.pairs, others)
        assert len(here) > 5
        np.testing.assert_allclose(found.unseen[here], naive(ROWS, POSTERIOR, others)[here], atol=2e-4)
    assert np.isnan(np.delete(found.unseen, ROWS.pairs)).all()


def test_a_part_has_no_say_in_how_its_own_pairs_are_judged():
    here = ROWS.pairs[ROWS.parts[ROWS.pairs] == 2]
    right = ROWS.right.copy()
    right[here] = (right[here] + 1) % 3
    before, after = calibrated(ROWS, POSTERIOR), calibrated(dataclasses.replace(ROWS, right=right), POSTERIOR)
    np.testing.assert_allclose(after.unseen[here], before.unseen[here], atol=1e-6)
    others = np.setdiff1d(ROWS.pairs, here)
    assert np.abs(after.unseen[others] - before.unseen[others]).max() > 0.01


def test_pairs_with_weight_zero_do_not_count():
    """They were looked at because of their score, and would show mistakes alone."""
    weights = ROWS.weights.copy()
    dropped = ROWS.pairs[::2]
    weights[dropped] = 0
    found = calibrated(dataclasses.replace(ROWS, weights=weights), POSTERIOR)
    none = dataclasses.replace(
        ROWS, weights=weights, right=np.where(np.isin(np.arange(len(weights)), dropped), -1, ROWS.right)
    )
    np.testing.assert_array_equal(found.scores, calibrated(none, POSTERIOR).scores)
    assert np.isnan(found.unseen[dropped]).all()


def test_equal_weights_are_the_same_however_large():
    one, large = (
        calibrated(dataclasses.replace(ROWS, weights=np.where(ROWS.paired, weight, 0.0)), POSTERIOR).scores
        for weight in (1.0, 5000.0)
    )
    np.testing.assert_allclose(one, large, atol=1e-6)


def test_without_pairs_the_posterior_is_the_score():
    rows = opinion_rows(pairs=0)
    found = calibrated(rows, POSTERIOR)
    table = rows.in_table
    np.testing.assert_allclose(found.scores[table], POSTERIOR[table, rows.given[table]])
    assert np.isnan(found.unseen).all()


def test_a_posterior_beyond_doubt_is_doubted_a_little():
    """Of 0 and of 1, with pairs and without a warning."""
    posterior = np.eye(3)[(ROWS.given + np.arange(len(ROWS.given)) % 2) % 3]
    found = calibrated(ROWS, posterior)
    assert 0 < found.scores[ROWS.in_table].min() < found.scores[ROWS.in_table].max() < 1


def test_a_confident_posterior_is_taken_back_by_pairs():
    """Odds that are three times too far: the slope becomes a third, and shares of wrong labels are those of the scores."""
    rows = opinion_rows(count=3000, pairs=2400, beside=0)
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 2, 3000)
    wrong = rng.random(3000) < 1 / (1 + np.exp(-odds))
    right = np.where(rows.known, np.where(wrong, (rows.given + 1) % 3, rows.given), -1).astype(np.int32)
    rows = dataclasses.replace(rows, right=right, weights=np.where(rows.paired, 1.0, 0.0))
    own = 1 / (1 + np.exp(np.clip(3 * odds, -7.9, 7.9)))
    posterior = np.zeros((3000, 3))
    posterior[np.arange(3000), rows.given] = own
    found = calibrated(rows, posterior).scores
    hidden = ~rows.known
    assert (1 - found[hidden]).mean() == pytest.approx(wrong[hidden].mean(), abs=0.03)
    bins = np.digitize(1 - found, [0.1, 0.3, 0.5, 0.7, 0.9])
    error = sum(
        (bins == b).sum() * abs((1 - found[bins == b]).mean() - wrong[bins == b].mean()) for b in range(6)
    ) / len(found)
    assert error < 0.04
    assert np.abs((1 - found) - 1 / (1 + np.exp(-odds))).mean() < 0.04


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_has_the_highest_expected_f1(seed):
    rng = np.random.default_rng(seed)
    scores = rng.beta(2, 1 + seed / 3, 300)
    wrong = 1 - scores
    expected = lambda cut: 2 * wrong[scores < cut].sum() / ((scores < cut).sum() + wrong.sum())
    cuts = [*np.sort(scores)[1:], 1.1]
    best = max(expected(cut) for cut in cuts)
    found = best_threshold(scores)
    assert found == pytest.approx(1 - best / 2)
    assert expected(found) == pytest.approx(best)


def test_where_little_is_wrong_a_flag_must_still_be_worth_it():
    assert best_threshold(np.full(1000, 0.999)) == pytest.approx(0.8)
    assert best_threshold(np.zeros(10)) == pytest.approx(0.5)
    assert best_threshold(np.zeros(0)) == pytest.approx(0.5)
