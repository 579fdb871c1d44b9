"""Opinions are weighted as the verified rows like best; the table of which class is labeled how and Bayes' rule make
them a probability of the given label.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from wior.cleaning.opinions.discriminants import log_normalized
from wior.cleaning.opinions.rows import Rows
from wior.cleaning.opinions.table import likeliest_tables, posterior_of
from wior.cleaning.opinions.threads import by_one_blas_thread

FLOOR = 1e-4  # probability that is added to every class, so that no opinion is beyond doubt
TOWARDS_FIRST = 2.0  # verified rows: what the wish to trust the first opinion alone counts against them
MOST_WEIGHT = 3.0
TABLE_PASSES = 5


class Opinion(NamedTuple):
    """log p (N, classes) of the right label."""

    name: str
    logs: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Combined:
    """What the opinions say together."""

    posterior: np.ndarray  # (N, classes) of float32: the probability of every class, the given label known
    tables: np.ndarray
    weights: dict[str, float]  # of the opinions
    gains: np.ndarray  # log p of each verified row, above that by the shares of the classes; its given label unknown
    loss: float  # on verified rows; nan without any


@by_one_blas_thread
def combine(rows: Rows, opinions: Sequence[Opinion], counts: np.ndarray) -> Combined:
    """The opinions together, and Bayes' rule. The first opinion is the one to trust where little is known."""
    together, weights = _weighted(rows, opinions)
    found = likeliest_tables(together, rows, counts, TABLE_PASSES)
    posterior = np.exp(posterior_of(together, found, rows))
    known = np.flatnonzero(rows.known)
    right = rows.right[known]
    frequent = (np.bincount(right, minlength=rows.classes) + 1) / (len(right) + rows.classes)
    logs = together[known, right]
    told = ~rows.paired[known] | (rows.weights[known] > 0)  # of the others their score was the reason to look
    gains = (logs - np.log(frequent[right]))[told]
    names = [one.name for one in opinions]
    loss = float(-logs.mean()) if len(known) else float("nan")
    return Combined(posterior, found, dict(zip(names, weights.tolist(), strict=True)), gains, loss)


def _weighted(rows: Rows, opinions: Sequence[Opinion]) -> tuple[np.ndarray, np.ndarray]:
    """log p (N, classes), in proportion to a weighted sum of log p, and the weights."""
    logs = [np.log(np.exp(one.logs) + FLOOR) for one in opinions]
    start = np.zeros(len(opinions))
    start[0] = 1.0
    known = np.flatnonzero(rows.known)
    weights = start
    if len(known):
        right, shown = rows.right[known], np.stack([one[known] for one in logs])
        at_right = shown[:, np.arange(len(known)), right].sum(1)

        def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
            together = log_normalized(np.einsum("k,knc->nc", weights, shown))
            slope = np.einsum("nc,knc->k", np.exp(together), shown) - at_right
            value = -together[np.arange(len(known)), right].sum() + TOWARDS_FIRST * ((weights - start) ** 2).sum()
            return float(value), slope + 2 * TOWARDS_FIRST * (weights - start)

        bounds = [(0.0, MOST_WEIGHT)] * len(opinions)
        weights = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    total = np.zeros_like(logs[0])
    for weight, one in zip(weights, logs, strict=True):
        if weight:
            total += np.float32(weight) * one
    return log_normalized(total), weights
