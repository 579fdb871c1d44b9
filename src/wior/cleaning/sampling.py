"""Which rows are worth a look: more of those whose label is in doubt, some of every class, each with a known chance.

Rows are drawn without replacement with chances in proportion to sizes (systematic sampling, Madow 1949). One over its
chance is the weight of a row, so that what the rows say of the whole table is not biased by how they were chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

EVENLY = 0.8  # of the rows are drawn as if nothing were known: what a model is sure of is looked at too
OF_EVERY_CLASS = 2.0  # rows that are expected at least, of each given class


class Drawn(NamedTuple):
    places: np.ndarray  # (k,) in the order in which they are to be shown
    chances: np.ndarray  # (k,)


def draw(scores: np.ndarray, given: np.ndarray, candidates: np.ndarray, count: int, seed: int) -> Drawn:
    """`count` of the candidates. `scores`: the probability that each given label is right."""
    count = min(count, len(candidates))
    chances = chances_of(scores[candidates], given[candidates], count)
    rng = np.random.default_rng(seed)
    # neighbors in this order are alike, so that every class and every degree of doubt is drawn from
    order = np.lexsort((scores[candidates], given[candidates]))
    ends = np.cumsum(chances[order])
    ends *= count / ends[-1]
    chosen = order[np.minimum(np.searchsorted(ends, rng.random() + np.arange(count), side="right"), len(order) - 1)]
    chosen = rng.permutation(chosen)
    return Drawn(candidates[chosen], chances[chosen])


def chances_of(scores: np.ndarray, given: np.ndarray, count: int) -> np.ndarray:
    """With which chance each row is drawn; they sum to `count`."""
    if count >= len(scores):
        return np.ones(len(scores))
    doubt = np.sqrt(np.clip(scores * (1 - scores), 0, None)) + 1e-6
    sizes = EVENLY / len(scores) + (1 - EVENLY) * doubt / doubt.sum()
    wanted = np.minimum(OF_EVERY_CLASS, np.bincount(given))
    chances, rest, left = np.empty(len(scores)), np.ones(len(scores), bool), float(count)
    if wanted.sum() < count / 2:
        for taken in _scarce(np.bincount(given, sizes * count), wanted):
            rows = given == taken
            chances[rows] = _at_most_one(sizes[rows], wanted[taken])
            rest &= ~rows
            left -= wanted[taken]
    chances[rest] = _at_most_one(sizes[rest], left)
    return chances


def _scarce(of_class: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The classes of which fewer rows would be drawn than wanted, also once the others have what is left."""
    low, total = np.zeros(len(wanted), bool), of_class.sum()
    while True:
        share = (total - wanted[low].sum()) / of_class[~low].sum()
        below = ~low & (share * of_class < wanted)
        if not below.any():
            return np.flatnonzero(low)
        low |= below


def _at_most_one(sizes: np.ndarray, count: float) -> np.ndarray:
    """Chances in proportion to sizes; rows whose size asks for more than one are drawn for certain."""
    if count >= len(sizes):
        return np.ones(len(sizes))
    certain = np.zeros(len(sizes), bool)
    while True:
        rest = sizes * ~certain
        chances = np.where(certain, 1.0, rest * (count - certain.sum()) / rest.sum())
        beyond = (chances >= 1) & ~certain
        if not beyond.any():
            return chances
        certain |= beyond
