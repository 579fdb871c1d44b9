"""Herding: each pass is sorted by what the pass before it saw, so that partial sums stay near the mean.

The vectors of a step (the derivatives it computed anyway) are balanced by signs, at the granularity of batches: the
sign of each vector is chosen against the signed sum so far, and the next pass takes the plus examples from the front in
their order and the minus examples from the back in reverse.

    mean balancing (GraB):     c = v_t − m, m the mean of the raw vectors of the pass before
    pair balancing (CD-GraB):  c = v_{2t−1} − v_{2t}; the second of a pair takes the opposite sign, and no mean is kept
    sign + if ⟨c, s⟩ < 0, else −;   s ← s ± c

Lu, Guo, De Sa, "GraB: finding provably better data permutations than random reshuffling", NeurIPS 2022;
Cooper et al., "Coordinating distributed example orders for provably accelerated training", NeurIPS 2023.

The examples of a pass stand in a line, of which each step takes the next ones. When too few are left for a step, the
next pass is sorted and appended behind the remainder, so a batch may straddle two passes here as well; examples that
were not part of a signed batch go between the plus and the minus ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wior import tree
from wior.orders.order import AdaptiveOrder, next_line
from wior.orders.random_reshuffling import RandomReshuffling


class Balance(NamedTuple):
    """What balancing remembers between two vectors."""

    signed_sum: jax.Array
    reference: jax.Array  # the stale mean, or the first vector of a pair
    raw_sum: jax.Array  # for the next mean; empty for pairs


class Memory(NamedTuple):
    line: jax.Array  # the examples in the order they come, from the last rebuild on
    signs: jax.Array  # of each batch taken from the line: +1, −1, or 0 for not signed
    balance: Balance


@dataclasses.dataclass(frozen=True)
class Herding(AdaptiveOrder):
    """Sorts each pass by balancing the vectors that the pass before it saw.

    It takes memory for one integer for each example and two or three vectors of the length of the observed derivatives.
    With more examples in a step than in the data there is nothing to sort.

    Parameters
    ----------
    balance : {"pair", "mean"}, default "pair"
        "pair" balances the difference of each two vectors and keeps no mean (CD-GraB); start with it. "mean" balances
        the distance from the mean of the pass before (GraB).

    References
    ----------
    Lu, Guo, De Sa, "GraB: finding provably better data permutations than random reshuffling", NeurIPS 2022. Cooper et
    al., "Coordinating distributed example orders for provably accelerated training", NeurIPS 2023.

    Examples
    --------
    >>> import wior
    >>> wior.orders.Herding()
    Herding(balance='pair')
    >>> wior.orders.BY_NAME["herding-mean"]
    Herding(balance='mean')
    """

    balance: str = "pair"

    def __post_init__(self) -> None:
        if self.balance not in ("pair", "mean"):
            raise ValueError(f'balance must be "pair" or "mean", got {self.balance!r}')

    def start(self, key: jax.Array, n: int, chunk: int, batch: int, width: int, dtype: Any) -> Memory:
        """The memory before the first step: a random permutation, nothing observed."""
        first = RandomReshuffling().one_pass(key, jnp.uint32(0), n)
        batches = -(-(n + chunk) // batch)
        line = jnp.concatenate([first, jnp.zeros(2 * chunk, jnp.int32)])
        return Memory(line, jnp.zeros(batches, jnp.int32), self._balance(width, dtype))

    def observe(self, memory: Memory, batch_number: jax.Array, vector: jax.Array) -> Memory:
        """Signs the vector of batch `batch_number` of the line."""
        balance, before, here = self._sign(memory.balance, batch_number, vector)
        signs = memory.signs.at[batch_number].set(here, mode="promise_in_bounds")
        if self.balance == "pair":
            signs = signs.at[jnp.maximum(batch_number - 1, 0)].add(before, mode="promise_in_bounds")
        return Memory(memory.line, signs, balance)

    def rebuild(self, memory: Memory, tail: jax.Array, taken: jax.Array, n: int, chunk: int, batch: int) -> Memory:
        """Sorts the next pass and puts it behind what is left of the line.

        The line held `tail` examples of an older pass, then n; `taken` of them are gone.
        """
        place = tail + jnp.arange(n)
        signs = jnp.where(place < taken, memory.signs[jnp.minimum(place // batch, len(memory.signs) - 1)], 0)
        sorted_pass = by_sign(lax.dynamic_slice(memory.line, (tail,), (n,)), signs)
        line = next_line(memory.line, sorted_pass, tail, taken, chunk)
        return Memory(line, jnp.zeros_like(memory.signs), self._next_pass(memory.balance, taken // batch))

    def reorder(self, order: jax.Array, vectors: jax.Array, used: jax.Array, count: jax.Array, batch: int) -> jax.Array:
        """The next order of one small inner set after a visit: `vectors` of its batches, of which the last pass sorts.

        The visit read `order` (its first `count` entries) again and again, `used` positions in all.
        """
        batches = len(vectors)
        active = jnp.arange(batches) * batch < used
        balance = self._balance(vectors.shape[1], vectors.dtype)
        if self.balance == "mean":
            average = jnp.sum(jnp.where(active[:, None], vectors, 0), 0) / jnp.maximum(jnp.sum(active), 1)
            balance = balance._replace(reference=average)

        def sign(balance: Balance, item: tuple[jax.Array, jax.Array]) -> tuple[Balance, tuple[jax.Array, jax.Array]]:
            number, vector = item
            balance, before, here = self._sign(balance, number, vector)
            return balance, (before, here)

        _, (before, here) = lax.scan(sign, balance, (jnp.arange(batches), vectors))
        signs = here + jnp.concatenate([before[1:], jnp.zeros(1, before.dtype)])
        # a pair whose second batch is padding was never compared with anything
        paired = (
            active
            if self.balance == "mean"
            else active & jnp.where(jnp.arange(batches) % 2 == 0, jnp.roll(active, -1), True)
        )
        signs = jnp.where(paired, signs, 0)
        n = len(order)
        # where each row stood last; a visit may end within a pass, or before the first one is over
        place = used - count + (jnp.arange(n) - used) % count
        seen = (jnp.arange(n) < count) & (place >= 0)
        return by_sign(order, jnp.where(seen, signs[jnp.clip(place // batch, 0, batches - 1)], 0), count)

    def _balance(self, width: int, dtype: Any) -> Balance:
        empty = jnp.zeros(width, dtype)
        return Balance(empty, empty, empty if self.balance == "mean" else jnp.zeros(0, dtype))

    def _sign(self, balance: Balance, number: jax.Array, vector: jax.Array) -> tuple[Balance, jax.Array, jax.Array]:
        """The new balance, the sign that the batch before gets now, and the sign of this one."""
        if self.balance == "mean":
            centered = vector - balance.reference
            sign = _against(centered, balance.signed_sum)
            moved = Balance(_add(balance.signed_sum, sign, centered), balance.reference, balance.raw_sum + vector)
            return moved, jnp.int32(0), sign

        def remember(balance: Balance) -> tuple[Balance, jax.Array]:
            return balance._replace(reference=vector), jnp.int32(0)

        def compare(balance: Balance) -> tuple[Balance, jax.Array]:
            apart = balance.reference - vector
            sign = _against(apart, balance.signed_sum)
            return balance._replace(signed_sum=_add(balance.signed_sum, sign, apart)), sign

        moved, sign = tree.branch(number % 2 == 1, compare, remember, balance)
        return moved, sign, -sign

    def _next_pass(self, balance: Balance, batches: jax.Array) -> Balance:
        reference = (
            balance.raw_sum / jnp.maximum(batches, 1).astype(balance.raw_sum.dtype)
            if self.balance == "mean"
            else balance.reference
        )
        return Balance(jnp.zeros_like(balance.signed_sum), reference, jnp.zeros_like(balance.raw_sum))


def by_sign(examples: jax.Array, signs: jax.Array, count: jax.Array | int | None = None) -> jax.Array:
    """Plus examples from the front in order, minus from the back in reverse, unsigned between; padding stays last."""
    n = len(examples)
    count = n if count is None else count
    inside = jnp.arange(n) < count
    plus, minus = (signs > 0) & inside, (signs < 0) & inside
    middle = inside & ~plus & ~minus
    rank = lambda chosen: jnp.cumsum(chosen) - 1
    place = jnp.where(plus, rank(plus), jnp.where(minus, count - 1 - rank(minus), jnp.sum(plus) + rank(middle)))
    return jnp.zeros_like(examples).at[jnp.where(inside, place, jnp.arange(n))].set(examples)


def _against(vector: jax.Array, signed_sum: jax.Array) -> jax.Array:
    return jnp.where(tree.vdot(vector, signed_sum) < 0, jnp.int32(1), jnp.int32(-1))


def _add(signed_sum: jax.Array, sign: jax.Array, vector: jax.Array) -> jax.Array:
    return signed_sum + sign.astype(vector.dtype) * vector
