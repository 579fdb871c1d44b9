"""What a cleaner learns from: rows of a table, and what is known of their right labels."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from wior.cleaning.opinions.rows import UNKNOWN, Rows, parted


class Case(Protocol):
    """n rows of a table and m verified rows beside it, with labels as places in the classes. A `Job` is one."""

    @property
    def features(self) -> np.ndarray:
        """(n, d)"""

    @property
    def given(self) -> np.ndarray:
        """(n,)"""

    @property
    def right(self) -> np.ndarray:
        """(n,) `UNKNOWN` where nobody looked."""

    @property
    def paired(self) -> np.ndarray:
        """(n,) of bool: of a verified row, the given label is the one from before somebody looked."""

    @property
    def chances(self) -> np.ndarray:
        """(n,) with which a row was drawn to be verified; nan: nobody knows, 0: its score was the reason."""

    @property
    def outside_features(self) -> np.ndarray:
        """(m, d)"""

    @property
    def outside(self) -> np.ndarray:
        """(m,)"""

    @property
    def probabilities(self) -> np.ndarray | None:
        """(n, classes) by a model of the user's own."""


class ArraysCase(NamedTuple):
    """The case of `LabelCleaner.fit`."""

    features: np.ndarray
    given: np.ndarray
    right: np.ndarray
    paired: np.ndarray
    chances: np.ndarray
    outside_features: np.ndarray
    outside: np.ndarray
    probabilities: np.ndarray | None = None


def rows_of(case: Case, classes: int, seed: int) -> Rows:
    """All n + m rows, cut into parts."""
    features = case.features.reshape(len(case.features), -1)
    if not features.shape[1] and case.probabilities is not None:
        features = np.log(np.maximum(case.probabilities, 1e-6)).astype(np.float32)
    beside = len(case.outside)
    if beside:
        features = np.concatenate([features, case.outside_features.reshape(beside, -1)])
    given = np.concatenate([case.given, np.full(beside, UNKNOWN)]).astype(np.int32)
    right = np.concatenate([case.right, case.outside]).astype(np.int32)
    paired = np.concatenate([case.paired & (case.right != UNKNOWN), np.zeros(beside, bool)])
    weights = np.zeros(len(given))
    with np.errstate(divide="ignore"):
        drawn = np.where(np.isnan(case.chances), np.nan, 1 / np.maximum(case.chances, 1e-300))
    known = np.isfinite(drawn) & (case.chances > 0)
    usual = float(drawn[known].mean()) if known.any() else 1.0  # where the chance of some is not known
    weights[: len(case.given)] = np.where(known, drawn, np.where(np.isnan(case.chances), usual, 0.0))
    weights[~paired] = 0
    return Rows(features, given, right, paired, weights, classes, parted(given, right, seed))
