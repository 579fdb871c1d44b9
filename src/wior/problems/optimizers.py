"""Optimizers of optax as step sizes: what counts as one, and which of them can move a variable.

Each is tried on shapes alone before a run. What it does with rows of `PerExample` leaves is the critical part: its
state of such a leaf is read and written at the rows of a batch, so it must have a row for each example.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from wior import checks
from wior.problems.per_example import at_rows, has_rows, is_per_example

Tree = Any


class Optimizer(Protocol):
    """A `GradientTransformation` of optax."""

    init: Any
    update: Any


def is_optimizer(value: Any) -> bool:
    # by its form: whoever has one has imported optax, which takes long, and nobody else needs it
    return (
        isinstance(value, tuple) and callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))
    )


def unwrapped(value: Any) -> Any:
    """`optax.MultiSteps`, an object around an optimizer, as the optimizer that it stands for."""
    make = getattr(value, "gradient_transformation", None)
    return make() if callable(make) and not isinstance(value, type) else value


def demand_usable(name: str, optimizer: Any, variable: Tree) -> None:
    """Raises where an optimizer cannot move a variable by gradient, state and variable alone."""
    try:
        state = jax.eval_shape(optimizer.init, variable)
        if has_rows(variable):
            _demand_state_of_rows(name, state, variable)
        here, before = jax.eval_shape(_at_two, variable), jax.eval_shape(_at_two, state)
        updates, after = jax.eval_shape(optimizer.update, here, before, here)
    except _StateOfRows as error:
        raise TypeError(str(error)) from None
    except Exception as error:
        cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise TypeError(
            f"{name} is an optimizer of optax that cannot be used: it is given gradient, state and variable alone, and "
            f"raises {cause}. Line searches and others that want the loss, and `lookahead`, which wants two variables, "
            "have no place here"
        ) from error
    checks.same_structure(f"the step of {name}, an optimizer of optax,", updates, "its variable", here)
    if _shapes(after) != _shapes(before):
        raise TypeError(
            f"{name} is an optimizer of optax whose state changes its structure or shapes in a step: {_shapes(before)} "
            f"becomes {_shapes(after)}; a compiled loop cannot carry it"
        )


class _StateOfRows(TypeError):
    pass


def _demand_state_of_rows(name: str, state: Tree, variable: Tree) -> None:
    rows = {jnp.shape(leaf.rows) for leaf in jax.tree.leaves(variable, is_leaf=is_per_example) if is_per_example(leaf)}
    for leaf in jax.tree.leaves(state, is_leaf=is_per_example):
        if not is_per_example(leaf):
            continue
        found = [jnp.shape(part) for part in jax.tree.leaves(leaf.rows)]
        if found and (len(found) != 1 or found[0] not in rows):
            raise _StateOfRows(
                f"{name} is an optimizer of optax that cannot move `PerExample` rows: of rows shaped "
                f"{' or '.join(map(str, sorted(rows)))} it keeps {' and '.join(map(str, found))}, which is no row for "
                "each example; give an elementwise one, such as sgd or adam, or optax.partition with one for these rows"
            )


def _at_two(tree: Tree) -> Tree:
    """A tree as a step of two rows sees it."""
    return at_rows(tree, jnp.zeros(2, jnp.int32))


def _shapes(tree: Tree) -> Any:
    return jax.tree.structure(tree), [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
