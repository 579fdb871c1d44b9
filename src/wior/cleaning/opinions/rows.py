"""The rows that opinions are formed of: given labels, right labels where they are known, and parts."""

from __future__ import annotations

import dataclasses

import numpy as np

from wior.cleaning.tables.job import UNKNOWN

PARTS = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """N rows: those of the table, and after them verified ones that are not in it."""

    features: np.ndarray
    given: np.ndarray  # (N,) places in the classes, UNKNOWN outside of the table
    right: np.ndarray  # (N,) places, UNKNOWN where nobody looked
    paired: np.ndarray  # (N,) of bool: a verified row whose given label is from before somebody looked
    weights: np.ndarray  # (N,) of a pair, one over the chance with which it was drawn; 0 where its score was the reason
    classes: int
    parts: np.ndarray  # (N,) the part of each row: a row is judged by models of the other parts

    @property
    def known(self) -> np.ndarray:
        """(N,) of bool: verified rows."""
        return self.right != UNKNOWN

    @property
    def in_table(self) -> np.ndarray:
        """(N,) of bool: rows that have a given label."""
        return self.given != UNKNOWN

    @property
    def count_of_parts(self) -> int:
        return int(self.parts.max()) + 1

    @property
    def pairs(self) -> np.ndarray:
        """The places of pairs of a given and a right label that say how often labels are wrong."""
        return np.flatnonzero(self.paired & (self.weights > 0))

    def some(self, places: np.ndarray) -> Rows:
        """The rows at some places."""
        names = ("features", "given", "right", "paired", "weights", "parts")
        return dataclasses.replace(self, **{name: getattr(self, name)[places] for name in names})


def parted(given: np.ndarray, right: np.ndarray, seed: int, parts: int = PARTS) -> np.ndarray:
    """(N,) parts of equal size; the verified rows of every class are spread over them."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(given))
    rows = rows[np.lexsort((given[rows], -right[rows]))]
    found = np.empty(len(given), np.int32)
    found[rows] = np.arange(len(given)) % min(parts, len(given))
    return found


def members(labels: np.ndarray, classes: int) -> np.ndarray:
    """(N, classes): 1 at each label, zeros where there is none."""
    found = np.zeros((len(labels), classes), np.float32)
    rows = np.flatnonzero(labels >= 0)
    found[rows, labels[rows]] = 1
    return found
