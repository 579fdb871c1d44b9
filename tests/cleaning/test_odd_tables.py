"""`LabelCleaner` where tables are odd: few rows, few pairs, values far off, features of no use, very many classes."""

import time
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from wior.cleaning import LabelCleaner
from wior.cleaning.label_cleaner import USELESS
from wior.tasks.data_cleaning import corrupt


def table(rows=300, classes=3, pairs=40, rate=0.3, seed=0, std=1.5):
    X, true = make_blobs(rows, 5, centers=classes, cluster_std=std, random_state=seed)
    given = corrupt(true, rate, classes, "pairs", seed).labels
    right = np.full(rows, np.nan)
    known = np.random.default_rng(seed + 1000).permutation(rows)[:pairs]  # not those that are corrupt
    right[known] = true[known]
    return X.astype(np.float32), given, true, right


def fast(X, given, right=None, **more):
    found = LabelCleaner(effort="fast").fit(X, given, y_verified=right, **more)
    flagged = found.flagged_
    assert np.isfinite(found.scores_).all()
    assert found.scores_.min() >= 0
    assert found.scores_.max() <= 1
    assert (found.suggested_labels_[flagged] != np.asarray(given)[flagged]).all()
    return found


def f1(flagged, wrong):
    return 2 * (flagged & wrong).sum() / (flagged.sum() + wrong.sum())


def test_features_that_say_nothing_flag_nothing_and_say_so():
    X, given, true, right = table(pairs=100)
    noise = np.random.default_rng(1).normal(size=X.shape)
    with pytest.warns(UserWarning, match=f"^{USELESS}. Nothing is flagged$"):
        found = fast(noise, given, right)
    assert not found.helpful_
    unknown = np.isnan(right)
    assert not found.flagged_[unknown].any()
    np.testing.assert_array_equal(found.flagged_[~unknown], (given != true)[~unknown])
    assert found.estimates_.wrong.low <= (given != true).sum() <= found.estimates_.wrong.high


@pytest.mark.parametrize("value", [1e6, 1e20, 1e37])
def test_one_value_far_off_changes_little(value):
    X, given, true, right = table()
    X[7, 2] = value
    assert f1(fast(X, given, right).flagged_, given != true) > 0.9


def test_columns_that_do_not_vary_and_units_far_apart_change_little():
    X, given, true, right = table()
    odd = np.column_stack([X * [1, 1e6, 1e-6, 1, 1e3], np.zeros(300), np.full(300, 1e5)])
    assert f1(fast(odd, given, right).flagged_, given != true) > 0.9


def test_rows_that_are_all_the_same_say_nothing():
    _, given, _, right = table(pairs=100)
    with pytest.warns(UserWarning, match="Nothing is flagged"):
        found = fast(np.ones((300, 3)), given, right)
    assert not found.flagged_[np.isnan(right)].any()


def test_copies_of_rows_are_no_obstacle():
    X, given, true, right = table(150)
    found = fast(np.concatenate([X, X]), np.concatenate([given, given]), np.concatenate([right, right]))
    assert f1(found.flagged_, np.concatenate([given != true] * 2)) > 0.9


