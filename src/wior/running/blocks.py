"""The compiled part of a run: a block of steps as one program.

A block takes the state and gives it back `count` steps later. `count` is an argument, so one program serves every length
up to the block's own, and a run is cut where records and checkpoints fall without compiling again. The examples of
non-adaptive orders are computed for the whole block before its loop. An order that learns carries a line of examples, and the loop is cut
where a line is used up. The examples of a streamed level are those of a window of steps that the host has gathered: a step's draws
are places in it. Everything that decides control flow is counted apart from the state, so that under `vmap` over a
grid of runs it stays a decision and does not become both of its branches.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wior import oracle
from wior.algorithms.algorithm import Algorithm, Draws, Reserve, Reserves, Seen, Visits
from wior.devices.layout import Layout
from wior.orders import AdaptiveOrder, Order, RandomReshuffling, ShuffleOnce
from wior.orders.bijection import LARGEST
from wior.problems import Problem
from wior.running import visits
from wior.saving import fingerprint

Tree = Any

INDICES_IN_BLOCK = 2**18
ROWS_OF_VISITS_IN_BLOCK = 2**19
STEPS_IN_BLOCK = 4096
BYTES_IN_WINDOW = 2**26
STEPS_IN_UNIT = 64
STEPS_IN_UNIT_OF_A_LINE = 8
MAPS, MOST_MAPS = Path("/proc/self/maps"), 40_000
BESIDE_THE_STREAMS = ((1, 0), (2, 0), (3, 0), (3, 1))
VISITS, STEPS, OUTER_RESERVE, INNER_RESERVE = range(-4, 0)


@dataclasses.dataclass(frozen=True)
class Stream:
    """One sequence of examples: a level, the order it follows, and the kinds of batches that a step takes from it."""

    level: str
    first: int  # the number of its first kind at the level
    kinds: tuple[int, ...]  # batches of each kind in a step
    order: Order
    n: int
    batch: int
    streamed: bool = False
    before: int = 0  # rows that earlier streams of its level have in a window of one step, where they are streamed

    @property
    def batches(self) -> int:
        return sum(self.kinds)

    @property
    def chunk(self) -> int:
        return self.batch * self.batches

    @property
    def adaptive(self) -> bool:
        return isinstance(self.order, AdaptiveOrder)

    @property
    def steps_in_pass(self) -> int:
        """The first step after which a pass ends together with the step."""
        return self.n // math.gcd(self.n, self.chunk)


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is fixed when a block is compiled, besides the problem and the algorithm."""

    streams: tuple[Stream, ...]
    visit_order: Order | None  # the order inside the inner sets of a conditional problem
    visit_size: int
    visit_batch: int
    length: int
    unit: int  # steps in a loop of known length
    window: int = 0  # steps whose rows are gathered at once, where there are streamed levels
    layout: Layout | None = None  # on many devices, where everything lies
    program: str = (
        ""  # the fingerprint of a step: what its functions compute now, whatever they read besides their arguments
    )

    @property
    def visits_known(self) -> bool:
        """Whether the visits of a conditional problem follow from positions alone."""
        return not isinstance(self.visit_order, AdaptiveOrder) and not self.streams[0].adaptive

    @property
    def steps_in_epoch(self) -> int:
        """The first step after which the passes of all streams end together: the paper's least common multiple."""
        return math.lcm(*(stream.steps_in_pass for stream in self.streams))


class Carry(NamedTuple):
    """What a run carries from step to step: the algorithm's state and what adaptive orders remember."""

    state: Any
    memories: tuple[Any, ...]
    visit_orders: Any  # under an order that learns, that of each inner set of a conditional problem


class Window(NamedTuple):
    """The numbers of the rows that the host has gathered for some steps, and how many of these steps lie behind."""

    behind: Any
    examples: dict[str, Any]  # of each streamed level, the streams one after the other


class Start(NamedTuple):
    """Where a block begins, computed on the host in exact integers."""

    step: Any
    places: tuple[Any, ...]  # for each stream (pass, offset), or for an adaptive one (tail, taken) of its line
    to_epoch: Any  # steps until an epoch starts
    epoch: Any
    window: Window | None = None


