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
    """An order over n examples: a pure function of a key and a position.

    An order of your own is a frozen dataclass that inherits from this class and gives `run`, `one_pass` and, for more
    than 2³¹ examples on the host, `stretch`. Where every pass is a permutation, inherit from `PermutationOrder`; where
    the order learns from derivatives, from `AdaptiveOrder`.

    Examples
    --------
    >>> import dataclasses
    >>> import jax, jax.numpy as jnp, wior
    >>> @dataclasses.dataclass(frozen=True)
    ... class Backwards(wior.orders.Order):
    ...     def run(self, key, first_pass, offset, length, n):
    ...         return n - 1 - (offset + jnp.arange(length)) % n
    ...
    ...     def one_pass(self, key, number, n, count=None):
    ...         return (n if count is None else count) - 1 - jnp.arange(n)
    >>> Backwards().examples(jax.random.key(0), position=2, length=6, n=4)
    array([1, 0, 3, 2, 1, 0])
    """

    repeats_within_pass: ClassVar[bool] = False

    def run(self, key: jax.Array, first_pass: jax.Array, offset: jax.Array, length: int, n: int) -> jax.Array:
        """The `length` examples from a position on, across as many passes as that takes.

        Parameters
        ----------
        key
            A key of `jax.random`.
        first_pass, offset
            The pass and the position in it at which the first example stands, as scalar arrays.
        length, n
            How many examples are wanted, and how many the data have: Python integers.

        Returns
        -------
        jax.Array
            (length,) of int32.
        """
        raise NotImplementedError

    def one_pass(self, key: jax.Array, number: jax.Array, n: int, count: jax.Array | None = None) -> jax.Array:
        """One whole pass.

        Parameters
        ----------
        key
            A key of `jax.random`.
        number
            Which pass, a scalar array.
        n
            The number of examples, a Python integer.
        count
            If given, the first `count` entries are a pass over [0, count), and the rest are padding: the inner sets of
            conditional problems may be of different sizes.

        Returns
        -------
        jax.Array
            (n,) of int32.
        """
        raise NotImplementedError

    def examples(self, key: jax.Array, position: int, length: int, n: int) -> np.ndarray:
        """The examples at `length` positions of the concatenated passes, on the host.

        For n below 2³¹ they are those of `run`, by a program that is compiled once for each length. Memory is that of
        the result.

        Parameters
        ----------
        key
            A key of `jax.random`.
        position
            The first position, an integer from zero on.
        length
            How many examples.
        n
            The number of examples in the data, up to 2⁶³ − 1.

        Returns
        -------
        numpy.ndarray
            (length,) of int64.

        Examples
        --------
        >>> import jax, wior
        >>> order = wior.orders.RandomReshuffling()
        >>> passes = order.examples(jax.random.key(0), position=0, length=10, n=5).reshape(2, 5)
        >>> [sorted(map(int, one_pass)) for one_pass in passes]
        [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
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
        """The `length` examples from position `offset` of pass `number` on, on the host, for n ≥ 2³¹.

        Parameters
        ----------
        key
            A key of `jax.random`.
        number, offset, length, n
            The pass, the first position, how many examples of this one pass, and how many the data have.

        Returns
        -------
        numpy.ndarray
            (length,) of int64.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class PermutationOrder(Order):
    """An order in which every pass is a permutation, read forwards or backwards.

    An order of your own inherits from this class and gives `permutation`.

    Examples
    --------
    Each permutation is used for three passes:

    >>> import dataclasses
    >>> import jax, wior
    >>> @dataclasses.dataclass(frozen=True)
    ... class Thrice(wior.orders.PermutationOrder):
    ...     def permutation(self, number):
    ...         return number // 3, False
    >>> passes = Thrice().examples(jax.random.key(0), position=0, length=24, n=6).reshape(4, 6)
    >>> bool((passes[0] == passes[2]).all()), bool((passes[0] == passes[3]).all())
    (True, False)
    """

    def permutation(self, number: jax.Array) -> tuple[jax.Array, jax.Array | bool]:
        """Which permutation a pass uses.

        Parameters
        ----------
        number
            The pass, a scalar array.

        Returns
        -------
        which : jax.Array
            The number of the permutation: equal numbers are equal permutations.
        backwards : bool or jax.Array
            Whether it is read backwards.
        """
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

    def _keyed(self, key: jax.Array, number: jax.Array, n: int) -> tuple[bijection.Feistel, jax.Array]:
        which, backwards = self.permutation(number)
        return bijection.keyed(jax.random.fold_in(key, which), n), jnp.asarray(backwards)


