"""Constraints of the upper level as a penalty on the outer loss: f(x, y) + weight · Σ max(0, c(x, y))²."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from wior import checks

Tree = Any


@jax.tree_util.register_pytree_node_class
class Penalized:
    """A loss with a penalty on what its constraints are above zero: `penalized` makes it.

    The weight is a leaf, so that another weight is the same compiled program.
    """

    def __init__(self, outer: Callable[..., Any], constraints: Callable[..., Tree], weight: Any):
        self.outer, self.constraints, self.weight = outer, constraints, weight

    def __repr__(self) -> str:
        names = (getattr(one, "__name__", repr(one)) for one in (self.outer, self.constraints))
        return f"penalized({', '.join(names)}, {self.weight})"

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.outer)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        """The loss of `arguments`, the variables and then the batch, with the penalty at the variables."""
        found = self.outer(*arguments, **more)
        loss, rest = (found[0], found[1:]) if isinstance(found, tuple) else (found, None)
        variables = arguments[:-1] or arguments  # outer(y) of a problem without outer data has no batch
        values = _demand_numbers(self.constraints(*variables))
        above = sum(jnp.sum(jnp.maximum(value, 0) ** 2) for value in values)
        total = loss + jnp.asarray(self.weight * above, jnp.result_type(loss))
        return total if rest is None else (total, *rest)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The weight, and the losses that are trees, as children."""
        own = (self.outer, self.constraints)
        trees = [not jax.tree_util.all_leaves([one]) for one in own]
        children = tuple(one if is_tree else None for one, is_tree in zip(own, trees, strict=True))
        fixed = tuple(None if is_tree else one for one, is_tree in zip(own, trees, strict=True))
        return (*children, self.weight), fixed

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Any, ...], children: tuple[Any, ...]) -> Penalized:
        """The loss with other leaves."""
        outer, constraints = (tree if one is None else one for one, tree in zip(fixed, children[:2], strict=True))
        return cls(outer, constraints, children[2])


def _demand_numbers(found: Tree) -> list[Any]:
    """The values of constraints; what would be no penalty at all is refused."""
    values = jax.tree.leaves(found)
    wrong = [value for value in values if not jnp.issubdtype(jnp.result_type(value), jnp.floating)]
    if found is None or wrong:
        shown = "None" if found is None else f"values of type {jnp.result_type(wrong[0])}"
        raise TypeError(
            f"constraints must return numbers that should not be above zero, such as y - 1 for y <= 1; it "
            f"returned {shown}"
        )
    return values


def penalized(outer: Callable[..., Any], constraints: Callable[..., Tree], weight: float) -> Penalized:
    """The outer loss plus weight · Σ max(0, c(x, y))², for constraints c(x, y) ≤ 0 of the upper level.

    Parameters
    ----------
    outer : callable
        The outer loss, as a problem takes it: `outer(x, y, batch)`, or `outer(y, batch)` of a compositional problem.
    constraints : callable
        c: `constraints(x, y)`, or `constraints(y)` of a compositional problem, returns numbers that should not be above
        zero, an array or a tree of them. It gets what the outer loss gets, without the batch: None where x has a
        `PerExample` leaf, and y of one outer example in a conditional problem.
    weight : float
        How much the squares of what is above zero weigh.

    Returns
    -------
    Penalized
        An outer loss. Another weight runs the same compiled program.

    Notes
    -----
    The solution breaks a constraint by about its multiplier over twice the weight: a weight that is ten times as large
    leaves a tenth of it, and asks for a smaller `outer_lr`, since the penalty is as much steeper. So begin with a small
    weight and go on from each solution with a larger one:

        for weight in (1, 10, 100):
            problem = wior.Bilevel(wior.penalized(outer, constraints, weight), inner, outer_data, inner_data)
            result = wior.solve(problem, method(outer_lr=0.1 / weight), x, y, steps=1000)
            x, y = result.x, result.y

    Examples
    --------
    The norm of the inner solution y = x + 3.5 is to be at most 1, where y = 4.5 would be the best:

    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> at_most_one = lambda x, y: y**2 - 1
    >>> loss = wior.penalized(outer, at_most_one, weight=100)
    >>> problem = wior.Bilevel(loss, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> method = wior.WiORBO(outer_lr=0.0005, inner_lr=0.4, adjoint_lr=0.4)
    >>> result = wior.solve(problem, method, jnp.asarray(-2.5), jnp.ones(()), batch_size=8, steps=400)
    >>> round(float(result.y), 2)
    1.01
    """
    checks.function("outer", outer)
    checks.function("constraints", constraints)
    checks.positive_number("weight", weight)
    return Penalized(outer, constraints, jnp.asarray(weight, float))
