"""A bilevel problem whose examples are the batches of another one, for methods that remember something of every batch.

The data are cut where they lie: batch k holds examples kB … (k+1)B − 1. An order then runs over batches, a step takes
one at a time, and the mean over all batches is the full objective.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from wior.problems.bilevel import Bilevel
from wior.problems.keys import Indices
from wior.problems.problem import Batch, Batches, Calls, Problem

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class InFixedBatches(Problem):
    """`problem` with batches of `batch_sizes` = (outer, inner) rows for examples."""

    problem: Bilevel
    batch_sizes: tuple[int, int]

    _losses = ("batch_sizes",)
    _data = ("problem",)

    def __post_init__(self) -> None:
        for (level, n), batch in zip(self.problem.sizes().items(), self.batch_sizes, strict=True):
            if n % batch:
                near = sorted(sorted(_divisors(n), key=lambda size: abs(size - batch))[:3])
                raise ValueError(
                    f"batch_size ({level}) must divide the {n} {level} examples for a method that keeps a memory of "
                    f"every batch, got {batch}; for example {', '.join(map(str, near))}"
                )

    @property
    def outer(self) -> Any:
        return self.problem.outer

    @property
    def inner(self) -> Any:
        return self.problem.inner

    @property
    def model_state(self) -> Any:
        return self.problem.model_state

    @property
    def takes_key(self) -> bool:
        return self.problem.takes_key

    def sizes(self) -> dict[str, int]:
        sizes = self.problem.sizes()
        return {"outer": sizes["outer"] // self.batch_sizes[0], "inner": sizes["inner"] // self.batch_sizes[1]}

    def outer_batch(self, index: jax.Array) -> Batch:
        return self.problem.outer_batch(_rows(index, self.batch_sizes[0]))

    def inner_batch(self, index: jax.Array) -> Batch:
        return self.problem.inner_batch(_rows(index, self.batch_sizes[1]))

    # the losses read one batch at a time, of the size in which the data were cut
    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        return self.problem.loss_calls(x, y, self.batch_sizes)

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        self.problem.check(x, y, self.batch_sizes)


def _divisors(n: int) -> set[int]:
    small = [size for size in range(1, math.isqrt(n) + 1) if n % size == 0]
    return {*small, *(n // size for size in small)}


def _rows(index: Any, batch: int) -> Any:
    if isinstance(index, Indices):
        return Indices(_rows(index.examples, batch), index.key)
    return (index[:, None] * batch + jnp.arange(batch, dtype=index.dtype)).reshape(-1)