def make_plan(
    problem: Problem, algorithm: Algorithm, orders: tuple[Order, Order], batches: tuple[int, int], record_every: int
) -> Plan:
    """The plan of a run; `orders` and `batches` are (outer, inner)."""
    sizes, streams = problem.sizes(), []
    row_bytes = {
        level: sum(leaf.row_bytes for leaf in jax.tree.leaves(data)) for level, data in problem.streamed().items()
    }
    for level, order, batch in zip(("outer", "inner"), orders, batches, strict=True):
        wanted = getattr(algorithm.streams, level)
        kinds = {i: (count,) for i, count in enumerate(wanted)} if algorithm.streams.separate else {0: wanted}
        before = 0
        for first, own in kinds.items():
            if sum(own):
                too_few = isinstance(order, AdaptiveOrder) and batch * sum(own) > sizes[level]
                own_order = ShuffleOnce() if too_few else order
                streams.append(Stream(level, first, own, own_order, sizes[level], batch, level in row_bytes, before))
                before += streams[-1].chunk
    conditional = problem.conditional
    for level, n in sizes.items():
        if n > LARGEST and (conditional or any(s.level == level and not _ordered_by_host(s) for s in streams)):
            raise ValueError(
                f"the {level} data have {n} examples; at most {LARGEST} can be ordered on the device. "
                "More can where they are streamed, in orders that do not learn, of problems that are not conditional"
            )
    length = min(STEPS_IN_BLOCK, record_every, INDICES_IN_BLOCK // max(stream.chunk for stream in streams))
    if conditional:
        passes = visits.passes_of(algorithm, sizes["inner"], batches[1])
        length = min(length, ROWS_OF_VISITS_IN_BLOCK // (batches[0] * passes * sizes["inner"]))
    window = 0
    if row_bytes:
        in_step = sum(stream.chunk * row_bytes[stream.level] for stream in streams if stream.streamed)
        indices = INDICES_IN_BLOCK // max(stream.chunk for stream in streams)
        window = max(1, min(STEPS_IN_BLOCK, indices, BYTES_IN_WINDOW // max(in_step, 1)))
        length = min(length, window)
    return Plan(
        tuple(streams),
        orders[1] if conditional else None,
        sizes["inner"] if conditional else 0,
        batches[1] if conditional else 0,
        max(1, length),
        _unit(any(stream.adaptive for stream in streams), window),
        window,
    )


def as_now(plan: Plan, problem: Any, algorithm: Any, x: Tree, y: Tree, batches: tuple[int, int]) -> Plan:
    """The plan with the fingerprint of a step, so that a program made of functions that have changed since is not reused.

    Of wior's own methods the losses and schedules say all; they are cheaper to trace than a step with its derivatives.
    """

    def step(problem: Any, algorithm: Any, x: Tree, y: Tree) -> Any:
        return algorithm.step(problem, algorithm.init(problem, x, y), any_draws(plan, problem, algorithm))

    problem, x, y = fingerprint.shapes((problem, x, y))
    # a conditional step reads whole inner sets too
    sizes = (batches, None) if problem.conditional else (batches,)
    found = [fingerprint.traced_losses(problem, x, y, size) for size in sizes]
    foreign = any(fingerprint.has_foreign_rules(one) for one in found)
    if plan.window or algorithm.takes_large_batches or not _is_own(algorithm) or foreign:
        parts = [fingerprint.fingerprint(step, problem, algorithm, x, y)]
    else:
        fields = (getattr(algorithm, field.name) for field in dataclasses.fields(algorithm))
        schedules = (fingerprint.fingerprint(value, jnp.int32(0)) for value in fields if callable(value))
        parts = [*(fingerprint.of_program(one) for one in found), *schedules]
    for stream in plan.streams:
        if not stream.adaptive and not _is_own(stream.order):
            run = functools.partial(stream.order.run, length=stream.chunk, n=stream.n)
            parts.append(fingerprint.fingerprint(run, jax.random.key(0), jnp.uint32(0), jnp.uint32(0)))
    return dataclasses.replace(plan, program=" ".join(parts))


def _is_own(thing: Any) -> bool:
    """Whether a method or an order is one of this package, whose code does not change while it runs."""
    return type(thing).__module__.startswith("wior.")


def _ordered_by_host(stream: Stream) -> bool:
    return stream.streamed and not stream.adaptive


def _unit(adaptive: bool, window: int) -> int:
    """An accelerator asks the host after every turn of a loop whose length it does not know; a line may be short, or a window."""
    if jax.default_backend() == "cpu":
        return 1
    unit = STEPS_IN_UNIT_OF_A_LINE if adaptive else STEPS_IN_UNIT
    return min(unit, 2 ** (window.bit_length() - 1)) if window else unit


def start_at(plan: Plan, step: int, window: Window | None = None) -> Start:
    """Where every stream stands after `step` steps."""

    def place(stream: Stream) -> tuple[Any, Any]:
        taken = step * stream.chunk
        if not stream.adaptive:
            return _word(taken // stream.n), _word(taken % stream.n)
        before = (max(1, -(-taken // stream.n)) - 1) * stream.n
        begun = before // stream.chunk * stream.chunk
        return np.int32(before - begun), np.int32(taken - begun)

    epoch = plan.steps_in_epoch
    return Start(
        _word(step),
        tuple(place(s) for s in plan.streams),
        _word(min(-step % epoch, 2**32 - 1)),
        _word(min(epoch, 2**32 - 1)),
        window,
    )


def stream_keys(plan: Plan, key: jax.Array) -> tuple[jax.Array, ...]:
    """One key for each stream, then those of the inner sets of conditional problems, the steps and the two reserves."""
    return _fold_in((*((int(s.level == "inner"), s.first) for s in plan.streams), *BESIDE_THE_STREAMS), key)


@functools.partial(jax.jit, static_argnums=0)
def _fold_in(streams: tuple[tuple[int, int], ...], key: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jax.random.fold_in(jax.random.fold_in(key, level), number) for level, number in streams)


@functools.partial(jax.jit, static_argnums=0)
def begin(plan: Plan, problem: Any, algorithm: Any, keys: tuple[jax.Array, ...], x: Tree, y: Tree) -> Carry:
    """The carry before the first step."""
    state = algorithm.init(problem, x, y)
    seen = seen_shapes(plan, problem, algorithm, state)
    memories = tuple(
        stream.order.start(key, stream.n, stream.chunk, stream.batch, *_width(stream, seen))
        if isinstance(stream.order, AdaptiveOrder)
        else ()
        for stream, key in zip(plan.streams, keys, strict=False)
    )
    orders = None
    if isinstance(plan.visit_order, AdaptiveOrder):
        orders = visits.first_orders(problem, keys[VISITS], plan.streams[0].n, plan.visit_size)
    # a block takes its carry over, so nothing in it may be shared, least of all with the caller's x and y
    return _in_place(plan, jax.tree.map(jnp.copy, Carry(state, memories, orders)))


def _in_place(plan: Plan, carry: Carry) -> Carry:
    return carry if plan.layout is None else plan.layout.kept(carry)


def seen_shapes(plan: Plan, problem: Any, algorithm: Any, state: Any) -> Seen:
    """The shapes of what a step shows to adaptive orders."""

    def seen(problem: Any, algorithm: Any, state: Any) -> Seen:
        return algorithm.step(problem, state, any_draws(plan, problem, algorithm))[1]

    return jax.eval_shape(seen, problem, algorithm, state)


def advance(
    plan: Plan, problem: Any, algorithm: Any, carry: Carry, keys: tuple[jax.Array, ...], start: Start, count: jax.Array
) -> tuple[Carry, dict[str, jax.Array], dict[str, jax.Array]]:
    """The carry after `count` ≤ plan.length steps, the calls made in every step, and those that vary, summed.

    Pure; `block` and `blocks` below are its compiled forms.
    """
    ahead = tuple(
        None if s.adaptive else _ahead(plan, s, k, place, start.window).reshape(plan.length, s.batches, s.batch)
        for s, k, place in zip(plan.streams, keys, start.places, strict=False)
    )
    if plan.layout is not None:
        ahead = plan.layout.whole(ahead)
    known: dict[str, int] = {}
    visits_at = functools.partial(_visits, plan, problem, algorithm, key=keys[VISITS], start=start)
    laid = None
    if plan.visit_order is not None and plan.visits_known and ahead[0] is not None:
        # all at once: one at a time their many small operations would take longer than the step
        laid = jax.vmap(functools.partial(visits_at, None))(jnp.arange(plan.length), ahead[0][:, 0])

    def visits_of(i: jax.Array, orders: Any, examples: jax.Array) -> Visits | None:
        if laid is None:
            return visits_at(orders, i, examples)
        return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, i, 0, keepdims=False), laid)

    def step(i: jax.Array, places: tuple[Any, ...], carry: Carry, calls: dict[str, jax.Array]) -> Any:
        taken = tuple(
            _from_line(s, memory, place) if s.adaptive else lax.dynamic_index_in_dim(indices, i, 0, keepdims=False)
            for s, indices, memory, place in zip(plan.streams, ahead, carry.memories, places, strict=True)
        )
        number = start.step + i.astype(jnp.uint32)
        places_of = tuple(
            in_window(plan, s, i, start.window) if s.streamed else examples
            for s, examples in zip(plan.streams, taken, strict=True)
        )
        draws = Draws(
            outer=_by_kind(plan, algorithm, "outer", places_of),
            inner=_by_kind(plan, algorithm, "inner", places_of),
            visits=visits_of(i, carry.visit_orders, taken[0][0]),
            step=number,
            starts_epoch=_starts_epoch(i, start),
            key=jax.random.fold_in(keys[STEPS], number),
            reserves=_reserves(plan, keys),
        )
        with oracle.counting() as tally:
            state, seen = algorithm.step(problem, carry.state, draws)
        known.update(tally.known)
        calls = {name: calls[name] + tally.traced[name] if name in tally.traced else calls[name] for name in calls}
        memories = tuple(
            _observe(s, memory, place, seen) if s.adaptive else memory
            for s, memory, place in zip(plan.streams, carry.memories, places, strict=True)
        )
        orders = carry.visit_orders
        if isinstance(plan.visit_order, AdaptiveOrder):
            counts = visits.counts_of(problem, taken[0][0], plan.visit_size)
            wanted = algorithm.visit_batches
            used = (
                algorithm.inner_epochs * counts if wanted is None else jnp.full_like(counts, wanted * plan.visit_batch)
            )
            orders = visits.reordered(
                plan.visit_order, orders, taken[0][0], used, counts, plan.visit_batch, seen.inner[0]
            )
        places = tuple(
            (tail, taken + s.chunk) if s.adaptive else (tail, taken)
            for s, (tail, taken) in zip(plan.streams, places, strict=True)
        )
        return places, _in_place(plan, Carry(state, memories, orders)), calls

    def steps(first: jax.Array, last: jax.Array, everything: Any) -> Any:
        if plan.unit > 1:
            whole = (last - first) // plan.unit

            def unit(number: jax.Array, everything: Any) -> Any:
                places = first + number * plan.unit + jnp.arange(plan.unit, dtype=jnp.int32)
                return lax.scan(lambda everything, i: (step(i, *everything), None), everything, places)[0]

            everything = lax.fori_loop(0, whole, unit, everything)
            first = first + whole * plan.unit
        return lax.fori_loop(
            first, last, lambda i, everything: step(jnp.asarray(i, jnp.int32), *everything), everything
        )

    everything = (start.places, carry, oracle.Tally().running())
    if not any(s.adaptive for s in plan.streams):
        _, carry, calls = steps(jnp.int32(0), count, everything)
    else:
        _, (_, carry, calls) = lax.while_loop(
            lambda loop: loop[0] < count,
            functools.partial(_until_a_line_ends, plan, steps, count),
            (jnp.int32(0), everything),
        )
    return carry, {name: jnp.uint32(known.get(name, 0)) for name in oracle.CALLS}, calls


block = jax.jit(advance, static_argnums=0, donate_argnums=3)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def blocks(
    plan: Plan, in_step: bool, problem: Any, algorithms: Any, carries: Carry, keys: Any, start: Start, count: jax.Array
) -> Any:
    """`advance` for many runs in one program: algorithms, carries and keys have a first axis of runs.

    `in_step` takes each step of all runs together; otherwise one run's block follows another's.
    """

    def one(algorithm: Any, carry: Carry, keys: Any) -> Any:
        return advance(plan, problem, algorithm, carry, keys, start, count)

    if in_step:
        return jax.vmap(one)(algorithms, carries, keys)
    return lax.map(lambda run: one(*run), (algorithms, carries, keys))


def short_of_maps() -> bool:
    return MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS


def make_room() -> None:
    """Gives up compiled programs before the process runs out of memory maps.

    Linux allows a process 65530 of them, a program takes some hundreds, and to run out is a crash inside the compiler.
    """
    if short_of_maps():
        programs: tuple[Any, ...] = (begin, block, blocks)
        for program in programs:
            program.clear_cache()
        gc.collect()


def _until_a_line_ends(plan: Plan, steps: Callable[..., Any], count: jax.Array, loop: Any) -> Any:
    """Sorts the lines that are used up, then steps until the next one is, or the block ends."""
    i, (places, carry, calls) = loop
    memories, sorted_places, last = [], [], count
    for s, memory, (tail, taken) in zip(plan.streams, carry.memories, places, strict=True):
        if s.adaptive:
            memory, tail, taken = with_line(s, memory, tail, taken)
            last = jnp.minimum(last, i + (tail + s.n - taken) // s.chunk)
        memories.append(memory)
        sorted_places.append((tail, taken))
    carry = carry._replace(memories=tuple(memories))
    return last, steps(i, last, (tuple(sorted_places), carry, calls))


def with_line(stream: Stream, memory: Any, tail: Any, taken: Any) -> tuple[Any, jax.Array, jax.Array]:
    """The memory of a stream and its place in the line, sorted anew where the line is used up."""
    assert isinstance(stream.order, AdaptiveOrder)
    ended = tail + stream.n - taken < stream.chunk
    rebuild = functools.partial(stream.order.rebuild, n=stream.n, chunk=stream.chunk, batch=stream.batch)
    memory = lax.cond(ended, rebuild, lambda memory, tail, taken: memory, memory, tail, taken)
    return memory, jnp.where(ended, tail + stream.n - taken, tail), jnp.where(ended, 0, taken)


def _ahead(plan: Plan, stream: Stream, key: jax.Array, place: tuple[Any, Any], window: Window | None) -> jax.Array:
    """The examples of a stream for all steps of the block."""
    if not stream.streamed:
        return stream.order.run(key, place[0], place[1], plan.length * stream.chunk, stream.n)
    assert window is not None
    first = plan.window * stream.before
    own = window.examples[stream.level][first : first + plan.window * stream.chunk].reshape(plan.window, -1)
    # a block ends before its window does: what comes round again is not read
    return jnp.roll(own, -window.behind, 0)[: plan.length]


def in_window(plan: Plan, stream: Stream, i: jax.Array, window: Window | None) -> jax.Array:
    """The places of step i of a block among the rows gathered for its level."""
    assert window is not None
    first = plan.window * stream.before + (window.behind + i) * stream.chunk
    return (first + jnp.arange(stream.chunk, dtype=jnp.int32)).reshape(stream.batches, stream.batch)


def _from_line(stream: Stream, memory: Any, place: tuple[jax.Array, jax.Array]) -> jax.Array:
    return lax.dynamic_slice(memory.line, (place[1],), (stream.chunk,)).reshape(stream.batches, stream.batch)


def _observe(stream: Stream, memory: Any, place: tuple[jax.Array, jax.Array], seen: Seen) -> Any:
    assert isinstance(stream.order, AdaptiveOrder)
    vectors, first = _vectors(stream, seen), place[1] // stream.batch
    for number in range(stream.batches):
        memory = stream.order.observe(memory, first + number, vectors[number])
    return memory


def _visits(
    plan: Plan,
    problem: Any,
    algorithm: Any,
    orders: Any,
    i: jax.Array,
    examples: jax.Array,
    key: jax.Array,
    start: Start,
) -> Visits | None:
    """What step i of a block reads of the inner sets of its outer examples."""
    if plan.visit_order is None:
        return None
    outer, n, passes = plan.streams[0], plan.visit_size, visits.passes_of(algorithm, plan.visit_size, plan.visit_batch)
    counts = visits.counts_of(problem, examples, n)
    if isinstance(plan.visit_order, AdaptiveOrder):
        whole = jnp.broadcast_to(orders[examples][:, None], (outer.batch, passes, n))
    else:
        first_pass, offset = start.places[0]
        if outer.adaptive:  # a line has no pass number; the position since the beginning has
            first_pass, offset = jnp.uint32(0), start.step * jnp.uint32(outer.chunk)
        place = offset + i.astype(jnp.uint32) * jnp.uint32(outer.chunk) + jnp.arange(outer.batch, dtype=jnp.uint32)
        size = jnp.uint32(outer.n)
        # an example that may come twice in a pass is told apart by where it stands
        visit = first_pass * size + place if outer.order.repeats_within_pass else first_pass + place // size
        ragged = None if problem.counts is None else counts
        whole = visits.whole_passes(plan.visit_order, key, examples, visit, passes, n, ragged)
    return visits.in_batches(whole, counts, plan.visit_batch, problem.counts is not None, algorithm.visit_batches)


def _by_kind(plan: Plan, algorithm: Any, level: str, taken: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """What was taken from the streams of a level, for each kind of batch; a kind of which a step takes none has no stream."""
    batches: dict[int, jax.Array] = {}
    for stream, indices in zip(plan.streams, taken, strict=True):
        if stream.level == level:
            ends = np.cumsum(stream.kinds)
            for i, (count, end) in enumerate(zip(stream.kinds, ends, strict=True)):
                batches[stream.first + i] = indices[end - count : end]
    wanted = getattr(algorithm.streams, level)
    return tuple(batches.get(i, jnp.zeros((0, 1), jnp.int32)) for i in range(len(wanted)))


def _reserves(plan: Plan, keys: tuple[jax.Array, ...]) -> Reserves | None:
    """Where large batches come from; a line that is being sorted is not disturbed by them."""
    if plan.visit_order is not None:
        return None

    def reserve(level: str, key: jax.Array) -> Reserve:
        own = next((s for s in plan.streams if s.level == level), plan.streams[0])
        return Reserve(key, RandomReshuffling() if own.adaptive else own.order, own.n, own.streamed)

    return Reserves(reserve("outer", keys[OUTER_RESERVE]), reserve("inner", keys[INNER_RESERVE]))


def any_draws(plan: Plan, problem: Any, algorithm: Any) -> Draws:
    """Draws of the right shapes, of no meaning."""
    taken = tuple(jnp.zeros((s.batches, s.batch), jnp.int32) for s in plan.streams)
    laid = None
    if plan.visit_order is not None:
        examples = taken[0][0]
        passes = visits.passes_of(algorithm, plan.visit_size, plan.visit_batch)
        whole = jnp.zeros((len(examples), passes, plan.visit_size), jnp.int32)
        counts = visits.counts_of(problem, examples, plan.visit_size)
        ragged = problem.counts is not None
        laid = visits.in_batches(whole, counts, plan.visit_batch, ragged, algorithm.visit_batches)
    key = jax.random.key(0, impl="threefry2x32")
    return Draws(
        outer=_by_kind(plan, algorithm, "outer", taken),
        inner=_by_kind(plan, algorithm, "inner", taken),
        visits=laid,
        step=jnp.uint32(0),
        starts_epoch=jnp.asarray(True),
        key=key,
        reserves=_reserves(plan, (key,) * len(BESIDE_THE_STREAMS)),
    )


def _vectors(stream: Stream, seen: Seen) -> jax.Array:
    """What was seen of the batches of a stream, (batches, width); kinds of derivatives that differ are orthogonal."""
    kinds = getattr(seen, stream.level)[stream.first : stream.first + len(stream.kinds)]
    flat = [visits.flat_vectors(vectors, 1) for vectors in kinds]
    widths = [vectors.shape[1] for vectors in flat]
    before = [sum(widths[:i]) for i in range(len(widths))]
    return jnp.concatenate(
        [
            jnp.pad(vectors, ((0, 0), (start, sum(widths) - start - vectors.shape[1])))
            for vectors, start in zip(flat, before, strict=True)
        ]
    )


def _width(stream: Stream, seen: Seen) -> tuple[int, Any]:
    flat = jax.eval_shape(functools.partial(_vectors, stream), seen)
    return flat.shape[-1], flat.dtype


def _starts_epoch(i: jax.Array, start: Start) -> jax.Array:
    i = i.astype(jnp.uint32)
    return (i >= start.to_epoch) & ((i - start.to_epoch) % start.epoch == 0)


def _word(number: int) -> np.uint32:
    return np.uint32(number % 2**32)
