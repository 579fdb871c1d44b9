"""Where a variable may lie: projections, and proximal steps, applied after every step that moves it.

The projections are those of `optax.projections`, which take a whole tree; here they have names and compare as values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from wior import checks

Tree = Any

# the arguments of each, as optax has them
KNOWN = {
    "non_negative": (),
    "box": ("lower", "upper"),
    "hypercube": ("scale",),
    "simplex": ("scale",),
    "l1_ball": ("scale",),
    "l2_ball": ("scale",),
    "linf_ball": ("scale",),
    "l1_sphere": ("scale",),
    "l2_sphere": ("scale",),
}
OTHER_NAMES = {"ball": "l2_ball"}


@dataclasses.dataclass(frozen=True)
class Projection:
    """The nearest point of a set: a function of a whole tree.

    Parameters
    ----------
    name : str
        "non_negative", "box", "hypercube", "simplex", "l1_ball", "l2_ball" (or "ball"), "linf_ball", "l1_sphere" or
        "l2_sphere": the projections of `optax.projections`.
    arguments : tuple of float
        What the set has for numbers: (lower, upper) of a box, at most one number, its size, of the others. The size is
        1 where none is given.

    Examples
    --------
    >>> import jax.numpy as jnp, wior
    >>> wior.constraints.box(0.0, 1.0)(jnp.array([-0.5, 0.25, 3.0])).tolist()
    [0.0, 0.25, 1.0]
    """

    name: str
    arguments: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", OTHER_NAMES.get(self.name, self.name))
        if self.name not in KNOWN:
            raise ValueError(f"there is no projection {self.name!r}; there are {', '.join([*KNOWN, *OTHER_NAMES])}")
        wanted = KNOWN[self.name]
        fewest = 2 if self.name == "box" else 0
        if not fewest <= len(self.arguments) <= len(wanted):
            raise ValueError(
                f"projection {self.name!r} takes {' and '.join(wanted) or 'no numbers'}, got {self.arguments!r}"
            )
        if self.name == "box":
            if any(jnp.ndim(one) != 0 or isinstance(one, str) for one in self.arguments):
                raise TypeError(
                    f"projection 'box' takes two numbers, got {self.arguments!r}; for a bound of each entry give a "
                    "function, such as lambda v: jnp.clip(v, lower, upper)"
                )
            low, high = (float(one) for one in self.arguments)
            if not low <= high:
                raise ValueError(f"projection 'box' needs lower ≤ upper, got {low!r} and {high!r}")
        elif self.arguments:
            checks.positive_number(f"the scale of projection {self.name!r}", self.arguments[0])

    def __call__(self, point: Tree) -> Tree:
        if self.name in ("box", "hypercube"):  # optax wants bounds for every entry
            lower, upper = self.arguments if self.name == "box" else (0.0, *(self.arguments or (1.0,)))
            return jax.tree.map(lambda leaf: jnp.clip(leaf, lower, upper).astype(leaf.dtype), point)
        import optax  # it takes long, and few problems need it

        nearest = getattr(optax.projections, f"projection_{self.name}")(point, *self.arguments)
        return jax.tree.map(lambda like, leaf: leaf.astype(like.dtype), point, nearest)


@dataclasses.dataclass(frozen=True)
class Proximal:
    """A proximal step: after each step of size η the variable v becomes argmin over w of ½‖w − v‖² + η · penalty(w).

    Parameters
    ----------
    function : callable
        `function(v, step_size)`, a tree like v.

    Examples
    --------
    >>> import jax.numpy as jnp, wior
    >>> shrink = wior.constraints.Proximal(lambda v, step_size: v / (1 + 0.5 * step_size))
    >>> float(shrink.function(jnp.array(3.0), 1.0))
    2.0
    """

    function: Callable[[Tree, Any], Tree]

    def __post_init__(self) -> None:
        checks.function("Proximal.function", self.function)
        checks.arity("Proximal.function", self.function, ("variable", "step_size"))


@dataclasses.dataclass(frozen=True)
class SoftThreshold:
    """The proximal step of weight · ‖v‖₁, with a value for equality."""

    weight: float

    def __call__(self, point: Tree, step_size: Any) -> Tree:
        bound = self.weight * step_size
        shrink = lambda leaf: (jnp.sign(leaf) * jnp.maximum(jnp.abs(leaf) - bound, 0)).astype(leaf.dtype)
        return jax.tree.map(shrink, point)


def box(lower: float, upper: float) -> Projection:
    """Every entry in [lower, upper].

    Parameters
    ----------
    lower, upper : float
        The bounds; infinite ones are none.

    Returns
    -------
    Projection
    """
    return Projection("box", (lower, upper))


def non_negative() -> Projection:
    """No entry below zero.

    Returns
    -------
    Projection
    """
    return Projection("non_negative")


def simplex(scale: float = 1.0) -> Projection:
    """No entry below zero, and all entries of the tree together sum to `scale`.

    Parameters
    ----------
    scale : float, default 1.0
        The sum.

    Returns
    -------
    Projection
    """
    return Projection("simplex", (scale,))


def ball(radius: float = 1.0) -> Projection:
    """The Euclidean norm of the whole tree at most `radius`.

    Parameters
    ----------
    radius : float, default 1.0
        The largest norm.

    Returns
    -------
    Projection
    """
    return Projection("l2_ball", (radius,))


def l1(weight: float) -> Proximal:
    """The penalty weight · ‖v‖₁ by its proximal step, which makes small entries exactly zero.

    Parameters
    ----------
    weight : float
        The weight of the penalty.

    Returns
    -------
    Proximal

    Examples
    --------
    >>> import jax.numpy as jnp, wior
    >>> wior.constraints.l1(2.0).function(jnp.array([-1.0, 0.1]), 0.25).tolist()
    [-0.5, 0.0]
    """
    checks.positive_number("weight", weight)
    return Proximal(SoftThreshold(weight))


def named(argument: str, value: Any) -> Projection | Proximal | Callable[[Tree], Tree] | None:
    """A constraint as the user gives it: a function, one of this module, its name, or (name, number, …)."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, tuple):
        if not value or not isinstance(value[0], str):
            raise TypeError(
                f"{argument}, a tuple, must be a name and numbers, such as ('box', 0.0, 1.0); got {value!r}"
            )
        try:
            return Projection(value[0], value[1:])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{argument}: {error}") from None
    if value is None or isinstance(value, Proximal):
        return value
    if not callable(value) or isinstance(value, type):
        raise TypeError(
            f"{argument} must be a function of the variable that returns one like it, a constraint of wior.constraints "
            f"or a name, alone or in a tuple with its numbers, of {', '.join([*KNOWN, *OTHER_NAMES])}; got {value!r}"
        )
    checks.arity(argument, value, ("variable",))
    return value


def projected(constraint: Any, variable: Tree) -> Tree:
    """The variable where it may lie; of a proximal step, after one of size 1."""
    return constraint.function(variable, 1.0) if isinstance(constraint, Proximal) else constraint(variable)


def check(argument: str, constraint: Any, like_name: str, variable: Tree) -> None:
    """Raises where a constraint does not return a tree like the variable."""
    if constraint is None:
        return
    step_size = (jnp.float32(0.1),) if isinstance(constraint, Proximal) else ()
    try:
        found = jax.eval_shape(constraint.function if step_size else constraint, variable, *step_size)
    except checks.NOT_TRACEABLE as error:
        raise TypeError(
            f"{argument} asks for the values of its variable ({type(error).__name__}), by a Python `if` or a function "
            "of numpy, say; it is compiled: use jax.numpy, such as jnp.clip and jnp.where"
        ) from error
    checks.same_structure(f"{argument}({like_name})", found, like_name, variable)
