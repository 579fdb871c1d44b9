"""Methods under orders on one task.

Every one tuned over the same grid, by the same criterion, with the same seeds and batches. `wior compare` and the
figures run tasks; `wior.compare` (`own_problem.py`) makes a task of a user's problem.

A method runs with all step sizes of the task's grid and all seeds in one `sweep`; the setting with the best mean of the
task's criterion at the end is its own. Where runs are long, the setting is chosen by shorter runs of one seed, and only
the chosen one has all seeds; `wior.compare` chooses by seeds that judge nothing. One more run of it by itself, without
metrics, tells its seconds a step.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from wior import oracle
from wior.algorithms.algorithm import Algorithm
from wior.experiments.claims import Ends, mean_and_deviation
from wior.orders import Order
from wior.running import loop
from wior.running.progress import Progress
from wior.running.solve import solve
from wior.running.sweep import SweepResult, seed_list, sweep
from wior.saving.checkpoint import Checkpoint
from wior.saving.folders import Arrays
from wior.tasks.task import Task

CALLS = oracle.CALLS
ALONG = ("step", *CALLS)
STRETCH, LONGEST_STRETCH = 0.1, 5.0  # seconds that are timed at once
Piece = Callable[[str, int, Callable[[Progress, Checkpoint | None], Arrays]], Arrays]


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A method under an order, by the name it has in figures."""

    label: str
    kind: type[Algorithm]
    order: Order
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # hyper-parameters that are not tuned

    def settings(self, grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
        """Every combination of the grid as step sizes of this method, each once."""
        rates = [field.name for field in dataclasses.fields(self.kind) if field.name.endswith("_lr")]
        tuned = [name for name in rates if name not in self.fixed]
        made: dict[tuple[float, ...], dict[str, float]] = {}
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            other = chosen.get("adjoint_lr", chosen["inner_lr"])
            setting = {name: chosen[name] if name in ("outer_lr", "inner_lr") else other for name in tuned}
            made.setdefault(tuple(setting.values()), setting)
        return list(made.values())

    def algorithm(self, setting: Mapping[str, float]) -> Algorithm:
        return self.kind(**{**setting, **self.fixed})

    def describe(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "method": self.kind.__name__,
            "order": repr(self.order),
            "fixed": dict(self.fixed),
        }


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an entrant did: the tuned setting, its curves, and what the others of the grid came to."""

    label: str
    settings: list[dict[str, float]]
    scores: np.ndarray  # (settings,), the mean of the criterion at the end; not finite where a run diverged
    best: int | None  # None where every setting diverged
    seeds: list[int]
    history: dict[str, np.ndarray]  # metrics (seeds, records), `step` and calls (records,) of the tuned setting
    pace: float  # seconds a step of one run; NaN where it could not be timed
    compile_seconds: float

    @property
    def setting(self) -> dict[str, float] | None:
        return None if self.best is None else self.settings[self.best]

    @property
    def seconds(self) -> np.ndarray:
        return self.pace * self.history["step"]

    @property
    def at_edge(self) -> list[str]:
        """The step sizes whose tuned value is the smallest or the largest of several that were tried."""
        if self.setting is None:
            return []
        tried = {name: {setting[name] for setting in self.settings} for name in self.setting}
        return [
            name
            for name, value in self.setting.items()
            if len(tried[name]) > 2 and value in (min(tried[name]), max(tried[name]))
        ]

    def end(self, metric: str, task: Task) -> Ends:
        return Ends(self.history[metric][:, -1], task.measures[metric].largest)

    def after_seconds(self, metric: str, seconds: float, task: Task) -> Ends:
        """What each seed had reached by then, between records by a straight line."""
        values = np.array([np.interp(seconds, self.seconds, row) for row in self.history[metric]])
        return Ends(values, task.measures[metric].largest)

    def first_at(self, metric: str, target: float, task: Task, along: str = "step") -> float:
        """Steps or seconds until the mean over seeds is as good as the target; infinite where it never is."""
        mean, places = self.history[metric].mean(0), self.seconds if along == "seconds" else self.history[along]
        good = mean >= target if task.measures[metric].largest else mean <= target
        if not good.any():
            return np.inf
        first = int(np.argmax(good))
        if first == 0:
            return float(places[0])
        if not np.isfinite(mean[first - 1]):
            return float(places[first])
        part = (target - mean[first - 1]) / (mean[first] - mean[first - 1])
        return float(places[first - 1] + part * (places[first] - places[first - 1]))


class How(NamedTuple):
    """How all entrants are run."""

    seeds: int | Sequence[int]
    records: int = 50
    timed: bool = True  # whether the pace is that of a run by itself, or of the runs together
    tuning_steps: int | None = None  # where given, the setting is chosen by runs of this length with one seed
    mesh: Mesh | None = None  # splits the batches of all runs
    tuning_seeds: tuple[int, ...] = ()  # where given, the setting is chosen by runs of these seeds and no others

    @property
    def each_seed(self) -> list[int]:
        return seed_list(self.seeds)

    def options(self, task: Task, entrant: Entrant) -> dict[str, Any]:
        """What all runs of an entrant have in common."""
        return {
            "order": entrant.order,
            "batch_size": task.batch_size,
            "record_every": -(-task.steps // self.records),
            "mesh": self.mesh,
        }


def compare(task: Task, entrants: Sequence[Entrant], how: How, piece: Piece, name: str = "") -> list[Outcome]:
    """Runs every entrant, each as a piece of work; `name` stands before the names of the pieces."""
    found = []
    for entrant in entrants:
        work = functools.partial(_run, task, entrant, how)
        arrays = piece(" ".join(filter(None, (name, entrant.label))), task.steps, work)
        found.append(_outcome(entrant, arrays))
    return found


def _run(task: Task, entrant: Entrant, how: How, progress: Progress, checkpoint: Checkpoint | None) -> Arrays:
    settings = entrant.settings(task.grid)
    swept = functools.partial(_swept, task, entrant, how)
    if how.tuning_steps is None and not how.tuning_seeds:
        result = swept(settings, how.each_seed, task.steps, progress=progress, checkpoint=checkpoint)
        scores = _scores(result, task).mean(-1)
        best = _best(scores, task)
        shown, compiled = best or 0, result.compile_seconds
    else:
        if how.tuning_seeds:
            tuning, progress = _halves(progress, task.steps)
            first, checkpoint = _one_each(checkpoint)
            steps = how.tuning_steps or task.steps
            tuned = swept(settings, list(how.tuning_seeds), steps, progress=tuning, checkpoint=first)
            scores, compiled = _scores(tuned, task).mean(-1), tuned.compile_seconds
        else:
            scores, compiled = _scores_of_short_runs(swept, settings, how, task)
        best = _best(scores, task)
        result = swept(settings[best or 0 :][:1], how.each_seed, task.steps, progress=progress, checkpoint=checkpoint)
        if not np.isfinite(_scores(result, task)).all():
            best = None  # the setting that was best in short runs does not last
        shown, compiled = 0, compiled + result.compile_seconds
    pace = float(result.history["seconds"][-1]) / task.steps / (len(result.settings) * len(how.each_seed))
    if how.timed and best is not None:
        try:
            pace = _pace(task, entrant.algorithm(settings[best]), pace, how.options(task, entrant))
        except loop.NonFiniteError:
            pace = np.nan  # a state that overflows without reaching x and y stops a single run, and not a sweep
    about = {
        "settings": settings,
        "best": best,
        "seeds": result.seeds,
        "pace": pace,
        "compile_seconds": compiled,
    }
    return {**_curves(result, shown, task), "scores": scores, "about": np.array(json.dumps(about))}


def _one_each(checkpoint: Checkpoint | None) -> tuple[Checkpoint | None, Checkpoint | None]:
    """Where the runs that tune save themselves, and those that follow."""
    if checkpoint is None:
        return None, None
    first, second = (
        dataclasses.replace(checkpoint, folder=Path(checkpoint.folder) / name) for name in ("tuning", "judging")
    )
    return first, second


def _halves(progress: Progress, steps: int) -> tuple[Progress, Progress]:
    """Progress of the runs that tune, and of those that follow, as one."""
    return (
        lambda step, latest: progress(min(step, steps) // 2, latest),
        lambda step, latest: progress((steps + step) // 2, latest),
    )


def _swept(
    task: Task, entrant: Entrant, how: How, settings: list[dict[str, float]], seeds: list[int], steps: int, **more: Any
) -> SweepResult:
    return sweep(
        task.problem,
        entrant.algorithm(settings[0]),
        task.x0,
        task.y0,
        grid=settings,
        seeds=seeds,
        steps=steps,
        metrics=task.metrics,
        side_by_side=task.side_by_side,
        **how.options(task, entrant),
        **more,
    )


def _scores_of_short_runs(
    swept: Callable[..., SweepResult], settings: list[dict[str, float]], how: How, task: Task
) -> tuple[np.ndarray, float]:
    """The criterion of each setting after `tuning_steps` with the first seed, and the seconds that compiling took."""
    at_once = len(how.each_seed)
    # settings again until there are as many runs as seeds: the same program then makes the long runs
    repeated = settings + settings[:1] * (-len(settings) % at_once)
    parts = [
        swept(repeated[at : at + at_once], how.each_seed[:1], how.tuning_steps)
        for at in range(0, len(repeated), at_once)
    ]
    scores = np.concatenate([_scores(part, task)[:, 0] for part in parts])[: len(settings)]
    return scores, sum(part.compile_seconds for part in parts)


def _curves(result: SweepResult, shown: int, task: Task) -> Arrays:
    """What was recorded of one setting; calls that chance decides are means over seeds."""
    arrays = {
        key: values if values.ndim == 1 else values[shown]
        for key, values in result.history.items()
        if key in (*task.measures, *ALONG)
    }
    return arrays | {key: arrays[key].mean(0) for key in ALONG if arrays[key].ndim == 2}


def _scores(result: SweepResult, task: Task) -> np.ndarray:
    """The criterion at the end, (settings, seeds).

    NaN where x or y is not finite, of which accuracy for one knows nothing.
    """
    score = result.final(task.judged_by)
    finite = [np.isfinite(leaf).reshape(*score.shape, -1).all(-1) for leaf in jax.tree.leaves((result.x, result.y))]
    return np.where(np.logical_and.reduce(finite) & np.isfinite(score), score, np.nan)


def _best(scores: np.ndarray, task: Task) -> int | None:
    finite = np.isfinite(scores)
    signed = scores if task.measures[task.judged_by].largest else -scores
    return int(np.argmax(np.where(finite, signed, -np.inf))) if finite.any() else None


def _pace(task: Task, algorithm: Algorithm, guess: float, options: dict[str, Any]) -> float:
    """Seconds a step of a run by itself.

    The fastest of three stretches, each a pass over the data and no shorter than can be timed.
    """
    sizes, batch = task.problem.sizes(), task.batch_size
    batches = dict(zip(("outer", "inner"), batch if isinstance(batch, tuple) else (batch, batch), strict=True))
    # what happens once in a pass has its share; the inner sets of conditional problems are passed in every step
    in_pass = max(-(-n // batches[level]) for level, n in sizes.items())
    stretch = min(max(in_pass, int(STRETCH / guess)), max(1, int(LONGEST_STRETCH / guess)))
    run = solve(task.problem, algorithm, task.x0, task.y0, steps=4 * stretch, **{**options, "record_every": stretch})
    return float(np.diff(run.history["seconds"])[1:].min()) / stretch


def _outcome(entrant: Entrant, arrays: Arrays) -> Outcome:
    about = json.loads(str(arrays["about"]))
    history = {key: values for key, values in arrays.items() if key not in ("about", "scores")}
    return Outcome(entrant.label, scores=arrays["scores"], history=history, **about)


def rows(task: Task, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The outcomes as JSON, the best first."""
    largest = task.measures[task.judged_by].largest
    ranked = sorted(outcomes, key=lambda one: _rank(one.end(task.judged_by, task).mean, largest, one.best is None))
    return [
        {
            "label": one.label,
            **{metric: spread(one.history[metric][:, -1]) for metric in task.measures},
            "setting": one.setting,
            "at_edge": one.at_edge,
            "diverged": one.best is None,
            "steps": int(one.history["step"][-1]),
            "microseconds_a_step": _number(1e6 * one.pace),
            "compile_seconds": one.compile_seconds,
            **{call: float(one.history[call][-1]) for call in CALLS},
            "grid": [
                {**setting, task.judged_by: _number(score)}
                for setting, score in zip(one.settings, one.scores, strict=True)
            ],
        }
        for one in ranked
    ]


def spread(values: np.ndarray) -> dict[str, Any]:
    """Mean and standard deviation over seeds.

    `None` for what does not exist: a diverged run, the deviation of one seed.
    """
    mean, std = mean_and_deviation(values)
    return {
        "mean": _number(mean),
        "std": _number(std) if len(values) > 1 else None,
        "seeds": [_number(value) for value in values],
    }


def write_history(path: Path, groups: Mapping[str, Sequence[Outcome]]) -> None:
    """One line of JSON for each group, method, seed and record."""
    with path.open("w") as file:
        for group, outcomes in groups.items():
            for one in outcomes:
                metrics = [key for key, values in one.history.items() if values.ndim == 2]
                for place, seed in enumerate(one.seeds):
                    for record, step in enumerate(one.history["step"]):
                        line = {
                            "group": group,
                            "label": one.label,
                            "seed": seed,
                            "step": int(step),
                            "seconds": _number(one.seconds[record]),
                            **{call: float(one.history[call][record]) for call in CALLS},
                            **{metric: _number(one.history[metric][place, record]) for metric in metrics},
                        }
                        file.write(json.dumps(line) + "\n")


def table(task: Task, found: Sequence[Mapping[str, Any]]) -> str:
    """The rows of `rows` in Markdown: the measures, the tuned step sizes and the cost of a step."""
    metrics = list(task.measures)
    titles = [
        "method",
        *(task.measures[metric].label for metric in metrics),
        "step sizes",
        "µs a step",
        "passes a step",
    ]
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    for row in found:
        sizes = (
            "diverged" if row["diverged"] else ", ".join(f"{name} {value:g}" for name, value in row["setting"].items())
        )
        edge = f" (edge: {', '.join(row['at_edge'])})" if row["at_edge"] else ""
        lines.append(
            "| "
            + " | ".join(
                [
                    row["label"],
                    *(with_deviation(row[metric]) for metric in metrics),
                    sizes + edge,
                    in_microseconds(row),
                    f"{row['backward_passes'] / row['steps']:.3g}",
                ]
            )
            + " |"
        )
    return "\n".join(lines)


def with_deviation(value: Mapping[str, Any], digits: int = 2) -> str:
    """The mean, and the deviation with so many digits."""
    if value["mean"] is None:
        return "diverged"
    return f"{value['mean']:.4g}" + ("" if value["std"] is None else f" ± {value['std']:.{digits}g}")


def in_microseconds(row: Mapping[str, Any]) -> str:
    pace = row["microseconds_a_step"]
    return "–" if pace is None else f"{pace:.0f}"


def _rank(value: float, largest: bool, diverged: bool) -> float:
    if diverged or not np.isfinite(value):
        return np.inf
    return -value if largest else value


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
