"""How many labels are wrong: Wilson's formula, and intervals that hold the truth as often as they say."""

import numpy as np
import pytest
import scipy.stats

from wior.cleaning import sampling
from wior.cleaning.estimates import FEWEST, Interval, Pairs, estimates, share_wrong, weighted_share

DRAWS, TABLES = 1000, 4


def wilson(share, drawn, pairs=None):
    z = scipy.stats.t.ppf(0.975, (pairs or drawn) - 1)
    root = z * np.sqrt(share * (1 - share) / drawn + z**2 / (4 * drawn**2))
    return (share + z**2 / (2 * drawn) - root) / (1 + z**2 / drawn), (share + z**2 / (2 * drawn) + root) / (
        1 + z**2 / drawn
    )


@pytest.mark.parametrize(("yes", "of"), [(3, 20), (1, 50), (50, 100), (19, 20)])
def test_a_share_has_wilsons_interval(yes, of):
    found = weighted_share(np.arange(of) < yes, np.full(of, 7.0))
    assert found.value == pytest.approx(yes / of)
    np.testing.assert_allclose((found.low, found.high), wilson(yes / of, of))


def test_a_share_of_none_or_all_is_no_certainty():
    none, every = weighted_share(np.zeros(30, bool), np.ones(30)), weighted_share(np.ones(30, bool), np.ones(30))
    assert (none.low, none.value) == (0, 0)
    assert none.high == pytest.approx(wilson(0, 30)[1])
    np.testing.assert_allclose(every, (1 - none.high, 1, 1))


def test_unequal_weights_make_an_interval_wider():
    yes, weights = np.arange(40) % 4 == 0, np.where(np.arange(40) < 20, 1.0, 5.0)
    found = weighted_share(yes, weights)
    assert found.value == pytest.approx((weights * yes).sum() / weights.sum())
    np.testing.assert_allclose(
        (found.low, found.high), wilson(found.value, weights.sum() ** 2 / (weights**2).sum()), rtol=1e-12
    )


def test_scores_that_say_nothing_leave_the_interval_of_pairs():
    wrong = np.arange(50) % 5 == 0
    found = share_wrong(Pairs(wrong, np.full(50, 0.6), np.ones(50)), np.full(10_000, 0.6))
    assert found.value == pytest.approx(0.2)
    variance = (wrong - 0.2).var(ddof=1) * (1 / 50 + 1 / 10_000)  # of pairs, and of the others
    np.testing.assert_allclose((found.low, found.high), wilson(0.2, 0.2 * 0.8 / variance, 50), rtol=1e-6)


def test_scores_that_know_it_make_it_narrower_but_not_by_more_than_half():
    rng = np.random.default_rng(0)
    wrong = rng.random(50) < 0.3
    sure, rows = np.where(wrong, 0.02, 0.98), np.where(rng.random(20_000) < 0.3, 0.02, 0.98)
    plain = weighted_share(wrong, np.ones(50))
    found = share_wrong(Pairs(wrong, sure, np.ones(50)), rows)
    assert 0.4 < (found.high - found.low) / (plain.high - plain.low) < 0.6
    assert found.low < 0.3 < found.high


def test_what_pairs_say_of_flags():
    wrong = np.array([True] * 6 + [False] * 14)
    scores = np.array([0.1] * 4 + [0.9] * 2 + [0.2] + [0.9] * 13)
    found = estimates(Pairs(wrong, scores, np.ones(20)), np.full(980, 0.8), 6, 0.5)
    np.testing.assert_allclose(found.precision.value, 4 / 5)
    np.testing.assert_allclose(found.recall.value, 4 / 6)
    np.testing.assert_allclose((found.precision.low, found.precision.high), wilson(0.8, 5))
    assert found.pairs == 20
    share = share_wrong(Pairs(wrong, scores, np.full(20, 49.0)), np.full(980, 0.8))
    np.testing.assert_allclose(found.wrong, 6 + 980 * np.array(share))


def test_what_cannot_be_said_is_not():
    pairs = Pairs(np.zeros(FEWEST, bool), np.full(FEWEST, 0.9), np.ones(FEWEST))
    assert estimates(Pairs(*(part[1:] for part in pairs)), np.full(9, 0.9), 0, 0.5) is None
    found = estimates(pairs, np.full(90, 0.9), 0, 0.5)
    assert (found.precision, found.recall) == (None, None)
    np.testing.assert_allclose(found.wrong[:2], 0, atol=1e-9)
    assert 10 < found.wrong.high < 90


def test_where_every_row_is_verified_their_number_is_known():
    pairs = Pairs(np.arange(20) < 4, np.full(20, 0.8), np.ones(20))
    assert estimates(pairs, np.zeros(0), 4, 0.5).wrong == Interval(4, 4, 4)


class Table:
    """Rows whose scores say something of what is wrong, but not what they should."""

    def __init__(self, rows=3000, off=1.0, seed=0):
        rng = np.random.default_rng(seed)
        odds = rng.normal(1.6, 1.6, rows)
        self.scores = 1 / (1 + np.exp(-(odds + off)))
        self.wrong = rng.random(rows) < 1 / (1 + np.exp(odds))
        self.given = rng.choice(4, rows, p=[0.6, 0.25, 0.1, 0.05])

    def estimated(self, places, chances):
        others = np.delete(np.arange(len(self.scores)), places)
        pairs = Pairs(self.wrong[places], self.scores[places], 1 / chances)
        return estimates(pairs, self.scores[others], int(self.wrong[places].sum()), 0.5)


def at_random(table, count, seed):
    places = np.random.default_rng(seed).permutation(len(table.scores))[:count]
    return places, np.full(count, count / len(table.scores))


def by_doubt(table, count, seed):
    return sampling.draw(table.scores, table.given, np.arange(len(table.scores)), count, seed)


@pytest.mark.parametrize("draw", [at_random, by_doubt])
@pytest.mark.parametrize(
    ("rows", "count", "off"), [(3000, 100, 1.0), (3000, 100, -1.0), (400, 40, 0.0), (300, 150, 1.5)]
)
def test_the_interval_holds_the_truth_and_its_middle_is_not_biased(draw, rows, count, off):
    held, errors = [], []
    for table in (Table(rows, off, seed) for seed in range(TABLES)):
        truth = table.wrong.sum()
        found = [table.estimated(*draw(table, count, seed)).wrong for seed in range(DRAWS // TABLES)]
        held += [one.low <= truth <= one.high for one in found]
        errors += [one.value / truth - 1 for one in found]
    assert np.mean(held) >= 0.92
    assert abs(np.mean(errors)) < 3 * np.std(errors, ddof=1) / np.sqrt(DRAWS)


@pytest.mark.parametrize("draw", [at_random, by_doubt])
def test_precision_and_recall_hold_the_truth(draw):
    table = Table(3000, 0.0)
    flagged = table.scores < 0.5
    precision, recall = table.wrong[flagged].mean(), flagged[table.wrong].mean()
    found = [table.estimated(*draw(table, 150, seed)) for seed in range(DRAWS)]
    assert np.mean([one.precision.low <= precision <= one.precision.high for one in found]) >= 0.92
    assert np.mean([one.recall.low <= recall <= one.recall.high for one in found]) >= 0.92
