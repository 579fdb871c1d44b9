"""`compare`: methods under orders on a problem of one's own, all tuned alike, judged by seeds that tuned nothing."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from wior import checks, figures
from wior.algorithms.algorithm import Algorithm
from wior.experiments import comparison
from wior.experiments.comparison import Entrant, How, Outcome
from wior.orders import BY_NAME, Order, named
from wior.problems import Problem
from wior.running.arguments import Orders, both, demand_algorithm, posed_for
from wior.running.measuring import Metrics, metric_names
from wior.running.progress import pieces
from wior.running.showing import frame, setting, varies_widely
from wior.running.sweep import seed_list
from wior.saving.checkpoint import Checkpoint
from wior.saving.folders import checkpoint_path, whole_folder
from wior.saving.whole import write_json
from wior.tasks.task import Measure, Task

Tree = Any
Method = type[Algorithm] | Algorithm
Values = Mapping[str, Sequence[float]]

TABLE, FIGURE, HISTORY = "comparison.json", "comparison", "history.jsonl"
MADE_BY = "wior.compare"
DOTS = 4.0  # the size of a mark


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """What `wior.compare` found; printed, it is a table.

    Attributes
    ----------
    rows : list of dict
        One for each method and order, the best first: `method`, `order`, of each metric the `mean`, `std` and values of
        all `seeds` at the end, the tuned `setting`, the step sizes that lie `at_edge` of the grid, whether it
        `diverged`, `steps`, the counted calls, and the score of every setting of the `grid`.
    metric : str
        What methods were tuned and ranked by.
    largest : bool
        Whether its largest value is the best.
    protocol : str
        How it was done, in a sentence.
    outcomes : list
        The curves of all seeds, in the order of the rows.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> problem = wior.Minimax(lambda x, y, batch: jnp.mean((x - batch) ** 2 - (y - x) ** 2), np.arange(8.0))
    >>> found = wior.compare(
    ...     problem, 0.0, 0.0, methods=[wior.WiORMinimax], orders=["incremental"], grid={"outer_lr": [0.1, 0.3],
    ...     "inner_lr": [0.1]}, metrics=lambda x, y: {"error": (x - 3.5) ** 2}, batch_size=8, steps=50, seeds=2,
    ...     progress=False,
    ... )  # fmt: skip
    >>> found.rows[0]["setting"], found.metric
    ({'outer_lr': 0.1, 'inner_lr': 0.1}, 'error')
    """

    rows: list[dict[str, Any]]
    metric: str
    largest: bool
    protocol: str
    outcomes: list[Outcome] = dataclasses.field(repr=False)

    def __repr__(self) -> str:
        metrics = self._metrics()
        titles = ["method", "order", *metrics, "step sizes", "passes a step"]
        cells = [
            [
                row["method"],
                row["order"],
                *(comparison.with_deviation(row[metric]) for metric in metrics),
                "diverged" if row["setting"] is None else setting(row["setting"]) + _edge(row),
                f"{row['backward_passes'] / row['steps']:.3g}",
            ]
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        title = "  ".join(name.ljust(width) for name, width in zip(titles, widths, strict=True))
        return "\n".join(line.rstrip() for line in [title, *lines, "", self.protocol])

    def _metrics(self) -> list[str]:
        return [name for name, value in self.rows[0].items() if isinstance(value, dict) and "seeds" in value]

    def to_frame(self) -> Any:
        """The table as a data frame of pandas, which must be installed: a row for each method and order."""
        metrics = self._metrics()
        columns: dict[str, Any] = {name: [row[name] for row in self.rows] for name in ("method", "order")}
        for metric in metrics:
            for part in ("mean", "std"):
                columns[f"{metric} {part}"] = [row[metric][part] for row in self.rows]
        names = dict.fromkeys(name for row in self.rows for name in row["setting"] or {})
        columns |= {name: [(row["setting"] or {}).get(name) for row in self.rows] for name in names}
        columns |= {name: [row[name] for row in self.rows] for name in ("diverged", "steps", *comparison.CALLS)}
        return frame(columns)

    def plot(self) -> Any:
        """The metric at the end with its deviation over seeds, and on the way there along the counted calls.

        Returns
        -------
        matplotlib.figure.Figure
        """
        figure = figures.new_figure(2, 1, 5.0, 1.5 + 0.3 * len(self.rows))
        ends, curves = figure.subplots(1, 2)
        labels = [one.label for one in self.outcomes]
        looks = figures.styles(labels)
        lasting = [one for one, row in zip(self.outcomes, self.rows, strict=True) if row["setting"] is not None]
        shown = [one.history[self.metric].ravel() for one in lasting or self.outcomes]
        values = figures.drawable(np.concatenate(shown).astype(float))
        values = values[np.isfinite(values)]
        log = varies_widely(values)
        for place, one in enumerate(self.outcomes):
            found = self.rows[place][self.metric]
            if found["mean"] is not None and abs(found["mean"]) < figures.LARGEST:
                mean, std, color = found["mean"], found["std"] or 0.0, looks[one.label].color
                below = min(std, 0.9 * mean) if log else std
                ends.errorbar(mean, place, xerr=[[below], [std]], fmt="o", ms=DOTS, capsize=3, color=color)
            calls = np.sum([one.history[call] for call in comparison.CALLS[:-1]], 0)
            figures.curve(curves, calls, one.history[self.metric].astype(float), looks[one.label], one.label, log)
        scale = "log" if log else "linear"
        ends.set(yticks=range(len(labels)), yticklabels=labels, xlabel=f"{self.metric} at the end", xscale=scale)
        ends.invert_yaxis()
        curves.set(xlabel="oracle calls, in examples", ylabel=self.metric, yscale=scale)
        if 0 < len(lasting) < len(self.outcomes):  # what diverged leaves the picture
            spread = (values.min() / 1.5, values.max() * 1.5) if log else figures.limits([values], 0.0)
            curves.set_ylim(*spread)
        for axis in (ends, curves):
            figures.tidy(axis)
        ends.margins(x=0.1)
        figures.legend(figure, curves, 2)
        return figure

    def save(self, folder: str | Path) -> None:
        """Writes table, figure and curves into a folder, whole or not at all.

        Parameters
        ----------
        folder
            The folder. A comparison in it is replaced; what is something else is left as it is, with an error.
        """
        with whole_folder(Path(folder), _is_ours) as unfinished:
            about = {"made_by": MADE_BY, "metric": self.metric, "largest": self.largest, "protocol": self.protocol}
            write_json(unfinished / TABLE, {**about, "rows": self.rows})
            figures.save(self.plot(), unfinished, FIGURE)
            comparison.write_history(unfinished / HISTORY, {"comparison": self.outcomes})


def compare(
    problem: Problem,
    x0: Tree,
    y0: Tree,
    *,
    methods: Sequence[Method],
    orders: Sequence[Orders] = ("independent", "shuffle-once", "random-reshuffling"),
    grid: Values | Mapping[str, Values],
    metrics: Metrics,
    metric: str | None = None,
    largest: bool = False,
    steps: int,
    batch_size: int | tuple[int, int] = 64,
    seeds: int | Sequence[int] = 5,
    tuning_seeds: int | Sequence[int] = 2,
    tuning_steps: int | None = None,
    checkpoint: str | Path | None = None,
    mesh: Mesh | None = None,
    progress: bool = True,
) -> Comparison:
    """Methods under orders on your problem: each tuned alike, then judged by other seeds.

    Every method under every order runs with all step sizes of the grid and the tuning seeds in one `sweep`. Its best
    setting, by the mean of the metric at the end, then runs with the judging seeds. All have the same number of
    settings, the same batches, seeds and steps.

    Parameters
    ----------
    problem, x0, y0
        As in `wior.solve`. Streamed data cannot be compared, since they cannot be swept.
    methods
        Methods: classes, such as `wior.WiORBO`, or ones with hyper-parameters of yours. Of these the step sizes that
        are numbers are tuned; all else is kept, also an optimizer of optax or a schedule in place of a step size.
    orders
        Orders, or their names, or pairs (outer, inner).
    grid
        The values of `outer_lr` and `inner_lr` to try, in all combinations. Other step sizes of a method follow
        `inner_lr`, or `adjoint_lr` where the grid has it. Or such a grid for each method, by the name of its class
        or the one that it has in the table; all must make the same number of settings.
    metrics
        As in `wior.solve`.
    metric
        The name of the one to tune and rank by; the first where it is not given.
    largest
        Whether its largest value is the best.
    steps, batch_size
        As in `wior.solve`.
    seeds
        The judging seeds: how many, counted from 0, or a list of them.
    tuning_seeds
        The tuning seeds: how many, counted from where the judging ones end, or a list of others than these.
    tuning_steps
        The length of the runs that tune; `steps` where it is not given.
    checkpoint
        A folder in which the sweeps save themselves. The same call resumes from there; more methods, orders and longer
        runs may be asked for.
    mesh
        As in `wior.sweep`.
    progress
        Whether a bar on stderr shows how far the work is.

    Returns
    -------
    Comparison
        A table, which is printed, and a figure.

    Raises
    ------
    TypeError, ValueError
        Where an argument is wrong, before anything is compiled.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> problem = wior.Bilevel(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> found = wior.compare(
    ...     problem, 0.0, 0.0, methods=[wior.WiORBO, wior.baselines.SOBA], orders=["independent", "random-reshuffling"],
    ...     grid={"outer_lr": [0.01, 0.1], "inner_lr": [0.1, 0.4]}, metrics=lambda x, y: {"error": (x - 1) ** 2},
    ...     batch_size=4, steps=200, seeds=3, progress=False,
    ... )  # fmt: skip
    >>> sorted({(row["method"], row["order"]) for row in found.rows})[0], len(found.rows)
    (('SOBA', 'independent'), 4)
    """
    judges = seed_list(seeds)
    how = How(judges, timed=False, tuning_steps=tuning_steps, mesh=mesh, tuning_seeds=_tuning(tuning_seeds, judges))
    start = checks.floating("x0", x0), checks.floating("y0", y0)
    task = _task(problem, start, metrics, metric, largest)
    task = dataclasses.replace(task, batch_size=batch_size, steps=checks.positive_integer("steps", steps))
    if tuning_steps is not None:
        checks.positive_integer("tuning_steps", tuning_steps)
    contest = _contest(problem, methods, _orders(orders), grid)
    outcomes = []
    with pieces(progress, "compare", sum(len(entrants) for _, entrants in contest)) as begin:
        for own, entrants in contest:
            alone = dataclasses.replace(task, grid=own)
            piece = lambda name, steps, work: work(begin(name, steps), _saves(checkpoint, name))
            outcomes += comparison.compare(alone, entrants, how, piece)
    return _comparison(task, [one for _, entrants in contest for one in entrants], outcomes, how)


def _saves(folder: str | Path | None, name: str) -> Checkpoint | None:
    return None if folder is None else Checkpoint(checkpoint_path(Path(folder), name), keep=1)


def _comparison(task: Task, entrants: Sequence[Entrant], outcomes: Sequence[Outcome], how: How) -> Comparison:
    parts = {one.label: (one.label.split(", ", 1)) for one in entrants}
    by_label = {one.label: one for one in outcomes}
    ranked = comparison.rows(task, outcomes)
    rows = [{"method": parts[row["label"]][0], "order": parts[row["label"]][1], **row} for row in ranked]
    end = "largest" if task.measures[task.judged_by].largest else "smallest"
    protocol = (
        f"Ranked by {task.judged_by}, the {end} is the best: mean ± standard deviation over "
        f"{_seeds(how.each_seed)} after {task.steps} steps in batches of {task.batch_size}. Each was tuned over "
        f"{len(outcomes[0].settings)} settings with {_seeds(how.tuning_seeds)}."
    )
    return Comparison(rows, task.judged_by, end == "largest", protocol, [by_label[row["label"]] for row in ranked])


def _task(problem: Problem, start: tuple[Tree, Tree], metrics: Metrics, metric: str | None, largest: bool) -> Task:
    """The problem as a task, without its batches, steps and grid."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be one of wior's problems, got {problem!r} of type {type(problem).__name__}")
    checks.metrics_arity(metrics)
    names = metric_names(metrics, *start, compiles=False)
    if (metric is not None and metric not in names) or not names:
        raise ValueError(f"metric must name one of what metrics returns, {list(names)}; got {metric!r}")
    checks.boolean("largest", largest)
    judged = metric or names[0]
    measures = {name: Measure(name, largest=largest and name == judged) for name in (judged, *names)}
    return Task("own", "own", problem, *start, metrics, measures, judged, 1, 1, {})


