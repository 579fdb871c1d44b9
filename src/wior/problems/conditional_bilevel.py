"""Conditional bilevel problems: an inner problem for each outer example."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from wior import checks
from wior.problems.inner_sets import (
    InnerSet,
    all_visits,
    check_conditional,
    check_conditional_rows,
    conditional_sizes,
    first_axis,
    inner_sets_of,
    one_visit,
    seen_by,
)
from wior.problems.problem import Batch, Batches, Calls, Problem, batch_of, check_scalars

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class ConditionalBilevel(Problem):
    """min over x of mean f(x, y_i; ξ_i) where each y_i minimizes g over the inner data set of its own example ξ_i.

    Parameters
    ----------
    outer : callable
        f: `outer(x, y, batch)` returns the mean of the outer loss over the rows of the batch, a scalar.
    inner : callable
        g: `inner(x, y, batch)` returns the mean of the inner loss over the rows of the batch, a scalar. It should be
        strongly convex in y.
    outer_data : tree of arrays
        Arrays with one row for each outer example.
    inner_data : tree of arrays
        Arrays of shape (m, n_max, ...): for each of the m outer examples, its inner set of up to n_max rows.
    counts : array of int or None, default None
        (m,), how many of the n_max rows belong to each inner set. None: all of them. Rows past the count are padding,
        which no loss ever reads.
    represent : callable or None, default None
        For a g that depends on x only through a representation of its rows: `represent(x, rows)` returns it, with one
        row for each row, and `inner(representation, y, rows)` is g. The representation is then computed once for each
        outer step, and differentiated once. The rows of all examples of a batch are given together, so each must be
        represented by itself.
    represent_outer : callable or None, default None
        The same for f, which is then `outer(representation, y, rows)`.
    project_x, project_y : callable, str, tuple or None, default None
        Where x and y may lie, applied after every step that moves them: a function of the variable, a constraint of
        `wior.constraints`, or its name, such as "simplex" or ("box", 0.0, 1.0).

    Notes
    -----
    x may have `PerExample` leaves, with one row for each outer example: both losses of an example receive its own row,
    as a batch of one. A step moves the rows of its outer examples.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> sets = np.zeros((8, 3))  # an inner set of up to three rows for each of eight outer examples
    >>> problem = wior.ConditionalBilevel(outer, inner, np.arange(8.0), sets, counts=np.array([3, 3, 2, 3, 1, 3, 3, 2]))
    >>> problem.sizes()
    {'outer': 8, 'inner': 3}
    """

    outer: Callable[[Tree, Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree, Tree], jax.Array]
    outer_data: Tree
    inner_data: Tree
    counts: Any = None
    represent: Callable[[Tree, Tree], Tree] | None = None
    represent_outer: Callable[[Tree, Tree], Tree] | None = None

    name = "conditional-bilevel"
    conditional = True
    _losses = ("outer", "inner", "represent", "represent_outer")
    _arguments = {
        **dict.fromkeys(("outer", "inner"), ("x", "y", "batch")),
        **dict.fromkeys(("represent", "represent_outer"), ("x", "rows")),
    }
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
        visit, together = one_visit(self, batches), all_visits(self, batches)
        calls: Calls = {}
        for name, loss, represent, rows, given in (
            ("outer", self.outer, self.represent_outer, visit[0], together[0]),
            ("inner", self.inner, self.represent, visit[1], together[1]),
        ):
            point = x
            if represent is not None:
                point = first_axis(jax.eval_shape(represent, x, given), checks.rows("rows", rows))
                calls["represent_outer" if name == "outer" else "represent"] = (represent, (x, given))
            calls[name] = (seen_by(loss, x), (point, y, rows))
        return calls

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        check_conditional_rows(self, x, y)
        calls = self.loss_calls(x, y, batches)
        for name in ("represent", "represent_outer"):
            if name in calls:
                represent, args = calls.pop(name)
                found, given = (
                    checks.rows(f"{name}(x, rows)", jax.eval_shape(represent, *args)),
                    checks.rows("rows", args[1]),
                )
                if found != given:
                    raise ValueError(
                        f"{name} must return one row for each row it is given, here {given}; it returns {found}"
                    )
        check_scalars(calls)
