"""What an order is: a rule that says which example stands at which position of which pass.

An order knows nothing of losses. A non-adaptive one is a pure function of key and position: pass p over n examples is a
permutation of [0, n) (or n draws), and batch t is positions tB … (t+1)B − 1 of the concatenated passes. So a batch may
straddle two passes, nothing is dropped, padded or repeated, and a run can stop and resume at any step.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from wior.orders import bijection


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


@dataclasses.dataclass(frozen=True)
class PermutationOrder(Order):
    """An order in which every pass is a permutation, forwards or backwards, named by a number."""

    def source(self, number: jax.Array) -> tuple[jax.Array, jax.Array | bool]:
        """Which permutation pass `number` uses, and whether it is read backwards."""
        raise NotImplementedError

    def run(self, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
        if n < bijection.EXACT_BELOW or length > n:
            numbers = first_pass + jnp.arange(-(-length // n) + 1, dtype=jnp.uint32)
            one = lambda number: self.one_pass(key, number, n)
            # on a CPU one long pass after the other keeps the network in vector instructions; short ones are vectors only together
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
        source, backwards = self.source(number)
        own = jax.random.fold_in(key, source)
        if count is None and n >= bijection.EXACT_BELOW:
            place = jnp.arange(n)
            return bijection.permuted(bijection.keyed(own, n), jnp.where(backwards, n - 1 - place, place), n)
        forwards = bijection.shuffled(own, n, count)
        return jnp.where(backwards, reverse(forwards, n if count is None else count), forwards)

    def _keyed(self, key: jax.Array, number: jax.Array, n: int) -> tuple[bijection.Network, jax.Array]:
        source, backwards = self.source(number)
        return bijection.keyed(jax.random.fold_in(key, source), n), jnp.asarray(backwards)


def reverse(forwards: jax.Array, count: jax.Array | int) -> jax.Array:
    """The first `count` entries backwards; what follows them is padding."""
    return forwards[jnp.maximum(count - 1 - jnp.arange(len(forwards)), 0)]
