"""Short runs of a method on the sampled batches, to try step sizes; and the memory of a step."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wior import tree
from wior.algorithms import WiORBO, WiORCBO, WiORCComp, WiORComp, WiORMinimax
from wior.algorithms.algorithm import Algorithm, Draws
from wior.algorithms.equipped import equipped
from wior.instruments.checking.sample import Place, Sample
from wior.orders import RandomReshuffling
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax
from wior.problems.movement import two_batches, two_losses
from wior.problems.moving import Constraints
from wior.running import visits

Tree = Any
Settings = dict[str, Any]  # hyper-parameters of a method by their names

METHODS: dict[type, type[Algorithm]] = {
    Bilevel: WiORBO,
    Minimax: WiORMinimax,
    Compositional: WiORComp,
    ConditionalBilevel: WiORCBO,
    ConditionalCompositional: WiORCComp,
}
FROZEN = 1e-30  # a step size that moves nothing
STEPS, MOST_STEPS = 200, 3000  # of a short run, where there is time for it, and where y needs more of them
FEWEST_STEPS = 10
SECONDS = 5.0  # for all short runs
COOLED = 10.0
RUNS = 17  # runs of that length that are expected
GROWTH = 3.0  # of the inner loss above its start, from one run to the next, that is divergence
HALVINGS = 6
INNER_STEPS = 100  # to solve the inner problem of one example
EXAMPLES = 32  # outer examples of a conditional problem whose inner problems are solved


def method_for(problem: Any) -> type[Algorithm]:
    """The paper's algorithm for the class of a problem."""
    return next(method for kind, method in METHODS.items() if isinstance(problem, kind))


def made(problem: Any, settings: Settings) -> Algorithm:
    """The paper's algorithm with these settings; step sizes that are not given move nothing."""
    method = method_for(problem)
    rates = {field.name: FROZEN for field in dataclasses.fields(method) if field.name.endswith("_lr")}
    return method(**{**rates, **settings})


