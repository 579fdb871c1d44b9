"""Any methods under any orders on one of the named tasks: what `wior run` and `wior compare` do."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wior import figures
from wior.experiments import comparison
from wior.experiments.comparison import Entrant, How, Outcome, Piece
from wior.experiments.experiment import Conclusion, Options
from wior.experiments.named_tasks import TASKS
from wior.instruments.methods import classes
from wior.orders import BY_NAME
from wior.problems import Problem
from wior.problems.restated import more_general
from wior.tasks.task import Task

METHODS = {kind.__name__.lower(): kind for kind in classes()}
PAPERS: dict[type[Problem], str] = {
    kind.solves: kind.__name__.lower() for kind in classes() if kind.__module__.startswith("wior.algorithms.")
}


@dataclasses.dataclass(frozen=True)
class Contest:
    """Methods × orders on a named task.

    The paper's method for the problem, and the task's own numbers, where none are given.
    """

    name: str
    methods: tuple[str, ...] = ()
    orders: tuple[str, ...] = ("independent", "random-reshuffling")
    steps: int | None = None
    batch_size: int | None = None
    outer_lr: tuple[float, ...] = ()
    inner_lr: tuple[float, ...] = ()

    FIGURE = "Every method tuned over the same grid, with the same batches, seeds and steps."

    def __post_init__(self) -> None:
        _check("task", (self.name,), TASKS)
        problem = TASKS[self.name].problem
        named = dict.fromkeys(name.lower() for name in self.methods)  # each once
        object.__setattr__(self, "methods", tuple(named) or (PAPERS[problem],))
        object.__setattr__(self, "orders", tuple(dict.fromkeys(self.orders)))
        _check("method", self.methods, METHODS)
        _check("order", self.orders, BY_NAME)
        for name in self.methods:
            if METHODS[name].solves not in more_general(problem):
                raise ValueError(
                    f"{METHODS[name].__name__} solves {METHODS[name].solves.__name__} problems; {self.name} is "
                    f"{problem.__name__}"
                )

    def entrants(self, task: Task) -> list[Entrant]:
        found = []
        for name, order in itertools.product(self.methods, self.orders):
            kind = METHODS[name]
            own = {field.name for field in dataclasses.fields(kind)}
            fixed = {key: value for key, value in task.fixed.items() if key in own}
            found.append(Entrant(f"{kind.__name__}, {order}", kind, BY_NAME[order], fixed))
        return found

    @property
    def TITLE(self) -> str:
        return f"{self.name}: {TASKS[self.name].about}"

    def settings(self, options: Options) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def count(self, options: Options) -> int:
        return len(self.methods) * len(self.orders)

    def task(self, options: Options) -> Task:
        task = TASKS[self.name].make(options)
        given = {"outer_lr": self.outer_lr, "inner_lr": self.inner_lr}
        return dataclasses.replace(
            task,
            steps=self.steps or task.steps,
            batch_size=self.batch_size or task.batch_size,
            grid={**task.grid, **{name: rates for name, rates in given.items() if rates}},
        )

    def run(self, options: Options, piece: Piece) -> Conclusion:
        task = self.task(options)
        outcomes = comparison.compare(task, self.entrants(task), How(options.seeds, mesh=options.mesh), piece)
        found = comparison.rows(task, outcomes)
        text = f"{task.title}.\n\n{_protocol(task)}\n\n{comparison.table(task, found)}\n\n![](comparison.png)\n"
        summary = {"task": {"name": self.name, **task.facts}, "judged_by": task.judged_by, "methods": found}
        return Conclusion(
            [],
            summary,
            text,
            lambda folder: figures.save(plot(task, outcomes), folder, "comparison"),
            lambda path: comparison.write_history(path, {self.name: outcomes}),
        )


def _check(what: str, names: Sequence[str], known: Mapping[str, Any]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"{what} must be one of {', '.join(sorted(known))}; got {', '.join(unknown) or 'none'}")


def _protocol(task: Task) -> str:
    grid = ", ".join(
        f"{name} in {{{', '.join(f'{value:g}' for value in values)}}}" for name, values in task.grid.items()
    )
    return (
        f"Batches of {task.batch_size}, {task.steps} steps; {grid}, every other rate of a method like the inner one; "
        f"the setting of a method is the one with the best mean of: {task.measures[task.judged_by].label}."
    )


def plot(task: Task, outcomes: Sequence[Outcome]) -> Any:
    """The two most telling measures against steps, oracle calls and seconds."""
    metrics = list(task.measures)[:2]
    figure = figures.new_figure(3, len(metrics), 4.0, 3.0)
    axes = np.reshape(figure.subplots(len(metrics), 3, sharey="row"), (len(metrics), 3))
    looks = figures.styles([one.label for one in outcomes])
    for row, metric in zip(axes, metrics, strict=True):
        for one in outcomes:
            calls = np.sum([one.history[call] for call in comparison.CALLS[:-1]], 0)
            for axis, along in zip(row, (one.history["step"], calls, one.seconds), strict=True):
                figures.curve(axis, along, one.history[metric], looks[one.label], one.label, task.measures[metric].log)
        row[0].set(ylabel=task.measures[metric].label, yscale="log" if task.measures[metric].log else "linear")
        for axis in row:
            figures.tidy(axis)
    for axis, name in zip(axes[-1], ("steps", "oracle calls, in examples", "seconds of one run"), strict=True):
        axis.set(xlabel=name)
    figure.suptitle(task.title)
    figures.legend(figure, axes[0, 0], 3)
    return figure
