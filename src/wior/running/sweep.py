"""`sweep`: a grid of hyper-parameters × seeds as one compiled program."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from wior import checks
from wior.algorithms.algorithm import Algorithm
from wior.devices.layout import Layout, as_layout
from wior.orders import RandomReshuffling
from wior.problems import Problem
from wior.running import loop
from wior.running.arguments import Arguments, Orders, as_checkpoint, demand_algorithm, title
from wior.running.joining import Collected, Grid, with_best
from wior.running.measuring import Metrics
from wior.running.position import begin_at, position_of
from wior.running.program import ManyRuns
from wior.running.progress import Progress
from wior.running.results import SweepResult
from wior.running.setup import prepare
from wior.saving.checkpoint import Checkpoint, describe_algorithm

Tree = Any
Values = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]

LARGE_ON_A_CPU = 2048
SEEDS = 5  # where their number is not given


def sweep(
    problem: Problem,
    algorithm: Algorithm,
    x0: Tree = None,
    y0: Tree = None,
    *,
    grid: Values,
    seeds: int | Sequence[int] | None = None,
    best_by: str | None = None,
    largest: bool = False,
    order: Orders = RandomReshuffling(),
    batch_size: int | tuple[int, int] = 64,
    epochs: int | None = None,
    steps: int | None = None,
    metrics: Metrics | None = None,
    record_every: int | None = None,
    state: Any = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: bool | Progress = False,
    side_by_side: bool | None = None,
    mesh: Mesh | None = None,
    micro_batch: int | tuple[int, int] | None = None,
) -> SweepResult:
    """Runs `algorithm` with every combination of the values in `grid`, for every seed, all at once.

    Numbers and seeds are one `vmap`ped program; values that change the program (whole numbers such as `inner_epochs`,
    schedules) make one program each. A run that diverges does not end the others.

    Parameters
    ----------
    problem, algorithm, x0, y0
        As in `wior.solve`. Streamed data cannot be swept.
    grid
        Names of hyper-parameters and the values to try, in place of the algorithm's own; or a list of settings, for
        combinations that are not a product.
    seeds
        How many seeds, counted from 0, or a list of them. Each setting runs with each. Without it, five; with `state`,
        the seed of that state, which is then the only one there can be.
    best_by
        The name of a metric. The setting whose mean over seeds at the end is smallest is `result.best`; a setting of
        which any run diverged is never the best.
    largest
        Whether the largest mean is the best.
    order, batch_size, epochs, steps, metrics, record_every, progress, micro_batch
        As in `wior.solve`. There is no `stop`: all settings make the same steps, so that they can be compared.
    state
        The `state` of a `Result`, from which all settings continue, as in `wior.solve`.
    checkpoint
        As in `wior.solve`; of a grid of many programs, each has a folder of its own inside.
    side_by_side
        Whether the runs go together through every step or one after another inside the program. Chosen by the device
        and the size of y where not given: a network of convolutions is faster one after another on a CPU.
    mesh
        A `jax.sharding.Mesh` along which every run splits its batches; the state of every run lies whole on each
        device.

    Returns
    -------
    SweepResult
        Every run: histories, x and y, with a first axis of settings and a second of seeds.

    Raises
    ------
    ValueError
        Where an argument is wrong, before anything is compiled; and where `best_by` is given and every setting
        diverged.
    Interrupted
        After Ctrl-C; its `.result` holds the runs that have begun.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem, x0, y0 = wior.Bilevel(outer, inner, rows, rows), jnp.zeros(()), jnp.zeros(3)
    >>> found = wior.sweep(
    ...     problem, algorithm, x0, y0, grid={"outer_lr": [0.001, 0.05, 1e6]}, seeds=2, batch_size=8, steps=20,
    ...     metrics=lambda x, y: {"loss": outer(x, y, rows)}, best_by="loss",
    ... )  # fmt: skip
    >>> found.best, found.history["loss"].shape
    ({'outer_lr': 0.05}, (3, 2, 21))
    """
    x0, y0 = begin_at(x0, y0, state)
    layout = _layout(problem, mesh)
    if layout is not None:
        problem, x0, y0 = layout.received(problem, x0, y0)
    chosen, settings = _seeds(seeds, state), grid_settings(algorithm, grid)
    runs = Grid(settings, [dataclasses.replace(algorithm, **setting) for setting in settings], chosen)
    given = Arguments(order, batch_size, epochs, steps, seed=chosen[0], metrics=metrics, record_every=record_every)
    given = dataclasses.replace(given, state=state, micro_batch=micro_batch)
    programs = runs.by_program()
    # one setup for each program: a field that is part of it may change the plan
    setups = [prepare(problem, runs.algorithms[members[0]], x0, y0, given) for members in programs]
    if layout is not None:
        more = {"seeds": chosen, "grid": [describe_algorithm(one) for one in runs.algorithms]}
        setups = [one.on(layout, more, checkpoint) for one in setups]
    first = setups[0]
    if best_by is not None and best_by not in first.metric_names:
        raise ValueError(f"best_by must name a metric, one of {list(first.metric_names)}; got {best_by!r}")
    if side_by_side is None:
        side_by_side = in_step(first.y)

    done = Collected(runs, first.plan.steps_in_epoch)
    folders = _folders(as_checkpoint(checkpoint), len(programs))
    for members, setup, folder in zip(programs, setups, folders, strict=True):
        heading = f"{title(algorithm, order)} × {len(members) * len(chosen)} runs"
        with contextlib.closing(ManyRuns(setup, members, done, side_by_side)) as program:
            done.pieces.append((members, loop.run(program, folder, progress, heading)))
    ended = done.result(view=first.view)
    return ended if best_by is None else with_best(ended, best_by, largest)


def in_step(y: Tree) -> bool:
    """Whether many runs are faster side by side in every step than one after another.

    They are on a GPU, and wherever a step is so small that its parts cost more to start than to compute. A CPU
    multiplies one large matrix faster than many at once.
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


def _seeds(seeds: int | Sequence[int] | None, state: Any) -> list[int]:
    if state is None:
        return seed_list(SEEDS if seeds is None else seeds)
    own = position_of(state).seed
    if seeds is not None and seed_list(seeds) != [own]:
        raise ValueError(
            f"seeds is {seeds!r}, and state was reached with seed {own}: its place in the order is that of no other "
            "seed; leave out seeds"
        )
    return [own]


def grid_settings(algorithm: Algorithm, grid: Values) -> list[dict[str, Any]]:
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


def _layout(problem: Problem, mesh: Mesh | None) -> Layout | None:
    """The layout of a sweep, after checking that one program can run it."""
    if isinstance(problem, Problem) and problem.streamed():
        raise ValueError(
            f"the {' and '.join(problem.streamed())} data are streamed, and every seed reads them in an order of its "
            "own; "
            "give arrays that fit on the device, or call solve for each run"
        )
    layout = as_layout(mesh)
    if layout is not None and layout != Layout(layout.mesh, layout.batch):
        raise ValueError(f"sweep splits only batches; use solve for a layout of parameters, rows or data: {mesh!r}")
    return layout


def _folders(checkpoint: Checkpoint | None, programs: int) -> list[Checkpoint | None]:
    """A checkpoint folder for each program."""
    if checkpoint is None or programs == 1:
        return [checkpoint] * programs
    folder = Path(checkpoint.folder)
    return [dataclasses.replace(checkpoint, folder=folder / f"program-{number}") for number in range(programs)]
