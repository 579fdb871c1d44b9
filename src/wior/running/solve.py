"""`solve`: one run of an algorithm on a problem, in a chosen order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from wior import tree
from wior.algorithms.algorithm import Algorithm
from wior.devices import hosts
from wior.devices.layout import Layout, as_layout
from wior.orders import RandomReshuffling, named
from wior.problems import Problem
from wior.running import blocks, loop
from wior.running.arguments import Arguments, Orders
from wior.running.divergence import why_non_finite
from wior.running.feed import Feed
from wior.running.measuring import Metrics, measurement
from wior.running.progress import Progress, bar
from wior.running.setup import Setup, prepare, run_key
from wior.saving.checkpoint import Checkpoint, Store

Tree = Any


@dataclasses.dataclass(frozen=True)
class Result:
    """The end of a run, and how it went there."""

    x: Tree
    y: Tree
    state: Any  # the algorithm's own, with u
    history: dict[str, np.ndarray]
    steps: int
    steps_per_epoch: int
    stopped_by: (
        str  # "steps", "seconds" or "tolerance"; "interrupt", "error" or "divergence" in `.result` of what was raised
    )
    compile_seconds: float
    metric_seconds: float


def solve(
    problem: Problem,
    algorithm: Algorithm,
    x0: Tree,
    y0: Tree,
    *,
    order: Orders = RandomReshuffling(),
    batch_size: int | tuple[int, int] = 64,
    epochs: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    tolerance: tuple[str, float] | None = None,
    seed: int = 0,
    metrics: Metrics | None = None,
    record_every: int | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: bool | Progress = False,
    mesh: Mesh | Layout | None = None,
) -> Result:
    """Runs `algorithm` on `problem` from x0, y0.

    `order` (one of `wior.orders`, or its name) and `batch_size` are one for both levels or a pair (outer, inner). The length is `steps`, or `epochs`: an epoch is the
    paper's, the first step after which the passes over both data sets end together. `seconds` (spent in steps) and
    `tolerance` (a metric's name and the value it must not exceed) may end the run earlier.

    `metrics(x, y)` returns a dictionary of numbers and is evaluated at the start, every `record_every` steps (a hundredth of the run where not
    given) and at the end. `result.history` holds them as arrays, after `step`, `outer_passes`, `inner_passes`, `seconds` and the
    counted calls: gradients of f and g, Jacobian and Hessian products in examples, and backward passes.

    `progress` shows a bar, or is a function `report(step, latest)` that is told in its place.

    Data of which a leaf is a memory map, an Arrow table, or an object with a length that takes an array of row numbers (or is marked
    with `wior.Streamed`) stay where they are: the rows of the next steps are gathered while the device computes, two windows of
    them are in memory, and the numbers are those of the same data as arrays, bit for bit.

    With `checkpoint`, a folder, the run saves itself there and goes on from there; it ends with the same numbers.

    Ctrl-C ends the run after the present block of steps, saves it where there is a `checkpoint`, and raises `wior.Interrupted`, whose `.result` is
    what was reached; a second Ctrl-C ends at once. An error of `metrics` or `progress` has that `.result` too, and `wior.NonFiniteError`
    the last finite state.

    Losses, schedules and metrics are taken as they are when `solve` is called: a global, an attribute or an array that they read and that has
    changed since an earlier call makes another program. A `jax.jit` of your own inside of them keeps what it has read first.

    With `mesh`, a `jax.sharding.Mesh`, each device computes its share of every batch; a `wior.Layout` of it splits parameters, `PerExample`
    rows or the data too. The numbers are those of one device to rounding.
    """
    layout = as_layout(mesh)
    if layout is not None:
        problem, x0, y0 = layout.received(problem, x0, y0)
    given = Arguments(order, batch_size, epochs, steps, seconds, tolerance, seed, metrics, record_every)
    setup = prepare(problem, algorithm, x0, y0, given)
    if layout is not None:
        setup = setup.on(layout, {"seed": seed}, checkpoint)
    keys = setup.placed(blocks.stream_keys(setup.plan, run_key(seed)))
    measure = measurement(metrics, setup.metrics_program)
    bare = setup.problem.without_sources()
    feed = Feed(setup.plan, setup.problem, keys, setup.limits.steps) if setup.plan.window else None

    def advance(carry: blocks.Carry, step: int, count: Any) -> Any:
        posed, window = (bare, None) if feed is None else feed.problem_at(step, carry)
        start = blocks.start_at(setup.plan, step, window)
        return blocks.block(setup.plan, posed, setup.algorithm, carry, keys, start, count)

    program = loop.Program(
        plan=setup.plan,
        begin=lambda: blocks.begin(setup.plan, bare, setup.algorithm, keys, setup.x, setup.y),
        advance=advance,
        measure=lambda carry: measure(carry.state.x, carry.state.y),
        measure_compiles=setup.metrics_program is not None,
        metric_names=setup.metric_names,
        runs=(),
        drawn=setup.drawn,
        finite=_finite,
        hint=functools.partial(why_non_finite, setup, feed),
        result=functools.partial(_result, setup),
        room=None if feed is None else feed.room,
    )
    try:
        done = driven(program, setup, checkpoint, {"seed": seed}, progress, title(algorithm, order))
    finally:
        if feed is not None:
            feed.close()
    return _result(setup, done)


def _result(setup: Setup, done: loop.Finished) -> Result:
    state, times = done.carry.state, (done.compile_seconds, done.metric_seconds)
    epoch = setup.plan.steps_in_epoch
    return Result(state.x, state.y, state, done.history, done.step, epoch, done.stopped_by, *times)


def driven(
    program: loop.Program,
    setup: Setup,
    checkpoint: str | Path | Checkpoint | None,
    more: dict[str, Any],
    progress: bool | Progress,
    heading: str,
) -> loop.Finished:
    """Drives a program to its end; `more` stands beside its description in a checkpoint folder."""
    many = setup.plan.layout is not None and setup.plan.layout.spans_processes
    if many:
        program = dataclasses.replace(program, agreed=hosts.agreed)
        progress = progress if hosts.is_first() else False
    with hosts.loss_is_clear(many):
        store = open_store(checkpoint, lambda: {**setup.describe(), **more})
        try:
            with bar(progress, heading, setup.limits.steps) as report:
                return loop.drive(program, setup.limits, store, report)
        finally:
            if store is not None:
                store.close()


def open_store(checkpoint: str | Path | Checkpoint | None, describe: Callable[[], dict[str, Any]]) -> Store | None:
    if checkpoint is None:
        return None
    return Store(checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint), describe())


def title(algorithm: Algorithm, order: Orders) -> str:
    given = order if isinstance(order, tuple) else (order,)
    names = dict.fromkeys(type(named("order", one)).__name__ for one in given)
    return f"{type(algorithm).__name__}, {' / '.join(names)}"


@jax.jit
def _finite(state: Any) -> dict[str, Any]:
    return {name: tree.all_finite(value) for name, value in state._asdict().items()}
