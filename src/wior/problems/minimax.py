"""Minimax problems: one objective, of which x takes the minimum and y the maximum."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from wior import checks
from wior.problems.bilevel import Bilevel
from wior.problems.per_example import at_rows, has_rows
from wior.problems.problem import Batch, Batches, Calls, Problem, batch_of, check_rows_of, check_scalars, shapes_of

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Minimax(Problem):
    """min over x of max over y of mean objective(x, y; ξ). It has one data set and one order, or two of each.

    Parameters
    ----------
    objective : callable
        `objective(x, y, batch)` returns the mean over the rows of the batch, a scalar. It should be strongly concave in
        y: subtract a penalty on y where it is not.
    data : tree of arrays
        Arrays with one row for each example. They are moved to the device, unless they are to stay on the host: memory
        maps, Arrow tables and `wior.Streamed` are read there, a batch at a time.
    ascent_data : tree of arrays or None, default None
        A second data set: x then descends on batches of `data`, and y ascends on batches of `ascent_data`. Each has an
        order and a batch size of its own, given as pairs, or the same ones for both.
    project_x, project_y : callable, str, tuple or None, default None
        Where x and y may lie, applied after every step that moves them: a function of the variable, a constraint of
        `wior.constraints`, or its name, such as "simplex" or ("box", 0.0, 1.0).

    Notes
    -----
    x and y may have `PerExample` leaves, with one row for each example: weights of the examples, or adversarial
    perturbations of them. Methods for `Minimax` problems move the rows of the batch, and a step costs O(batch). Methods
    for `Bilevel` problems take no such y, since they solve for all of y at once; with two data sets there are no
    `PerExample` leaves, since a batch of one has no rows of the other's examples.

    With two data sets of one distribution both sides see the same game through other samples. Where the two differ, a
    method for `Minimax` problems goes to where neither side can do better on its own data; one for `Bilevel` problems
    lets x foresee how y will answer.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> objective = lambda x, y, batch: jnp.mean(x * y - y**2 / 2 + (x - batch) ** 2)
    >>> wior.Minimax(objective, np.arange(8.0)).sizes()
    {'outer': 8}
    >>> wior.Minimax(objective, np.arange(8.0), ascent_data=np.arange(6.0)).sizes()
    {'outer': 8, 'inner': 6}

    Each example has an adversary of its own, within reach of a penalty:

    >>> loss = lambda x, rows: jnp.mean((x - rows) ** 2)
    >>> game = lambda x, y, batch: loss(x, batch + y) - 2 * jnp.mean(y**2)
    >>> y0 = wior.PerExample(jnp.zeros(8))
    >>> method = wior.WiORMinimax(outer_lr=0.05, inner_lr=1.0)
    >>> found = wior.solve(wior.Minimax(game, np.arange(8.0)), method, jnp.zeros(()), y0, batch_size=4, steps=400)
    >>> bool(jnp.abs(found.y.rows - (jnp.arange(8.0) - found.x)).max() < 0.5)
    True
    """

    objective: Callable[[Tree, Tree, Tree], jax.Array]
    data: Tree
    ascent_data: Tree = None

    name = "minimax"
    special_case_of = Bilevel
    _losses = ("objective",)
    _arguments = {"objective": ("x", "y", "batch")}
    _data = ("data", "ascent_data")
    _read_by = {"outer": ("data",), "inner": ("ascent_data",)}

    def __post_init__(self) -> None:
        self._stream()
        self.sizes()
        self._prepare()

    def sizes(self) -> dict[str, int]:
        sizes = {"outer": checks.rows("data", self.data)}
        if self.ascent_data is not None:
            sizes["inner"] = checks.rows("ascent_data", self.ascent_data)
        return sizes

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

    def inner_batch(self, index: jax.Array) -> Batch:
        """The rows at some indices of what y ascends on: of `ascent_data`, or of the one data set.

        Parameters
        ----------
        index : jax.Array
            (rows,), indices of examples, in range.

        Returns
        -------
        Batch
        """
        return batch_of(self.data if self.ascent_data is None else self.ascent_data, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        def objective(x: Tree, y: Tree, b: Batch) -> jax.Array:
            return self.objective(at_rows(x, b.examples), at_rows(y, b.examples), b.data)

        xi, zeta = shapes_of(self, batches, "outer_batch", "inner_batch")
        calls: Calls = {"objective": (objective, (x, y, xi))}
        return calls if self.ascent_data is None else {**calls, "objective on ascent_data": (objective, (x, y, zeta))}

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        for name, variable in (("x0", x), ("y0", y)):
            if self.ascent_data is not None and has_rows(variable):
                raise TypeError(
                    f"{name} has a PerExample leaf, and the problem has two data sets: a batch of one has no rows of "
                    "the other's examples. Give one data set, without ascent_data"
                )
        check_rows_of("x0", x, self.sizes()["outer"], "inner")
        check_rows_of("y0", y, self.sizes()["outer"], "inner")
        check_scalars(self.loss_calls(x, y, batches))

    def restated(self) -> Bilevel:
        """The same problem as a `Bilevel` one, with f = objective and g = −objective.

        The two levels then have batches of their own.
        """
        ascent_data = self.data if self.ascent_data is None else self.ascent_data
        return Bilevel(self.objective, _Negative(self.objective), self.data, ascent_data)


@dataclasses.dataclass(frozen=True)
class _Negative:
    objective: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, batch: Tree) -> jax.Array:
        return -self.objective(x, y, batch)
