"""Linear discriminants in closed form, cross-fitted: what is said of a row comes from rows of other parts.

Classes are Gaussians about their means with one covariance, that of all rows, shrunk towards a multiple of the identity
(Ledoit and Wolf 2004). Rows may belong to classes in part, so that a corrected label is no harder to learn from than a
given one: only the means change, and the covariances of the parts are factorized once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from wior.cleaning.opinions.expansion import Expansion
from wior.cleaning.opinions.threads import by_one_blas_thread, side_by_side

ROWS_AT_ONCE = 4096
KEPT_IN_MEMORY = 2**28  # numbers: expanded rows that are not computed again
SHRINKAGES = (0.01, 0.1, 0.3, 1.0)  # shares of the mean variance
TEMPERATURES = np.geomspace(0.2, 20, 41)
EVERY = 5  # temperature, at first
COMPARED, NUMBERS_COMPARED = 5_000, 2**22  # rows, for a temperature, and scores of them
FEW = 1.0  # row: classes with fewer move towards the mean of all
LEAST_LIKELY = 1e-4
LEAST_VARIANCE = 3e-4  # of rows whose variance is about one in all: above what rounding to float32 makes of none
FEW_CLASSES = 64
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
        self._of_rows(expansion, features, parts)
        width = expansion.width
        grams, sums = np.zeros((self.count, width, width)), np.zeros((self.count, width))
        squared = lambda rows, expanded: (parts[rows[0]], expanded.T @ expanded, expanded.sum(0, dtype=np.float64))
        for part, gram, together in self._of_each_block(squared):
            grams[part] += gram
            sums[part] += together
        others = len(parts) - np.bincount(parts, minlength=self.count)
        self.means = (sums.sum(0) - sums) / others[:, None]
        total = grams.sum(0)
        self.covariances = []
        for gram, number, mean in zip(grams, others, self.means, strict=True):
            np.subtract(total, gram, out=gram)
            gram /= number
            gram -= np.outer(mean, mean)
            self.covariances.append(gram)
        self.factors: list[tuple[np.ndarray, bool]] = []

    def of_others(self, features: np.ndarray, parts: np.ndarray) -> Discriminants:
        """Of other rows, cut in the same parts, with the covariances and the shrinkage of these."""
        made = copy.copy(self)
        made._of_rows(self.expansion, features, parts)
        return made

    def _of_rows(self, expansion: Expansion, features: np.ndarray, parts: np.ndarray) -> None:
        self.expansion, self.features, self.parts = expansion, features, parts
        self.count = max(int(parts.max()) + 1, getattr(self, "count", 0))
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None
        places = [np.flatnonzero(parts == part) for part in range(self.count)]
        self._places = [own[at : at + ROWS_AT_ONCE] for own in places for at in range(0, len(own), ROWS_AT_ONCE)]
        if len(features) * expansion.width <= KEPT_IN_MEMORY:
            self._kept = list(side_by_side(self._expanded, self._places))

    def _expanded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return rows, self.expansion(self.features[rows])

    def _of_each_block(self, function: Callable[[np.ndarray, np.ndarray], Any]) -> Iterator[Any]:
        """Of places of rows of one part, and the rows expanded."""
        if self._kept is None:
            return side_by_side(lambda rows: function(*self._expanded(rows)), self._places)
        return side_by_side(lambda block: function(*block), self._kept)

    @by_one_blas_thread
    def shrink(self, share: float) -> None:
        """Factorizes the covariances, with `share` of the mean variance added to every one."""
        self.factors = []
        for covariance in self.covariances:
            shrunk = covariance.copy().T  # in the order of Fortran, which is not copied again
            mean = max(float(np.trace(shrunk)) / len(shrunk), LEAST_VARIANCE)
            shrunk[np.diag_indices(len(shrunk))] += share * mean
            self.factors.append(scipy.linalg.cho_factor(shrunk, overwrite_a=True, check_finite=False))

    @by_one_blas_thread
    def sums(self, memberships: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of every part, the sum of the rows of each class and how many they are; rows that are to teach nothing have
        zeros. Memberships of several models stand side by side.
        """
        classes = memberships.shape[1]
        sums, sizes = np.zeros((self.count, classes, self.expansion.width)), np.zeros((self.count, classes))

        def of_block(rows: np.ndarray, expanded: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
            members = memberships[rows].astype(np.float32, copy=False)
            return self.parts[rows[0]], members.T @ expanded, np.ones(len(rows), np.float32) @ members

        for part, together, size in self._of_each_block(of_block):
            sums[part] += together
            sizes[part] += size
        return sums, sizes

    @by_one_blas_thread
    def scores(self, sums: np.ndarray, sizes: np.ndarray, models: int = 1) -> np.ndarray:
        """(rows, classes) of float32: log p but for a temperature, by the means of the other parts. Scores of several
        models stand side by side.
        """
        all_sums, all_sizes = sums.sum(0), sizes.sum(0)
        rules = [self._rule(part, all_sums - sums[part], all_sizes - sizes[part], models) for part in range(self.count)]
        found = np.empty((len(self.parts), sizes.shape[1]), np.float32)

        def score(rows: np.ndarray, expanded: np.ndarray) -> None:
            weights, constants = rules[self.parts[rows[0]]]
            found[rows] = expanded @ weights + constants

        for _ in self._of_each_block(score):
            pass
        return found

    def rule(self, sums: np.ndarray, sizes: np.ndarray, temperature: float) -> Rule:
        """The rule for other rows, by the means of all rows."""
        weights, constants = self._rule(0, sums.sum(0), sizes.sum(0), 1)
        return Rule(self.expansion, weights / np.float32(temperature), constants / np.float32(temperature))

    def _rule(self, part: int, sums: np.ndarray, sizes: np.ndarray, models: int) -> tuple[np.ndarray, np.ndarray]:
        """The weights (width, classes) and constants of a discriminant, or of several side by side."""
        sizes = sizes.reshape(models, -1)
        shares = (sizes + 1e-3) / (sizes + 1e-3).sum(1, keepdims=True)
        means = sums / np.maximum(sizes, 1e-12).reshape(-1, 1) - self.means[part]
        means *= (sizes / (sizes + FEW)).reshape(-1, 1)
        weights = scipy.linalg.cho_solve(self.factors[part], means.T, check_finite=False)
        if sizes.shape[1] <= MOST_CLASSES:  # from the covariance of all rows to that within classes (Woodbury)
            for number, share in enumerate(shares):
                here = slice(number * len(share), (number + 1) * len(share))
                between = means[here] @ weights[:, here]
                weights[:, here] += weights[:, here] @ np.linalg.solve(np.diag(1 / share) - between, between)
        constants = np.log(shares).ravel() - 0.5 * np.einsum("kd,dk->k", means, weights) - self.means[part] @ weights
        return weights.astype(np.float32), constants.astype(np.float32)


def log_normalized(scores: np.ndarray) -> np.ndarray:
    """log p (rows, classes) of scores."""
    if scores.shape[1] > FEW_CLASSES:
        scores = scores - scores.max(1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(1, keepdims=True))
        return scores
    turned = scores.T.copy()  # numpy is slow at very short rows
    turned -= turned.max(0)
    turned -= np.log(np.exp(turned).sum(0))
    return turned.T.copy()


def at_best_temperature(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """log p at the temperature that makes the labels likeliest (−1 where there is none), and their mean loss."""
    temperature, loss = best_temperature(scores, labels)
    return log_normalized(scores / np.float32(temperature)), loss


def best_temperature(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The temperature that makes the labels likeliest, and their mean loss at it."""
    rows = np.flatnonzero(labels >= 0)
    most = compared(scores.shape[1])
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).astype(int)]
    some, right = below_highest(scores[rows]), labels[rows]
    at_right = float(some[right, np.arange(len(right))].mean(dtype=np.float64))

    def loss(temperature: float) -> float:
        together = np.exp(some / some.dtype.type(temperature)).sum(0)
        return float(np.log(together).mean(dtype=np.float64)) - at_right / temperature

    return lowest(TEMPERATURES, loss)


def below_highest(scores: np.ndarray) -> np.ndarray:
    """(classes, rows) The scores, without the highest of their row."""
    turned = scores.T.copy()
    turned -= turned.max(0)
    return turned


def lowest(temperatures: np.ndarray, loss: Callable[[float], float]) -> tuple[float, float]:
    """The temperature of the lowest loss, and that. Every few are looked at, then those about the best of them."""
    losses: dict[int, float] = {}
    for stride in (EVERY, 1):
        best = min(losses, key=lambda at: (losses[at], at)) if losses else None
        around = range(len(temperatures)) if best is None else range(best - EVERY + 1, best + EVERY)
        for at in around[::stride]:
            if 0 <= at < len(temperatures) and at not in losses:
                losses[at] = loss(float(temperatures[at]))
    best = min(losses, key=lambda at: (losses[at], at))
    return float(temperatures[best]), losses[best]


def compared(classes: int) -> int:
    """How many rows are looked at for a temperature: fewer of very many classes."""
    return max(min(COMPARED, NUMBERS_COMPARED // classes), 1)


def best_loss(logs: np.ndarray, labels: np.ndarray) -> float:
    """The mean loss at the best temperature; a label counts as no less likely than `LEAST_LIKELY`."""
    below, rows = below_highest(logs), np.arange(len(labels))
    losses = []
    for temperature in TEMPERATURES:
        shares = np.exp(below / temperature)
        losses.append(-np.log(shares[labels, rows] / shares.sum(0) + LEAST_LIKELY).mean())
    return float(min(losses))
