"""`solve`: one run of an algorithm on a problem, in a chosen order."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from wior import checks, tree
from wior.algorithms.algorithm import Algorithm, NotAtHand, at_step
from wior.devices import hosts
from wior.devices.layout import Layout, Point, Split, as_layout, place
from wior.orders import Order, RandomReshuffling, named
from wior.problems import Problem
from wior.problems.fixed_batches import InFixedBatches
from wior.problems.movement import two_batches, two_losses, unmoved
from wior.problems.restated import more_general, restated
from wior.running import blocks, loop
from wior.running.feed import Feed
from wior.running.progress import Report, bar
from wior.saving import fingerprint
from wior.saving.checkpoint import (
    PROGRAM,
    Checkpoint,
    Store,
    describe_algorithm,
    describe_code,
    describe_function,
    describe_tree,
)

Tree = Any
Metrics = Callable[[Tree, Tree], dict[str, Any]]
Orders = Order | str | tuple[Order | str, Order | str]

LEVELS = ("outer", "inner")
STEPS_TO_DIVERGE, GROWN = 20, 10.0  # inner steps that are tried, and by how much a gradient may grow along them
MOST_REMEMBERED = 256


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
    progress: bool | Report = False,
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
    setup = prepare(
        problem, algorithm, x0, y0, order, batch_size, epochs, steps, seconds, tolerance, seed, metrics, record_every
    )
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
        hint=functools.partial(_why_non_finite, setup, feed),
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
    metrics_program: str | None  # what the metrics compute; None where there are none or they are not compiled
    metrics: dict[str, Any]  # what tells them from others of the same names
    batches: tuple[int, int]  # rows of an outer and of an inner batch
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
                for name, (loss, args) in self.problem.loss_calls(self.x, self.y, self.batches).items()
            },
            "algorithm": describe_algorithm(self.algorithm),
            "orders": [repr(s.order) for s in self.plan.streams] + [repr(self.plan.visit_order)],
            "batch_size": [s.batch for s in self.plan.streams] + [self.plan.visit_batch, *(self.cut or ())],
            "x0": describe_tree(self.x),
            "y0": describe_tree(self.y),
            "metrics": self.metrics,
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
    demand_algorithm(algorithm)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    x, y = checks.floating("x0", x0), checks.floating("y0", y0)
    orders = both("order", order, problem, named)
    batches = both("batch_size", batch_size, problem, checks.positive_integer)
    problem.check(x, y, batches)
    checks.warn_of_few_digits("x0", x)
    checks.warn_of_few_digits("y0", y)
    posed = posed_for(problem, algorithm)
    if posed is not problem:
        posed.check(x, y, batches)
    cut = batches if algorithm.fixed_batches else None
    if algorithm.fixed_batches and posed.streamed():
        raise ValueError(_not_streamed(posed, algorithm, "remembers every batch of the data, which must be at hand"))
    sizes = batches
    if algorithm.fixed_batches:
        posed, batches = InFixedBatches(posed, batches), (1, 1)
    program = metrics_program(metrics, x, y)
    names = metric_names(metrics, x, y, program is not None)
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
    try:
        plan = blocks.as_now(plan, posed.without_sources(), algorithm, x, y, batches)
    except NotAtHand:
        raise ValueError(_not_streamed(posed, algorithm, "takes large batches inside of some steps")) from None
    if seconds is not None:
        checks.positive_number("seconds", seconds)
    if tolerance is not None:
        _check_tolerance(tolerance, names)
    _warn_of_unmoved(problem, x, y, sizes, plan.program)
    blocks.make_room()
    return Setup(
        posed,
        algorithm,
        x,
        y,
        plan,
        loop.Limits(total, record_every, seconds, tolerance),
        names,
        program,
        describe_metrics(metrics, names, program),
        sizes,
        cut,
    )


def _not_streamed(problem: Any, algorithm: Algorithm, why: str) -> str:
    return (
        f"the {' and '.join(problem.streamed())} data are streamed, and {type(algorithm).__name__} {why}; "
        "give arrays that fit on the device, or another method"
    )


def posed_for(problem: Problem, algorithm: Algorithm) -> Any:
    """The problem as the algorithm takes it: itself, or restated where one class is a special case of another."""
    if algorithm.solves not in more_general(type(problem)):
        raise TypeError(
            f"{type(algorithm).__name__} solves {algorithm.solves.__name__} problems; the problem given is {type(problem).__name__}"
        )
    return restated(problem, algorithm.solves)


def demand_algorithm(algorithm: Any) -> None:
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        fields = [field for field in dataclasses.fields(algorithm) if field.default is dataclasses.MISSING]
        example = ", ".join(f"{field.name}=0.1" for field in fields)
        raise TypeError(
            f"algorithm is the class {algorithm.__name__}; give one with its step sizes: {algorithm.__name__}({example})"
        )
    if not isinstance(algorithm, Algorithm):
        raise TypeError(
            f"algorithm must be one of wior's algorithms, for example wior.WiORBO(outer_lr=0.1, inner_lr=0.1, adjoint_lr=0.1); "
            f"got {algorithm!r} of type {type(algorithm).__name__}"
        )


def both(name: str, value: Any, problem: Problem, checked: Callable[[str, Any], Any]) -> tuple[Any, Any]:
    """One value for both levels, or a pair (outer, inner), each as `checked` gives it back."""
    if isinstance(value, list):
        listed = ", ".join(map(repr, value))
        raise TypeError(f"{name} is a list, {value!r}; a pair (outer, inner) is a tuple: {name}=({listed})")
    pair = isinstance(value, tuple)
    if pair and len(problem.sizes()) == 1:
        raise ValueError(
            f"{name} is a pair, {value!r}, but a {type(problem).__name__} problem has one data set: give one value"
        )
    if pair and len(value) != 2:
        raise ValueError(f"{name} must be one value or a pair (outer, inner), got {len(value)} values: {value!r}")
    if not pair:
        return (checked(name, value),) * 2
    outer, inner = value
    return checked(f"{name} (outer)", outer), checked(f"{name} (inner)", inner)


_movement: dict[Any, list[str]] = {}  # the sentences for each program, which are the same for the same one


def _warn_of_unmoved(problem: Problem, x: Tree, y: Tree, batches: tuple[int, int], program: str) -> None:
    """Says before a long run which leaves of x0 and y0 it cannot move."""
    key = type(problem), program, jax.tree.structure((x, y)), batches
    if key not in _movement:
        if len(_movement) >= MOST_REMEMBERED:
            _movement.clear()
        _movement[key] = unmoved(problem, x, y, batches)
    for sentence in _movement[key]:
        warnings.warn(sentence, stacklevel=4)


def metrics_program(metrics: Metrics | None, x: Tree, y: Tree) -> str | None:
    """The fingerprint of metrics that can be compiled; None for others, which are called as they are."""
    if metrics is None:
        return None
    checks.function("metrics", metrics)
    checks.metrics_arity(metrics)
    try:
        # of metrics that are a tree of data, the arrays are arguments
        if jax.tree_util.all_leaves([metrics]):
            return fingerprint.fingerprint(metrics, x, y)
        return fingerprint.fingerprint(lambda metrics, x, y: metrics(x, y), metrics, x, y)
    except Exception:  # noqa: BLE001 - whatever stops a trace, the call that follows works, or says what is wrong
        return None


def describe_metrics(metrics: Metrics | None, names: tuple[str, ...], program: str | None) -> dict[str, Any]:
    """Names and what is computed: the program and its data or, of metrics that are not compiled, the code."""
    described: dict[str, Any] = {"names": list(names)}
    if program is not None:
        described["program"] = f"{PROGRAM} {program}"
    if metrics is not None and program is None:
        described["code"] = describe_code(metrics)
    elif metrics is not None and not jax.tree_util.all_leaves([metrics]):
        described["data"] = describe_tree(metrics)
    return described


def metric_names(metrics: Metrics | None, x: Tree, y: Tree, compiles: bool) -> tuple[str, ...]:
    """The names that `metrics` returns, after checking that each is a number."""
    if metrics is None:
        return ()
    found = jax.eval_shape(lambda x, y: metrics(x, y), x, y) if compiles else metrics(x, y)
    if not isinstance(found, dict):
        raise TypeError(
            f"metrics must return a dictionary of numbers, such as {{'loss': ...}}; it returns {type(found).__name__}"
        )
    for name, value in found.items():
        if not isinstance(name, str) or name in loop.ALWAYS:
            raise ValueError(f"metrics may not use the name {name!r}; history has {', '.join(loop.ALWAYS)} already")
        if np.shape(value) != ():
            raise ValueError(f"metrics[{name!r}] must be one number, got an array of shape {np.shape(value)}")
    return tuple(found)


def measurement(metrics: Metrics | None, program: str | None) -> Metrics:
    if metrics is None:
        return lambda x, y: {}
    return metrics if program is None else compiled(metrics, "one", program)


def compiled(metrics: Metrics, how: str, program: str) -> Metrics:
    """The compiled metrics of one run or of many, kept for the next run that measures the same."""
    if jax.tree_util.all_leaves([metrics]):
        return _compiled_function(metrics, how, program)
    # a tree of data that runs are judged on: its arrays are arguments, so that trees of one shape are one program
    return functools.partial(_measured_by_tree, how, program, metrics)


@functools.lru_cache(maxsize=8)  # `jit` knows a function by its object only, and a bound method not at all
def _compiled_function(metrics: Metrics, how: str, program: str) -> Metrics:
    return jax.jit(lambda x, y: mapped(metrics, how)(x, y))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _measured_by_tree(how: str, program: str, metrics: Any, x: Tree, y: Tree) -> dict[str, Any]:
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
    given = order if isinstance(order, tuple) else (order,)
    names = dict.fromkeys(type(named("order", one)).__name__ for one in given)
    return f"{type(algorithm).__name__}, {' / '.join(names)}"


def run_key(seed: int) -> jax.Array:
    return jax.random.key(int(seed), impl="threefry2x32")


@jax.jit
def _finite(state: Any) -> dict[str, Any]:
    return {name: tree.all_finite(value) for name, value in state._asdict().items()}


def _why_non_finite(setup: Setup, feed: Feed | None, variables: list[str], before: blocks.Carry, step: int) -> str:
    """The likely cause, for an error that says which variables the step after `step` broke."""
    problem = getattr(setup.problem, "problem", setup.problem)  # of fixed batches, the one they were cut from
    data = {name: getattr(problem, name) for name in problem._data}
    if feed is not None:
        data |= feed.read_by(step, before)
    faults = [fault for name, rows in data.items() if (fault := checks.non_finite_rows(name, rows))]
    if faults:
        return f"the data are not finite: {'; '.join(faults)}. Remove or replace these rows; no step size helps."
    algorithm = setup.algorithm
    names = [algorithm.step_sizes.get(name, "outer_lr") for name in variables]
    what = "the likely cause is a step size that is too large"
    if setup.plan.visit_order is not None and feed is None and _inner_steps_diverge(setup):
        # the inner variables of a conditional problem live inside a step, so that x is the first to be seen
        names, what = (
            ["inner_lr"],
            "inner steps diverge at x0 already: the likely cause is an inner step size that is too large",
        )
    rates = ", ".join(f"{name}={getattr(algorithm, name)!r}" for name in dict.fromkeys(names))
    return (
        f"{what}: try a smaller one ({rates}). "
        "wior.check(problem, x0, y0) looks for other causes and suggests first step sizes."
    )


def _inner_steps_diverge(setup: Setup) -> bool:
    """Whether the gradient of a first inner batch grows along its own descent at x0."""
    rate = getattr(setup.algorithm, "inner_lr", None)
    if rate is None:
        return False
    _, g = two_losses(setup.problem)
    batch = min(setup.plan.visit_batch, setup.plan.visit_size)
    _, zeta = two_batches(setup.problem, jnp.zeros(1, jnp.int32), jnp.arange(batch, dtype=jnp.int32))
    gradient = jax.jit(lambda y: jax.grad(g, 1)(setup.x, y, zeta))
    y, gamma = setup.y, at_step(rate, jnp.uint32(0))
    first = tree.norm(gradient(y))
    for _ in range(STEPS_TO_DIVERGE):
        y = jax.tree.map(lambda value, slope: value - gamma * slope, y, gradient(y))
    return not bool(tree.norm(gradient(y)) <= GROWN * first)


def _check_tolerance(tolerance: Any, names: tuple[str, ...]) -> None:
    if not isinstance(tolerance, tuple) or len(tolerance) != 2 or tolerance[0] not in names:
        raise ValueError(
            f"tolerance must be (name, value) with the name of a metric, one of {list(names)}; got {tolerance!r}"
        )
    if not np.isfinite(tolerance[1]):
        raise ValueError(f"tolerance must have a finite value, got {tolerance!r}")
