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

from wior import blocks, checks, hosts, loop, tree
from wior.algorithms.algorithm import Algorithm, NotAtHand
from wior.checkpoint import Checkpoint, Store, describe_algorithm, describe_function, describe_tree
from wior.feed import Feed
from wior.fixed_batches import InFixedBatches
from wior.layout import Layout, Point, Split, as_layout, place
from wior.orders import Order, RandomReshuffling
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax, Problem
from wior.progress import Report, bar

Tree = Any
Metrics = Callable[[Tree, Tree], dict[str, Any]]
Orders = Order | tuple[Order, Order]

LEVELS = ("outer", "inner")


@dataclasses.dataclass(frozen=True)
class Result:
    """The end of a run, and how it went there."""

    x: Tree
    y: Tree
    state: Any  # the algorithm's own, with u
    history: dict[str, np.ndarray]
    steps: int
    steps_per_epoch: int
    stopped_by: str  # "steps", "seconds" or "tolerance"
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
    progress: bool | Report = False,
    mesh: Mesh | Layout | None = None,
) -> Result:
    """Runs `algorithm` on `problem` from x0, y0.

    `order` and `batch_size` are one for both levels or a pair (outer, inner). The length is `steps`, or `epochs`: an epoch is the
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

    With `mesh`, a `jax.sharding.Mesh`, each device computes its share of every batch; a `wior.Layout` of it splits parameters, `PerExample`
    rows or the data too. The numbers are those of one device to rounding.
    """
    layout = as_layout(mesh)
    if layout is not None:
        problem, x0, y0 = layout.received(problem, x0, y0)
    setup = prepare(
        problem, algorithm, x0, y0, order, batch_size, epochs, steps, seconds, tolerance, seed, metrics, record_every
    )
    if layout is not None:
        setup = setup.on(layout, {"seed": seed}, checkpoint)
    keys = setup.placed(blocks.stream_keys(setup.plan, run_key(seed)))
    measure = measurement(metrics, setup.x, setup.y)
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
        measure_compiles=compiles(metrics, setup.x, setup.y),
        metric_names=setup.metric_names,
        runs=(),
        drawn=setup.drawn,
        finite=_finite,
        hint=functools.partial(_hint, setup.algorithm),
        room=None if feed is None else feed.room,
    )
    try:
        done = driven(program, setup, checkpoint, {"seed": seed}, progress, title(algorithm, order))
    finally:
        if feed is not None:
            feed.close()
    state = done.carry.state
    return Result(
        state.x,
        state.y,
        state,
        done.history,
        done.step,
        setup.plan.steps_in_epoch,
        done.stopped_by,
        done.compile_seconds,
        done.metric_seconds,
    )


