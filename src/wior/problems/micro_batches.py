"""Micro batches: each loss as the mean over pieces of its batch, so that a step has the memory of one piece.

The pieces are evaluated one after the other and computed again on the way back. So every derivative is a sum over
pieces, and a method need not know. Piece k of c has rows k, k + c, k + 2c … of the batch, so that each device of a mesh
has its share of every piece.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from wior import tree
from wior.problems import CLASSES
from wior.problems.keys import Rows, fold_each, rows_alone
from wior.problems.losses import LOSSES, Wrapped, evaluate
from wior.problems.per_example import is_per_example
from wior.problems.restated import restated

Tree = Any
Marks = tuple[tuple[bool, ...], ...]


@dataclasses.dataclass(frozen=True)
class InPieces(Wrapped):
    """A loss, evaluated on `size` rows at a time.

    `rows` says of each variable which of its leaves, as the loss sees them, are rows of the batch.
    """

    loss: Any
    size: int
    rows: Marks

    def with_state(self, state: Tree, *args: Any) -> tuple[Any, Tree]:
        *variables, data = args
        n = jax.tree.leaves(rows_alone(data))[0].shape[0]
        if n <= self.size:
            return evaluate(self.loss, state, *args)
        count, rest = divmod(n, self.size)
        parts = [self._split(variable, marks) for variable, marks in zip(variables, self.rows, strict=True)]
        own = [jax.tree.leaves(rows_alone(data)), *(rows for rows, _ in parts)]
        stacked = jax.tree.map(lambda leaf: _in_pieces(leaf[: count * self.size], count), own)
        keys = fold_each(data.key, count + 1) if isinstance(data, Rows) else None

        def value(own: Any, key: Any, state: Tree) -> tuple[Any, Tree]:
            rows, *others = own
            batch = jax.tree.unflatten(jax.tree.structure(rows_alone(data)), rows)
            points = (join(mine) for (_, join), mine in zip(parts, others, strict=True))
            return evaluate(self.loss, state, *points, batch if key is None else Rows(batch, key))

        def turn(carry: tuple[Any, Tree], piece: Any) -> tuple[tuple[Any, Tree], None]:
            found, state = jax.checkpoint(value, prevent_cse=False)(*piece, carry[1])
            return (tree.add(carry[0], found), state), None

        first = jax.tree.map(lambda leaf: leaf[0], (stacked, keys))
        shapes = jax.eval_shape(value, *first, state)[0]
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        pieces = (stacked, None if keys is None else keys[:count])
        (total, state), _ = lax.scan(turn, (zero, state), pieces)
        if rest == 0:
            return jax.tree.map(lambda leaf: leaf / count, total), state
        remaining = jax.tree.map(lambda leaf: leaf[count * self.size :], own)
        last, state = jax.checkpoint(value)(remaining, None if keys is None else keys[count], state)
        return jax.tree.map(lambda sum, one: (self.size * sum + rest * one) / n, total, last), state

    def _split(self, variable: Tree, marks: tuple[bool, ...]) -> tuple[list[Any], Any]:
        """The leaves of a variable that are rows of the batch, and what makes a variable of such leaves again."""
        leaves, structure = jax.tree.flatten(variable)
        marks = marks or (False,) * len(leaves)

        def join(rows: list[Any]) -> Tree:
            given = iter(rows)
            return jax.tree.unflatten(
                structure, [next(given) if mark else leaf for leaf, mark in zip(leaves, marks, strict=True)]
            )

        return [leaf for leaf, mark in zip(leaves, marks, strict=True) if mark], join


def with_micro_batches(problem: Any, sizes: tuple[int, int] | None, x: Tree, y: Tree) -> Any:
    """The problem, whose losses are evaluated on some rows at a time; `sizes` are (outer, inner)."""
    if sizes is None:
        return problem
    problem = restated(problem, *CLASSES)
    losses = {}
    for name in (each for each in problem._losses if each in LOSSES):
        variables = {"x": x, "y": y}
        marks = tuple(
            () if name == "outer" and argument == "x" else _marks(variables[argument])
            for argument in problem._arguments[name][:-1]
        )
        losses[name] = InPieces(getattr(problem, name), sizes[name == "inner"], marks)
    return problem.with_losses(losses)


def check_micro_batches(problem: Any, sizes: tuple[int, int], batches: tuple[int, int]) -> None:
    if problem.conditional:
        raise ValueError(
            f"micro_batch={sizes!r} is for problems with one inner data set; a {type(problem).__name__} problem "
            "computes one outer example at a time already for each row of its batch: give a smaller batch_size"
        )
    for level, size, batch in zip(("outer", "inner"), sizes, batches, strict=True):
        if batch % size:
            divisors = [number for number in range(1, batch + 1) if batch % number == 0]
            near = sorted(sorted(divisors, key=lambda number: abs(number - size))[:3])
            raise ValueError(
                f"micro_batch ({level}) must divide the batch of {batch} rows, got {size}; for example "
                f"{', '.join(map(str, near))}"
            )


def _marks(variable: Tree) -> tuple[bool, ...]:
    """Which leaves of a variable, as a loss sees them, are rows of the batch."""
    return tuple(is_per_example(leaf) for leaf in jax.tree.leaves(variable, is_leaf=is_per_example))


def _in_pieces(leaf: jax.Array, count: int) -> jax.Array:
    return jnp.swapaxes(leaf.reshape(-1, count, *leaf.shape[1:]), 0, 1)