class ShortRuns:
    """Runs from x0, y0 with the inner settings given; one compiled program for all of them.

    They have as many steps as y needs to settle, `needed`, if there is time for them.
    """

    def __init__(self, sample: Sample, x: Tree, y: Tree, settings: Settings, rate: float, needed: float = 0):
        self.sample, self.x, self.y, self.settings, self.rate = sample, x, y, settings, rate
        self.places = sample.stacked()
        self.start: Any = self._made(settings).init(sample.problem, x, y)
        self._program = jax.jit(self._advance).lower(*self._arguments(self.start, FROZEN, 0, 1)).compile()
        # lambdas of this run alone: jax keeps programs by the function, and a loss may have changed since
        self._conditional_objective = jax.jit(lambda *args: _conditional_objective(*args))
        self._objective = jax.jit(lambda *args: _objective(*args), static_argnums=0)
        self._inner_value = jax.jit(lambda *args: _inner_value(*args))
        self.steps = self._steps_in_time(min(max(STEPS, math.ceil(needed)), MOST_STEPS))
        self.too_short = max(needed / self.steps, 1.0)  # by which factor

    @property
    def memory_bytes(self) -> int | None:
        """Bytes of the arguments and of the intermediate values of a step; None where the compiler does not say."""
        try:
            found: Any = self._program.memory_analysis()
            return int(found.argument_size_in_bytes + found.temp_size_in_bytes)
        except Exception:  # noqa: BLE001 - not every backend has it, and some have it without numbers
            return None

    def run(self, state: Any, outer_lr: float, first: int, count: int, cooled: float = 1.0) -> Any:
        """The state so many steps later, beginning with batch number `first`.

        The inner step sizes are divided by `cooled`.
        """
        return self._program(*self._arguments(state, outer_lr, first, count, cooled))

    def settled(self) -> Any:
        """The state when y and u have settled with x frozen; None where they never do.

        Their step sizes are halved until they settle.
        """
        if self.sample.conditional:
            return self.start  # every visit begins anew
        before = self._inner(self.start)
        for _ in range(HALVINGS):
            once = self.run(self.start, FROZEN, 0, self.steps)
            twice = self.run(once, FROZEN, self.steps, self.steps)
            # noise may lift a y that begins at the solution, but does not go on lifting it
            rise = max(self._inner(once) - before, 1e-6 * (1 + abs(before)))
            if bool(tree.all_finite(twice)) and self._inner(twice) - before <= GROWTH * rise:
                return twice
            halved = {name: value / 2 for name, value in self.settings.items() if name.endswith("_lr")}
            self.settings = {**self.settings, **halved}
        return None

    def objective(self, state: Any) -> float:
        """The outer loss at x, and at the y of the state or, where a method keeps none, at inner solutions."""
        posed, places = self.sample.posed, self.places
        if self.sample.conditional:
            outer = np.unique(places.outer)[:EXAMPLES]
            inner = np.stack([self.sample.own_rows(example, posed.sizes()["inner"]) for example in outer])
            return float(self._conditional_objective(posed, state.x, self.y, self.rate, outer[:, None], inner))
        of_map = isinstance(self.sample.problem, Compositional)
        return float(self._objective(of_map, posed, state.x, state.y, *places))

    def after(self, settled: Any, outer_lr: float) -> float:
        """The outer loss after a short run with this step size, when y has settled again.

        It is infinite where the run did not stay finite.
        """
        state = self.run(settled, outer_lr, 0, self.steps)
        if not self.sample.conditional:
            # the noise of y would hide what x does to the outer loss: with small steps it averages over the batches
            for cooled in (1.0, COOLED):
                state = self.run(state, FROZEN, self.steps, self.steps, cooled)
        found = self.objective(state) if bool(tree.all_finite(state)) else math.inf
        return found if math.isfinite(found) else math.inf

    def _inner(self, state: Any) -> float:
        return float(self._inner_value(self.sample.posed, state.x, state.y, *self.places))

    def _advance(self, problem: Any, algorithm: Any, state: Any, places: Place, first: Any, count: Any) -> Any:
        def step(i: jax.Array, state: Any) -> Any:
            outer, inner = (batches[(first + i) % len(batches)] for batches in places)
            return algorithm.step(problem, state, self._draws(problem, algorithm, outer, inner, i))[0]

        return lax.fori_loop(0, count, step, state)

    def _draws(self, problem: Any, algorithm: Any, outer: Any, inner: Any, step: Any) -> Draws:
        """What a step reads: one batch of each level, and of a conditional problem passes over the inner sets."""
        laid = None
        if self.sample.conditional:
            n, examples = problem.sizes()["inner"], problem.outer_batch(outer).examples
            counts, key = visits.counts_of(problem, examples, n), jax.random.key(0)
            visit = jnp.full(len(examples), step, jnp.uint32)
            ragged = None if problem.counts is None else counts
            whole = visits.whole_passes(RandomReshuffling(), key, examples, visit, algorithm.inner_epochs, n, ragged)
            laid = visits.in_batches(whole, counts, self.sample.batches[1], ragged is not None, algorithm.visit_batches)
        of_inner = (inner[None],) if algorithm.batch_kinds.inner else ()
        return Draws((outer[None],), of_inner, laid, jnp.asarray(step, jnp.uint32), jnp.asarray(False))

    def _arguments(self, state: Any, outer_lr: float, first: int, count: int, cooled: float = 1.0) -> tuple[Any, ...]:
        rates = {name: value / cooled for name, value in self.settings.items() if name.endswith("_lr")}
        algorithm = self._made({**self.settings, **rates, "outer_lr": outer_lr})
        return self.sample.problem, algorithm, state, self.places, np.int32(first), np.int32(count)

    def _made(self, settings: Settings) -> Algorithm:
        """The paper's algorithm, which keeps the problem's constraints."""
        problem = self.sample.problem
        constraints = Constraints(problem.project_x, problem.project_y)
        return equipped(made(problem, settings), constraints, self.x, self.y)

    def _steps_in_time(self, wanted: int) -> int:
        pace = math.inf
        for count in (1, 1, FEWEST_STEPS):  # a call costs something by itself
            begun = time.perf_counter()
            jax.block_until_ready(self.run(self.start, FROZEN, 0, count))
            pace = min(pace, (time.perf_counter() - begun) / count)
            if pace > 0.1:
                break
        return int(min(max(SECONDS / RUNS / pace, FEWEST_STEPS), wanted))


def _objective(of_map: bool, problem: Any, x: Tree, y: Tree, outer: jax.Array, inner: jax.Array) -> jax.Array:
    """The outer loss on all places; `of_map` at the mean of a compositional problem's map over them."""
    f, g = two_losses(problem)
    if of_map:
        gradients = lax.map(lambda place: jax.grad(g, 1)(x, y, two_batches(problem, *place)[1]), (outer, inner))
        y = tree.sub(y, tree.mean(gradients))
    return jnp.mean(lax.map(lambda place: f(x, y, two_batches(problem, *place)[0]), (outer, inner)))


def _conditional_objective(problem: Any, x: Tree, y: Tree, rate: Any, outer: jax.Array, inner: jax.Array) -> jax.Array:
    """The mean outer loss of some outer examples, each at its inner solution by gradient descent."""
    f, g = two_losses(problem)

    def one(place: tuple[jax.Array, jax.Array]) -> jax.Array:
        xi, zeta = two_batches(problem, *place)
        descend = lambda _, y: tree.axpy(-rate, jax.grad(g, 1)(x, y, zeta), y)
        return f(x, lax.fori_loop(0, INNER_STEPS, descend, y), xi)

    return jnp.mean(lax.map(one, (outer, inner)))


def _inner_value(problem: Any, x: Tree, y: Tree, outer: jax.Array, inner: jax.Array) -> jax.Array:
    g = two_losses(problem)[1]
    return jnp.mean(lax.map(lambda place: g(x, y, two_batches(problem, *place)[1]), (outer, inner)))
