"""The principal components of features, of which there are too many for a few thousand rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MOST = 256
LEAST_SHARE = 1e-6  # of the largest variance; what varies less is rounding


class Components(NamedTuple):
    """Standardized features are multiplied by `axes`."""

    center: np.ndarray  # (d,)
    axes: np.ndarray  # (d, components), divided by the standard deviations of the features

    @classmethod
    def of(cls, features: np.ndarray, most: int = MOST) -> Components:
        """Learned from features (n, d); each component has the variance 1 in them."""
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


def _largest(features: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest variances, falling, and their axes (d, at most `most`)."""
    rows, columns = features.shape
    if rows < columns:  # the smaller of the two tables of products
        values, vectors = np.linalg.eigh((features @ features.T).astype(np.float64) / rows)
        values, vectors = values[::-1][:most].clip(0), vectors[:, ::-1][:, :most]
        lengths = np.sqrt(values * rows)
        return values, features.T @ vectors / np.where(lengths > 0, lengths, 1)
    values, vectors = np.linalg.eigh((features.T @ features).astype(np.float64) / rows)
    return values[::-1][:most].clip(0), vectors[:, ::-1][:, :most]
