"""Conditional compositional problems: a mean of maps for each outer example."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from wior.problems.compositional import OfY, SquaredDistance
from wior.problems.conditional_bilevel import ConditionalBilevel
from wior.problems.inner_sets import (
    InnerSet,
    check_conditional,
    check_conditional_rows,
    conditional_sizes,
    inner_sets_of,
    one_visit,
    seen_by,
)
from wior.problems.problem import Batch, Batches, Calls, Problem, batch_of, check_map_and_scalar

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class ConditionalCompositional(Problem):
    """min over x of mean f(r_i(x); ξ_i) with r_i(x) the mean of r(x; ζ) over the inner data set of ξ_i.

    Parameters
    ----------
    outer : callable
        f: `outer(y, batch)` returns the mean of the outer loss over the rows of the batch, a scalar.
    inner : callable
        r: `inner(x, batch)` returns the mean of the map over the rows of the batch, a tree like y.
    outer_data : tree of arrays
        Arrays with one row for each outer example.
    inner_data : tree of arrays
        Arrays of shape (m, n_max, ...): for each of the m outer examples, its inner set of up to n_max rows.
    counts : array of int or None, default None
        (m,), how many of the n_max rows belong to each inner set. None: all of them. Rows past the count are padding,
        which no loss ever reads.
    project_x, project_y : callable, str, tuple or None, default None
        Where x and y may lie, applied after every step that moves them: a function of the variable, a constraint of
        `wior.constraints`, or its name, such as "simplex" or ("box", 0.0, 1.0).

    Notes
    -----
    x may have `PerExample` leaves, with one row for each outer example: the map of an example receives its own row, as
    a batch of one. A step moves the rows of its outer examples.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, batch: x + jnp.mean(batch)
    >>> problem = wior.ConditionalCompositional(outer, inner, np.arange(8.0), np.zeros((8, 3)))
    >>> problem.sizes()
    {'outer': 8, 'inner': 3}
    """

    outer: Callable[[Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree], Tree]
    outer_data: Tree
    inner_data: Tree
    counts: Any = None

    name = "conditional-compositional"
    conditional = True
    special_case_of = ConditionalBilevel
    _losses = ("outer", "inner")
    _arguments = {"outer": ("y", "batch"), "inner": ("x", "batch")}
    _data = ("outer_data", "inner_data", "counts")
    _read_by = {"outer": ("outer_data", "inner_data")}

    def __post_init__(self) -> None:
        self._stream()
        check_conditional(self)
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return conditional_sizes(self.outer_data, self.inner_data)

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

    def inner_sets(self, index: jax.Array) -> InnerSet:
        """The inner sets of some outer examples.

        Parameters
        ----------
        index : jax.Array
            (B,), indices of outer examples, in range.

        Returns
        -------
        InnerSet
            Their rows (B, n_max, ...), and how many of them belong to each set.
        """
        return inner_sets_of(self, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        xi, zeta = one_visit(self, batches)
        return {"outer": (self.outer, (y, xi)), "inner": (seen_by(self.inner, x), (x, zeta))}

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        check_conditional_rows(self, x, y)
        check_map_and_scalar(self.loss_calls(x, y, batches), y)

    def restated(self) -> ConditionalBilevel:
        """The same problem as a `ConditionalBilevel` one, with g(x, y; ζ) = ½‖y − r(x; ζ)‖²."""
        return ConditionalBilevel(
            OfY(self.outer), SquaredDistance(self.inner), self.outer_data, self.inner_data, self.counts
        )
