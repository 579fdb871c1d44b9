"""Rows of streamed data for the next steps, gathered on the host while the device computes.

A run is cut into windows of steps, whose rows are gathered together: what one window's steps read, in the order in
which they read it, whatever the blocks into which records and checkpoints cut the run. While a window is in use the
next one is gathered by threads, so that no more than two are in memory. Under an order that learns, the examples of the
next pass are known when the present one ends: no window goes past that, and the one after it is waited for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

from wior.orders.bijection import LARGEST
from wior.running.block import Carry
from wior.running.draws import in_window
from wior.running.lines import sorted_where_used_up
from wior.running.plan import Plan, Stream, Window, start_at
from wior.streaming.gathered import Gathered
from wior.streaming.sources import SourceError

Tree = Any

BYTES_IN_PIECE = 2**22  # what a thread reads at once

# its place before jax 0.8 was `jax.experimental`
_enable_x64: Any = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # type: ignore[attr-defined]


class _Rows:
    """The rows of one window, on their way to the device."""

    def __init__(self, first: int, steps: int):
        self.first, self.end = first, first + steps
        self.given_up = False
        self.on_device: Future[Any]

    @property
    def steps(self) -> int:
        return self.end - self.first


class Feed:
    """Gives each block of steps the problem with the rows that it reads."""

    def __init__(self, plan: Plan, problem: Any, keys: tuple[jax.Array, ...], last: int):
        self.plan, self.problem, self.last = plan, problem, last
        self.keys = dict(zip(plan.streams, keys, strict=False))
        self.sources = problem.streamed()
        config: Any = jax.config
        self.x64, self.device = config.jax_enable_x64, config.jax_default_device
        on_cpu = getattr(self.device or jax.devices()[0], "platform", self.device) == "cpu"
        self.kept: dict[str, Tree] | None = None if on_cpu else {}
        self.lines: dict[Stream, tuple[int, np.ndarray]] = {}
        self.here: _Rows | None = None
        self.ahead: _Rows | None = None
        every = [leaf for level in self.sources.values() for leaf in jax.tree.leaves(level)]
        self._coordinator = ThreadPoolExecutor(1, "wior-window")
        self._readers = ThreadPoolExecutor(max(leaf.threads for leaf in every), "wior-read")

    def room(self, step: int, carry: Carry) -> int:
        """How many steps from `step` on the window suffices for; begins to gather one where there is none."""
        here = self.here
        if here is None or not (step == here.first or here.first < step < here.end):
            if self.ahead is not None and self.ahead.first == step:
                here, self.ahead = self.ahead, None
            else:
                self._give_up()
                here = self._begin(step, carry)
                assert here is not None
            self.here = here
        return here.end - step

    def problem_at(self, step: int, carry: Carry) -> tuple[Any, Window]:
        """The problem with the rows of the window around `step`; the next window is on its way from here on."""
        self.room(step, carry)
        assert self.here is not None
        rows, examples = self.here.on_device.result()  # what went wrong with them is raised here
        if self.ahead is None and self.here.end < self.last:
            self.ahead = self._begin(self.here.end, None)
        gathered = {
            name: Gathered(rows[name], examples[level], next(leaf.n for leaf in jax.tree.leaves(data)))
            for level, by_name in self.sources.items()
            for name, data in by_name.items()
        }
        return self.problem.with_rows(gathered), Window(np.int32(step - self.here.first), examples)

    def read_by(self, step: int, carry: Carry) -> dict[str, Gathered]:
        """The rows of streamed data that one step reads, by name."""
        posed, window = self.problem_at(step, carry)
        found = {}
        for level, by_name in self.sources.items():
            streams = self.plan.of_level(level)
            places = np.concatenate([np.ravel(in_window(self.plan, s, jnp.int32(0), window)) for s in streams])
            for name in by_name:
                whole = getattr(posed, name)
                rows = jax.tree.map(lambda leaf, at=places: leaf[at], whole.rows)
                found[name] = Gathered(rows, whole.examples[places], whole.n)
        return found

    def close(self) -> None:
        self._give_up()
        self._coordinator.shutdown()
        self._readers.shutdown()

    def _give_up(self) -> None:
        for rows in (self.here, self.ahead):
            if rows is not None:
                rows.given_up = True
        self.here = self.ahead = None

    def _begin(self, step: int, carry: Carry | None) -> _Rows | None:
        """A window from `step` on; None where its examples follow from steps yet to come."""
        steps = min(self.plan.window, self.last - step)
        for number, stream in enumerate(self.plan.streams):
            if stream.streamed and stream.adaptive:
                place = step * stream.chunk
                if not self._covers(stream, place):
                    if carry is None:
                        return None
                    self.lines[stream] = self._line(stream, carry.memories[number], number, step)
                begins, line = self.lines[stream]
                steps = min(steps, (begins + len(line) - place) // stream.chunk)
        rows = _Rows(step, steps)
        rows.on_device = self._coordinator.submit(self._gather, rows)
        return rows

    def _covers(self, stream: Stream, place: int) -> bool:
        if stream not in self.lines:
            return False
        begins, line = self.lines[stream]
        return begins <= place and place + stream.chunk <= begins + len(line)

    def _line(self, stream: Stream, memory: Any, number: int, step: int) -> tuple[int, np.ndarray]:
        """The line of an adaptive order at a step, n numbers and some, and the position at which it begins."""
        place = start_at(self.plan, step).places[number]
        line, tail, taken = _line_at(stream, memory, *place)
        return step * stream.chunk - int(taken), np.asarray(line)[: int(tail) + stream.n]

    def _examples(self, stream: Stream, first: int, steps: int) -> np.ndarray:
        """The numbers of the rows that a stream reads in some steps."""
        place, length = first * stream.chunk, steps * stream.chunk
        if stream.adaptive:
            begins, line = self.lines[stream]
            return line[place - begins : place - begins + length].astype(np.int64)
        # all windows ask for the same length, whose program is compiled once
        found = stream.order.examples(self.keys[stream], place, self.plan.window * stream.chunk, stream.n)[:length]
        wrong = (found < 0) | (found >= stream.n)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise SourceError(
                f"{stream.order!r} gave example {found[row]} in step {first + row // stream.chunk + 1}; "
                f"the {stream.level} data have examples 0 to {stream.n - 1}"
            )
        return found

    def _gather(self, window: _Rows) -> Any:
        rows: dict[str, Tree] = {}
        numbers: dict[str, np.ndarray] = {}
        lanes: dict[Any, list[Callable[[], None]]] = {}
        for level, by_name in self.sources.items():
            streams = self.plan.of_level(level)
            places = self.plan.window * sum(stream.chunk for stream in streams)
            numbers[level] = np.zeros(places, np.int32)
            for name, data in by_name.items():
                rows[name] = self._buffers(name, data, places)
            for stream in streams:
                begins = self.plan.window * stream.before
                read = self._examples(stream, window.first, window.steps)
                # past 2³¹ rows nothing looks at the numbers on the device
                numbers[level][begins : begins + len(read)] = read if stream.n <= LARGEST else 0
                for name, data in by_name.items():
                    for lane, piece in _reads(name, data, rows[name], stream, window, begins, read):
                        lanes.setdefault(lane, []).append(piece)

        def read_in_turn(pieces: list[Callable[[], None]]) -> None:
            for piece in pieces:
                if not window.given_up:
                    piece()

        for _ in self._readers.map(read_in_turn, lanes.values()):
            pass
        # threads do not know what the thread of the run was told about types and devices
        with _enable_x64(self.x64), jax.default_device(self.device):
            put = (
                jax.device_put((rows, numbers)) if self.plan.layout is None else self.plan.layout.place((rows, numbers))
            )
            return put if self.kept is None else jax.block_until_ready(put)

    def _buffers(self, name: str, data: Tree, places: int) -> Tree:
        """Arrays to gather into. A CPU device takes them over as they are; for another they are copied, and serve
        again.
        """
        if self.kept is not None and name in self.kept:
            return self.kept[name]
        new = jax.tree.map(lambda leaf: leaf.empty(places), data)
        if self.kept is not None:
            self.kept[name] = new
        return new


@functools.partial(jax.jit, static_argnums=0)
def _line_at(stream: Stream, memory: Any, tail: Any, taken: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    memory, tail, taken = sorted_where_used_up(stream, memory, tail, taken)
    return jnp.copy(memory.line), tail, taken


def _reads(
    name: str, data: Tree, rows: Tree, stream: Stream, window: _Rows, begins: int, numbers: np.ndarray
) -> Iterator[tuple[Any, Callable[[], None]]]:
    """What is to be read of one stream, in pieces of whole steps, each with the lane that it is read in."""
    flat: Any = jax.tree_util.tree_flatten_with_path(data)
    leaves, structure = flat
    for (path, source), into in zip(leaves, structure.flatten_up_to(rows), strict=True):
        steps = max(1, BYTES_IN_PIECE // max(source.row_bytes * stream.chunk, 1))
        for piece, first in enumerate(range(0, window.steps, steps)):
            last = min(first + steps, window.steps)
            place = begins + first * stream.chunk
            where = (
                f"{name}{jax.tree_util.keystr(path)}, read for steps {window.first + first + 1} to "
                f"{window.first + last}"
            )
            read = functools.partial(
                source.read,
                numbers[first * stream.chunk : last * stream.chunk],
                jax.tree.map(lambda leaf, at=slice(place, place + (last - first) * stream.chunk): leaf[at], into),
                where,
            )
            # one source takes as many threads as it says, however many leaves and streams it serves
            yield (id(source.reader.source), piece % source.threads), read
