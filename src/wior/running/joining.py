"""The runs of a sweep, put together from the programs that they were."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from wior.algorithms.algorithm import Algorithm
from wior.problems.modules import whole
from wior.running.results import Finished, SweepResult
from wior.running.views import View, model_state_of

Piece = tuple[list[int], Finished]  # the settings of one program, and where its runs ended


@dataclasses.dataclass(frozen=True)
class Grid:
    """The settings of a sweep, the algorithms that have them, and the seeds of each."""

    settings: list[dict[str, Any]]
    algorithms: list[Algorithm]
    seeds: list[int]

    def by_program(self) -> list[list[int]]:
        """The settings in groups: those of a group differ only in numbers, and share a program."""
        groups: dict[Any, list[int]] = {}
        for i, algorithm in enumerate(self.algorithms):
            groups.setdefault(jax.tree.structure(algorithm), []).append(i)
        return list(groups.values())


class Collected:
    """The programs of a sweep that have ended."""

    def __init__(self, grid: Grid, steps_per_epoch: int):
        self.grid, self.steps_per_epoch = grid, steps_per_epoch
        self.pieces: list[Piece] = []

    def result(self, *last: Piece, view: View = View()) -> SweepResult:
        """The runs of all programs, in the order of the settings; of an interrupted sweep, those that have begun."""
        pieces = [*self.pieces, *last]
        begun = [i for members, _ in pieces for i in members]
        order = np.argsort(begun)

        def joined(parts: list[Any]) -> Any:
            return np.concatenate([self._grouped(part) for part in parts])[order]

        def together(parts: list[Any]) -> Any:
            return jax.tree.map(lambda *leaves: joined(list(leaves)), *parts)

        done = [one for _, one in pieces]
        states = [one.carry.state for one in done]
        return SweepResult(
            settings=[self.grid.settings[i] for i in sorted(begun)],
            seeds=self.grid.seeds,
            history={name: self._history(name, pieces, order) for name in done[0].history},
            x=whole(together([state.x for state in states]), view.x),
            y=whole(together([state.y for state in states]), view.y),
            steps=done[0].step,
            steps_per_epoch=self.steps_per_epoch,
            compile_seconds=sum(one.compile_seconds for one in done),
            metric_seconds=sum(one.metric_seconds for one in done),
            model_state=together([model_state_of(state) for state in states]),
        )

    def _grouped(self, values: Any) -> np.ndarray:
        """(runs, ...) of one program as (settings, seeds, ...)."""
        return np.asarray(values).reshape(-1, len(self.grid.seeds), *np.shape(values)[1:])

    def _history(self, name: str, pieces: list[Piece], order: np.ndarray) -> np.ndarray:
        """The records of a name: (records,) where all runs share them, else (settings, seeds, records)."""
        records = max(len(done.history["step"]) for _, done in pieces)
        if name == "seconds":
            return np.sum([_as_long(done.history[name], records) for _, done in pieces], 0)
        parts = [np.moveaxis(_as_long(done.history[name], records), 0, -1) for _, done in pieces]
        if pieces[0][1].history[name].ndim == 1 and all(np.array_equal(part, parts[0]) for part in parts):
            return parts[0]
        runs = [len(members) * len(self.grid.seeds) for members, _ in pieces]
        every = [np.broadcast_to(part, (n, part.shape[-1])) for n, part in zip(runs, parts, strict=True)]
        return np.concatenate([self._grouped(part) for part in every])[order]


def with_best(result: SweepResult, best_by: str, largest: bool) -> SweepResult:
    """The result with its best setting: the mean over seeds of a metric at the end; one with a run that diverged never
    is.
    """
    mean = np.mean(result.final(best_by), -1)
    worst = -np.inf if largest else np.inf
    ends = jax.tree.leaves((result.x, result.y))
    settings = result.settings
    finite = np.logical_and.reduce([np.isfinite(leaf).reshape(len(settings), -1).all(1) for leaf in ends])
    ranked = np.where(np.isfinite(mean) & finite, mean, worst)
    index = int(np.argmax(ranked) if largest else np.argmin(ranked))
    if not np.isfinite(ranked[index]):
        raise ValueError(
            f"every setting of the grid diverged: {best_by!r} is not finite at the end of any, or x and y are not; try "
            "smaller step sizes"
        )
    return dataclasses.replace(result, best=settings[index], best_index=index, best_by=best_by)


def _as_long(values: np.ndarray, records: int) -> np.ndarray:
    """The records of a run that was interrupted, as many as those of others: counters stay, metrics are NaN."""
    missing = records - len(values)
    if missing == 0:
        return np.asarray(values)
    filled = values[-1] if np.issubdtype(values.dtype, np.integer) else np.full_like(values[0], np.nan)
    return np.concatenate([values, np.broadcast_to(filled, (missing, *values.shape[1:]))])
