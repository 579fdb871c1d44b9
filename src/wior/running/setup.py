"""A run before it starts: its arguments checked, and the plan that follows from them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from wior import checks
from wior.algorithms.algorithm import Algorithm, NotAtHand
from wior.algorithms.equipped import equipped, method_of
from wior.devices import hosts
from wior.devices.layout import Layout, Point, RowsToSplit, place
from wior.orders import named
from wior.problems import Problem
from wior.problems.fixed_batches import InFixedBatches
from wior.problems.micro_batches import check_micro_batches, with_micro_batches
from wior.problems.modules import parted, with_whole_variables
from wior.problems.movement import unmoved
from wior.problems.moving import Constraints
from wior.running import position
from wior.running.arguments import Arguments, both, check_tolerance, demand_algorithm, not_streamed, posed_for
from wior.running.block import make_room
from wior.running.listeners import check_listeners
from wior.running.measuring import ALWAYS, describe_metrics, metric_names, metrics_program
from wior.running.plan import LEVELS, Limits, Plan, make_plan
from wior.running.position import Position
from wior.running.step_fingerprint import as_now
from wior.running.stopping import AtMost, Condition, demand_columns, listed
from wior.running.views import View, view
from wior.saving.checkpoint import Checkpoint, describe_algorithm, describe_loss, describe_tree, describe_value

Tree = Any
Metric = Callable[[Tree, Tree], Any]

MOST_REMEMBERED = 256


@dataclasses.dataclass(frozen=True)
class Setup:
    """Checked arguments, and the plan that follows from them."""

    problem: Any
    algorithm: Any
    x: Tree
    y: Tree
    plan: Plan
    limits: Limits
    metric_names: tuple[str, ...]
    metrics_program: str | None  # what the metrics compute; None where there are none or they are not compiled
    metrics: dict[str, Any]  # what tells them from others of the same names
    batches: tuple[int, int]  # rows of an outer and of an inner batch
    given: Arguments
    constraints: Constraints
    view: View
    cut: tuple[int, int] | None = None  # the batches that the data are cut into, where a method wants them fixed
    alone: Setup | None = None  # of a run on many devices, the same run on one
    measures: Mapping[str, Metric] = dataclasses.field(default_factory=dict)  # what conditions measure besides
    start: Position | None = None  # of a run that continues another one, where that stood

    @property
    def seed(self) -> int:
        """The seed that chooses the examples."""
        assert self.given.seed is not None  # `prepare` has seen to it
        return int(self.given.seed)

    def drawn(self, step: int) -> tuple[float, float]:
        """Passes over the outer and the inner data after `step` steps, all streams together."""
        sizes = self.problem.sizes()
        passes = {
            level: sum(stream.chunk for stream in self.plan.of_level(level)) * step / sizes[level] for level in sizes
        }
        outer, sets = passes["outer"], self.plan.inner_sets
        if sets is not None:
            if self.algorithm.visit_batches is None:
                return outer, outer * self.algorithm.inner_epochs
            return outer, outer * self.algorithm.visit_batches * sets.batch / sets.n
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
            if self.measures:
                raise ValueError(
                    f"stop: {' and '.join(self.measures)} cannot be measured in a run of many processes; leave out "
                    "that condition"
                )
        cut = {s.level: s.batch for s in self.plan.streams} if self.cut is None else zip(LEVELS, self.cut, strict=True)
        splits = [RowsToSplit(f"the {level} batch of", size) for level, size in dict(cut).items()]
        layout.demand_fit(splits, self.problem, self.x, self.y)
        point = Point(self.x, self.y)
        x, y = jax.tree.map(place, point, layout.shardings(point))
        placed, plan = layout.place_problem(self.problem, self.x, self.y), dataclasses.replace(self.plan, layout=layout)
        return dataclasses.replace(self, problem=placed, x=x, y=y, plan=plan, alone=self)

    def describe(self) -> dict[str, Any]:
        """What tells this run from another one, for its checkpoint folder; not where it runs."""
        if self.alone is not None:
            return self.alone.describe()
        sets = self.plan.inner_sets
        visits = [repr(None), 0] if sets is None else [repr(sets.order), sets.batch]
        return {
            "problem": type(self.problem).__name__,
            "data": describe_tree({name: getattr(self.problem, name) for name in self.problem._data}),
            "losses": {
                name: describe_loss(loss, *args)
                for name, (loss, args) in self.problem.loss_calls(self.x, self.y, self.batches).items()
            },
            "algorithm": describe_algorithm(method_of(self.algorithm)),
            **self._described_constraints(),
            "orders": [*(repr(stream.order) for stream in self.plan.streams), visits[0]],
            "batch_size": [*(stream.batch for stream in self.plan.streams), visits[1], *(self.cut or ())],
            "x0": describe_tree(self.x),
            "y0": describe_tree(self.y),
            **self._described_model_state(),
            "metrics": self.metrics,
            "jax": jax.__version__,
            **({} if self.start is None else {"start": position.describe(self.given.state, self.start)}),
        }

    def equipped(self, algorithm: Algorithm) -> Algorithm:
        """Another algorithm of the same program, as the engine takes it."""
        return equipped(algorithm, self.constraints, self.x, self.y, self.problem.model_state is not None)

    def _described_model_state(self) -> dict[str, Any]:
        state = self.problem.model_state
        return {} if state is None else {"model_state": describe_tree(state)}

    def _described_constraints(self) -> dict[str, Any]:
        given = {"project_x": self.constraints.x, "project_y": self.constraints.y}
        return {name: describe_value(name, value) for name, value in given.items() if value is not None}


def prepare(problem: Problem, algorithm: Algorithm, x0: Tree, y0: Tree, given: Arguments) -> Setup:
    """Checks every argument before anything is compiled."""
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be one of wior's problems, for example wior.Bilevel, got {problem!r} of type "
            f"{type(problem).__name__}"
        )
    demand_algorithm(algorithm)
    given, start = _seeded(given)
    check_listeners(given.callback, given.loggers)
    (x, x_rest), (y, y_rest) = parted("x0", x0), parted("y0", y0)
    orders = both("order", given.order, problem, named)
    sizes = both("batch_size", given.batch_size, problem, checks.positive_integer)
    constraints = Constraints(problem.project_x, problem.project_y)
    problem = _fitted(with_whole_variables(problem, x_rest, y_rest), x, y, sizes, given)
    checks.warn_of_few_digits("x0", x)
    checks.warn_of_few_digits("y0", y)
    posed, batches = _posed(problem, algorithm, x, y, sizes)
    method = equipped(algorithm, constraints, x, y, posed.model_state is not None)
    seen = view(x_rest, y_rest, given.metrics, posed.model_state)
    given = dataclasses.replace(given, metrics=seen.metrics(given.metrics))
    measured = _measured(problem, given, seen.start(x, y, posed.model_state))
    plan = make_plan(posed, method, orders, batches, 2**31)
    if start is not None:
        position.demand_same_order(start, plan, type(algorithm).__name__)
    limits = _limits(given, plan.steps_in_epoch, measured.names, start)
    plan = dataclasses.replace(plan, length=min(plan.length, limits.record_every))
    try:
        plan = as_now(plan, posed.without_sources(), method, x, y, batches)
    except NotAtHand:
        raise ValueError(not_streamed(posed, algorithm, "takes large batches inside of some steps")) from None
    if not algorithm.adds_outer_to_y:
        _warn_of_unmoved(problem, x, y, sizes, plan.program)
    make_room()
    return Setup(
        problem=posed,
        algorithm=method,
        x=x,
        y=y,
        plan=plan,
        limits=limits,
        metric_names=measured.names,
        metrics_program=measured.program,
        metrics={"names": list(measured.names), **measured.description},
        batches=sizes,
        given=given,
        constraints=constraints,
        view=seen,
        cut=sizes if algorithm.fixed_batches else None,
        measures=measured.by_conditions,
        start=start,
    )


class _Measured(NamedTuple):
    """What a run measures: the names of all, what its metrics are, and what conditions measure besides."""

    names: tuple[str, ...]
    program: str | None
    description: dict[str, Any]
    by_conditions: dict[str, Metric]


def _measured(problem: Problem, given: Arguments, point: tuple[Tree, Tree]) -> _Measured:
    program = metrics_program(given.metrics, *point)
    description = describe_metrics(given.metrics, program)  # before they are called: some count their calls
    by_conditions = {name: one for condition in listed(given.stop) for name, one in condition.measures(problem).items()}
    names = _with_measures(metric_names(given.metrics, *point, program is not None), by_conditions)
    return _Measured(names, program, description, by_conditions)


def _seeded(given: Arguments) -> tuple[Arguments, Position | None]:
    """The arguments with a seed, which is that of the state where the run continues one."""
    seed = given.seed
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer))):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    if given.state is None:
        return (given if seed is not None else dataclasses.replace(given, seed=0)), None
    start = position.position_of(given.state)
    if seed is not None and seed != start.seed:
        raise ValueError(f"seed is {seed}, and state was reached with seed {start.seed}; leave out seed")
    return dataclasses.replace(given, seed=start.seed), start


def _with_measures(names: tuple[str, ...], measures: Mapping[str, Any]) -> tuple[str, ...]:
    for name in measures:
        if name in names:
            raise ValueError(f"metrics may not use the name {name!r}, which a condition of stop measures")
    return (*names, *measures)


def _fitted(problem: Problem, x: Tree, y: Tree, sizes: tuple[int, int], given: Arguments) -> Any:
    """The problem, checked, with its losses in pieces where these are asked for."""
    problem.check(x, y, sizes)
    if given.micro_batch is None:
        return problem
    pieces = both("micro_batch", given.micro_batch, problem, checks.positive_integer)
    check_micro_batches(problem, pieces, sizes)
    return with_micro_batches(problem, pieces, x, y)


def _posed(problem: Problem, algorithm: Algorithm, x: Tree, y: Tree, sizes: tuple[int, int]) -> tuple[Any, Any]:
    """The problem as the algorithm takes it, and how many of its examples a batch has."""
    posed = posed_for(problem, algorithm)
    if posed is not problem:
        posed.check(x, y, sizes)
    if not algorithm.fixed_batches:
        return posed, sizes
    if posed.streamed():
        raise ValueError(not_streamed(posed, algorithm, "remembers every batch of the data, which must be at hand"))
    return InFixedBatches(posed, sizes), (1, 1)


def _limits(given: Arguments, steps_in_epoch: int, names: tuple[str, ...], start: Position | None) -> Limits:
    if (given.steps is None) == (given.epochs is None):
        raise ValueError(f"give either steps or epochs, got steps={given.steps!r} and epochs={given.epochs!r}")
    if given.record_every is not None:
        checks.positive_integer("record_every", given.record_every)
    if given.seconds is not None:
        checks.positive_number("seconds", given.seconds)
    conditions = listed(given.stop)
    demand_columns(conditions, (*ALWAYS, *names))
    stop: list[tuple[str, Condition]] = [(repr(one), one) for one in conditions]
    if given.tolerance is not None:
        check_tolerance(given.tolerance, names)
        stop.insert(0, ("tolerance", AtMost(*given.tolerance)))
    if given.steps is not None:
        total = checks.positive_integer("steps", given.steps)
    else:
        total = checks.positive_integer("epochs", given.epochs) * steps_in_epoch
    every, seconds = given.record_every or -(-total // 100), given.seconds
    if start is not None:  # as many more
        total, seconds = total + start.step, None if seconds is None else seconds + start.seconds
    return Limits(total, every, seconds, tuple(stop))


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


def run_key(seed: int) -> jax.Array:
    return jax.random.key(int(seed), impl="threefry2x32")