@dataclasses.dataclass(frozen=True)
class AdaptiveOrder(Order):
    """An order that learns: each pass is sorted by the derivatives that the pass before it saw.

    The examples of a pass stand in a line, from which each step takes the next ones. The order has a `memory`, a tree
    with a field `line`. When too few examples are left for a step, `rebuild` sorts the next pass and puts it behind
    them.

    An order of your own inherits from this class and gives `start`, `observe` and `rebuild`; for the inner sets of
    conditional problems also `reorder`.

    Examples
    --------
    The examples of batches with long derivatives come first in the next pass:

    >>> import dataclasses
    >>> from typing import Any, NamedTuple
    >>> import jax, jax.numpy as jnp, numpy as np, wior
    >>> from wior.orders import next_line
    >>> class Lengths(NamedTuple):
    ...     line: Any
    ...     lengths: Any  # of the vectors of the batches of the line
    >>> @dataclasses.dataclass(frozen=True)
    ... class LargestFirst(wior.orders.AdaptiveOrder):
    ...     def start(self, key, n, chunk, batch, width, dtype):
    ...         line = jnp.concatenate([jnp.arange(n, dtype=jnp.int32), jnp.zeros(2 * chunk, jnp.int32)])
    ...         return Lengths(line, jnp.zeros(-(-(n + chunk) // batch), dtype))
    ...
    ...     def observe(self, memory, batch_number, vector):
    ...         return memory._replace(lengths=memory.lengths.at[batch_number].set(jnp.linalg.norm(vector)))
    ...
    ...     def rebuild(self, memory, tail, taken, n, chunk, batch):
    ...         place = tail + jnp.arange(n)
    ...         length = jnp.where(place < taken, memory.lengths[place // batch], 0)
    ...         examples = jax.lax.dynamic_slice(memory.line, (tail,), (n,))[jnp.argsort(-length)]
    ...         line = next_line(memory.line, examples, tail, taken, chunk)
    ...         return Lengths(line, jnp.zeros_like(memory.lengths))
    >>> LargestFirst()
    LargestFirst()
    """

    def examples(self, key: jax.Array, position: int, length: int, n: int) -> np.ndarray:
        raise TypeError(
            f"{type(self).__name__} sorts each pass by the derivatives that the pass before it saw, so its examples do "
            "not follow from a position; another order of wior.orders is needed"
        )

    def start(self, key: jax.Array, n: int, chunk: int, batch: int, width: int, dtype: Any) -> Any:
        """The memory before the first step.

        Parameters
        ----------
        key
            A key of `jax.random`.
        n
            The number of examples.
        chunk, batch
            A step takes `chunk` examples, in batches of `batch`.
        width, dtype
            The length and the dtype of the vectors that will be observed.

        Returns
        -------
        tree
            With a field `line`: a pass over n examples, then room for 2 `chunk` more.
        """
        raise NotImplementedError

    def observe(self, memory: Any, batch_number: jax.Array, vector: jax.Array) -> Any:
        """The memory after one batch was seen.

        Parameters
        ----------
        memory
            The memory before.
        batch_number
            Which batch of the line, counted from its start.
        vector
            (width,), the derivatives that the step computed on it.

        Returns
        -------
        tree
            Like `memory`.
        """
        raise NotImplementedError

    def rebuild(self, memory: Any, tail: jax.Array, taken: jax.Array, n: int, chunk: int, batch: int) -> Any:
        """The memory with the next pass behind what is left of the line; `next_line` makes that line.

        Parameters
        ----------
        memory
            The memory before.
        tail, taken
            The line held `tail` examples of an older pass, then n; `taken` of them have been used.
        n, chunk, batch
            As in `start`.

        Returns
        -------
        tree
            Like `memory`.
        """
        raise NotImplementedError

    def reorder(self, order: jax.Array, vectors: jax.Array, used: jax.Array, count: jax.Array, batch: int) -> jax.Array:
        """The next order of one inner set of a conditional problem, after a visit.

        Parameters
        ----------
        order
            (n,), the order of the visit, whose first `count` entries were read again and again.
        vectors
            (batches, width), the derivatives of the batches of the visit; those of its last pass are to sort by.
        used
            How many positions the visit read in all.
        count, batch
            The size of the inner set, and of a batch.

        Returns
        -------
        jax.Array
            Like `order`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no method `reorder`, which the inner sets of conditional problems need"
        )


def next_line(line: jax.Array, sorted_pass: jax.Array, tail: jax.Array, taken: jax.Array, chunk: int) -> jax.Array:
    """The line of an `AdaptiveOrder` with what is left of it in front, then a sorted pass.

    Parameters
    ----------
    line : jax.Array
        The line before, of length n + 2 `chunk`.
    sorted_pass : jax.Array
        (n,), the next pass.
    tail, taken : jax.Array
        The line held `tail` examples of an older pass, then n; `taken` of them have been used.
    chunk : int
        The examples of a step.

    Returns
    -------
    jax.Array
        The new line, as long as the old one. Its first tail + n − taken examples are those that were left.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wior.orders import next_line
    >>> line = jnp.array([0, 1, 2, 3, 4, 0, 0, 0, 0])  # a pass over five examples, and room for two steps of two
    >>> [int(i) for i in next_line(line, jnp.array([4, 2, 0, 1, 3]), tail=0, taken=jnp.int32(4), chunk=2)]
    [4, 4, 2, 0, 1, 3, 0, 0, 0]
    """
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
