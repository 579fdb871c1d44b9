"""Features as closed-form models see them: scaled, and with random rectified sums of them beside.

A row x becomes (s(x − c), h(x)), where h are sums of the scaled columns with random weights, cut at zero. A linear
model of both is a network whose first layer is drawn and not learned (Rahimi and Recht 2008), and has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from wior.cleaning.models import column_statistics

FURTHEST = 8.0  # standard deviations: what lies further counts as that far
SAME_UNIT = 30.0  # times the median deviation: the largest of columns that share a unit
SUMS = 1000
MOST_COLUMNS, KEPT_COLUMNS = 512, 256
LOOKED_AT = 10_000  # rows, for what is estimated of the columns
OFFSET = 0.5  # deviation of the offset of a sum
ONE_VALUE = 0.9  # of the variance of a column: where one value causes so much of it, it is a typing error


@dataclass(frozen=True, eq=False)
class Scaling:
    """Columns about their means, each divided by its own deviation or all by one; very many columns become fewer."""

    center: np.ndarray
    scale: np.ndarray
    limit: np.ndarray  # of a scaled value
    turn: np.ndarray | None  # (columns, kept)

    @classmethod
    def of(cls, features: np.ndarray, standardize: bool | None, seed: int) -> Scaling:
        """`standardize`: whether each column has a unit of its own; `None`: where their deviations are far apart."""
        center, deviation = _statistics(features)
        varying = deviation > np.maximum(1e-6 * np.abs(center), 1e-30)
        spread = deviation[varying]
        if standardize is None:
            standardize = bool(len(spread)) and bool(spread.max() > SAME_UNIT * np.median(spread))
        if standardize:
            divisor = np.where(varying, deviation, 1.0) * np.sqrt(max(len(spread), 1))
        else:
            divisor = np.full(len(deviation), np.sqrt((spread**2).sum()) or 1.0)
        scale = np.where(varying, 1.0 / divisor, 0.0)
        limit = FURTHEST * deviation * scale
        bare = cls(center.astype(np.float32), scale.astype(np.float32), limit.astype(np.float32), None)
        sample = bare(sampled(features, seed))
        if sample.shape[1] <= MOST_COLUMNS or len(sample) <= KEPT_COLUMNS:
            return bare
        turn = randomized_svd(sample, KEPT_COLUMNS, random_state=seed)[2].T.astype(np.float32)
        return cls(bare.center, bare.scale, bare.limit, turn)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """The scaled columns of some rows."""
        with np.errstate(over="ignore"):
            scaled = (features.astype(np.float32) - self.center) * self.scale
        scaled = np.clip(scaled, -self.limit, self.limit)
        return scaled if self.turn is None else scaled @ self.turn


@dataclass(frozen=True, eq=False)
class Expansion:
    """Scaled columns, and rectified sums of them of the same total variance."""

    scaling: Scaling
    directions: np.ndarray  # (columns, sums)
    offsets: np.ndarray
    center: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, standardize: bool | None, seed: int, sums: int = SUMS) -> Expansion:
        scaling = Scaling.of(features, standardize, seed)
        scaled = scaling(sampled(features, seed))
        rng = np.random.default_rng(seed)
        length = _length(scaled)
        directions = (rng.standard_normal((scaled.shape[1], sums)) / length).astype(np.float32)
        offsets = (OFFSET * rng.standard_normal(sums)).astype(np.float32)
        drawn = np.maximum(scaled @ directions + offsets, 0)
        center = drawn.mean(0)
        scale = np.float32(length / _length(drawn - center))
        return cls(scaling, directions * scale, offsets * scale, center * scale)

    @property
    def width(self) -> int:
        return int(sum(self.directions.shape))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """(k, width) of some rows."""
        scaled = self.scaling(features)
        columns = scaled.shape[1]
        found = np.empty((len(features), self.width), np.float32)
        found[:, :columns] = scaled
        sums = found[:, columns:]
        np.matmul(scaled, self.directions, out=sums)
        sums += self.offsets
        np.maximum(sums, 0, out=sums)
        sums -= self.center
        return found


def sampled(features: np.ndarray, seed: int) -> np.ndarray:
    """Some of many rows."""
    if len(features) <= LOOKED_AT:
        return features
    return features[np.sort(np.random.default_rng(seed).permutation(len(features))[:LOOKED_AT])]


def _statistics(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of every column, without one value that is as far off as all others together are not."""
    with np.errstate(over="ignore", invalid="ignore"):
        center, deviation = column_statistics(features)
        furthest = np.maximum(features.max(0) - center, center - features.min(0))
        one = furthest**2 > ONE_VALUE * len(features) * deviation**2
    for column in np.flatnonzero(one | ~np.isfinite(deviation)):
        values = np.asarray(features[:, column], np.float64)
        others = np.delete(values, np.argmax(np.abs(values - np.median(values))))
        if len(others) and others.std() > 0:
            center[column], deviation[column] = others.mean(), others.std()
    return center, deviation


def _length(rows: np.ndarray) -> float:
    """The root of the mean square length of rows."""
    return float(np.sqrt((rows.astype(np.float64) ** 2).sum(1).mean())) or 1.0
