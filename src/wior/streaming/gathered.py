"""The rows of a streamed level that a window of steps reads, as a problem inside a compiled block has them.

Draws point to places in them; what each row's number is in the whole data is kept beside it.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from wior.streaming.sources import Streamed

Tree = Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["rows", "examples"], meta_fields=["n"])
@dataclasses.dataclass(frozen=True)
class Gathered:
    """Some rows of n, in the order in which steps read them, and their numbers."""

    rows: Tree
    examples: jax.Array
    n: int


def no_rows(data: Tree) -> Gathered:
    """Streamed data as a single row of zeros: for shapes and types, where nothing is computed from rows."""
    n = next(leaf.n for leaf in jax.tree.leaves(data))
    rows = jax.tree.map(lambda leaf: jax.tree.map(lambda row: jnp.zeros((1, *row.shape), row.dtype), leaf.row), data)
    return Gathered(rows, jnp.zeros(1, jnp.int32), n)


def is_streamed(data: Tree) -> bool:
    return any(isinstance(leaf, Streamed) for leaf in jax.tree.leaves(data))
