"""What each step of a block reads: the examples of its batches, by kind.

The examples of orders that do not learn are computed for all steps of a block before its loop. Those of a streamed
level are the rows of a window of steps that the host has gathered: a step's draws are places in it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wior.algorithms.algorithm import BatchKinds, Draws, Reserve, Reserves, Visits
from wior.orders.substitutes import LARGE_BATCHES
from wior.problems.keys import Indices, fold_each
from wior.running import lines, visits
from wior.running.plan import (
    BESIDE_THE_STREAMS,
    INNER_RESERVE,
    OUTER_RESERVE,
    STEPS,
    VISITS,
    InnerSets,
    Plan,
    Start,
    Stream,
    Window,
)

Keys = tuple[jax.Array, ...]

# folded into the key of a step it gives that of its losses, far from the numbers that a method may fold into it
OF_LOSSES = 2**32 - 1


class Examples:
    """The examples of all steps of one block, while it is traced."""

    def __init__(self, plan: Plan, problem: Any, algorithm: Any, keys: Keys, start: Start):
        self.plan, self.problem, self.algorithm, self.keys, self.start = plan, problem, algorithm, keys, start
        ahead = tuple(
            None if s.adaptive else _ahead(plan, s, key, place, start.window).reshape(plan.length, s.batches, s.batch)
            for s, key, place in zip(plan.streams, keys, start.places, strict=False)
        )
        self._ahead = ahead if plan.layout is None else plan.layout.whole(ahead)
        self._visits = None
        if plan.visits_known and self._ahead[0] is not None:
            # all at once: one at a time their many small operations would take longer than the step
            of_steps = jax.vmap(functools.partial(self._visits_of, None))
            self._visits = of_steps(jnp.arange(plan.length), self._ahead[0][:, 0])

    def taken(self, i: jax.Array, memories: tuple[Any, ...], places: tuple[Any, ...]) -> tuple[jax.Array, ...]:
        """The numbers of the examples of step i, for each stream (batches, batch)."""
        return tuple(
            lines.taken_from(s, memory, place)
            if s.adaptive
            else lax.dynamic_index_in_dim(examples, i, 0, keepdims=False)
            for s, examples, memory, place in zip(self.plan.streams, self._ahead, memories, places, strict=True)
        )

    def draws(self, i: jax.Array, taken: tuple[jax.Array, ...], inner_orders: Any) -> Draws:
        """What step i reads; `inner_orders` are those of the inner sets, where they are learned."""
        number = self.start.step + i.astype(jnp.uint32)
        at_hand = tuple(
            in_window(self.plan, s, i, self.start.window) if s.streamed else examples
            for s, examples in zip(self.plan.streams, taken, strict=True)
        )
        draws = Draws(
            outer=_by_kind(self.plan, self.algorithm.batch_kinds_for(self.problem), "outer", at_hand),
            inner=_by_kind(self.plan, self.algorithm.batch_kinds_for(self.problem), "inner", at_hand),
            visits=self._visits_at(i, inner_orders, taken[0][0]),
            step=number,
            starts_epoch=_starts_epoch(i, self.start),
            key=jax.random.fold_in(self.keys[STEPS], number),
            reserves=_reserves(self.plan, self.keys),
        )
        return with_keys(draws) if self.problem.takes_key else draws

    def _visits_at(self, i: jax.Array, inner_orders: Any, examples: jax.Array) -> Visits | None:
        if self._visits is None:
            return self._visits_of(inner_orders, i, examples)
        return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, i, 0, keepdims=False), self._visits)

    def _visits_of(self, inner_orders: Any, i: jax.Array, examples: jax.Array) -> Visits | None:
        """What step i reads of the inner sets of its outer examples."""
        sets = self.plan.inner_sets
        if sets is None:
            return None
        outer, passes = self.plan.streams[0], visits.passes_of(self.algorithm, sets.n, sets.batch)
        counts = visits.counts_of(self.problem, examples, sets.n)
        if sets.adaptive:
            whole = jnp.broadcast_to(inner_orders[examples][:, None], (outer.batch, passes, sets.n))
        else:
            number = _visit_numbers(outer, self.start, i)
            ragged = None if self.problem.counts is None else counts
            whole = visits.whole_passes(sets.order, self.keys[VISITS], examples, number, passes, sets.n, ragged)
        return _in_batches(whole, counts, sets, self.problem, self.algorithm)


def any_draws(plan: Plan, problem: Any, algorithm: Any) -> Draws:
    """Draws with the right shapes and arbitrary values."""
    taken = tuple(jnp.zeros((s.batches, s.batch), jnp.int32) for s in plan.streams)
    of_sets = None
    if plan.inner_sets is not None:
        examples, sets = taken[0][0], plan.inner_sets
        passes = visits.passes_of(algorithm, sets.n, sets.batch)
        whole = jnp.zeros((len(examples), passes, sets.n), jnp.int32)
        of_sets = _in_batches(whole, visits.counts_of(problem, examples, sets.n), sets, problem, algorithm)
    key = jax.random.key(0, impl="threefry2x32")
    draws = Draws(
        outer=_by_kind(plan, algorithm.batch_kinds_for(problem), "outer", taken),
        inner=_by_kind(plan, algorithm.batch_kinds_for(problem), "inner", taken),
        visits=of_sets,
        step=jnp.uint32(0),
        starts_epoch=jnp.asarray(True),
        key=key,
        reserves=_reserves(plan, (key,) * len(BESIDE_THE_STREAMS)),
    )
    return with_keys(draws) if problem.takes_key else draws


def with_keys(draws: Draws) -> Draws:
    """Draws whose indices have keys for the losses: one for each batch, made of the key of the step.

    Where every outer example has an inner set, each of them has one, and each batch of its visit.
    """
    key = jax.random.fold_in(draws.key, jnp.uint32(OF_LOSSES))
    outer, inner, in_visits, large = (jax.random.fold_in(key, part) for part in range(4))
    visits = draws.visits
    if visits is not None:
        own = [Indices(kind, _keys(outer, i, kind.shape)) for i, kind in enumerate(draws.outer)]
        batches = Indices(visits.examples, _keys(in_visits, 0, visits.examples.shape[:-1]))
        return draws._replace(outer=tuple(own), visits=visits._replace(examples=batches))
    reserves = draws.reserves
    if reserves is not None:
        pairs = zip(reserves, fold_each(large, 2), strict=True)
        reserves = Reserves(*(dataclasses.replace(one, for_losses=own) for one, own in pairs))
    return draws._replace(
        outer=tuple(Indices(kind, _keys(outer, i, kind.shape[:-1])) for i, kind in enumerate(draws.outer)),
        inner=tuple(Indices(kind, _keys(inner, i, kind.shape[:-1])) for i, kind in enumerate(draws.inner)),
        reserves=reserves,
    )


def _keys(key: jax.Array, kind: int, shape: tuple[int, ...]) -> jax.Array:
    return fold_each(jax.random.fold_in(key, kind), math.prod(shape)).reshape(shape)


def in_window(plan: Plan, stream: Stream, i: jax.Array, window: Window | None) -> jax.Array:
    """The places of step i of a block among the rows gathered for its level."""
    assert window is not None
    first = plan.window * stream.before + (window.behind + i) * stream.chunk
    return (first + jnp.arange(stream.chunk, dtype=jnp.int32)).reshape(stream.batches, stream.batch)


def _ahead(plan: Plan, stream: Stream, key: jax.Array, place: tuple[Any, Any], window: Window | None) -> jax.Array:
    """The examples of a stream for all steps of the block."""
    if not stream.streamed:
        return stream.order.run(key, place[0], place[1], plan.length * stream.chunk, stream.n)
    assert window is not None
    first = plan.window * stream.before
    own = window.examples[stream.level][first : first + plan.window * stream.chunk].reshape(plan.window, -1)
    # a block ends before its window does: what comes round again is not read
    return jnp.roll(own, -window.behind, 0)[: plan.length]


def _by_kind(plan: Plan, kinds: BatchKinds, level: str, taken: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """What was taken from the streams of a level, for each kind of batch; a kind of which a step takes none has no
    stream.
    """
    batches: dict[int, jax.Array] = {}
    for stream, indices in zip(plan.streams, taken, strict=True):
        if stream.level == level:
            ends = np.cumsum(stream.kinds)
            for i, (count, end) in enumerate(zip(stream.kinds, ends, strict=True)):
                batches[stream.first + i] = indices[end - count : end]
    wanted = getattr(kinds, level)
    return tuple(batches.get(i, jnp.zeros((0, 1), jnp.int32)) for i in range(len(wanted)))


def _reserves(plan: Plan, keys: Keys) -> Reserves | None:
    """Where large batches come from; a line that is being sorted is not disturbed by them."""
    if plan.inner_sets is not None:
        return None

    def reserve(level: str, key: jax.Array) -> Reserve:
        own = next(iter(plan.of_level(level)), plan.streams[0])
        return Reserve(key, LARGE_BATCHES if own.adaptive else own.order, own.n, own.streamed)

    return Reserves(reserve("outer", keys[OUTER_RESERVE]), reserve("inner", keys[INNER_RESERVE]))


def _visit_numbers(outer: Stream, start: Start, i: jax.Array) -> jax.Array:
    """The numbers of the visits to the outer examples of step i, each of which reads its inner set in another order."""
    first_pass, offset = start.places[0]
    if outer.adaptive:  # a line has no pass number; the position since the beginning has
        first_pass, offset = jnp.uint32(0), start.step * jnp.uint32(outer.chunk)
    place = offset + i.astype(jnp.uint32) * jnp.uint32(outer.chunk) + jnp.arange(outer.batch, dtype=jnp.uint32)
    size = jnp.uint32(outer.n)
    # an example that may come twice in a pass is told apart by where it stands
    return first_pass * size + place if outer.order.repeats_within_pass else first_pass + place // size


def _in_batches(whole: jax.Array, counts: jax.Array, sets: InnerSets, problem: Any, algorithm: Any) -> Visits:
    return visits.in_batches(whole, counts, sets.batch, problem.counts is not None, algorithm.visit_batches)


def _starts_epoch(i: jax.Array, start: Start) -> jax.Array:
    i = i.astype(jnp.uint32)
    return (i >= start.to_epoch) & ((i - start.to_epoch) % start.epoch == 0)