@dataclasses.dataclass(frozen=True)
class Setup:
    """Checked arguments, and the plan that follows from them."""

    problem: Any
    algorithm: Any
    x: Tree
    y: Tree
    plan: blocks.Plan
    limits: loop.Limits
    metric_names: tuple[str, ...]
    cut: tuple[int, int] | None = None  # the batches that the data are cut into, where a method wants them fixed
    alone: Setup | None = None  # of a run on many devices, the same run on one

    def drawn(self, step: int) -> tuple[float, float]:
        """Passes over the outer and the inner data after `step` steps, all streams together."""
        sizes = self.problem.sizes()
        passes = {
            level: sum(s.chunk for s in self.plan.streams if s.level == level) * step / sizes[level] for level in sizes
        }
        outer = passes["outer"]
        if self.plan.visit_order is not None:
            if self.algorithm.visit_batches is None:
                return outer, outer * self.algorithm.inner_epochs
            return outer, outer * self.algorithm.visit_batches * self.plan.visit_batch / self.plan.visit_size
        return outer, passes.get("inner", outer)

    def on(self, layout: Layout, more: dict[str, Any], checkpoint: str | Path | Checkpoint | None) -> Setup:
        """The same run on many devices; `more` tells it from others beside its description."""
        if layout.spans_processes:
            saves = [checkpoint.every_seconds, checkpoint.every_steps] if isinstance(checkpoint, Checkpoint) else None
            limits, jax_settings = (
                dataclasses.astuple(self.limits),
                [jax.__version__, jax.config.read("jax_enable_x64")],
            )
            asked = {"mesh": layout.describe(), "length and records": limits, "checkpoint": [checkpoint is None, saves]}
            hosts.demand_same({**self.describe(), **more, **asked, "jax": jax_settings})
        cut = {s.level: s.batch for s in self.plan.streams} if self.cut is None else zip(LEVELS, self.cut, strict=True)
        splits = [Split(f"the {level} batch of", size) for level, size in dict(cut).items()]
        layout.demand_fit(splits, self.problem, self.x, self.y)
        point = Point(self.x, self.y)
        x, y = jax.tree.map(place, point, layout.shardings(point))
        placed, plan = layout.place_problem(self.problem, self.x), dataclasses.replace(self.plan, layout=layout)
        return dataclasses.replace(self, problem=placed, x=x, y=y, plan=plan, alone=self)

    def placed(self, values: Tree) -> Tree:
        """Values where the program expects them."""
        return values if self.plan.layout is None else self.plan.layout.place(values)

    def describe(self) -> dict[str, Any]:
        """What tells this run from another one, for its checkpoint folder; not where it runs."""
        if self.alone is not None:
            return self.alone.describe()
        return {
            "problem": type(self.problem).__name__,
            "data": describe_tree({name: getattr(self.problem, name) for name in self.problem._data}),
            "losses": {
                name: describe_function(loss, *args)
                for name, (loss, args) in self.problem.loss_calls(self.x, self.y).items()
            },
            "algorithm": describe_algorithm(self.algorithm),
            "orders": [repr(s.order) for s in self.plan.streams] + [repr(self.plan.visit_order)],
            "batch_size": [s.batch for s in self.plan.streams] + [self.plan.visit_batch, *(self.cut or ())],
            "x0": describe_tree(self.x),
            "y0": describe_tree(self.y),
            "metrics": list(self.metric_names),
            "jax": jax.__version__,
        }


