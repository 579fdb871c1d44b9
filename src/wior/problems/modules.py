"""Modules as x or y: trees whose leaves are not all arrays, as those of equinox, which hold functions and texts too.

The arrays of floating-point numbers are the variable, and move. All other leaves are constant; they are put back into
their places before a loss or a metric sees the variable.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.problems import CLASSES
from wior.problems.losses import LOSSES, Wrapped, evaluate
from wior.problems.per_example import is_per_example
from wior.problems.restated import restated

Tree = Any


class _Same:
    """A leaf that is no array, as a part of a compiled program: equal to itself and to what it equals."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        return self.value is other.value or (type(self.value) is type(other.value) and self.value == other.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return hash(type(self.value))


@jax.tree_util.register_pytree_node_class
class Constants:
    """The leaves of a variable that do not move, in their places, and None in all others."""

    def __init__(self, leaves: list[Any], structure: Any, places: tuple[int, ...]):
        self.leaves, self.structure, self.places = leaves, structure, places  # where the arrays are

    def tree_flatten(self) -> tuple[list[Any], Any]:
        """The arrays as children; all else is a part of the program."""
        fixed = [None if leaf is None else _Same(leaf) for leaf in self.leaves]
        for place in self.places:
            fixed[place] = None
        return [self.leaves[i] for i in self.places], (tuple(fixed), self.places, self.structure)

    @classmethod
    def tree_unflatten(cls, about: Any, arrays: Any) -> Constants:
        """The same leaves with other arrays."""
        fixed, places, structure = about
        leaves = [None if one is None else one.value for one in fixed]
        for place, array in zip(places, arrays, strict=True):
            leaves[place] = array
        return cls(leaves, structure, places)

    def back_in(self, variable: Tree) -> Tree:
        """The whole variable."""
        moving = jax.tree.leaves(variable, is_leaf=_is_place)
        pairs = zip(moving, self.leaves, strict=True)
        return jax.tree.unflatten(self.structure, [kept if kept is not None else leaf for leaf, kept in pairs])


def parted(name: str, variable: Tree) -> tuple[Tree, Constants | None]:
    """The arrays of x0 or y0, checked, and what else it holds; None where it holds nothing else."""
    if not any(_is_no_number(leaf) for leaf in jax.tree.leaves(variable)):
        return checks.floating(name, variable), None
    leaves, structure = jax.tree.flatten(variable, is_leaf=_is_place)
    moves = [is_per_example(leaf) or _is_floating(leaf) for leaf in leaves]
    if not any(moves):
        return checks.floating(name, variable), None  # which says what is wrong with it
    moving = jax.tree.unflatten(structure, [leaf if own else None for leaf, own in zip(leaves, moves, strict=True)])
    rest = [None if own else _as_constant(leaf) for leaf, own in zip(leaves, moves, strict=True)]
    places = tuple(i for i, leaf in enumerate(rest) if _is_array(leaf))
    return checks.floating(name, moving), Constants(rest, structure, places)


@dataclasses.dataclass(frozen=True)
class _Restoring(Wrapped):
    """A loss that sees x and y whole."""

    loss: Any
    arguments: tuple[str, ...]
    x: Constants | None
    y: Constants | None

    _trees = ("x", "y")

    def with_state(self, state: Tree, *args: Any) -> tuple[Any, Tree]:
        rests = {"x": self.x, "y": self.y}
        whole = (
            arg if rests.get(name) is None else rests[name].back_in(arg)  # type: ignore[union-attr]
            for name, arg in zip(self.arguments, args, strict=True)
        )
        return evaluate(self.loss, state, *whole)


def with_whole_variables(problem: Any, x: Constants | None, y: Constants | None) -> Any:
    """The problem, whose losses see whole variables where these are parted."""
    if x is None and y is None:
        return problem
    problem = restated(problem, *CLASSES)
    losses = {}
    for name in problem._losses:
        if getattr(problem, name) is None:
            continue
        arguments = problem._arguments[name]
        if name in LOSSES and sees_representation(problem, name):
            arguments = ("representation", *arguments[1:])
        losses[name] = _Restoring(getattr(problem, name), arguments, x, y)
    return problem.with_losses(losses)


def sees_representation(problem: Any, name: str) -> bool:
    """Whether a loss of a conditional problem sees a representation of its rows in place of x."""
    return getattr(problem, {"inner": "represent", "outer": "represent_outer"}.get(name, ""), None) is not None


def whole(variable: Tree, constants: Constants | None) -> Tree:
    return variable if constants is None else constants.back_in(variable)


def _is_place(leaf: Any) -> bool:
    return leaf is None or is_per_example(leaf)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape")


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray)) and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _is_no_number(leaf: Any) -> bool:
    """Whether a leaf is what modules hold beside arrays: functions, texts, and switches."""
    return isinstance(leaf, (str, bytes, bool)) or (callable(leaf) and not _is_array(leaf))


def _as_constant(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf
