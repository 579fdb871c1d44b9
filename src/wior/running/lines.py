"""The line of examples of an order that learns: what a step takes of it, and how the order sorts it anew.

A line holds a pass over the examples and what was left of the one before. Where too few are left for a step, the order
sorts the next pass behind them.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from wior.algorithms.algorithm import Seen
from wior.orders import AdaptiveOrder
from wior.running import visits
from wior.running.plan import Stream

Place = tuple[jax.Array, jax.Array]  # in a line: the examples of an older pass, and how many were taken


def first_memory(stream: Stream, key: jax.Array, seen: Seen) -> Any:
    """What the order of a stream remembers before the first step; `seen` has the shapes of what a step shows."""
    if not isinstance(stream.order, AdaptiveOrder):
        return ()
    vectors = jax.eval_shape(functools.partial(vectors_of, stream), seen)
    return stream.order.start(key, stream.n, stream.chunk, stream.batch, vectors.shape[-1], vectors.dtype)


def sorted_where_used_up(stream: Stream, memory: Any, tail: Any, taken: Any) -> tuple[Any, jax.Array, jax.Array]:
    """The memory of a stream and its place in the line, sorted anew where the line is used up."""
    assert isinstance(stream.order, AdaptiveOrder)
    ended = tail + stream.n - taken < stream.chunk
    rebuild = functools.partial(stream.order.rebuild, n=stream.n, chunk=stream.chunk, batch=stream.batch)
    memory = lax.cond(ended, rebuild, lambda memory, tail, taken: memory, memory, tail, taken)
    return memory, jnp.where(ended, tail + stream.n - taken, tail), jnp.where(ended, 0, taken)


def steps_left(stream: Stream, place: Place) -> jax.Array:
    tail, taken = place
    return (tail + stream.n - taken) // stream.chunk


def taken_from(stream: Stream, memory: Any, place: Place) -> jax.Array:
    """The examples of a step."""
    return lax.dynamic_slice(memory.line, (place[1],), (stream.chunk,)).reshape(stream.batches, stream.batch)


def observed(stream: Stream, memory: Any, place: Place, seen: Seen) -> Any:
    """The memory after a step."""
    assert isinstance(stream.order, AdaptiveOrder)
    vectors, first = vectors_of(stream, seen), place[1] // stream.batch
    for number in range(stream.batches):
        memory = stream.order.observe(memory, first + number, vectors[number])
    return memory


def vectors_of(stream: Stream, seen: Seen) -> jax.Array:
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