def driven(
    program: loop.Program,
    setup: Setup,
    checkpoint: str | Path | Checkpoint | None,
    more: dict[str, Any],
    progress: bool | Report,
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


def prepare(
    problem: Problem,
    algorithm: Algorithm,
    x0: Tree,
    y0: Tree,
    order: Orders,
    batch_size: int | tuple[int, int],
    epochs: int | None,
    steps: int | None,
    seconds: float | None,
    tolerance: tuple[str, float] | None,
    seed: int,
    metrics: Metrics | None,
    record_every: int | None,
) -> Setup:
    """Checks every argument before anything is compiled."""
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be one of wior's problems, for example wior.Bilevel, got {problem!r} of type {type(problem).__name__}"
        )
    if not isinstance(algorithm, Algorithm):
        raise TypeError(
            f"algorithm must be one of wior's algorithms, for example wior.WiORBO, got {algorithm!r} of type {type(algorithm).__name__}"
        )
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    x, y = checks.floating("x0", x0), checks.floating("y0", y0)
    orders = both("order", order, problem, Order, "one of wior.orders")
    batches = both("batch_size", batch_size, problem, object, "a positive integer")
    for level, batch in zip(("outer", "inner"), batches, strict=True):
        checks.positive_integer(f"batch_size ({level})" if isinstance(batch_size, tuple) else "batch_size", batch)
    problem.check(x, y)
    checks.warn_of_few_digits("x0", x)
    checks.warn_of_few_digits("y0", y)
    posed = posed_for(problem, algorithm)
    posed.check(x, y)
    cut = batches if algorithm.fixed_batches else None
    if algorithm.fixed_batches and posed.streamed():
        raise ValueError(_not_streamed(posed, algorithm, "remembers every batch of the data, which must be at hand"))
    if algorithm.fixed_batches:
        posed, batches = InFixedBatches(posed, batches), (1, 1)
    names = metric_names(metrics, x, y)
    if (steps is None) == (epochs is None):
        raise ValueError(f"give either steps or epochs, got steps={steps!r} and epochs={epochs!r}")
    if record_every is not None:
        checks.positive_integer("record_every", record_every)
    plan = blocks.make_plan(posed, algorithm, orders, batches, 2**31)
    total = (
        checks.positive_integer("steps", steps)
        if steps is not None
        else checks.positive_integer("epochs", epochs) * plan.steps_in_epoch
    )
    record_every = record_every or -(-total // 100)
    plan = dataclasses.replace(plan, length=min(plan.length, record_every))
    if plan.window:
        _demand_streamable(plan, posed, algorithm, x, y)
    if seconds is not None:
        checks.positive_number("seconds", seconds)
    if tolerance is not None:
        _check_tolerance(tolerance, names)
    blocks.make_room()
    return Setup(posed, algorithm, x, y, plan, loop.Limits(total, record_every, seconds, tolerance), names, cut)


def _demand_streamable(plan: blocks.Plan, problem: Any, algorithm: Algorithm, x: Tree, y: Tree) -> None:
    """Traces a step on shapes alone: what it reads must be the batches that it is given."""
    try:
        jax.eval_shape(
            lambda p, a, x, y: a.step(p, a.init(p, x, y), blocks.any_draws(plan, p, a)),
            problem.without_sources(),
            algorithm,
            x,
            y,
        )
    except NotAtHand:
        raise ValueError(_not_streamed(problem, algorithm, "takes large batches inside of some steps")) from None


def _not_streamed(problem: Any, algorithm: Algorithm, why: str) -> str:
    return (
        f"the {' and '.join(problem.streamed())} data are streamed, and {type(algorithm).__name__} {why}; "
        "give arrays that fit on the device, or another method"
    )


RESTATED: dict[tuple[type[Problem], type[Problem]], Callable[[Any], Problem]] = {
    (Minimax, Bilevel): Minimax.as_bilevel,
    (Compositional, Bilevel): Compositional.as_bilevel,
    (ConditionalCompositional, ConditionalBilevel): ConditionalCompositional.as_conditional_bilevel,
}


def posed_for(problem: Problem, algorithm: Algorithm) -> Any:
    """The problem as the algorithm takes it: itself, or restated where one class is a special case of another."""
    if isinstance(problem, algorithm.solves):
        return problem
    for (given, solved), restate in RESTATED.items():
        if isinstance(problem, given) and algorithm.solves is solved:
            return restate(problem)
    raise TypeError(
        f"{type(algorithm).__name__} solves {algorithm.solves.__name__} problems; the problem given is {type(problem).__name__}"
    )


def both(name: str, value: Any, problem: Problem, kind: type, expected: str) -> tuple[Any, Any]:
    """One value for both levels, or a pair (outer, inner)."""
    pair = isinstance(value, tuple)
    if pair and isinstance(problem, Minimax):
        raise ValueError(f"{name} is a pair, {value!r}, but a Minimax problem has one data set: give {expected}")
    if pair and len(value) != 2:
        raise ValueError(f"{name} must be {expected} or a pair (outer, inner), got {len(value)} values: {value!r}")
    outer, inner = value if pair else (value, value)
    for one in (outer, inner):
        if not isinstance(one, kind):
            hint = f"; did you mean {one.__name__}()?" if isinstance(one, type) and issubclass(one, kind) else ""
            raise TypeError(
                f"{name} must be {expected} or a pair (outer, inner) of them, got {one!r} of type {type(one).__name__}{hint}"
            )
    return outer, inner


def metric_names(metrics: Metrics | None, x: Tree, y: Tree) -> tuple[str, ...]:
    """The names that `metrics` returns, after checking that each is a number."""
    if metrics is None:
        return ()
    checks.function("metrics", metrics)
    found = jax.eval_shape(metrics, x, y) if compiles(metrics, x, y) else metrics(x, y)
    if not isinstance(found, dict):
        raise TypeError(f"metrics must return a dictionary of numbers, got {type(found).__name__}")
    for name, value in found.items():
        if not isinstance(name, str) or name in loop.ALWAYS:
            raise ValueError(f"metrics may not use the name {name!r}; history has {', '.join(loop.ALWAYS)} already")
        if np.shape(value) != ():
            raise ValueError(f"metrics[{name!r}] must be one number, got an array of shape {np.shape(value)}")
    return tuple(found)


def compiles(metrics: Metrics | None, x: Tree, y: Tree) -> bool:
    """Whether there are metrics that can be compiled; some go through numpy, cannot, and are called as they are."""
    if metrics is None:
        return False
    try:
        jax.eval_shape(metrics, x, y)
    except (
        jax.errors.TracerArrayConversionError,
        jax.errors.ConcretizationTypeError,
        jax.errors.TracerBoolConversionError,
    ):
        return False
    return True


def measurement(metrics: Metrics | None, x: Tree, y: Tree) -> Metrics:
    if metrics is None:
        return lambda x, y: {}
    return compiled(metrics, "one") if compiles(metrics, x, y) else metrics


def compiled(metrics: Metrics, how: str) -> Metrics:
    """The compiled metrics of one run or of many, kept for the next run."""
    if jax.tree_util.all_leaves([metrics]):
        return _compiled_function(metrics, how)
    # a tree of data that runs are judged on: its arrays are arguments, so that trees of one shape are one program
    return functools.partial(_measured_by_tree, how, metrics)


@functools.lru_cache(maxsize=8)  # `jit` knows a bound method by its object only
def _compiled_function(metrics: Metrics, how: str) -> Metrics:
    return jax.jit(mapped(metrics, how))


@functools.partial(jax.jit, static_argnums=0)
def _measured_by_tree(how: str, metrics: Any, x: Tree, y: Tree) -> dict[str, Any]:
    return mapped(metrics, how)(x, y)


def mapped(metrics: Metrics, how: str) -> Metrics:
    if how == "one":
        return metrics
    if how == "side by side":
        return jax.vmap(metrics)
    return lambda x, y: jax.lax.map(lambda point: metrics(*point), (x, y))


def open_store(checkpoint: str | Path | Checkpoint | None, describe: Callable[[], dict[str, Any]]) -> Store | None:
    if checkpoint is None:
        return None
    return Store(checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint), describe())


