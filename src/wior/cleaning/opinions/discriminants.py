"""Linear discriminants in closed form, cross-fitted: what is said of a row comes from rows of other parts.

Classes are Gaussians about their means with one covariance, that of all rows, shrunk towards a multiple of the identity
(Ledoit and Wolf 2004). Rows may belong to classes in part, so that a corrected label is no harder to learn from than a
given one: only the means change, and the covariances of the parts are factorized once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from wior.cleaning.opinions.expansion import Expansion

ROWS_AT_ONCE = 4096
KEPT_IN_MEMORY = 2**28  # numbers: expanded rows that are not computed again
SHRINKAGES = (0.01, 0.1, 0.3, 1.0)  # shares of the mean variance
TEMPERATURES = np.geomspace(0.2, 20, 41)
COMPARED = 20_000  # rows, for a temperature
FEW = 1.0  # row: classes with fewer move towards the mean of all
LEAST_LIKELY = 1e-4
LEAST_VARIANCE = 3e-4  # of rows whose variance is about one in all: above what rounding to float32 makes of none
MOST_CLASSES = 200  # beyond, classes are told apart by the covariance of all rows in place of that within classes


@dataclass(frozen=True, eq=False)
class Rule:
    """A linear discriminant of expanded rows: log p (k, classes)."""

    expansion: Expansion
    weights: np.ndarray
    constants: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return log_normalized(self.expansion(features) @ self.weights + self.constants)


class Discriminants:
    """The covariances of all rows but those of each part, and discriminants of any memberships with them."""

    def __init__(self, expansion: Expansion, features: np.ndarray, parts: np.ndarray):
        self.expansion, self.features, self.parts = expansion, features, parts
        self.count = int(parts.max()) + 1
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None
        if len(features) * expansion.width <= KEPT_IN_MEMORY:
            self._kept = list(self._computed())
        width = expansion.width
        grams, sums = np.zeros((self.count, width, width)), np.zeros((self.count, width))
        for rows, expanded in self._blocks():
            part = parts[rows[0]]
            grams[part] += expanded.T @ expanded
            sums[part] += expanded.sum(0, dtype=np.float64)
        others = len(parts) - np.bincount(parts, minlength=self.count)
        self.means = (sums.sum(0) - sums) / others[:, None]
        total = grams.sum(0)
        self.covariances = [
            (total - gram) / number - np.outer(mean, mean)
            for gram, number, mean in zip(grams, others, self.means, strict=True)
        ]
        self.factors: list[tuple[np.ndarray, bool]] = []

    def _computed(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Places of rows of one part, and the rows expanded."""
        for part in range(self.count):
            places = np.flatnonzero(self.parts == part)
            for at in range(0, len(places), ROWS_AT_ONCE):
                rows = places[at : at + ROWS_AT_ONCE]
                yield rows, self.expansion(self.features[rows])

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self._computed() if self._kept is None else iter(self._kept)

    def shrink(self, share: float) -> None:
        """Factorizes the covariances, with `share` of the mean variance added to every one."""
        self.factors = []
        for covariance in self.covariances:
            shrunk = covariance.copy()
            mean = max(float(np.trace(shrunk)) / len(shrunk), LEAST_VARIANCE)
            shrunk[np.diag_indices(len(shrunk))] += share * mean
            self.factors.append(scipy.linalg.cho_factor(shrunk, overwrite_a=True, check_finite=False))

    def sums(self, memberships: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of every part, the sum of the rows of each class and how many they are; rows that are to teach nothing have
        zeros.
        """
        classes = memberships.shape[1]
        sums, sizes = np.zeros((self.count, classes, self.expansion.width)), np.zeros((self.count, classes))
        for rows, expanded in self._blocks():
            part, members = self.parts[rows[0]], memberships[rows]
            sums[part] += members.T.astype(np.float32) @ expanded
            sizes[part] += members.sum(0)
        return sums, sizes

    def scores(self, sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """(rows, classes) of float32: log p but for a temperature, by the means of the other parts."""
        rules = [self._rule(part, sums.sum(0) - sums[part], sizes.sum(0) - sizes[part]) for part in range(self.count)]
        found = np.empty((len(self.parts), sizes.shape[1]), np.float32)
        for rows, expanded in self._blocks():
            weights, constants = rules[self.parts[rows[0]]]
            found[rows] = expanded @ weights + constants
        return found

    def rule(self, memberships: np.ndarray, temperature: float) -> Rule:
        """The rule for other rows, by the means of all rows."""
        sums, sizes = self.sums(memberships)
        weights, constants = self._rule(0, sums.sum(0), sizes.sum(0))
        return Rule(self.expansion, weights / np.float32(temperature), constants / np.float32(temperature))

    def _rule(self, part: int, sums: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights (width, classes) and constants of a discriminant."""
        shares = (sizes + 1e-3) / (sizes + 1e-3).sum()
        means = sums / np.maximum(sizes, 1e-12)[:, None] - self.means[part]
        means *= (sizes / (sizes + FEW))[:, None]
        weights = scipy.linalg.cho_solve(self.factors[part], means.T, check_finite=False)
        if len(sizes) <= MOST_CLASSES:  # from the covariance of all rows to that within classes (Woodbury)
            between = means @ weights
            weights = weights + weights @ np.linalg.solve(np.diag(1 / shares) - between, between)
        constants = np.log(shares) - 0.5 * np.einsum("kd,dk->k", means, weights) - self.means[part] @ weights
        return weights.astype(np.float32), constants.astype(np.float32)


def log_normalized(scores: np.ndarray) -> np.ndarray:
    """log p (rows, classes) of scores."""
    scores = scores - scores.max(1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    return scores


def at_best_temperature(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """log p at the temperature that makes the labels likeliest (−1 where there is none), and their mean loss."""
    temperature, loss = best_temperature(scores, labels)
    return log_normalized(scores / np.float32(temperature)), loss


def best_temperature(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The temperature that makes the labels likeliest, and their mean loss at it."""
    rows = np.flatnonzero(labels >= 0)
    if len(rows) > COMPARED:
        rows = rows[np.linspace(0, len(rows) - 1, COMPARED).astype(int)]
    some, right = scores[rows], labels[rows]
    losses = [-log_normalized(some / t)[np.arange(len(right)), right].mean() for t in TEMPERATURES]
    best = int(np.argmin(losses))
    return float(TEMPERATURES[best]), float(losses[best])


def best_loss(logs: np.ndarray, labels: np.ndarray) -> float:
    """The mean loss at the best temperature; a label counts as no less likely than `LEAST_LIKELY`."""
    rows = np.arange(len(labels))
    losses = []
    for temperature in TEMPERATURES:
        p = np.exp(log_normalized(logs / temperature))[rows, labels]
        losses.append(-np.log(p + LEAST_LIKELY).mean())
    return float(min(losses))
