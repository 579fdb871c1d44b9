"""The principal components of features, of which there are too many for a few thousand rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from sklearn.utils.extmath import randomized_svd

FEWEST, MOST = 16, 256
EXACT = 2_000  # rows or features; above, the components are those of a random projection
SEED = 0
LEAST_SHARE = 1e-6  # of the largest variance; what varies less is rounding


class Components(NamedTuple):
    """Standardized features are multiplied by `axes`."""

    center: np.ndarray  # (d,)
    axes: np.ndarray  # (d, components), divided by the standard deviations of the features

    @classmethod
    def of(cls, features: np.ndarray, rows: int) -> Components:
        """Learned from features (n, d), of some of `rows` rows; each component has the variance 1 in them."""
        most = min(wanted(rows), *features.shape)
        center = features.mean(0, dtype=np.float64)
        deviations = features.std(0, dtype=np.float64)
        scale = np.where(deviations > 0, 1 / np.where(deviations > 0, deviations, 1), 0)
        center, scale = center.astype(np.float32), scale.astype(np.float32)
        standardized = (features - center) * scale
        variances, axes = _largest(standardized, most)
        kept = variances > LEAST_SHARE * variances.max()
        if not kept.any():  # all rows are the same
            return cls(center, np.zeros((len(center), 1), np.float32))
        axes, variances = axes[:, kept], variances[kept]
        # the sign of an axis is nobody's choice: its largest entry is positive
        axes = axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
        return cls(center, (scale[:, None] * axes / np.sqrt(variances)).astype(np.float32))

    def apply(self, features: np.ndarray) -> np.ndarray:
        """(n, components) of float32."""
        return (features.astype(np.float32) - self.center) @ self.axes


def wanted(rows: int) -> int:
    """How many components for so many rows: with more of them, a model of wrong labels learns the labels by heart."""
    return min(max(round(2 * math.sqrt(rows)), FEWEST), MOST)


def _largest(features: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest variances, falling, and their axes (d, at most `most`)."""
    rows, columns = features.shape
    if min(rows, columns) > EXACT:
        _, lengths, axes = randomized_svd(features, most, n_oversamples=20, n_iter=2, random_state=SEED)
        return lengths.astype(np.float64) ** 2 / rows, axes.T
    if rows < columns:  # the smaller of the two tables of products
        values, vectors = np.linalg.eigh((features @ features.T).astype(np.float64) / rows)
        values, vectors = values[::-1][:most].clip(0), vectors[:, ::-1][:, :most]
        lengths = np.sqrt(values * rows)
        return values, features.T @ vectors / np.where(lengths > 0, lengths, 1)
    values, vectors = np.linalg.eigh((features.T @ features).astype(np.float64) / rows)
    return values[::-1][:most].clip(0), vectors[:, ::-1][:, :most]