def title(algorithm: Algorithm, order: Orders) -> str:
    names = dict.fromkeys(type(one).__name__ for one in (order if isinstance(order, tuple) else (order,)))
    return f"{type(algorithm).__name__}, {' / '.join(names)}"


def run_key(seed: int) -> jax.Array:
    return jax.random.key(int(seed), impl="threefry2x32")


@jax.jit
def _finite(state: Any) -> dict[str, Any]:
    return {name: tree.all_finite(value) for name, value in state._asdict().items()}


def _hint(algorithm: Algorithm, variables: list[str]) -> str:
    rates = [algorithm.step_sizes.get(name, "outer_lr") for name in variables]
    named = ", ".join(f"{rate}={getattr(algorithm, rate)!r}" for rate in dict.fromkeys(rates))
    return f"the likely cause is a step size that is too large: try a smaller one ({named})."


def _check_tolerance(tolerance: Any, names: tuple[str, ...]) -> None:
    if not isinstance(tolerance, tuple) or len(tolerance) != 2 or tolerance[0] not in names:
        raise ValueError(
            f"tolerance must be (name, value) with the name of a metric, one of {list(names)}; got {tolerance!r}"
        )
    if not np.isfinite(tolerance[1]):
        raise ValueError(f"tolerance must have a finite value, got {tolerance!r}")
