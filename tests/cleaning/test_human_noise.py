"""Labels that people got wrong: news texts labeled by a crowd, from WIOR_DATA or ../shared/data."""

import csv
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from real_data import real_data
from wior.cleaning import LabelCleaner
from wior.cleaning.features.text import TextFeatures
from wior.cleaning.opinions.expansion import SUMS, Expansion
from wior.tasks.data_cleaning import auroc

PAIRS = 200


class News(NamedTuple):
    X: np.ndarray
    given: np.ndarray
    right: np.ndarray


@pytest.fixture(scope="module")
def news():
    folder = real_data("human_noise/ag_news_train.csv")
    with (folder / "human_noise" / "ag_news_train.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [row["text"] for row in rows]
    return News(
        TextFeatures().fit(texts).transform(texts),
        np.array([row["given"] for row in rows]),
        np.array([row["truth"] for row in rows]),
    )


@pytest.fixture
def every_sum(monkeypatch):
    """As many random sums as users have, in place of the tests' few."""
    of = Expansion.of
    monkeypatch.setattr(Expansion, "of", lambda *given: of(*given, sums=SUMS))


class Measured(NamedTuple):
    auroc: float
    f1: float
    error: float  # expected calibration error
    cleaner: LabelCleaner


def measured(news, effort, draw=0):
    """On the rows that nobody verified."""
    known = np.random.default_rng(draw).permutation(len(news.given))[:PAIRS]
    y_verified = np.full(len(news.given), None)
    y_verified[known] = news.right[known]
    found = LabelCleaner(effort=effort).fit(news.X, news.given, y_verified=y_verified)
    others = np.setdiff1d(np.arange(len(news.given)), known)
    wrong, flagged, scores = (news.given != news.right)[others], found.flagged_[others], found.scores_[others]
    f1 = 2 * (wrong & flagged).sum() / (wrong.sum() + flagged.sum())
    bins = np.clip((scores * 10).astype(int), 0, 9)
    error = sum(abs((scores - ~wrong)[bins == b].sum()) for b in range(10)) / len(others)
    area = float(auroc(jnp.asarray(scores, jnp.float32), jnp.asarray(~wrong)))
    return Measured(area, f1, error, found)


def test_what_a_crowd_got_wrong_is_found_by_closed_forms(news):
    found = measured(news, "fast")
    wrong = (news.given != news.right).sum()
    assert found.auroc >= 0.83
    assert found.f1 >= 0.6
    assert found.error <= 0.05
    assert found.cleaner.estimates_.wrong.low <= wrong <= found.cleaner.estimates_.wrong.high


@pytest.mark.parametrize("draw", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_what_a_crowd_got_wrong_is_found(news, every_sum, draw):
    found = measured(news, "usual", draw)
    wrong = (news.given != news.right).sum()
    assert found.auroc >= 0.84
    assert found.f1 >= 0.62
    assert found.error <= 0.05
    assert found.cleaner.estimates_.wrong.low <= wrong <= found.cleaner.estimates_.wrong.high
