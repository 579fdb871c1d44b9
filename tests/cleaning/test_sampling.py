"""Rows to verify: as many as asked for, each once, with the chance that is said, and some of every class."""

import numpy as np
import pytest

from wior.cleaning.sampling import EVENLY, chances_of, draw

SEEDS = 2000


def a_table(rows=60, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    p = 2.0 ** -np.arange(classes)
    given = rng.choice(classes, rows, p=p / p.sum())
    given[:classes] = np.arange(classes)
    return rng.beta(2, 1, rows), given


@pytest.mark.parametrize(("rows", "count"), [(60, 1), (60, 20), (60, 59), (60, 60), (60, 1000), (5000, 100), (2, 1)])
def test_as_many_as_asked_for_each_once(rows, count):
    scores, given = a_table(rows, 2)
    candidates = np.arange(rows) + 7
    whole_scores, whole_given = np.concatenate([np.zeros(7), scores]), np.concatenate([np.zeros(7, int), given])
    for seed in range(50):
        found = draw(whole_scores, whole_given, candidates, count, seed)
        assert len(found.places) == len(set(found.places.tolist())) == min(count, rows)
        assert set(found.places.tolist()) <= set(candidates.tolist())
        assert found.chances.min() > 0
        assert found.chances.max() <= 1


@pytest.mark.parametrize(
    "scores", [np.zeros(40), np.ones(40), np.full(40, 0.5), np.linspace(0, 1, 40)], ids=["0", "1", "half", "all"]
)
@pytest.mark.parametrize("given", [np.zeros(40, int), np.arange(40), np.arange(40) % 3], ids=["one", "own", "three"])
def test_chances_sum_to_the_count(scores, given):
    for count in (1, 7, 39, 40, 41):
        found = chances_of(scores, given, count)
        assert found.sum() == pytest.approx(min(count, 40))
        assert found.min() > 0
        assert found.max() <= 1 + 1e-12


def test_every_row_is_drawn_as_often_as_is_said():
    scores, given = a_table()
    times = np.zeros(60)
    for seed in range(SEEDS):
        found = draw(scores, given, np.arange(60), 20, seed)
        times[found.places] += 1
        np.testing.assert_array_equal(found.chances, chances_of(scores, given, 20)[found.places])
    chances = chances_of(scores, given, 20)
    deviation = np.sqrt(SEEDS * chances * (1 - chances))
    assert np.abs(times - SEEDS * chances)[chances == 1].max(initial=0) == 0
    z = (times - SEEDS * chances)[chances < 1] / deviation[chances < 1]
    assert np.abs(z).max() < 4
    assert np.sqrt((z**2).mean()) < 1.5


def test_what_is_in_doubt_is_drawn_more_often_and_what_is_sure_at_nearly_an_even_chance():
    scores, given = np.concatenate([np.full(900, 0.999999), np.full(100, 0.5)]), np.zeros(1000, int)
    chances = chances_of(scores, given, 100)
    np.testing.assert_allclose(chances[0], 0.1 * EVENLY, rtol=0.02)
    np.testing.assert_allclose(chances[-1], 0.1 * EVENLY + (1 - EVENLY), rtol=0.02)


@pytest.mark.parametrize("rare", [1, 2, 5])
def test_every_class_is_drawn_from_the_rarest_too(rare):
    rng = np.random.default_rng(0)
    given = np.concatenate([np.zeros(5000, int), np.repeat(np.arange(1, 11), rare)])
    scores = rng.beta(8, 1, len(given))
    chances = chances_of(scores, given, 100)
    expected = np.bincount(given, chances)
    assert expected.sum() == pytest.approx(100)
    np.testing.assert_array_less(np.minimum(2, np.bincount(given)) - 1e-9, expected)
    for seed in range(30):
        found = draw(scores, given, np.arange(len(given)), 100, seed)
        assert set(given[found.places].tolist()) == set(range(11))


def test_of_more_classes_than_rows_that_are_drawn_some_are_left_out():
    scores, given = np.full(300, 0.8), np.arange(300) % 150
    found = draw(scores, given, np.arange(300), 40, 0)
    assert len(set(given[found.places].tolist())) == 40


def test_a_class_that_nobody_has_is_no_obstacle():
    given = np.array([0, 0, 0, 3, 3, 3] * 20)
    assert chances_of(np.full(120, 0.9), given, 30).sum() == pytest.approx(30)


def test_the_same_seed_draws_the_same_rows_in_the_same_order():
    scores, given = a_table(500)
    one, same, other = (draw(scores, given, np.arange(500), 50, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.places, same.places)
    np.testing.assert_array_equal(one.chances, same.chances)
    assert set(one.places.tolist()) != set(other.places.tolist())
    assert not (np.diff(given[one.places]) >= 0).all()  # not by class
