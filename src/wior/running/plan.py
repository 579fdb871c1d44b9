"""What a run will do: which streams of examples it reads, in steps of which sizes, and for how long.

Everything here is fixed before a program is compiled, and is part of it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from wior.algorithms.algorithm import Algorithm
from wior.devices.layout import Layout
from wior.orders import AdaptiveOrder, Order
from wior.orders.bijection import LARGEST
from wior.orders.substitutes import SHORT_PASSES
from wior.problems import Problem
from wior.running import visits
from wior.running.stopping import Condition

INDICES_IN_BLOCK = 2**18
ROWS_OF_VISITS_IN_BLOCK = 2**19
STEPS_IN_BLOCK = 4096
BYTES_IN_WINDOW = 2**26
STEPS_IN_UNIT = 64
STEPS_IN_UNIT_OF_A_LINE = 8
LEVELS = ("outer", "inner")
BESIDE_THE_STREAMS = ((1, 0), (2, 0), (3, 0), (3, 1))
VISITS, STEPS, OUTER_RESERVE, INNER_RESERVE = range(-4, 0)


@dataclasses.dataclass(frozen=True)
class Limits:
    """When a run records and when it ends."""

    steps: int
    record_every: int
    seconds: float | None = None
    stop: tuple[tuple[str, Condition], ...] = ()  # by the names that they have in `stopped_by`


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
        """The examples of a step."""
        return self.batch * self.batches

    @property
    def adaptive(self) -> bool:
        return isinstance(self.order, AdaptiveOrder)

    @property
    def steps_in_pass(self) -> int:
        """The first step after which a pass ends together with the step."""
        return self.n // math.gcd(self.n, self.chunk)


@dataclasses.dataclass(frozen=True)
class InnerSets:
    """How a step of a conditional problem reads the inner set of an outer example."""

    order: Order
    n: int  # rows of the longest one
    batch: int

    @property
    def adaptive(self) -> bool:
        return isinstance(self.order, AdaptiveOrder)


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is fixed when a block is compiled, besides the problem and the algorithm."""

    streams: tuple[Stream, ...]
    inner_sets: InnerSets | None  # of a conditional problem
    length: int  # the most steps of a block
    unit: int  # steps in a loop of known length
    window: int = 0  # steps whose rows are gathered at once, where there are streamed levels
    layout: Layout | None = None  # on many devices, where everything lies
    side_by_side: bool = True  # of many runs, whether all of them take each step together
    program: str = ""  # the fingerprint of a step: what its functions compute now

    @property
    def visits_known(self) -> bool:
        """Whether the visits of a conditional problem follow from positions alone."""
        return self.inner_sets is not None and not self.inner_sets.adaptive and not self.streams[0].adaptive

    @property
    def steps_in_epoch(self) -> int:
        """The first step after which the passes of all streams end together: the paper's least common multiple."""
        return math.lcm(*(stream.steps_in_pass for stream in self.streams))

    @property
    def spans_processes(self) -> bool:
        return self.layout is not None and self.layout.spans_processes

    def of_level(self, level: str) -> list[Stream]:
        return [stream for stream in self.streams if stream.level == level]

    def placed(self, values: Any) -> Any:
        """Values where the program expects them."""
        return values if self.layout is None else self.layout.place(values)


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
    streams = _streams(problem, algorithm, orders, batches)
    _demand_orderable(problem, streams)
    inner_sets = InnerSets(orders[1], problem.sizes()["inner"], batches[1]) if problem.conditional else None
    length = min(STEPS_IN_BLOCK, record_every, _steps_of_indices(streams))
    if inner_sets is not None:
        rows = batches[0] * visits.passes_of(algorithm, inner_sets.n, inner_sets.batch) * inner_sets.n
        length = min(length, ROWS_OF_VISITS_IN_BLOCK // rows)
    window = _window(problem, streams)
    if window:
        length = min(length, window)
    unit = _unit(any(stream.adaptive for stream in streams), window)
    return Plan(streams, inner_sets, max(1, length), unit, window)


def _streams(
    problem: Problem, algorithm: Algorithm, orders: tuple[Order, Order], batches: tuple[int, int]
) -> tuple[Stream, ...]:
    """The streams of both levels: one for all kinds of batches of a level, or one for each where they are separate."""
    sizes, on_host, wanted = problem.sizes(), problem.streamed(), algorithm.batch_kinds_for(problem)
    streams = []
    for level, order, batch in zip(LEVELS, orders, batches, strict=True):
        kinds = getattr(wanted, level)
        before = 0
        for first, own in ({i: (count,) for i, count in enumerate(kinds)} if wanted.separate else {0: kinds}).items():
            if sum(own):
                too_few = isinstance(order, AdaptiveOrder) and batch * sum(own) > sizes[level]
                own_order = SHORT_PASSES if too_few else order
                streams.append(Stream(level, first, own, own_order, sizes[level], batch, level in on_host, before))
                before += streams[-1].chunk
    return tuple(streams)


def _demand_orderable(problem: Problem, streams: tuple[Stream, ...]) -> None:
    """Refuses more examples than the device can number, where it has to."""
    for level, n in problem.sizes().items():
        on_device = any(s.level == level and (s.adaptive or not s.streamed) for s in streams)
        if n > LARGEST and (problem.conditional or on_device):
            raise ValueError(
                f"the {level} data have {n} examples; at most {LARGEST} can be ordered on the device. "
                "More are possible where the data are streamed, the order does not learn and the problem is not "
                "conditional"
            )


def _steps_of_indices(streams: tuple[Stream, ...]) -> int:
    return INDICES_IN_BLOCK // max(stream.chunk for stream in streams)


def _window(problem: Problem, streams: tuple[Stream, ...]) -> int:
    """The steps whose rows are gathered at once; zero where no data are streamed."""
    row_bytes = {
        level: sum(leaf.row_bytes for leaf in jax.tree.leaves(data)) for level, data in problem.streamed().items()
    }
    if not row_bytes:
        return 0
    in_step = sum(stream.chunk * row_bytes[stream.level] for stream in streams if stream.streamed)
    return max(1, min(STEPS_IN_BLOCK, _steps_of_indices(streams), BYTES_IN_WINDOW // max(in_step, 1)))


def _unit(adaptive: bool, window: int) -> int:
    """Steps in a loop of known length: an accelerator asks the host after every turn of any other loop.

    A line of examples may be short, and so may a window.
    """
    if jax.default_backend() == "cpu":
        return 1
    unit = STEPS_IN_UNIT_OF_A_LINE if adaptive else STEPS_IN_UNIT
    return min(unit, 2 ** (window.bit_length() - 1)) if window else unit


def start_at(plan: Plan, step: int, window: Window | None = None) -> Start:
    """Where every stream stands after `step` steps."""
    epoch = plan.steps_in_epoch
    return Start(
        _word(step),
        tuple(_place(stream, step) for stream in plan.streams),
        _word(min(-step % epoch, 2**32 - 1)),
        _word(min(epoch, 2**32 - 1)),
        window,
    )


def _place(stream: Stream, step: int) -> tuple[Any, Any]:
    """The pass and the offset in it; under an order that learns, how the line stands."""
    taken = step * stream.chunk
    if not stream.adaptive:
        return _word(taken // stream.n), _word(taken % stream.n)
    before = (max(1, -(-taken // stream.n)) - 1) * stream.n
    begun = before // stream.chunk * stream.chunk
    return np.int32(before - begun), np.int32(taken - begun)


def stream_keys(plan: Plan, key: jax.Array) -> tuple[jax.Array, ...]:
    """One key for each stream, then those of the inner sets of conditional problems, the steps and the two reserves."""
    return _fold_in((*((int(s.level == "inner"), s.first) for s in plan.streams), *BESIDE_THE_STREAMS), key)


@functools.partial(jax.jit, static_argnums=0)
def _fold_in(streams: tuple[tuple[int, int], ...], key: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jax.random.fold_in(jax.random.fold_in(key, level), number) for level, number in streams)


def _word(number: int) -> np.uint32:
    return np.uint32(number % 2**32)
