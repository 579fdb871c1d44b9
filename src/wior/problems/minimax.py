"""Minimax problems: one objective, of which x takes the minimum and y the maximum."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from wior import checks
from wior.problems.bilevel import Bilevel
from wior.problems.per_example import at_rows
from wior.problems.problem import Batch, Batches, Calls, Problem, batch_of, check_rows_fit, check_scalars, shapes_of

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Minimax(Problem):
    """min over x of max over y of mean objective(x, y; ξ). It has one data set and one order.

    Parameters
    ----------
    objective : callable
        `objective(x, y, batch)` returns the mean over the rows of the batch, a scalar. It should be strongly concave in
        y: subtract a penalty on y where it is not.
    data : tree of arrays
        Arrays with one row for each example. They are moved to the device, unless they are to stay on the host: memory
        maps, Arrow tables and `wior.Streamed` are read there, a batch at a time.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> objective = lambda x, y, batch: jnp.mean(x * y - y**2 / 2 + (x - batch) ** 2)
    >>> wior.Minimax(objective, np.arange(8.0)).sizes()
    {'outer': 8}
    """

    objective: Callable[[Tree, Tree, Tree], jax.Array]
    data: Tree

    name = "minimax"
    special_case_of = Bilevel
    _losses = ("objective",)
    _arguments = {"objective": ("x", "y", "batch")}
    _data = ("data",)
    _read_by = {"outer": ("data",)}

    def __post_init__(self) -> None:
        self._stream()
        checks.rows("data", self.data)
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return {"outer": checks.rows("data", self.data)}

    def outer_batch(self, index: jax.Array) -> Batch:
        """The rows of the data at some indices.

        Parameters
        ----------
        index : jax.Array
            (rows,), indices of examples, in range.

        Returns
        -------
        Batch
        """
        return batch_of(self.data, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        (xi,) = shapes_of(self, batches, "outer_batch")
        return {"objective": (lambda x, y, b: self.objective(at_rows(x, b.examples), y, b.data), (x, y, xi))}

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        check_rows_fit(x, y, self.sizes()["outer"])
        check_scalars(self.loss_calls(x, y, batches))

    def restated(self) -> Bilevel:
        """The same problem as a `Bilevel` one, with f = objective and g = −objective.

        The two levels then have batches of their own.
        """
        return Bilevel(self.objective, _Negative(self.objective), self.data, self.data)


@dataclasses.dataclass(frozen=True)
class _Negative:
    objective: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, batch: Tree) -> jax.Array:
        return -self.objective(x, y, batch)
