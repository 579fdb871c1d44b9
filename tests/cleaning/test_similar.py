"""The most similar rows, against all cosines."""

import numpy as np
import pytest

from wior.cleaning import similar as module
from wior.cleaning.opinions.expansion import Scaling
from wior.cleaning.similar import COUNT, similar


def features(rows=60, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, 6)).astype(np.float32)


def cosines(X):
    scaled = Scaling.of(X, None, 0)(X).astype(float)
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    found = scaled @ scaled.T
    np.fill_diagonal(found, -1)
    return found


def test_they_are_those_of_all_cosines():
    X = features()
    found, expected = similar(X, np.ones(60), 0), cosines(X)
    for row in range(60):
        order = np.argsort(-expected[row])[:COUNT]
        np.testing.assert_array_equal(found.places[row], order)
        np.testing.assert_allclose(found.similarity[row], np.clip(expected[row][order], 0, 1), atol=1e-5)


def test_a_row_is_not_its_own_neighbor_and_a_copy_of_it_is():
    X = features()
    X[40] = X[3]
    found = similar(X, np.ones(60), 0)
    assert not (found.places == np.arange(60)[:, None]).any()
    assert (found.places[3, 0], found.places[40, 0]) == (40, 3)
    assert found.similarity[3, 0] == pytest.approx(1, abs=1e-5)


def test_of_many_rows_those_of_the_lowest_scores_are_looked_up(monkeypatch):
    monkeypatch.setattr(module, "MOST_LOOKED_UP", 10)
    scores = np.random.default_rng(1).random(60)
    found, every = similar(features(), scores, 0), cosines(features())
    lowest = np.argsort(scores)[:10]
    others = np.setdiff1d(np.arange(60), lowest)
    np.testing.assert_array_equal(found.places[others], np.repeat(others[:, None], COUNT, 1))
    np.testing.assert_array_equal(found.similarity[others], 0)
    np.testing.assert_array_equal(found.places[lowest, 0], every[lowest].argmax(1))


def test_they_may_be_looked_for_among_some_rows(monkeypatch):
    monkeypatch.setattr(module, "AMONG", 20)
    found = similar(features(), np.ones(60), 0)
    among = set(np.random.default_rng(0).permutation(60)[:20].tolist())
    assert set(found.places.ravel().tolist()) <= among
    assert not (found.places == np.arange(60)[:, None]).any()


def test_rows_that_are_all_the_same_are_no_error():
    found = similar(np.ones((9, 3), np.float32), np.ones(9), 0)
    np.testing.assert_array_equal(found.similarity, 0)


@pytest.mark.parametrize("X", [features(COUNT), np.zeros((30, 0), np.float32), np.zeros((30, 2, 2), np.float32)])
def test_where_nothing_can_be_compared_there_are_none(X):
    assert similar(X, np.ones(len(X)), 0) is None


def test_nor_where_it_would_take_too_much_memory(monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 60 * 6 - 1)
    assert similar(features(), np.ones(60), 0) is None
