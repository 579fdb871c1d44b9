"""`LabelCleaner` on the digits."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from noisy_blobs import ONE
from wior.cleaning import LabelCleaner, demo
from wior.data import digits
from wior.tasks.data_cleaning import auroc, corrupt


class Digits(NamedTuple):
    cleaner: LabelCleaner
    wrong: np.ndarray
    split: object

    @property
    def auroc(self):
        return float(auroc(jnp.asarray(self.cleaner.scores_), jnp.asarray(~self.wrong)))

    @property
    def accuracy(self):
        return self.cleaner.score(*self.split.test)


def cleaned_digits(noise, rate, **parameters):
    split = digits(0, 1297, 100)
    given = corrupt(split.train.labels, rate, 10, noise)
    return Digits(LabelCleaner(**parameters).fit(split.train.features, given.labels, *split.clean), given.wrong, split)


def test_systematic_errors_of_the_digits_are_found_from_a_hundred_verified_rows():
    """45% of every class has the label of the next one. One candidate and a short run; the rest is in the slow tests."""
    found = cleaned_digits("pairs", 0.45, epochs=4, folds=2, parts=0, **{**ONE, "inner_lr": 0.3})
    assert found.auroc > 0.98
    assert np.mean(found.cleaner.flagged_ == found.wrong) > 0.97
    assert np.mean(found.cleaner.suggested_labels_ == found.split.train.labels) > 0.96
    assert found.accuracy > 0.95
    others = found.cleaner.noise_ * (1 - np.eye(10))
    np.testing.assert_array_equal(others.argmax(1), (np.arange(10) + 1) % 10)
    assert others.max(1).min() > 0.25


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rate"), [("pairs", 0.45), ("pairs", 0.6), ("uniform", 0.6)])
def test_wrong_labels_of_the_digits_are_found_with_nothing_set(noise, rate):
    found = cleaned_digits(noise, rate)
    assert found.auroc > 0.98
    assert np.mean(found.cleaner.flagged_ == found.wrong) > 0.94
    assert found.accuracy > 0.95


@pytest.mark.slow
def test_clean_digits_are_left_alone():
    found = cleaned_digits("pairs", 0.0)
    assert found.cleaner.flagged_.mean() < 0.02
    assert found.accuracy >= demo.accuracy(found.split.train, found.split.test) - 0.005
