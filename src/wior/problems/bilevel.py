"""Bilevel problems: one inner problem, whose solution the outer loss reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from wior import checks
from wior.problems.per_example import PerExample, at_rows, has_rows, is_per_example, without_rows
from wior.problems.problem import Batch, Batches, Calls, Problem, batch_of, check_rows_fit, check_scalars, shapes_of

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Bilevel(Problem):
    """min over x of mean f(x, y_x; ξ) where y_x minimizes mean g(x, y; ζ) over y.

    Parameters
    ----------
    outer : callable
        f: `outer(x, y, batch)` returns the mean of the outer loss over the rows of the batch, a scalar.
    inner : callable
        g: `inner(x, y, batch)` returns the mean of the inner loss over the rows of the batch, a scalar. It should be
        strongly convex in y: add a penalty on y where it is not.
    outer_data, inner_data : tree of arrays
        Arrays with one row for each example. They are moved to the device, unless they are to stay on the host: memory
        maps, Arrow tables and `wior.Streamed` are read there, a batch at a time.
    model_state : tree of arrays or None, default None
        What losses with a parameter `state` are given, before the first step: the running statistics of a batch norm,
        say. `inner(x, y, batch, state)` then returns a pair (loss, new_state), and every ∇_y g of a step puts the new
        state in place of the old one. The outer loss sees it and leaves it as it is.
    update_state_by : {"inner", "both"}, default "inner"
        Whether outer gradients change the model state too; outer must then return a pair as well.
    project_x, project_y : callable, str, tuple or None, default None
        Where x and y may lie, applied after every step that moves them: a function of the variable, a constraint of
        `wior.constraints`, or its name, such as "simplex" or ("box", 0.0, 1.0).

    Notes
    -----
    A loss with a parameter `key` is given a key of `jax.random`: another one for each batch of each step, and the same
    one for all derivatives of a batch.

    Examples
    --------
    The strength exp(x) of a ridge regression, chosen by its error on other rows:

    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rng = np.random.default_rng(0)
    >>> training, validation = ((rng.normal(size=(n, 3)), rng.normal(size=n)) for n in (40, 20))
    >>> error = lambda y, rows: jnp.mean((rows[0] @ y - rows[1]) ** 2)
    >>> outer = lambda x, y, batch: error(y, batch)
    >>> inner = lambda x, y, batch: error(y, batch) + jnp.exp(x) * jnp.sum(y**2)
    >>> problem = wior.Bilevel(outer, inner, validation, training)
    >>> problem.sizes()
    {'outer': 20, 'inner': 40}
    """

    outer: Callable[[Tree, Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree, Tree], jax.Array]
    outer_data: Tree
    inner_data: Tree
    model_state: Tree = dataclasses.field(default=None, kw_only=True)  # type: ignore[misc]
    update_state_by: str = dataclasses.field(default="inner", kw_only=True)  # type: ignore[misc]

    name = "bilevel"
    _losses = ("outer", "inner")
    _arguments = {"outer": ("x", "y", "batch"), "inner": ("x", "y", "batch")}
    _data = ("outer_data", "inner_data")
    _read_by = {"outer": ("outer_data",), "inner": ("inner_data",)}

    def __post_init__(self) -> None:
        if self.update_state_by not in ("inner", "both"):
            raise ValueError(f'update_state_by must be "inner" or "both", got {self.update_state_by!r}')
        if self.model_state is not None:
            object.__setattr__(self, "model_state", checks.arrays("model_state", self.model_state))
        self._stream()
        self.sizes()
        self._prepare()

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
            "outer": (lambda x, y, b: self.outer(without_rows(x), y, b.data), (x, y, xi)),
            "inner": (lambda x, y, b: self.inner(at_rows(x, b.examples), y, b.data), (x, y, zeta)),
        }

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        check_rows_fit(x, y, self.sizes()["inner"])
        _check_outer_ignores_rows(self.outer, x, y, *shapes_of(self, batches, "outer_batch"))
        check_scalars(self.loss_calls(x, y, batches))


def _check_outer_ignores_rows(outer: Callable[..., Any], x: Tree, y: Tree, xi: Batch) -> None:
    if not has_rows(x):
        return
    try:
        jax.eval_shape(lambda x, y, b: outer(without_rows(x), y, b.data), x, y, xi)
    except (TypeError, AttributeError, ValueError) as error:
        dense = jax.tree.map(
            lambda leaf: PerExample(leaf.rows[:2]) if is_per_example(leaf) else leaf, x, is_leaf=is_per_example
        )
        try:
            jax.eval_shape(lambda x, y, b: outer(at_rows(x, b.examples), y, b.data), dense, y, xi)
        except Exception:  # noqa: BLE001 - it fails with rows as well, so the rows are not the reason
            raise error from None
        names = [
            checks.path_name("x0", path)
            for path, leaf in jax.tree_util.tree_leaves_with_path(x, is_leaf=is_per_example)
            if is_per_example(leaf)
        ]
        raise TypeError(
            f"outer uses the PerExample leaf {', '.join(names)}, which belongs to the inner examples: the outer loss "
            f"receives None there. Let only inner depend on it ({type(error).__name__}: {error})"
        ) from error
