"""How many labels are wrong, and how good the flags are, from pairs of a given and a right label.

A model's word is not taken: the scores only make the intervals narrower. Shares have Wilson's interval; where pairs
were drawn with different chances, or scores explain a part of what is wrong, the number of pairs is replaced by the
number of rows drawn at random that would say as much (Korn and Graubard 1998; Angelopoulos et al. 2023 for the scores).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.stats

LEVEL = 0.95
FEWEST = 10  # pairs, to say anything
LEAST_RATIO, MOST_RATIO = 0.25, 4.0  # of the variance of an estimate to that of as many rows drawn at random


class Interval(NamedTuple):
    """An estimate with its 95% interval."""

    low: float
    value: float
    high: float

    def times(self, number: float) -> Interval:
        """The same of another unit."""
        return Interval(*(number * one for one in self))


class Estimates(NamedTuple):
    """What pairs say of a table."""

    wrong: Interval  # how many labels of the table are wrong, those that were verified too
    precision: Interval | None  # of the flags among the rows that nobody verified; None: no pair is flagged
    recall: Interval | None  # None: no pair is wrong
    pairs: int


class Pairs(NamedTuple):
    """The pairs, each judged as if it were not known."""

    wrong: np.ndarray  # (k,) of bool
    scores: np.ndarray  # (k,) that the given label is right
    weights: np.ndarray  # (k,) one over the chance with which a pair was drawn


def estimates(pairs: Pairs, scores: np.ndarray, known_wrong: int, threshold: float) -> Estimates | None:
    """`scores` are those of the rows that nobody verified; `known_wrong`: the wrong ones among the verified."""
    if len(pairs.wrong) < FEWEST:
        return None
    pairs = pairs._replace(weights=_of_the_others(pairs.weights, len(scores)))
    share = share_wrong(pairs, scores)
    wrong = Interval(*(known_wrong + len(scores) * one for one in share))
    counted = pairs.weights > 0
    flagged, wrong_pairs = (pairs.scores < threshold) & counted, pairs.wrong & counted
    precision = weighted_share(pairs.wrong[flagged], pairs.weights[flagged]) if flagged.any() else None
    recall = weighted_share(flagged[wrong_pairs], pairs.weights[wrong_pairs]) if wrong_pairs.any() else None
    return Estimates(wrong, precision, recall, len(pairs.wrong))


def _of_the_others(weights: np.ndarray, others: int) -> np.ndarray:
    """The weights with which pairs speak of the rows that nobody verified: one that was drawn for certain has 0."""
    return np.maximum(weights * ((others + len(weights)) / weights.sum()) - 1, 0)


def share_wrong(pairs: Pairs, scores: np.ndarray) -> Interval:
    """Of the rows that nobody verified: what the scores say, and by how much they are off on the pairs."""
    if not len(scores) or not pairs.weights.any():
        return Interval(0.0, 0.0, 1.0) if len(scores) else Interval(0.0, 0.0, 0.0)
    off = pairs.wrong - (1 - pairs.scores)
    if not pairs.wrong.any() or pairs.wrong.all():
        return weighted_share(pairs.wrong, pairs.weights)
    weights = pairs.weights / pairs.weights.sum()
    value = float(np.clip((1 - scores).mean() + weights @ off, 1e-4, 1 - 1e-4))
    around = (off - weights @ off) ** 2
    # of the pairs, and of the rows that nobody verified, which are not the same
    spread = float(weights**2 @ around + weights @ around / len(scores)) * len(off) / (len(off) - 1)
    return _wilson(value, _as_many(value, spread, len(off)), 1 / float((weights**2).sum()))


def weighted_share(yes: np.ndarray, weights: np.ndarray) -> Interval:
    """Of rows that were drawn with different chances."""
    weights = weights / weights.sum()
    value = float(weights @ yes)
    drawn = 1 / float((weights**2).sum())
    return _wilson(value, drawn, drawn)


def _as_many(value: float, variance: float, drawn: int) -> float:
    """The number of rows drawn at random whose share has the same variance."""
    alike = value * (1 - value) / max(variance, 1e-12)
    return float(np.clip(alike, LEAST_RATIO * drawn, MOST_RATIO * drawn))


def _wilson(value: float, drawn: float, pairs: float) -> Interval:
    """Of a share that is known as well as from `drawn` rows; how well is judged by so many pairs."""
    z = float(scipy.stats.t.ppf(0.5 + LEVEL / 2, max(pairs - 1, 1)))
    middle = (value + z**2 / (2 * drawn)) / (1 + z**2 / drawn)
    half = z / (1 + z**2 / drawn) * math.sqrt(value * (1 - value) / drawn + z**2 / (4 * drawn**2))
    value = min(max(value, 0.0), 1.0)  # but for rounding it is
    return Interval(min(max(middle - half, 0.0), value), value, max(min(middle + half, 1.0), value))
