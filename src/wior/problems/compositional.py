"""Compositional problems: a loss of a mean of maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from wior import checks, tree
from wior.problems.bilevel import Bilevel
from wior.problems.per_example import at_rows
from wior.problems.problem import (
    Batch,
    Batches,
    Calls,
    Problem,
    batch_of,
    check_map_and_scalar,
    check_rows_fit,
    shapes_of,
)

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Compositional(Problem):
    """min over x of mean f(r(x); ξ) with r(x) = mean r(x; ζ), or of f(r(x)) for an outer loss without data.

    Parameters
    ----------
    outer : callable
        f: `outer(y, batch)` returns the mean of the outer loss over the rows of the batch, a scalar. Without outer data
        it is `outer(y)`.
    inner : callable
        r: `inner(x, batch)` returns the mean of the map over the rows of the batch, a tree like y.
    outer_data, inner_data : tree of arrays
        Arrays with one row for each example. They are moved to the device, unless they are to stay on the host: memory
        maps, Arrow tables and `wior.Streamed` are read there, a batch at a time. `outer_data` is None for an outer loss
        without data: it is then a single example, which every step reads once, and `order` and `batch_size` are those
        of the inner data.
    project_x, project_y : callable, str, tuple or None, default None
        Where x and y may lie, applied after every step that moves them: a function of the variable, a constraint of
        `wior.constraints`, or its name, such as "simplex" or ("box", 0.0, 1.0).

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, batch: x + jnp.mean(batch)
    >>> problem = wior.Compositional(outer, inner, np.arange(8.0), np.arange(12.0))
    >>> problem.sizes()
    {'outer': 8, 'inner': 12}

    The square of a mean, which has no outer data:

    >>> problem = wior.Compositional(lambda y: y**2, inner, None, np.arange(12.0))
    >>> problem.sizes()
    {'outer': 1, 'inner': 12}
    """

    outer: Callable[..., jax.Array]
    inner: Callable[[Tree, Tree], Tree]
    outer_data: Tree
    inner_data: Tree

    name = "compositional"
    special_case_of = Bilevel
    _losses = ("outer", "inner")
    _arguments = {"outer": ("y", "batch"), "inner": ("x", "batch")}
    _data = ("outer_data", "inner_data")
    _read_by = {"outer": ("outer_data",), "inner": ("inner_data",)}

    def __post_init__(self) -> None:
        if self.outer_data is None:
            checks.function("outer", self.outer)
            checks.arity("outer", self.outer, ("y",))
            object.__setattr__(self, "outer", OfYAlone(self.outer))
            object.__setattr__(self, "outer_data", np.zeros((1, 1), np.float32))
        self._stream()
        self.sizes()
        self._prepare()

    @property
    def lacks_outer_data(self) -> bool:
        return isinstance(self.outer, OfYAlone)

    def sizes(self) -> dict[str, int]:
        return {
            "outer": checks.rows("outer_data", self.outer_data),
            "inner": checks.rows("inner_data", self.inner_data),
        }

    def outer_batch(self, index: jax.Array) -> Batch:
        """The rows of the outer data at some indices.

        Parameters
        ----------
        index : jax.Array
            (rows,), indices of examples, in range.

        Returns
        -------
        Batch
        """
        return batch_of(self.outer_data, index)

    def inner_batch(self, index: jax.Array) -> Batch:
        """The rows of the inner data at some indices.

        Parameters
        ----------
        index : jax.Array
            (rows,), indices of examples, in range.

        Returns
        -------
        Batch
        """
        return batch_of(self.inner_data, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        xi, zeta = shapes_of(self, batches, "outer_batch", "inner_batch")
        return {
            "outer": (lambda y, b: self.outer(y, b.data), (y, xi)),
            "inner": (lambda x, b: self.inner(at_rows(x, b.examples), b.data), (x, zeta)),
        }

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        check_rows_fit(x, y, self.sizes()["inner"])
        check_map_and_scalar(self.loss_calls(x, y, batches), y)

    def restated(self) -> Bilevel:
        """The same problem as a `Bilevel` one, with g(x, y; ζ) = ½‖y − r(x; ζ)‖²."""
        return Bilevel(OfY(self.outer), SquaredDistance(self.inner), self.outer_data, self.inner_data)


@dataclasses.dataclass(frozen=True)
class OfYAlone:
    """An outer loss without data, as one that ignores the single row of a data set."""

    outer: Callable[..., jax.Array]

    def __call__(self, y: Tree, batch: Tree) -> jax.Array:
        return self.outer(y)


@dataclasses.dataclass(frozen=True)
class OfY:
    outer: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, batch: Tree) -> jax.Array:
        return self.outer(y, batch)


@dataclasses.dataclass(frozen=True)
class SquaredDistance:
    inner: Callable[..., Tree]

    def __call__(self, x: Tree, y: Tree, batch: Tree) -> jax.Array:
        apart = tree.sub(y, self.inner(x, batch))
        return 0.5 * tree.vdot(apart, apart)
