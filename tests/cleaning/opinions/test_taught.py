"""Taught models: each part by models of the others, also where several learn at once."""

import numpy as np
import pytest

from opinion_rows import opinion_rows
from wior.cleaning import models
from wior.cleaning.models import Network, all_log_probabilities, rows_at_once
from wior.cleaning.opinions.rows import members
from wior.cleaning.opinions.taught import TaughtNetwork, of_taught

ROWS = opinion_rows()
MEMBERSHIPS = members(np.where(ROWS.right >= 0, ROWS.right, ROWS.given), 3)
NETWORK = Network.standardizing(ROWS.features, (4,), 3)


def in_places(parts):
    found = np.empty((len(ROWS.given), 3), np.float32)
    for part, logs in enumerate(parts):
        found[ROWS.parts == part] = logs
    return found


def test_a_part_is_judged_by_the_network_of_the_others():
    learner = TaughtNetwork.of(NETWORK, ROWS.features)
    told = []
    found = in_places(of_taught(learner, ROWS, MEMBERSHIPS, 7, told.append))
    assert sorted(told) == [f"models of kept rows, part {number} of 5" for number in range(1, 6)]
    labels = MEMBERSHIPS.argmax(1)
    for part in (0, 3):
        here = ROWS.parts == part
        says = TaughtNetwork.of(NETWORK, ROWS.features).taught_by(np.flatnonzero(~here), labels, 7 + part)
        np.testing.assert_allclose(found[here], says(ROWS.features[here]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "size"), [(0, 256), (1, 256), (257, 512), (8192, 8192), (8193, 4352), (20_000, 6912)])
def test_all_pieces_have_one_size(rows, size):
    assert rows_at_once(rows) == size


def test_pieces_say_what_all_rows_say_at_once(monkeypatch):
    params = NETWORK.init(0)
    whole = all_log_probabilities(NETWORK, params, ROWS.features)
    monkeypatch.setattr(models, "ROWS_AT_ONCE", 32)
    monkeypatch.setattr(models, "SIZES", 8)
    np.testing.assert_allclose(all_log_probabilities(NETWORK, params, ROWS.features), whole, rtol=1e-5, atol=1e-6)
    places = np.array([5, 3, 99, 3])
    some = all_log_probabilities(NETWORK, params, ROWS.features, places)
    np.testing.assert_allclose(some, whole[places], rtol=1e-5, atol=1e-6)
    assert all_log_probabilities(NETWORK, params, ROWS.features, places[:0]).shape == (0, 3)
