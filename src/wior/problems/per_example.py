"""`PerExample`: a leaf of x with one row for each inner example, or of a conditional problem for each outer one.

Hyper-data cleaning has one weight for each training example. A dense derivative of that vector would make every step as
long as the data set. A `PerExample` leaf is never differentiated as a whole: the inner loss receives the rows of its
batch, the derivative is taken at those rows, and the update is a scatter into the carried array. The outer loss sees
`None` there. In a minimax problem y may have such leaves too.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


@jax.tree_util.register_pytree_with_keys_class
class PerExample:
    """A leaf of x with one row for each inner example, for example a weight for each training example.

    The inner loss receives the rows of its batch in place of the leaf, the outer loss receives None. A step moves only
    the rows of its batch, so it does not get slower with the number of examples. In a `Minimax` problem x and y may
    have such leaves, with one row for each example. In a conditional problem x may, with one row for each outer
    example, which both of its losses receive.

    Parameters
    ----------
    rows : array
        Its first axis runs over the examples.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, wior
    >>> wior.PerExample(jnp.zeros(3))
    PerExample(Array([0., 0., 0.], dtype=...))
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)  # x is None here
    >>> inner = lambda x, y, batch: jnp.mean(jax.nn.sigmoid(x) * (y - batch) ** 2)  # x is that of the rows
    >>> problem = wior.Bilevel(outer, inner, np.arange(4.0), np.arange(8.0))
    >>> x0 = wior.PerExample(jnp.zeros(8))
    >>> result = wior.solve(problem, wior.WiORBO(0.5, 0.2, 0.2), x0, jnp.zeros(()), batch_size=4, steps=100)
    >>> bool(result.x.rows[0] > result.x.rows[7])  # the outer data are small numbers, so the small rows weigh more
    True
    """

    def __init__(self, rows: Any):
        self.rows = rows

    def __repr__(self) -> str:
        return f"PerExample({self.rows!r})"

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any]], None]:
        """The rows as the one child of a jax tree."""
        return ((jax.tree_util.GetAttrKey("rows"), self.rows),), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> PerExample:
        """The leaf with other rows."""
        return cls(children[0])


def is_per_example(leaf: Any) -> bool:
    return isinstance(leaf, PerExample)


def has_rows(x: Tree) -> bool:
    return any(is_per_example(leaf) for leaf in jax.tree.leaves(x, is_leaf=is_per_example))


def at_rows(x: Tree, index: jax.Array) -> Tree:
    """x as the inner loss sees it: each `PerExample` leaf replaced by its rows at `index`."""
    # the state of an optimizer may hold a placeholder of optax in place of an array
    rows_at = lambda leaf: jax.tree.map(lambda rows: take(rows, index), leaf.rows)
    return _map(rows_at, lambda leaf: leaf, x)


def at_slice(x: Tree, start: Any, size: int) -> Tree:
    """x as the inner loss sees it on the `size` examples that begin with `start`."""
    return _map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf.rows, start, size), lambda leaf: leaf, x)


def own_rows(x: Tree, index: jax.Array) -> Tree:
    """The rows of the `PerExample` leaves for each outer example at `index`, (B, 1, ...); `None` for other leaves."""
    return _map(lambda leaf: take(leaf.rows, index)[:, None], lambda leaf: None, x)


def with_own(x: Tree, own: Tree) -> Tree:
    """x as the losses of one outer example see it: `own` has its row, (1, ...), for each `PerExample` leaf."""
    return jax.tree.map(lambda leaf, row: row if is_per_example(leaf) else leaf, x, own, is_leaf=is_per_example)


def mean_direction(x: Tree, each: Tree) -> Tree:
    """The direction of the mean over B outer examples; `each` has theirs, (B, ...), and those of own rows (B, 1, ...).

    Of a `PerExample` leaf it has the rows of the B examples.
    """

    def one(leaf: Any, d: jax.Array) -> jax.Array:
        return d[:, 0] / len(d) if is_per_example(leaf) else jnp.mean(d, 0)

    return jax.tree.map(one, x, each, is_leaf=is_per_example)


def without_rows(x: Tree) -> Tree:
    """x as the outer loss sees it: each `PerExample` leaf replaced by `None`."""
    return _map(lambda leaf: None, lambda leaf: leaf, x)


def all_rows(x: Tree) -> Tree:
    """x with each `PerExample` leaf replaced by all of its rows: for instruments that read the full data."""
    return _map(lambda leaf: leaf.rows, lambda leaf: leaf, x)


def descend(x: Tree, lr: Any, direction: Tree, index: jax.Array | None = None, after: Tree = None) -> Tree:
    """x − lr · direction; where x has a `PerExample` leaf, `direction` holds the rows at `index`.

    `after` names what else was computed from rows of x. Rows are written when it is there: the compiler is free to read
    later, and would then copy all rows in every step so that it may. A step size that is more than a number (`moving`)
    does all this its own way.
    """
    if hasattr(lr, "descend"):
        return lr.descend(x, direction, index, after)
    broken = any_nan(after) if after is not None and has_rows(x) else None

    def update(leaf: Any, d: Any) -> Any:
        if is_per_example(leaf):
            change = (-lr * d).astype(leaf.rows.dtype)
            if broken is not None:
                change = jnp.where(broken, jnp.zeros_like(change), change)
            return PerExample(leaf.rows.at[index].add(change, mode="promise_in_bounds"))
        return (leaf - lr * d).astype(leaf.dtype)

    return jax.tree.map(update, x, direction, is_leaf=is_per_example)


def with_rows_of(x: Tree, shared: Tree) -> Tree:
    """`shared`, a tree like x with None for its `PerExample` leaves, with those leaves from x."""
    return jax.tree.map(lambda leaf, other: leaf if is_per_example(leaf) else other, x, shared, is_leaf=is_per_example)


def squared_norm(x: Tree, direction: Tree, index: jax.Array) -> jax.Array:
    """‖direction‖² of the dense vector that the direction stands for.

    An example that is in the batch twice has one row there, with both contributions.
    """
    again = (index[:, None] == index[None, :]).astype(jnp.result_type(float))

    def one(leaf: Any, d: jax.Array) -> jax.Array:
        if not is_per_example(leaf):
            return jnp.sum(d * d)
        rows = d.reshape(len(index), -1)
        return jnp.sum(rows * (again.astype(d.dtype) @ rows))

    parts = jax.tree.leaves(jax.tree.map(one, x, direction, is_leaf=is_per_example))
    return jnp.asarray(sum(parts))


def shared_part(x: Tree, direction: Tree) -> Tree:
    """The part of a direction of x that all examples share.

    A row belongs to one example, is met once in a pass, and never cancels against another.
    """
    return jax.tree.map(lambda leaf, d: None if is_per_example(leaf) else d, x, direction, is_leaf=is_per_example)


def take(rows: jax.Array, index: jax.Array) -> jax.Array:
    """The rows at `index`, which an order promises to be in range."""
    return rows.at[index].get(mode="promise_in_bounds")


def any_nan(values: Tree) -> jax.Array:
    """Whether a value is NaN: used by `descend` only because it depends on all of `values`."""
    found = [jnp.any(jnp.isnan(leaf)) for leaf in jax.tree.leaves(values)]
    return functools.reduce(jnp.logical_or, found, jnp.asarray(False))


def _map(on_rows: Any, on_dense: Any, x: Tree) -> Tree:
    return jax.tree.map(
        lambda leaf: on_rows(leaf) if is_per_example(leaf) else on_dense(leaf), x, is_leaf=is_per_example
    )
