"""The rows that are most alike, for the review page."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wior.cleaning.opinions.expansion import Scaling

COUNT = 5
ROWS_AT_ONCE = 256
MOST_LOOKED_UP = 2000  # rows of the lowest scores
MOST_NUMBERS = 2**28  # of all rows, as they are compared
AMONG = 200_000  # rows


class Similar(NamedTuple):
    places: np.ndarray  # (n, COUNT) the most similar first; a row itself where none was looked up
    similarity: np.ndarray  # (n, COUNT) the cosine of scaled rows, from 0 on


def similar(features: np.ndarray, scores: np.ndarray, seed: int) -> Similar | None:
    """The rows most similar to each of those with the lowest scores; `None` where rows are too few or too large."""
    n = len(features)
    if n <= COUNT or features.ndim != 2 or not features.shape[1]:
        return None
    scaling = Scaling.of(features, None, seed)
    among = np.arange(n) if n <= AMONG else np.sort(np.random.default_rng(seed).permutation(n)[:AMONG])
    if len(among) * min(features.shape[1], 512) > MOST_NUMBERS:
        return None
    others = _of_length_one(scaling(features[among]))
    places = np.repeat(np.arange(n)[:, None], COUNT, 1)
    similarity = np.zeros((n, COUNT), np.float32)
    lowest = np.argsort(scores, kind="stable")[:MOST_LOOKED_UP]
    for at in range(0, len(lowest), ROWS_AT_ONCE):
        rows = lowest[at : at + ROWS_AT_ONCE]
        alike = _of_length_one(scaling(features[rows])) @ others.T
        alike[rows[:, None] == among] = -1
        best = np.argpartition(-alike, COUNT, 1)[:, :COUNT]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(alike, best, 1), 1, kind="stable"), 1)
        places[rows] = among[best]
        similarity[rows] = np.clip(np.take_along_axis(alike, best, 1), 0, 1)
    return Similar(places, similarity)


def _of_length_one(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
