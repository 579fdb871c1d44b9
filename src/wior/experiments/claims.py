"""Verdicts on what a paper claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Verdict = Literal["holds", "partly", "does not hold"]


class Claim(NamedTuple):
    """What is claimed, whether it is so here, and the numbers that say it."""

    text: str
    verdict: Verdict
    evidence: str


def as_json(claims: Sequence[Claim]) -> list[dict[str, str]]:
    return [claim._asdict() for claim in claims]


def markdown(claims: Sequence[Claim]) -> str:
    return "\n".join(f"- **{claim.verdict}**: {claim.text}\n  {claim.evidence}" for claim in claims)


def verdict(parts: Sequence[bool]) -> Verdict:
    """Of a claim in parts: all, some or none of them hold."""
    return "holds" if all(parts) else "partly" if any(parts) else "does not hold"


class Ends(NamedTuple):
    """The last values of a measure over the seeds of a method."""

    values: np.ndarray
    largest: bool  # whether larger is better

    @property
    def mean(self) -> float:
        """Not finite where a run diverged."""
        return mean_and_deviation(self.values)[0]

    @property
    def error(self) -> float:
        """The standard error of the mean; zero for one seed."""
        return mean_and_deviation(self.values)[1] / len(self.values) ** 0.5

    def __str__(self) -> str:
        mean, deviation = mean_and_deviation(self.values)
        return f"{mean:.4g} ± {deviation:.1g}"


def mean_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation over seeds, the latter zero for one seed.

    Not finite where a run diverged, without a warning.
    """
    values = np.asarray(values, float)
    with np.errstate(invalid="ignore", over="ignore"):
        return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def ahead(one: Ends, other: Ends) -> bool:
    """Whether one mean is better than the other by more than two standard errors of their difference.

    A diverged run is behind.
    """
    if not (np.isfinite(one.mean) and np.isfinite(other.mean)):
        return bool(np.isfinite(one.mean))
    return bool(_lead(one, other) > 2 * np.hypot(one.error, other.error))


def level(one: Ends, other: Ends, share: float = 0.05, within: float = 0.0) -> bool:
    """Whether two means are as good as equal.

    Their difference is at most two standard errors of it, a `share` of the smaller mean, or `within`.
    """
    apart = abs(_lead(one, other))
    small = max(within, share * min(abs(one.mean), abs(other.mean)))
    return bool(apart <= max(2 * np.hypot(one.error, other.error), small))


def _lead(one: Ends, other: Ends) -> float:
    return one.mean - other.mean if one.largest else other.mean - one.mean
