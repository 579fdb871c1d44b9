"""`solve`: one run of an algorithm on a problem, in a chosen order."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from wior.algorithms.algorithm import Algorithm
from wior.devices.layout import Layout, as_layout
from wior.loggers import Logger
from wior.orders import RandomReshuffling
from wior.problems import Problem
from wior.running import loop
from wior.running.arguments import Arguments, Orders, as_checkpoint, title
from wior.running.listeners import Callback
from wior.running.measuring import Metrics
from wior.running.position import begin_at
from wior.running.program import OneRun
from wior.running.progress import Progress
from wior.running.results import Result
from wior.running.setup import prepare
from wior.running.stopping import Condition
from wior.saving.checkpoint import Checkpoint

Tree = Any


def solve(
    problem: Problem,
    algorithm: Algorithm,
    x0: Tree = None,
    y0: Tree = None,
    *,
    order: Orders = RandomReshuffling(),
    batch_size: int | tuple[int, int] = 64,
    epochs: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    tolerance: tuple[str, float] | None = None,
    stop: Condition | Sequence[Condition] | None = None,
    seed: int | None = None,
    metrics: Metrics | None = None,
    record_every: int | None = None,
    callback: Callback | None = None,
    loggers: Sequence[Logger] = (),
    state: Any = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: bool | Progress = False,
    mesh: Mesh | Layout | None = None,
    micro_batch: int | tuple[int, int] | None = None,
) -> Result:
    """Runs `algorithm` on `problem` from x0, y0.

    Every argument is checked before anything is compiled. The same arguments give the same numbers, whatever the
    checkpoints and records in between.

    `solve` uses losses, schedules and metrics as they are when it is called: where a global, an attribute or an array
    that they read has changed since an earlier call, the program is compiled again. A `jax.jit` of your own inside them
    keeps the values that it read first.

    Data stay on the host where a leaf is a memory map, an Arrow table, an object with a length that takes an array of
    row numbers, or marked with `wior.Streamed`. The rows of the next steps are gathered while the device computes, and
    memory holds two windows of them. The numbers are those of the same data as arrays, bit for bit.

    Parameters
    ----------
    problem
        The problem: losses and data.
    algorithm
        The method with its hyper-parameters, such as `wior.WiORBO(outer_lr=0.1, inner_lr=0.1, adjoint_lr=0.1)`.
    x0, y0
        The start: arrays, or trees of arrays. Of a tree that holds functions or texts too, such as a module of equinox,
        the arrays of floating-point numbers move and all else is constant; losses, metrics and the result have it
        whole. Left out with `state`.
    order
        The order of the examples: one of `wior.orders`, its name, or a pair (outer, inner).
    batch_size
        The examples in a batch, or a pair (outer, inner).
    epochs, steps
        The length of the run, one of the two; with `state`, how much longer it becomes. An epoch is the paper's: the
        first step after which the passes over both data sets end together.
    seconds
        Ends the run when its steps have taken this many seconds.
    tolerance
        The name of a metric and a value: ends the run at the first record where the metric is not above it, as
        `stop=wior.stop.AtMost(name, value)` does, with "tolerance" in `stopped_by`.
    stop
        Conditions of `wior.stop` that end the run, one or a list: the first that holds, and `stopped_by` names it.
    seed
        Chooses the examples; 0 where it is not given, or the seed of `state`.
    metrics
        A function `metrics(x, y)`, or `metrics(x, y, model_state)`, that returns a dictionary of numbers. It is
        evaluated at the start, every `record_every` steps and at the end.
    record_every
        The steps from one record of `history` to the next. Without it, a hundredth of the run.
    callback
        A function `callback(record)` that is told each record, a dictionary of numbers, and may end the run by
        returning True; `stopped_by` is then "callback".
    loggers
        A list of `wior.loggers`, which receive each record.
    state
        The `state` of an earlier result, from which the run continues: x, y, u and what else the method carries, the
        place in the order, and what an order has learned. So 50 steps and 50 more are 100 steps, bit for bit. Step
        sizes, losses and the values of the data may be others; method, order, batch sizes, seed and the numbers of
        examples may not. `history` begins where the earlier one ended.
    checkpoint
        A folder, or a `wior.Checkpoint`, in which the run saves itself and from which the same call resumes; the
        numbers at the end are the same.
    progress
        True for a bar, or a function `progress(step, latest)` that is called in its place.
    mesh
        A `jax.sharding.Mesh`: each device computes its share of every batch. A `wior.Layout` splits parameters,
        `PerExample` rows or the data too. The numbers are those of one device to rounding.
    micro_batch
        The rows on which a loss is evaluated at a time, or a pair (outer, inner): a step then needs the memory of so
        many rows, and its numbers are the same to rounding. It must divide the batch.

    Returns
    -------
    Result
        x, y, the algorithm's state, and the history of records.

    Raises
    ------
    TypeError, ValueError
        Where an argument is wrong; the message names it, its value and what would be right.
    NonFiniteError
        Where a variable became infinite or NaN; its `.result` is the last finite state.
    Interrupted
        After Ctrl-C, at the end of the present block of steps; a run with a checkpoint is saved first. A second Ctrl-C
        ends at once.

    Notes
    -----
    An error raised in `metrics`, `callback` or `progress` keeps its type; its `.result` is what the run had reached.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem = wior.Bilevel(outer, inner, rows, rows)
    >>> result = wior.solve(
    ...     problem, algorithm, jnp.zeros(()), jnp.zeros(3), order="herding", batch_size=8, steps=200, record_every=100,
    ...     metrics=lambda x, y: {"loss": outer(x, y, rows)},
    ... )  # fmt: skip
    >>> bool(result.history["loss"][-1] < result.history["loss"][0])
    True

    It continues from where it was:

    >>> longer = wior.solve(problem, algorithm, state=result.state, order="herding", batch_size=8, steps=100)
    >>> longer.steps, longer.history["step"][:2].tolist()
    (300, [200, 201])
    """
    x0, y0 = begin_at(x0, y0, state)
    layout = as_layout(mesh)
    if layout is not None:
        problem, x0, y0 = layout.received(problem, x0, y0)
    given = Arguments(
        order,
        batch_size,
        epochs,
        steps,
        seconds,
        tolerance,
        seed,
        metrics,
        record_every,
        stop,
        callback,
        loggers,
        state,
        micro_batch,
    )
    setup = prepare(problem, algorithm, x0, y0, given)
    if layout is not None:
        setup = setup.on(layout, {"seed": setup.seed}, checkpoint)
    with contextlib.closing(OneRun(setup)) as program:
        done = loop.run(program, as_checkpoint(checkpoint), progress, title(algorithm, order))
        return program.result(done)
