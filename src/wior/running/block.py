"""The compiled part of a run: a block of steps as one program.

A block takes the state and gives it back `count` steps later. `count` is an argument, so one program serves every
length up to the block's own, and a run is cut where records and checkpoints fall without compiling again. An order that
learns carries a line of examples, and the loop is cut where a line is used up. Everything that decides control flow is
counted apart from the state, so that under `vmap` over a grid of runs it stays a decision and does not become both of
its branches.
"""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wior import oracle
from wior.algorithms.algorithm import Seen
from wior.orders import AdaptiveOrder
from wior.running import lines, visits
from wior.running.draws import Examples, Keys, any_draws
from wior.running.plan import VISITS, Plan, Start

Tree = Any
Calls = dict[str, jax.Array]

MAPS, MOST_MAPS = Path("/proc/self/maps"), 40_000


class Carry(NamedTuple):
    """What a run carries from step to step: the algorithm's state and what adaptive orders remember."""

    state: Any
    memories: tuple[Any, ...]
    visit_orders: Any  # under an order that learns, that of each inner set of a conditional problem


class _Turn(NamedTuple):
    """What the loop of a block carries."""

    places: tuple[Any, ...]
    carry: Carry
    calls: Calls  # those that vary from step to step


@functools.partial(jax.jit, static_argnums=0)
def begin(plan: Plan, problem: Any, algorithm: Any, keys: Keys, x: Tree, y: Tree) -> Carry:
    """The carry before the first step."""
    state = algorithm.init(problem, x, y)
    seen = _shown(plan, problem, algorithm, state)
    memories = tuple(lines.first_memory(stream, key, seen) for stream, key in zip(plan.streams, keys, strict=False))
    orders = None
    if plan.inner_sets is not None and plan.inner_sets.adaptive:
        orders = visits.first_orders(problem, keys[VISITS], plan.streams[0].n, plan.inner_sets.n)
    # a block takes its carry over, so nothing in it may be shared, least of all with the caller's x and y
    return _in_place(plan, jax.tree.map(jnp.copy, Carry(state, memories, orders)))


def advance(
    plan: Plan, problem: Any, algorithm: Any, carry: Carry, keys: Keys, start: Start, count: jax.Array
) -> tuple[Carry, Calls, Calls]:
    """The carry after `count` ≤ plan.length steps, the calls made in every step, and those that vary, summed.

    Pure; `one_run` and `many_runs` below are its compiled forms.
    """
    block = _Block(Examples(plan, problem, algorithm, keys, start))
    carry, varying = block.advanced(carry, count)
    return carry, {name: jnp.uint32(block.known.get(name, 0)) for name in oracle.CALLS}, varying


one_run = jax.jit(advance, static_argnums=0, donate_argnums=3)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=3)
def many_runs(
    plan: Plan, problem: Any, algorithms: Any, carries: Carry, keys: Keys, start: Start, count: jax.Array
) -> Any:
    """`advance` for many runs in one program: algorithms, carries and keys have a first axis of runs.

    Where `plan.side_by_side`, each step is taken by all runs together; otherwise one run's block follows another's.
    """

    def one(algorithm: Any, carry: Carry, keys: Keys) -> Any:
        return advance(plan, problem, algorithm, carry, keys, start, count)

    if plan.side_by_side:
        return jax.vmap(one)(algorithms, carries, keys)
    return lax.map(lambda run: one(*run), (algorithms, carries, keys))


