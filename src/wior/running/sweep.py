"""`sweep`: a grid of hyper-parameters × seeds as one compiled program."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from wior import checks
from wior.algorithms.algorithm import Algorithm
from wior.devices.layout import Layout, as_layout
from wior.orders import RandomReshuffling
from wior.problems import Problem
from wior.running import blocks, loop
from wior.running.arguments import Arguments, Orders, demand_algorithm
from wior.running.measuring import Metrics, compiled
from wior.running.progress import Progress
from wior.running.setup import Setup, prepare, run_key
from wior.running.solve import driven, title
from wior.saving.checkpoint import Checkpoint, describe_algorithm

Tree = Any

LARGE_ON_A_CPU = 2048


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """Every run of a grid. Arrays have a first axis of settings and a second of seeds, then what they hold."""

    settings: list[dict[str, Any]]
    seeds: list[int]
    history: dict[str, np.ndarray]  # metrics (settings, seeds, records); what all runs share (records,)
    x: Tree  # leaves (settings, seeds, ...)
    y: Tree
    steps: int
    steps_per_epoch: int
    compile_seconds: float
    metric_seconds: float
    best: dict[str, Any] | None = None  # the setting with the best mean over seeds at the end
    best_index: int | None = None
    best_by: str | None = None

    def final(self, metric: str) -> np.ndarray:
        """The last value of a metric: (settings, seeds)."""
        return self.history[metric][..., -1]


def sweep(
    problem: Problem,
    algorithm: Algorithm,
    x0: Tree,
    y0: Tree,
    *,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    seeds: int | Sequence[int] = 5,
    best_by: str | None = None,
    largest: bool = False,
    order: Orders = RandomReshuffling(),
    batch_size: int | tuple[int, int] = 64,
    epochs: int | None = None,
    steps: int | None = None,
    metrics: Metrics | None = None,
    record_every: int | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: bool | Progress = False,
    side_by_side: bool | None = None,
    mesh: Mesh | None = None,
) -> SweepResult:
    """Runs `algorithm` with every combination of the values in `grid`, for every seed, all at once.

    `grid` maps names of hyper-parameters to the values to try, in place of the algorithm's own; or it is a list of settings, for
    combinations that are not a product. Numbers and seeds are one
    `vmap`ped program; values that change the program (whole numbers such as `inner_epochs`, schedules) make one program each.

    `best_by` names a metric: the setting whose mean over seeds at the end is smallest (`largest=True`: largest) is `result.best`. A setting
    of which any run diverged is never the best. `side_by_side` says whether the runs go together through every step or one after
    another inside the program, and is chosen by the device and the size of y where not given: a network of convolutions is
    faster one after another. With `mesh` every run splits its batches over the devices, and the state of every run lies whole on each of
    them. The other arguments are those of `solve`.
    """
    if isinstance(problem, Problem) and problem.streamed():
        raise ValueError(
            f"the {' and '.join(problem.streamed())} data are streamed, and every seed reads them in an order of its own; "
            "give arrays that fit on the device, or call solve for each run"
        )
    layout = as_layout(mesh)
    if layout is not None and layout != Layout(layout.mesh, layout.batch):
        raise ValueError(f"sweep splits batches alone; take solve for a layout of parameters, rows or data: {mesh!r}")
    if layout is not None:
        problem, x0, y0 = layout.received(problem, x0, y0)
    chosen = seed_list(seeds)
    settings = grid_settings(algorithm, grid)
    algorithms = [dataclasses.replace(algorithm, **setting) for setting in settings]
    groups = _by_program(algorithms)
    given = Arguments(order, batch_size, epochs, steps, seed=chosen[0], metrics=metrics, record_every=record_every)
    # one setup for each program: a field that is part of it may change the plan
    setups = [prepare(problem, algorithms[members[0]], x0, y0, given) for members in groups]
    if layout is not None:
        more = {"seeds": chosen, "grid": [describe_algorithm(one) for one in algorithms]}
        setups = [one.on(layout, more, checkpoint) for one in setups]
    setup = setups[0]
    if best_by is not None and best_by not in setup.metric_names:
        raise ValueError(f"best_by must name a metric, one of {list(setup.metric_names)}; got {best_by!r}")
    if side_by_side is None:
        side_by_side = in_step(setup.y)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)

    pieces: list[tuple[list[int], loop.Finished]] = []
    for number, (members, own_setup) in enumerate(zip(groups, setups, strict=True)):
        own = (
            checkpoint
            if checkpoint is None or len(groups) == 1
            else dataclasses.replace(checkpoint, folder=Path(checkpoint.folder) / f"program-{number}")
        )
        same = [algorithms[i] for i in members]
        heading = f"{title(algorithm, order)} × {len(members) * len(chosen)} runs"

        def so_far(done: loop.Finished, members: list[int] = members) -> SweepResult:
            return _joined(settings, chosen, setup, [*pieces, (members, done)], None, largest)

        done = _run_together(own_setup, same, chosen, metrics, own, progress, heading, side_by_side, so_far)
        pieces.append((members, done))
    return _joined(settings, chosen, setup, pieces, best_by, largest)


def in_step(y: Tree) -> bool:
    """Whether many runs are faster side by side in every step than one after another.

    They are on a GPU, and wherever a step is so small that its parts cost more to start than to compute. A CPU multiplies
    one large matrix faster than many at once.
    """
    return jax.default_backend() != "cpu" or sum(leaf.size for leaf in jax.tree.leaves(y)) < LARGE_ON_A_CPU


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, (int, np.integer)) and not isinstance(seeds, bool):
        return list(range(checks.positive_integer("seeds", seeds)))
    try:
        chosen = [int(seed) for seed in seeds]  # type: ignore[union-attr]
    except TypeError:
        raise TypeError(f"seeds must be a number of seeds or a list of them, got {seeds!r}") from None
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"seeds must be different integers, at least one, got {seeds!r}")
    return chosen


def grid_settings(
    algorithm: Algorithm, grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """All combinations of the values of a grid, each checked by the algorithm itself."""
    demand_algorithm(algorithm)
    names = [field.name for field in dataclasses.fields(algorithm)]
    if not isinstance(grid, Mapping) and not (
        isinstance(grid, Sequence) and all(isinstance(setting, Mapping) for setting in grid)
    ):
        raise TypeError(
            f"grid must map names of hyper-parameters to lists of values, or be a list of settings, got {grid!r}"
        )
    listed = None if isinstance(grid, Mapping) else [dict(setting) for setting in grid]
    if listed is not None and not (listed and all(setting.keys() == listed[0].keys() for setting in listed)):
        raise ValueError(f"grid, as a list, must be at least one setting, all of the same names; got {grid!r}")
    for name in grid if listed is None else listed[0]:
        if name not in names:
            raise ValueError(
                f"grid names {name!r}, which {type(algorithm).__name__} does not have; it has {', '.join(names)}"
            )
    if listed is not None:
        return listed
    assert isinstance(grid, Mapping)
    for name, values in grid.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) == 0:
            raise ValueError(f"grid[{name!r}] must be a list of at least one value, got {values!r}")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _by_program(algorithms: list[Algorithm]) -> list[list[int]]:
    """The algorithms that are one program with other numbers, together."""
    groups: dict[Any, list[int]] = {}
    for i, algorithm in enumerate(algorithms):
        groups.setdefault(jax.tree.structure(algorithm), []).append(i)
    return list(groups.values())


def _run_together(
    setup: Setup,
    algorithms: list[Algorithm],
    seeds: list[int],
    metrics: Metrics | None,
    checkpoint: Checkpoint | None,
    progress: bool | Progress,
    heading: str,
    side_by_side: bool,
    result: Callable[[loop.Finished], SweepResult],
) -> loop.Finished:
    """All settings × seeds of one program, settings first."""
    repeated = [algorithm for algorithm in algorithms for _ in seeds]
    stacked = setup.placed(
        jax.tree.map(lambda *numbers: jnp.stack([jnp.asarray(number, float) for number in numbers]), *repeated)
    )
    each = jnp.stack([run_key(seed) for _ in algorithms for seed in seeds])
    keys = setup.placed(jax.vmap(functools.partial(blocks.stream_keys, setup.plan))(each))
    begin = functools.partial(blocks.begin, setup.plan, setup.problem)
    # runs side by side all take the longest of their steps; where chance decides on the length, each is better off alone
    together = side_by_side and not setup.algorithm.cost_varies
    program = loop.Program(
        plan=setup.plan,
        begin=lambda: jax.vmap(lambda algorithm, keys: begin(algorithm, keys, setup.x, setup.y))(stacked, keys),
        advance=lambda carry, step, count: blocks.blocks(
            setup.plan, together, setup.problem, stacked, carry, keys, blocks.start_at(setup.plan, step), count
        ),
        measure=_measure_all(metrics, setup, len(repeated), side_by_side),
        measure_compiles=setup.metrics_program is not None,
        metric_names=setup.metric_names,
        runs=(len(repeated),),
        drawn=setup.drawn,
        finite=None,
        hint=lambda variables, carry, step: "",
        result=result,
    )
    more = {"algorithm": [describe_algorithm(a) for a in algorithms], "seeds": seeds}
    return driven(program, setup, checkpoint, more, progress, heading)


def _measure_all(
    metrics: Metrics | None, setup: Setup, runs: int, side_by_side: bool
) -> Callable[[blocks.Carry], dict[str, Any]]:
    if metrics is None:
        return lambda carry: {}
    if setup.metrics_program is not None:
        how = "side by side" if side_by_side else "one after another"
        mapped: Any = compiled(metrics, how, setup.metrics_program)
        return lambda carry: mapped(carry.state.x, carry.state.y)

    def one_by_one(carry: blocks.Carry) -> dict[str, Any]:
        def one(run: int) -> dict[str, Any]:
            return metrics(*jax.tree.map(lambda leaf: leaf[run], (carry.state.x, carry.state.y)))

        each = [one(run) for run in range(runs)]
        return {name: np.asarray([values[name] for values in each]) for name in setup.metric_names}

    return one_by_one


def _as_long(values: np.ndarray, records: int) -> np.ndarray:
    """The records of a run that was interrupted, as many as those of others: counters stay, metrics are NaN."""
    missing = records - len(values)
    if missing == 0:
        return np.asarray(values)
    filled = values[-1] if np.issubdtype(values.dtype, np.integer) else np.full_like(values[0], np.nan)
    return np.concatenate([values, np.broadcast_to(filled, (missing, *values.shape[1:]))])


def _joined(
    settings: list[dict[str, Any]],
    seeds: list[int],
    setup: Setup,
    pieces: list[tuple[list[int], loop.Finished]],
    best_by: str | None,
    largest: bool,
) -> SweepResult:
    """The runs of all programs in the order of the settings; of an interrupted sweep, those that have begun."""
    begun = [i for members, _ in pieces for i in members]
    order, settings = np.argsort(begun), [settings[i] for i in sorted(begun)]
    records = max(len(done.history["step"]) for _, done in pieces)

    def grouped(values: Any) -> Any:  # (runs, ...) of one program -> (settings, seeds, ...)
        return np.asarray(values).reshape(-1, len(seeds), *np.shape(values)[1:])

    def joined(parts: list[Any]) -> Any:
        return np.concatenate([grouped(part) for part in parts])[order]

    first = pieces[0][1]
    history = {}
    for name, values in first.history.items():
        parts = [np.moveaxis(_as_long(done.history[name], records), 0, -1) for _, done in pieces]
        if values.ndim == 1 and (name == "seconds" or all(np.array_equal(part, parts[0]) for part in parts)):
            history[name] = parts[0]
            continue
        runs = [len(members) * len(seeds) for members, _ in pieces]
        history[name] = joined([np.broadcast_to(p, (n, p.shape[-1])) for n, p in zip(runs, parts, strict=True)])
    history["seconds"] = np.sum([_as_long(done.history["seconds"], records) for _, done in pieces], 0)
    state = [done.carry.state for _, done in pieces]
    result = SweepResult(
        settings,
        seeds,
        history,
        jax.tree.map(lambda *parts: joined(list(parts)), *[s.x for s in state]),
        jax.tree.map(lambda *parts: joined(list(parts)), *[s.y for s in state]),
        first.step,
        setup.plan.steps_in_epoch,
        sum(done.compile_seconds for _, done in pieces),
        sum(done.metric_seconds for _, done in pieces),
    )
    if best_by is None:
        return result
    mean = np.mean(result.final(best_by), -1)
    worst = -np.inf if largest else np.inf
    ends = jax.tree.leaves((result.x, result.y))
    finite = np.logical_and.reduce([np.isfinite(leaf).reshape(len(settings), -1).all(1) for leaf in ends])
    ranked = np.where(np.isfinite(mean) & finite, mean, worst)
    index = int(np.argmax(ranked) if largest else np.argmin(ranked))
    if not np.isfinite(ranked[index]):
        raise ValueError(
            f"every setting of the grid diverged: {best_by!r} is not finite at the end of any, or x and y are not; try smaller step sizes"
        )
    return dataclasses.replace(result, best=settings[index], best_index=index, best_by=best_by)
