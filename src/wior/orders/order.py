"""What an order is: a rule that says which example stands at which position of which pass.

An order knows nothing of losses. A non-adaptive one is a pure function of key and position: pass p over n examples is a
permutation of [0, n) (or n draws), and batch t is positions tB … (t+1)B − 1 of the concatenated passes. So a batch may
straddle two passes, nothing is dropped, padded or repeated, and a run can stop and resume at any step.

`run` is for compiled programs, where the numbers of examples have 32 bits; `examples` gives the same ones to the host,
for any n: those above 2³¹ are made there, pass by pass, in 64 bits.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.orders import bijection, wide

AT_ONCE = 2**24  # examples made by one call of a program


@dataclasses.dataclass(frozen=True)
class Order:
    """An order over n examples, given a key."""

    repeats_within_pass: ClassVar[bool] = False

    def run(self, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
        """The `length` examples from position `offset` of pass `first_pass` on, across as many passes as that takes."""
        raise NotImplementedError

    def one_pass(self, key: jax.Array, number: jax.Array, n: int, count: jax.Array | None = None) -> jax.Array:
        """Pass `number`, whole: n examples, of which the first `count` are a pass over [0, count) and the rest padding."""
        raise NotImplementedError

    def examples(self, key: jax.Array, position: int, length: int, n: int) -> np.ndarray:
        """The examples at positions `position` … `position + length − 1` of the concatenated passes, as int64 on the host.

        For n < 2³¹ those of `run`, by a program compiled once for each length. n may be up to 2⁶³ − 1 and the position
        any integer from zero on; memory is that of the result.
        """
        length, n = checks.positive_integer("length", length), checks.positive_integer("n", n)
        if isinstance(position, bool) or not isinstance(position, (int, np.integer)) or position < 0:
            raise ValueError(f"position must be an integer, zero or more, got {position!r}")
        if n > wide.LARGEST:
            raise ValueError(f"n must be at most {wide.LARGEST}, got {n}")
        if not isinstance(key, (jax.Array, np.ndarray)):
            hint = f"jax.random.key({key})" if isinstance(key, (int, np.integer)) else "jax.random.key(0)"
            raise TypeError(
                f"key must be a key of jax.random, for example {hint}; got {key!r} of type {type(key).__name__}"
            )
        place, end, pieces = int(position), int(position) + length, []
        with jax.default_device(_host()):
            key = _to_host(key)
            while place < end:
                number, offset = divmod(place, n)
                if n <= bijection.LARGEST:
                    piece = _run(self, key, _word(number), _word(offset), min(end - place, AT_ONCE), n)
                else:
                    piece = self.stretch(key, _word(number), offset, min(end - place, n - offset), n)
                pieces.append(np.asarray(piece, np.int64))
                place += len(piece)
        return np.concatenate(pieces)

    def stretch(self, key: jax.Array, number: np.uint32, offset: int, length: int, n: int) -> np.ndarray:
        """The `length` examples from `offset` of pass `number` on, all of that pass: what `examples` is made of for n ≥ 2³¹."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class PermutationOrder(Order):
    """An order in which every pass is a permutation, forwards or backwards, named by a number."""

    def permutation(self, number: jax.Array) -> tuple[jax.Array, jax.Array | bool]:
        """Which permutation pass `number` uses, and whether it is read backwards."""
        raise NotImplementedError

    def run(self, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
        if n < bijection.EXACT_BELOW or length > n:
            numbers = first_pass + jnp.arange(-(-length // n) + 1, dtype=jnp.uint32)
            one = lambda number: self.one_pass(key, number, n)
            # on a CPU long passes run in vector instructions one after the other; short ones only if taken together
            in_turn = n >= bijection.EXACT_BELOW and jax.default_backend() == "cpu"
            joined = jax.lax.map(one, numbers) if in_turn else jax.vmap(one)(numbers)
            return jax.lax.dynamic_slice(joined.reshape(-1), (offset.astype(jnp.int32),), (length,))
        place = offset.astype(jnp.uint32) + jnp.arange(length, dtype=jnp.uint32)
        straddles = place >= n
        place = jnp.where(straddles, place - jnp.uint32(n), place)
        both = jax.vmap(lambda number: self._keyed(key, number, n))(first_pass + jnp.arange(2, dtype=jnp.uint32))
        network, backwards = jax.tree.map(lambda either: jnp.where(straddles, either[1], either[0]), both)
        return bijection.permuted(network, jnp.where(backwards, jnp.uint32(n - 1) - place, place), n)

    def one_pass(self, key: jax.Array, number: jax.Array, n: int, count: jax.Array | None = None) -> jax.Array:
        which, backwards = self.permutation(number)
        own = jax.random.fold_in(key, which)
        if count is None and n >= bijection.EXACT_BELOW:
            place = jnp.arange(n)
            return bijection.permuted(bijection.keyed(own, n), jnp.where(backwards, n - 1 - place, place), n)
        forwards = bijection.shuffled(own, n, count)
        return jnp.where(backwards, reverse(forwards, n if count is None else count), forwards)

    def stretch(self, key: jax.Array, number: np.uint32, offset: int, length: int, n: int) -> np.ndarray:
        which, backwards = self.permutation(jnp.asarray(number))
        places = np.arange(offset, offset + length, dtype=np.uint64)
        network = wide.keyed(jax.random.fold_in(key, which), n)
        return wide.permuted(network, np.uint64(n - 1) - places if backwards else places)

    def _keyed(self, key: jax.Array, number: jax.Array, n: int) -> tuple[bijection.Network, jax.Array]:
        which, backwards = self.permutation(number)
        return bijection.keyed(jax.random.fold_in(key, which), n), jnp.asarray(backwards)


@dataclasses.dataclass(frozen=True)
class AdaptiveOrder(Order):
    """An order that learns: each pass is sorted by the derivatives that the pass before it saw.

    The examples of a pass stand in a line, of which each step takes the next ones. `memory` is a tree of the order's
    own with a field `line`. When too few examples are left for a step, `rebuild` sorts the next pass and puts it behind
    them.

    An order of your own inherits from this class and gives `start`, `observe` and `rebuild`; for the inner sets of
    conditional problems also `reorder`.
    """

    def examples(self, key: jax.Array, position: int, length: int, n: int) -> np.ndarray:
        raise TypeError(
            f"{type(self).__name__} sorts each pass by the derivatives that the pass before it saw, so its examples do "
            "not follow from a position; another order of wior.orders is needed"
        )

    def start(self, key: jax.Array, n: int, chunk: int, batch: int, width: int, dtype: Any) -> Any:
        """The memory before the first step, with `line`: a pass over n examples, then room for 2 `chunk` more.

        A step takes `chunk` examples, in batches of `batch`; `width` and `dtype` are those of the vectors that will be
        observed.
        """
        raise NotImplementedError

    def observe(self, memory: Any, batch_number: jax.Array, vector: jax.Array) -> Any:
        """The memory after the vector of batch `batch_number` of the line was seen."""
        raise NotImplementedError

    def rebuild(self, memory: Any, tail: jax.Array, taken: jax.Array, n: int, chunk: int, batch: int) -> Any:
        """The memory with the next pass behind what is left of the line.

        The line held `tail` examples of an older pass, then n; `taken` of them are gone. `next_line` puts a sorted pass
        in its place.
        """
        raise NotImplementedError

    def reorder(self, order: jax.Array, vectors: jax.Array, used: jax.Array, count: jax.Array, batch: int) -> jax.Array:
        """The next order of one small inner set after a visit: `vectors` of its batches, of which the last pass sorts.

        The visit read `order` (its first `count` entries) again and again, `used` positions in all.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no method `reorder`, which the inner sets of conditional problems need"
        )


def next_line(line: jax.Array, sorted_pass: jax.Array, tail: jax.Array, taken: jax.Array, chunk: int) -> jax.Array:
    """A line with what is left of it in front, then a sorted pass."""
    left = jax.lax.dynamic_slice(line, (taken,), (chunk,))
    moved = jax.lax.dynamic_update_slice(line, left, (0,))
    return jax.lax.dynamic_update_slice(moved, sorted_pass, (tail + len(sorted_pass) - taken,))


def reverse(forwards: jax.Array, count: jax.Array | int) -> jax.Array:
    """The first `count` entries backwards; what follows them is padding."""
    return forwards[jnp.maximum(count - 1 - jnp.arange(len(forwards)), 0)]


@functools.partial(jax.jit, static_argnums=(0, 4, 5))
def _run(order: Order, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
    return order.run(key, first_pass, offset, length, n)


def _word(number: int) -> np.uint32:
    return np.uint32(number % 2**32)


@functools.cache
def _host() -> jax.Device:
    """The CPU, so as not to wait for what runs on an accelerator.

    Where jax has no CPU device it is the accelerator.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


def _to_host(key: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(jnp.asarray(np.asarray(jax.random.key_data(key))), impl=jax.random.key_impl(key))
