"""Keys of `jax.random` on their way to a loss: beside the indices of a batch, then beside its rows.

A batch has one key in a step, and every derivative of the batch sees it. A method hands on what it is given: `Indices`
are sliced and scanned over as an array of indices is, and a problem makes `Rows` of them, which a loss takes apart.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["examples", "key"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Indices:
    """Indices of examples (..., rows), with a key for each batch (...) or, of outer examples with inner sets, each row.

    A single batch has indices (rows,) and one key.
    """

    examples: jax.Array
    key: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.examples.shape

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: Any) -> Any:
        if self.examples.ndim > 1:
            return Indices(self.examples[place], self.key[place])
        if not isinstance(place, slice):
            return self.examples[place]
        # a piece of a large batch
        key = jax.random.fold_in(self.key, place.start) if place.start else self.key
        return Indices(self.examples[place], key)

    def reshape(self, *shape: int) -> Indices:
        examples = self.examples.reshape(*shape)
        if self.key.ndim == 0 and examples.ndim == 2:  # a large batch in pieces
            return Indices(examples, fold_each(self.key, len(examples)))
        if examples.ndim == 1:  # many batches as one
            return Indices(examples, self.key.ravel()[0])
        return Indices(examples, self.key.reshape(examples.shape[:-1]))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["rows", "key"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a batch, and its key."""

    rows: Tree
    key: jax.Array


def examples_of(index: Any) -> jax.Array:
    """Indices without their keys."""
    return index.examples if isinstance(index, Indices) else index


def rows_alone(data: Tree) -> Tree:
    """Rows without their key."""
    return data.rows if isinstance(data, Rows) else data


def rows_at(data: Tree, index: Any) -> Tree:
    """Some of the rows, with the key that comes with their indices."""
    rows = jax.tree.map(lambda leaf: leaf[examples_of(index)], rows_alone(data))
    return Rows(rows, index.key) if isinstance(index, Indices) else rows


def with_key_each(data: Tree, rows: int) -> Tree:
    """Rows with a key for each, to be evaluated one by one."""
    return Rows(data.rows, fold_each(data.key, rows)) if isinstance(data, Rows) else data


def fold_each(key: jax.Array, number: int) -> jax.Array:
    """Keys (number,), made of one."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(number, dtype=jnp.uint32))
