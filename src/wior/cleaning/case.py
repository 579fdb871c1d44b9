"""What a cleaner learns from: rows of a table, and what is known of their right labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wior.cleaning.opinions.rows import UNKNOWN, Rows, parted


class Case(NamedTuple):
    """n rows of a table and m verified rows beside it; labels are places in the classes."""

    features: np.ndarray  # (n, d)
    given: np.ndarray  # (n,)
    right: np.ndarray  # (n,) UNKNOWN where nobody looked
    paired: np.ndarray  # (n,) of bool: of a verified row, the given label is from before somebody looked
    # (n,) with which a row was drawn to be verified; nan: nobody knows, 0: its score was the reason
    chances: np.ndarray
    outside_features: np.ndarray  # (m, d)
    outside: np.ndarray  # (m,)
    probabilities: np.ndarray | None = None  # (n, classes)

    def rows(self, classes: int, seed: int) -> Rows:
        """All n + m rows, cut into parts."""
        features = self.features.reshape(len(self.features), -1)
        if not features.shape[1] and self.probabilities is not None:
            features = np.log(np.maximum(self.probabilities, 1e-6)).astype(np.float32)
        beside = len(self.outside)
        if beside:
            features = np.concatenate([features, self.outside_features.reshape(beside, -1)])
        given = np.concatenate([self.given, np.full(beside, UNKNOWN)]).astype(np.int32)
        right = np.concatenate([self.right, self.outside]).astype(np.int32)
        paired = np.concatenate([self.paired & (self.right != UNKNOWN), np.zeros(beside, bool)])
        weights = np.zeros(len(given))
        with np.errstate(divide="ignore"):
            drawn = np.where(np.isnan(self.chances), np.nan, 1 / np.maximum(self.chances, 1e-300))
        known = np.isfinite(drawn) & (self.chances > 0)
        usual = float(drawn[known].mean()) if known.any() else 1.0  # where the chance of some is not known
        weights[: len(self.given)] = np.where(known, drawn, np.where(np.isnan(self.chances), usual, 0.0))
        weights[~paired] = 0
        return Rows(features, given, right, paired, weights, classes, parted(given, right, seed))
