"""A step size that is more than a number: an optimizer of optax, and the constraint on the variable that it moves.

`descend` hands over to it. The state of an optimizer is carried beside that of the method (`carried`). A variable with
`PerExample` rows is moved as the loss sees it: its shared leaves and the rows of the batch. So the state of an
elementwise optimizer is kept for each row at the cost of a batch, and what needs a whole tree, such as a global norm or
a simplex, takes what the step touches.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from wior import tree
from wior.problems import carried
from wior.problems.constraints import Proximal
from wior.problems.optimizers import is_optimizer
from wior.problems.per_example import PerExample, any_nan, at_rows, is_per_example

Tree = Any


def state_name(variable: str) -> str:
    """Under which name the state of the optimizer of a variable is carried."""
    return f"optimizer of {variable}"


@dataclasses.dataclass(frozen=True, eq=False)
class Mover:
    """How a step size moves a variable: `descend` calls it."""

    rate: Any  # a number, a schedule, or an optimizer
    constraints: dict[str, Any]  # by the name of each variable that this step size moves; the first one if none is said
    variable: str
    scale: Any = None  # by which a method multiplies its step size
    moves: Any = True  # whether the step is taken

    def at(self, step: jax.Array) -> Mover:
        """The same at a step, where the rate is a schedule."""
        if is_optimizer(self.rate) or not callable(self.rate):
            return self
        return dataclasses.replace(self, rate=self.rate(step.astype(jnp.int32)))

    def of(self, variable: str) -> Mover:
        return dataclasses.replace(self, variable=variable)

    def only_when(self, condition: jax.Array) -> Mover:
        return dataclasses.replace(self, moves=condition)

    def __mul__(self, factor: Any) -> Mover:
        return dataclasses.replace(self, scale=factor if self.scale is None else self.scale * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Mover:
        return self * (1.0 / divisor)

    def descend(self, variable: Tree, direction: Tree, index: jax.Array | None, after: Tree) -> Tree:
        """The variable after a step along −direction, whose rows are those at `index`."""
        here = _seen(variable, index)
        slope = _whole_rows(variable, direction, index)
        moved = self._constrained(self._stepped(here, slope, variable, index))
        moved = jax.tree.map(lambda like, leaf: leaf.astype(like.dtype), here, moved)
        if self.moves is not True:
            moved = tree.where(self.moves, moved, here)
        return _written(variable, moved, index, after)

    def _stepped(self, here: Tree, slope: Tree, variable: Tree, index: jax.Array | None) -> Tree:
        if not is_optimizer(self.rate):
            length = self._length()
            return jax.tree.map(lambda value, d: value - length * d, here, slope)
        name = state_name(self.variable)
        state = carried.value(name)
        slope = jax.tree.map(lambda value, d: jnp.asarray(d, value.dtype), here, slope)
        updates, new = self.rate.update(slope, _seen(state, index), here)
        if self.scale is not None:
            updates = tree.scaled(self.scale, updates)
        new = _written(state, new, index, None)
        carried.put(name, new if self.moves is True else tree.where(self.moves, new, state))
        return jax.tree.map(lambda value, update: jnp.asarray(value + update, value.dtype), here, updates)

    def _constrained(self, moved: Tree) -> Tree:
        constraint = self.constraints.get(self.variable)
        if constraint is None:
            return moved
        if isinstance(constraint, Proximal):
            return constraint.function(moved, self._length())
        return constraint(moved)

    def _length(self) -> Any:
        """The step size, where it is a number."""
        return self.rate if self.scale is None else self.rate * self.scale


@dataclasses.dataclass(frozen=True)
class Constraints:
    """The constraints on the variables of a problem."""

    x: Any = None
    y: Any = None

    def on(self, variable: str) -> Any:
        """z is a second y."""
        return {"x": self.x, "y": self.y, "z": self.y}.get(variable)


def of_variable(rate: Any, variable: str) -> Any:
    """A step size as it moves one of several variables."""
    return rate.of(variable) if isinstance(rate, Mover) else rate


def only_when(condition: jax.Array, rate: Any) -> Any:
    """A step size that moves its variable, and changes the state of its optimizer, only where the condition holds."""
    return rate.only_when(condition) if isinstance(rate, Mover) else rate * condition


def _seen(variable: Tree, index: jax.Array | None) -> Tree:
    return variable if index is None else at_rows(variable, index)


def _whole_rows(variable: Tree, direction: Tree, index: jax.Array | None) -> Tree:
    """The direction, where an example that is in the batch twice has both contributions in each of its rows."""
    if index is None:
        return direction

    def one(leaf: Any, d: jax.Array) -> jax.Array:
        if not is_per_example(leaf):
            return d
        again = (index[:, None] == index[None, :]).astype(d.dtype)
        return (again @ d.reshape(len(index), -1)).reshape(d.shape)

    return jax.tree.map(one, variable, direction, is_leaf=is_per_example)


def _written(variable: Tree, moved: Tree, index: jax.Array | None, after: Tree) -> Tree:
    """The variable with what moved; rows are written when `after` is there, as in `descend`."""
    broken = None if after is None else any_nan(after)

    def one(leaf: Any, new: Any) -> Any:
        if not is_per_example(leaf):
            return new
        if not jax.tree.leaves(leaf.rows):  # a placeholder, where the optimizer is masked
            return leaf
        if broken is not None:
            new = jnp.where(broken, leaf.rows[index], new)
        return PerExample(leaf.rows.at[index].set(new, mode="promise_in_bounds"))

    return jax.tree.map(one, variable, moved, is_leaf=is_per_example)
