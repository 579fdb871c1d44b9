"""Pairs of a given and a right label say how far a posterior can be trusted: scores are calibrated by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from wior.cleaning.opinions.rows import Rows, members
from wior.cleaning.opinions.threads import by_one_blas_thread

FARTHEST = 8.0  # log odds
RIDGE = 5.0  # of the slope and of what classes add
LEAST_RIDGE = 0.1  # of the constant
HEAVIEST = 5.0  # times the mean weight: the most that a pair counts
LEAST_WORTH = 0.2  # a flag: the smallest probability of being wrong


class Calibrated(NamedTuple):
    scores: np.ndarray  # (N,) the probability that the given label is right; 1 outside of the table
    unseen: np.ndarray  # (N,) of pairs, as they would be judged if they were not known; nan elsewhere


@by_one_blas_thread
def calibrated(rows: Rows, posterior: np.ndarray) -> Calibrated:
    """Scores by pairs: log odds of the posterior with a slope, and a constant for each given class, both drawn to those
    of a posterior that can be trusted. A pair is judged by the pairs of other parts.
    """
    places, pairs = np.flatnonzero(rows.in_table), rows.pairs
    scores, unseen = np.ones(len(rows.given)), np.full(len(rows.given), np.nan)
    own = posterior[np.arange(len(rows.given)), rows.given].astype(float)
    if not len(pairs):
        scores[places] = own[places]
        return Calibrated(scores, unseen)
    odds = np.clip(np.log1p(-np.minimum(own, 1 - 1e-7)) - np.log(np.maximum(own, 1e-12)), -FARTHEST, FARTHEST)
    traits = lambda some: np.column_stack([np.ones(len(some)), odds[some], members(rows.given[some], rows.classes)])
    wrong = (rows.right != rows.given).astype(float)
    weights = np.minimum(rows.weights / rows.weights[pairs].mean(), HEAVIEST)

    def learned(some: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        numbers = _logistic(traits(some), wrong[some], weights[some])
        return lambda others: 1 / (1 + np.exp(traits(others) @ numbers))

    scores[places] = learned(pairs)(places)
    for part in np.unique(rows.parts[pairs]):
        here = rows.parts[pairs] == part
        unseen[pairs[here]] = learned(pairs[~here])(pairs[here])
    return Calibrated(scores, unseen)


def _logistic(traits: np.ndarray, wrong: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The numbers of log odds that a label is wrong."""
    towards = np.zeros(traits.shape[1])
    towards[1] = 1.0
    ridge = np.full(traits.shape[1], RIDGE)
    ridge[0] = LEAST_RIDGE

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        odds, off = traits @ numbers, numbers - towards
        value = (weights * (np.logaddexp(0, odds) - wrong * odds)).sum() + 0.5 * (ridge * off**2).sum()
        return float(value), traits.T @ (weights * (1 / (1 + np.exp(-odds)) - wrong)) + ridge * off

    return np.asarray(minimize(loss, towards, jac=True, method="L-BFGS-B").x)


def best_threshold(scores: np.ndarray) -> float:
    """The score below which a label is flagged so that the expected F1 is highest, if the scores are probabilities.

    A row is worth a flag where its probability of being wrong exceeds half of the F1 that is reached (Lipton et al.
    2014). Where little is wrong that half is so small that much would be flagged in vain: it is at least `LEAST_WORTH`.
    """
    wrong = np.sort(1 - scores)[::-1]
    hits = np.cumsum(wrong)
    reached = float((2 * hits / (np.arange(1, len(wrong) + 1) + wrong.sum())).max()) if len(wrong) else 1.0
    return 1 - float(np.clip(reached / 2, LEAST_WORTH, 0.5))