@pytest.mark.parametrize("rows", [2, 3, 4, 7, 12])
@pytest.mark.parametrize("verified", [False, True])
def test_fewer_rows_than_parts(rows, verified):
    X, given = np.random.default_rng(rows).normal(size=(rows, 3)), np.arange(rows) % 2
    right = np.where(np.arange(rows) < rows // 2, given, np.nan) if verified else None
    found = fast(X, given, right)
    assert found.scores_.shape == (rows,)
    assert found.estimates_ is None


@pytest.mark.parametrize("pairs", [1, 2, 4, 9])
def test_few_pairs_are_no_obstacle(pairs):
    X, given, true, right = table(pairs=pairs)
    found = fast(X, given, right)
    assert found.estimates_ is None  # too few to say
    assert f1(found.flagged_, given != true) > 0.85


def test_verified_rows_of_one_class_alone():
    X, given, true, _ = table()
    right = np.full(300, np.nan)
    right[np.flatnonzero(true == 0)[:30]] = 0
    found = fast(X, given, right)
    assert f1(found.flagged_, given != true) > 0.8


def test_a_class_without_verified_rows_is_judged_too():
    X, given, true, right = table(600, pairs=120)
    right[true == 2] = np.nan
    found = fast(X, given, right)
    assert len(found.trusted_classes_) == 0
    assert f1(found.flagged_[given == 2], (given != true)[given == 2]) > 0.8


def test_every_row_verified_is_no_obstacle():
    X, given, true, _ = table()
    found = fast(X, given, true)
    np.testing.assert_array_equal(found.flagged_, given != true)
    assert tuple(found.estimates_.wrong) == ((given != true).sum(),) * 3


def test_pairs_of_nearly_as_many_classes_are_no_reason_to_warn():
    X, given, true, right = table(2000, 40, 45, 0.1, std=0.8)
    assert len(np.unique(right[~np.isnan(right)])) > 23
    assert f1(fast(X, given, right).flagged_, given != true) > 0.6


def test_two_classes():
    X, given, true, right = table(classes=2)
    assert f1(fast(X, given, right).flagged_, given != true) > 0.9


def test_a_large_class_and_small_ones():
    """Imbalanced, as most tables are: 15 of 1,500 rows are of the rarest class."""
    rng = np.random.default_rng(0)
    true = rng.choice(5, 1500, p=[0.75, 0.15, 0.06, 0.03, 0.01])
    X = 2.5 * np.eye(5)[true] @ rng.normal(size=(5, 5)) + rng.normal(size=(1500, 5))
    wrong = rng.random(1500) < 0.15
    given = np.where(wrong, (true + 1) % 5, true)
    right = np.full(1500, np.nan)
    known = rng.permutation(1500)[:150]
    right[known] = true[known]
    found = fast(X, given, right)
    assert f1(found.flagged_, given != true) > 0.7
    kept = given[~found.flagged_]
    assert set(kept.tolist()) == set(range(5))


def test_forty_classes_with_a_fifth_wrong():
    X, given, true, right = table(6000, 40, 400, 0.2, std=1.0)
    found = fast(X, given, right)
    assert f1(found.flagged_, given != true) > 0.75
    assert len(np.unique(given[~found.flagged_])) == 40
    assert found.estimates_.wrong.low <= (given != true).sum() <= found.estimates_.wrong.high


@pytest.mark.parametrize("pairs", [0, 11])
def test_sixty_three_rows_are_not_flagged_by_the_half(pairs):
    for seed in range(4):
        X, given, _, right = table(63, 3, pairs, 0.1, seed)
        found = fast(X, given, right)
        assert found.flagged_.mean() < 0.3


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_rows_that_were_looked_at_because_they_were_flagged_estimate_nothing(share):
    """A review's decisions: most of these labels are wrong, as those of the table are not."""
    X, given, true, _ = table(600, rate=0.2)
    first = fast(X, given)
    looked = np.argsort(first.scores_)[:60]
    right, chances = np.full(600, np.nan), np.full(600, np.nan)
    right[looked], chances[looked] = true[looked], 0.0
    if share:
        more = np.setdiff1d(np.random.default_rng(5).permutation(600)[:60], looked)
        right[more], chances[more] = true[more], share
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fast(X, given, right, chances=chances)
    assert f1(found.flagged_, given != true) > 0.85
    if not share:
        assert found.estimates_ is None
        return
    assert found.estimates_.pairs == len(more)
    assert found.estimates_.wrong.low <= (given != true).sum() <= found.estimates_.wrong.high


def test_mistakes_that_were_only_looked_for_do_not_make_the_features_useless():
    """All that is verified is what a model got wrong: that is no news of how good it is elsewhere."""
    X, given, true, _ = table(600, rate=0.2, std=4.5)
    first = fast(X, given)
    mistaken = np.flatnonzero(first.flagged_ & (given == true))[:30]
    assert len(mistaken) > 10
    right = np.full(600, np.nan)
    right[mistaken] = true[mistaken]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fast(X, given, right, chances=np.where(np.isnan(right), np.nan, 0.0))
    assert found.helpful_


@pytest.mark.slow
def test_five_thousand_classes():
    rng = np.random.default_rng(0)
    true = np.arange(20_000) % 5000
    X = (rng.normal(size=(5000, 20))[true] + 0.2 * rng.normal(size=(20_000, 20))).astype(np.float32)
    wrong = rng.random(20_000) < 0.1
    given = np.where(wrong, rng.integers(0, 5000, 20_000), true)
    right = np.full(20_000, np.nan)
    known = rng.permutation(20_000)[:200]
    right[known] = true[known]
    begun = time.monotonic()
    found = fast(X, given, right)
    assert time.monotonic() - begun < 900
    assert f1(found.flagged_, given != true) > 0.8
    assert found.noise_ is None