class _Block:
    """One block of steps, while it is traced."""

    def __init__(self, examples: Examples):
        self.examples, self.plan = examples, examples.plan
        self.problem, self.algorithm, self.start = examples.problem, examples.algorithm, examples.start
        self.known: dict[str, int] = {}  # the calls that every step makes

    def advanced(self, carry: Carry, count: jax.Array) -> tuple[Carry, Calls]:
        turn = _Turn(self.start.places, carry, oracle.Tally().running())
        if not any(stream.adaptive for stream in self.plan.streams):
            turn = self._steps(jnp.int32(0), count, turn)
        else:
            unfinished = lambda loop: loop[0] < count
            _, turn = lax.while_loop(
                unfinished, functools.partial(self._until_a_line_ends, count), (jnp.int32(0), turn)
            )
        return turn.carry, turn.calls

    def _until_a_line_ends(self, count: jax.Array, loop: tuple[jax.Array, _Turn]) -> tuple[jax.Array, _Turn]:
        """Sorts the lines that are used up, then steps until the next one is, or the block ends."""
        i, turn = loop
        memories, places, last = [], [], count
        for s, memory, (tail, taken) in zip(self.plan.streams, turn.carry.memories, turn.places, strict=True):
            if s.adaptive:
                memory, tail, taken = lines.sorted_where_used_up(s, memory, tail, taken)
                last = jnp.minimum(last, i + lines.steps_left(s, (tail, taken)))
            memories.append(memory)
            places.append((tail, taken))
        carry = turn.carry._replace(memories=tuple(memories))
        return last, self._steps(i, last, _Turn(tuple(places), carry, turn.calls))

    def _steps(self, first: jax.Array, last: jax.Array, turn: _Turn) -> _Turn:
        unit = self.plan.unit
        if unit > 1:
            whole = (last - first) // unit

            def in_unit(number: jax.Array, turn: _Turn) -> _Turn:
                numbers = first + number * unit + jnp.arange(unit, dtype=jnp.int32)
                return lax.scan(lambda turn, i: (self._step(i, turn), None), turn, numbers)[0]

            turn = lax.fori_loop(0, whole, in_unit, turn)
            first = first + whole * unit
        return lax.fori_loop(first, last, lambda i, turn: self._step(jnp.asarray(i, jnp.int32), turn), turn)

    def _step(self, i: jax.Array, turn: _Turn) -> _Turn:
        """One step of the algorithm, counted, and shown to the orders that learn from it."""
        places, carry, calls = turn
        taken = self.examples.taken(i, carry.memories, places)
        draws = self.examples.draws(i, taken, carry.visit_orders)
        with oracle.counting() as tally:
            state, seen = self.algorithm.step(self.problem, carry.state, draws)
        self.known.update(tally.known)
        calls = {name: calls[name] + tally.traced[name] if name in tally.traced else calls[name] for name in calls}
        memories = tuple(
            lines.observed(s, memory, place, seen) if s.adaptive else memory
            for s, memory, place in zip(self.plan.streams, carry.memories, places, strict=True)
        )
        orders = self._learned(carry.visit_orders, taken, seen)
        places = tuple(
            (tail, taken + s.chunk) if s.adaptive else (tail, taken)
            for s, (tail, taken) in zip(self.plan.streams, places, strict=True)
        )
        return _Turn(places, _in_place(self.plan, Carry(state, memories, orders)), calls)

    def _learned(self, orders: Any, taken: tuple[jax.Array, ...], seen: Seen) -> Any:
        """The orders of the inner sets after a step has visited those of its outer examples."""
        sets = self.plan.inner_sets
        if sets is None or not isinstance(sets.order, AdaptiveOrder):
            return orders
        examples = taken[0][0]
        counts = visits.counts_of(self.problem, examples, sets.n)
        batches = self.algorithm.visit_batches
        rows = self.algorithm.inner_epochs * counts if batches is None else jnp.full_like(counts, batches * sets.batch)
        return visits.reordered(sets.order, orders, examples, rows, counts, sets.batch, seen.inner[0])


def _in_place(plan: Plan, carry: Carry) -> Carry:
    return carry if plan.layout is None else plan.layout.kept(carry)


def _shown(plan: Plan, problem: Any, algorithm: Any, state: Any) -> Seen:
    """The shapes of what a step shows to adaptive orders."""

    def seen(problem: Any, algorithm: Any, state: Any) -> Seen:
        return algorithm.step(problem, state, any_draws(plan, problem, algorithm))[1]

    return jax.eval_shape(seen, problem, algorithm, state)


def short_of_maps() -> bool:
    return MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS


def make_room() -> None:
    """Gives up compiled programs before the process runs out of memory maps.

    Linux allows a process 65530 of them, a program takes some hundreds, and to run out is a crash inside the compiler.
    """
    if short_of_maps():
        programs: tuple[Any, ...] = (begin, one_run, many_runs)
        for program in programs:
            program.clear_cache()
        gc.collect()