def _tuning(seeds: int | Sequence[int], judges: Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        first = max(judges) + 1
        return tuple(range(first, first + checks.positive_integer("tuning_seeds", seeds)))
    chosen = seed_list(seeds)
    both = sorted(set(chosen) & set(judges))
    if both:
        raise ValueError(f"tuning_seeds must be other seeds than those that judge; {_listed(both)} in both")
    return tuple(chosen)


def _orders(orders: Any) -> dict[str, Any]:
    """The orders by the names that they have in the table."""
    if isinstance(orders, (str, Order)) or not isinstance(orders, Sequence) or not orders:
        raise TypeError(f"orders must be a list of orders or of their names, such as ['herding']; got {orders!r}")
    found = {}
    for one in orders:
        pair = tuple(named("orders", part) for part in (one if isinstance(one, tuple) else (one,)))
        name = " / ".join(map(_name, pair))
        if name in found:
            raise ValueError(f"orders has {name} twice")
        found[name] = pair if isinstance(one, tuple) else pair[0]
    return found


def _name(order: Order) -> str:
    return next((name for name, one in BY_NAME.items() if one == order), repr(order))


def _contest(
    problem: Problem, methods: Any, orders: Mapping[str, Any], grid: Any
) -> list[tuple[dict[str, tuple[float, ...]], list[Entrant]]]:
    """Each method under all orders, with its grid; all of as many settings."""
    if isinstance(methods, (type, Algorithm)) or not isinstance(methods, Sequence) or not methods:
        raise TypeError(f"methods must be a list of methods, such as [wior.WiORBO]; got {methods!r}")
    found, counts = [], dict[str, int]()
    for method in methods:
        kind, fixed = _kind(method)
        name = _unlike(kind.__name__ + _own(kind, fixed), counts, fixed)
        own = _grid(grid, kind, name)
        entrants = [Entrant(f"{name}, {order}", kind, value, fixed) for order, value in orders.items()]
        settings = entrants[0].settings(own)
        posed_for(problem, entrants[0].algorithm(settings[0]))
        for order in orders.values():
            both("orders", order, problem, lambda _, one: one)
        counts[name] = len(settings)
        found.append((own, entrants))
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(
            f"grid makes settings of unequal numbers ({listed}), which would tune some better than others; give each "
            "method a grid by its name, all of the same number"
        )
    return found


def _kind(method: Any) -> tuple[type[Algorithm], dict[str, Any]]:
    """The class of a method, and the hyper-parameters that are not tuned: optimizers and schedules among them."""
    if isinstance(method, type) and issubclass(method, Algorithm):
        return method, {}
    demand_algorithm(method)
    given = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    return type(method), {name: value for name, value in given.items() if not _is_tuned(name, value)}


def _is_tuned(name: str, value: Any) -> bool:
    return name.endswith("_lr") and _kind_of_step(value) is None


def _kind_of_step(value: Any) -> str | None:
    """What a step size is that is no number, in a word: the same one in every process, since saves have the name."""
    return "optimizer" if hasattr(value, "update") else "schedule" if callable(value) else None


def _own(kind: type[Algorithm], fixed: Mapping[str, Any]) -> str:
    """What tells a method with hyper-parameters of the user's from its class."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    steps = {name: f"{name}={_kind_of_step(value)}" for name, value in fixed.items() if name.endswith("_lr")}
    rest = {name: value for name, value in fixed.items() if name not in steps and value != defaults[name]}
    shown = [*steps.values(), *(setting({name: value}) for name, value in rest.items())]
    return f"({' '.join(shown).replace(', ', ' ')})" if shown else ""  # the order follows a comma


def _unlike(name: str, others: Collection[str], fixed: Mapping[str, Any]) -> str:
    """The name of a method, with a number where optimizers or schedules of the same kind have it already."""
    if name in others and not any(part.endswith("_lr") for part in fixed):
        raise ValueError(f"methods has {name} twice")
    again = (name if number == 1 else f"{name} {number}" for number in itertools.count(1))
    return next(one for one in again if one not in others)


def _grid(grid: Any, kind: type[Algorithm], name: str) -> dict[str, tuple[float, ...]]:
    """The values to try for one method."""
    if not isinstance(grid, Mapping) or not grid:
        raise TypeError(f"grid must map outer_lr and inner_lr to lists of values, got {grid!r}")
    where = "grid"
    if all(isinstance(value, Mapping) for value in grid.values()):
        name = name if name in grid else kind.__name__
        if name not in grid:
            raise ValueError(f"grid has no values for {name}; it has {', '.join(grid)}")
        where, grid = f"grid[{name!r}]", grid[name]
    wanted = {"outer_lr", "inner_lr"}
    if not wanted <= grid.keys() <= wanted | {"adjoint_lr"}:
        raise ValueError(
            f"{where} must have outer_lr and inner_lr, and may have adjoint_lr for all other step sizes; it has "
            f"{', '.join(grid)}"
        )
    for name, values in grid.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or not len(values):
            raise ValueError(f"{where}[{name!r}] must be a list of at least one value, got {values!r}")
        for value in values:
            checks.positive_number(f"{where}[{name!r}]", value)
    return {name: tuple(float(value) for value in values) for name, values in grid.items()}


def _edge(row: Mapping[str, Any]) -> str:
    return f" (edge of the grid: {', '.join(row['at_edge'])})" if row["at_edge"] else ""


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds[:-1])) + f" and {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {_listed(seeds)}"


def _is_ours(folder: Path) -> bool:
    try:
        about = json.loads((folder / TABLE).read_text(encoding="utf-8"))
        names = {path.name for path in folder.iterdir()}
        return about["made_by"] == MADE_BY and names <= {TABLE, HISTORY, f"{FIGURE}.png", f"{FIGURE}.pdf"}
    except (OSError, ValueError, TypeError, KeyError):
        return False
