"""What the loop drives: one run, or many runs at once. Both begin, advance by a block of steps, and measure."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import tree
from wior.algorithms.algorithm import Algorithm
from wior.algorithms.equipped import method_of
from wior.problems.modules import whole
from wior.running import block, position
from wior.running.block import Carry
from wior.running.divergence import why_non_finite
from wior.running.feed import Feed
from wior.running.joining import Collected
from wior.running.measuring import compiled, measurement
from wior.running.plan import start_at, stream_keys
from wior.running.position import Position
from wior.running.results import Finished, Result
from wior.running.setup import Setup, run_key
from wior.running.views import model_state_of
from wior.saving.checkpoint import describe_algorithm


class OneRun:
    """One run of an algorithm. A variable that is not finite ends it."""

    runs: tuple[int, ...] = ()  # the axes that many runs at once add to every value
    may_diverge = False

    def __init__(self, setup: Setup):
        self.setup, self.plan = setup, setup.plan
        self.keys = self.plan.placed(stream_keys(self.plan, run_key(setup.seed)))
        self.problem = setup.problem.without_sources()
        self.feed = Feed(self.plan, setup.problem, self.keys, setup.limits.steps) if self.plan.window else None
        self._metrics = measurement(setup.given.metrics, setup.metrics_program)
        if setup.start is not None:  # refuses a state of another shape
            position.continued(setup.given.state, setup.start, jax.eval_shape(self._fresh), lambda value, like: value)

    def begin(self) -> Carry:
        start = self.setup.start
        if start is None:
            return self._fresh()
        lies_anywhere = self.plan.layout is None
        fresh = jax.eval_shape(self._fresh) if lies_anywhere else self._fresh()
        placed = (lambda value, like: jnp.array(value)) if lies_anywhere else position.put
        return position.continued(self.setup.given.state, start, fresh, placed)

    def _fresh(self) -> Carry:
        return block.begin(self.plan, self.problem, self.setup.algorithm, self.keys, self.setup.x, self.setup.y)

    def room(self, step: int, carry: Carry) -> int:
        """The most steps that a block from `step` on may have: its length, or those for which rows are at hand."""
        return self.plan.length if self.feed is None else min(self.plan.length, self.feed.room(step, carry))

    def advance(self, carry: Carry, step: int, count: np.int32) -> Any:
        """The carry `count` steps after `step`, and the calls that these made."""
        problem, window = (self.problem, None) if self.feed is None else self.feed.problem_at(step, carry)
        start = start_at(self.plan, step, window)
        return block.one_run(self.plan, problem, self.setup.algorithm, carry, self.keys, start, count)

    def measure(self, carry: Carry) -> dict[str, Any]:
        found = self._metrics(*self.setup.view.point(carry.state))
        for name, measure in self.setup.measures.items():
            found = {**found, name: measure(carry.state.x, carry.state.y)}
        return found

    def non_finite(self, carry: Carry) -> list[str]:
        """The names of the variables that are not finite."""
        return [name for name, finite in _finite(carry.state).items() if not bool(finite)]

    def why_non_finite(self, variables: list[str], before: Carry, step: int) -> str:
        """The likely cause, where the step after `step` made these variables so."""
        return why_non_finite(self.setup, self.feed, variables, before, step)

    def describe(self) -> dict[str, Any]:
        """What tells this run from another one in a checkpoint folder."""
        return {**self.setup.describe(), "seed": self.setup.seed}

    def result(self, done: Finished) -> Result:
        state = done.carry.state
        return Result(
            x=whole(state.x, self.setup.view.x),
            y=whole(state.y, self.setup.view.y),
            state=position.at(state, self._position(done)),
            history=done.history,
            steps=done.step,
            steps_per_epoch=self.plan.steps_in_epoch,
            stopped_by=done.stopped_by,
            compile_seconds=done.compile_seconds,
            metric_seconds=done.metric_seconds,
            model_state=model_state_of(state),
        )

    def _position(self, done: Finished) -> Position:
        return Position(
            step=done.step,
            seed=self.setup.seed,
            run=position.depends_on(self.plan, type(method_of(self.setup.algorithm)).__name__),
            seconds=float(done.seconds),
            calls={name: np.asarray(number).item() for name, number in done.calls.items()},
            memories=tuple(jax.tree.leaves(done.carry[1:])),
            rests=(self.setup.view.x, self.setup.view.y),
        )

    def close(self) -> None:
        if self.feed is not None:
            self.feed.close()


class ManyRuns:
    """All settings × seeds of one program, settings first. Those that diverge do not end the others."""

    may_diverge = True

    def __init__(self, setup: Setup, members: list[int], collected: Collected, side_by_side: bool):
        self.setup, self.members, self.collected = setup, members, collected
        # runs side by side all take the longest of their steps; where chance decides on the length, each is better off
        # alone
        together = side_by_side and not setup.algorithm.cost_varies
        self.plan, grid = dataclasses.replace(setup.plan, side_by_side=together), collected.grid
        self.algorithms, self.seeds = [grid.algorithms[i] for i in members], grid.seeds
        self.runs = (len(members) * len(self.seeds),)
        equipped = [setup.equipped(one) for one in self.algorithms for _ in self.seeds]
        self._stacked = self.plan.placed(_stacked(equipped))
        each = jnp.stack([run_key(seed) for _ in members for seed in self.seeds])
        self._keys = self.plan.placed(jax.vmap(functools.partial(stream_keys, self.plan))(each))
        self._metrics, how = setup.given.metrics, "side by side" if side_by_side else "one after another"
        if self._metrics is not None and setup.metrics_program is not None:
            self._metrics = compiled(self._metrics, how, setup.metrics_program)

    def begin(self) -> Carry:
        if self.setup.start is None:
            return self._fresh()
        lies_anywhere = self.plan.layout is None
        fresh = jax.eval_shape(self._fresh) if lies_anywhere else self._fresh()
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), fresh)
        found = position.continued(self.setup.given.state, self.setup.start, one, lambda value, like: value)
        each = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * self.runs[0]), found)
        return each if lies_anywhere else jax.tree.map(position.put, each, fresh)

    def _fresh(self) -> Carry:
        begin = functools.partial(block.begin, self.plan, self.setup.problem)
        return jax.vmap(lambda algorithm, keys: begin(algorithm, keys, self.setup.x, self.setup.y))(
            self._stacked, self._keys
        )

    def room(self, step: int, carry: Carry) -> int:
        return self.plan.length

    def advance(self, carry: Carry, step: int, count: np.int32) -> Any:
        start = start_at(self.plan, step)
        return block.many_runs(self.plan, self.setup.problem, self._stacked, carry, self._keys, start, count)

    def measure(self, carry: Carry) -> dict[str, Any]:
        metrics, points = self._metrics, self.setup.view.point(carry.state)
        if metrics is None:
            return {}
        if self.setup.metrics_program is not None:
            return metrics(*points)
        each = [metrics(*jax.tree.map(lambda leaf, at=run: leaf[at], points)) for run in range(self.runs[0])]
        return {name: np.asarray([values[name] for values in each]) for name in self.setup.metric_names}

    def non_finite(self, carry: Carry) -> list[str]:
        return []  # nobody asks: the runs may diverge

    def why_non_finite(self, variables: list[str], before: Carry, step: int) -> str:
        return ""

    def describe(self) -> dict[str, Any]:
        algorithms = [describe_algorithm(algorithm) for algorithm in self.algorithms]
        return {**self.setup.describe(), "algorithm": algorithms, "seeds": self.seeds}

    def result(self, done: Finished) -> Any:
        """The sweep as far as it has come: the programs before this one, and this one."""
        return self.collected.result((self.members, done), view=self.setup.view)

    def close(self) -> None:
        pass


def _stacked(algorithms: list[Algorithm]) -> Any:
    """Algorithms that differ only in numbers, as one algorithm with arrays of these numbers."""
    return jax.tree.map(lambda *numbers: jnp.stack([jnp.asarray(number, float) for number in numbers]), *algorithms)


@jax.jit
def _finite(state: Any) -> dict[str, Any]:
    # an optimizer may hold an infinity, as the best loss before the first, and keys
    return {name: tree.all_finite(value) for name, value in state._asdict().items() if name != "carried"}
