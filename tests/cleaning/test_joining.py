"""An opinion joins where it lowers the loss on verified rows; where its first part does not, no other is formed."""

import dataclasses

import numpy as np
import pytest

from opinion_rows import log_probabilities, opinion_rows
from wior.cleaning.combining import Opinion, combine
from wior.cleaning.joining import FEWEST, WORTH_IT, InParts, with_one_more
from wior.cleaning.opinions.discriminants import log_normalized
from wior.cleaning.opinions.table import counted_pairs

ROWS, TRUE = opinion_rows(count=300, pairs=60, beside=0), opinion_rows(count=300, pairs=300, beside=0).right
FIRST = Opinion("first", log_probabilities(ROWS, seed=1))
GOOD = log_normalized(log_probabilities(ROWS, seed=2) + 3 * np.eye(3, dtype=np.float32)[TRUE])
BAD = log_normalized(-GOOD)
COUNTS = counted_pairs(ROWS, FIRST.logs)


def joined(logs, opinions=(FIRST,), rows=ROWS, name="more"):
    """What becomes of it, and how many of its parts were formed."""
    formed = []

    def parts():
        for part in range(rows.count_of_parts):
            formed.append(part)
            yield logs[rows.parts == part]

    together = combine(rows, opinions, COUNTS)
    return with_one_more(rows, opinions, together, COUNTS, InParts(name, parts())), formed, together


def test_one_that_knows_more_joins():
    found, formed, before = joined(GOOD)
    assert formed == list(range(5))
    assert [one.name for one in found.opinions] == ["first", "more"]
    np.testing.assert_array_equal(found.opinions[1].logs, GOOD)
    again = combine(ROWS, [FIRST, Opinion("more", GOOD)], COUNTS)
    np.testing.assert_array_equal(found.combined.posterior, again.posterior)
    assert found.combined.loss <= WORTH_IT * before.loss


def test_one_that_does_not_help_on_the_first_part_is_formed_no_further():
    found, formed, _ = joined(BAD)
    assert (found, formed) == (None, [0])


def test_one_that_helps_on_the_first_part_alone_does_not_join():
    found, formed, _ = joined(np.where(ROWS.parts[:, None] == 0, GOOD, BAD))
    assert (found, formed) == (None, list(range(5)))


def test_it_takes_the_place_of_one_of_its_name():
    old = Opinion("more", log_normalized(log_probabilities(ROWS, seed=3) + np.eye(3, dtype=np.float32)[TRUE]))
    found, _, _ = joined(GOOD, (FIRST, old))
    assert [one.name for one in found.opinions] == ["first", "more"]
    np.testing.assert_array_equal(found.opinions[1].logs, GOOD)


@pytest.mark.parametrize(("known", "parts"), [(0, [0]), (5 * FEWEST - 5, list(range(5)))])
def test_few_verified_rows_do_not_stop_it_and_none_never_let_it_join(known, parts):
    right = ROWS.right.copy()
    right[np.flatnonzero(ROWS.known)[known:]] = -1
    few = dataclasses.replace(ROWS, right=right, paired=right >= 0)
    found, formed, _ = joined(GOOD if not known else BAD, rows=few)
    if known:
        keep = np.bincount(few.parts[few.known], minlength=5)[0]
        parts = parts if keep < FEWEST else [0]
    assert (found, formed) == (None, parts)
