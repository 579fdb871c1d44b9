"""The nearest rows, found by looking at all of them."""

import numpy as np
import pytest

from opinion_rows import log_probabilities, opinion_rows
from wior.cleaning.opinions import neighbors
from wior.cleaning.opinions.expansion import Scaling
from wior.cleaning.opinions.neighbors import DOUBT, NEAREST, of_neighbors

ROWS = opinion_rows()
SCALING = Scaling.of(ROWS.features, None, 0)
POSTERIOR = np.exp(log_probabilities(ROWS, seed=4))


def test_a_row_is_what_the_nearest_rows_of_other_parts_are_and_a_verified_one_what_those_of_its_own_are(monkeypatch):
    monkeypatch.setattr(neighbors, "ROWS_AT_ONCE", 7)
    found = of_neighbors(ROWS, SCALING, POSTERIOR, 0)
    scaled = SCALING(ROWS.features)
    for row in range(len(ROWS.given)):
        distances = ((scaled - scaled[row]) ** 2).sum(1)
        own = ROWS.parts == ROWS.parts[row]
        distances[~own if ROWS.known[row] else own] = np.inf
        distances[row] = np.inf
        order = np.argsort(distances)[:NEAREST]
        sums = POSTERIOR[order[np.isfinite(distances[order])]].sum(0) + DOUBT
        np.testing.assert_allclose(np.exp(found[row]), sums / sums.sum(), rtol=1e-4)


def test_of_many_rows_some_are_looked_among_and_the_seed_says_which(monkeypatch):
    monkeypatch.setattr(neighbors, "LOOKED_AMONG", 20)
    found = of_neighbors(ROWS, SCALING, POSTERIOR, 0)
    np.testing.assert_array_equal(of_neighbors(ROWS, SCALING, POSTERIOR, 0), found)
    assert (of_neighbors(ROWS, SCALING, POSTERIOR, 1) != found).any()
    np.testing.assert_allclose(np.exp(found).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("count", [3, 12])
def test_fewer_rows_than_neighbors_are_all_neighbors(count):
    unknown = lambda part: np.flatnonzero((ROWS.parts == part) & ~ROWS.known)
    few = ROWS.some(np.concatenate([unknown(0)[:1], unknown(1)[:count]]))
    posterior = np.exp(log_probabilities(few))
    sums = posterior[1:].sum(0) + DOUBT
    np.testing.assert_allclose(np.exp(of_neighbors(few, SCALING, posterior, 0))[0], sums / sums.sum(), rtol=1e-5)
