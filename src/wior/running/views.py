"""What metrics and results see of a run: whole variables, and the model state where they ask for it."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, NamedTuple

import jax

from wior import checks
from wior.problems.losses import MODEL, holds_arrays
from wior.problems.modules import Constants, whole

Tree = Any
PARAMETER = "model_state"


class WithModel(NamedTuple):
    """y, and the model state beside it."""

    y: Tree
    model_state: Tree


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class OfWhole:
    """Metrics that are given whole variables, and the model state."""

    metrics: Any
    x: Constants | None
    y: Constants | None

    def __call__(self, x: Tree, y: Tree) -> dict[str, Any]:
        x = whole(x, self.x)
        if isinstance(y, WithModel):
            return self.metrics(x, whole(y.y, self.y), y.model_state)
        return self.metrics(x, whole(y, self.y))

    def tree_flatten(self) -> tuple[list[Any], Any]:
        """The arrays as children; a function is a part of the program."""
        tree = holds_arrays(self.metrics)
        return [self.metrics if tree else None, self.x, self.y], None if tree else self.metrics

    @classmethod
    def tree_unflatten(cls, function: Any, children: Any) -> OfWhole:
        """The same metrics with other arrays."""
        return cls(children[0] if function is None else function, *children[1:])


@dataclasses.dataclass(frozen=True)
class View:
    """The constant leaves of x and y, and whether metrics take the model state."""

    x: Constants | None = None
    y: Constants | None = None
    shows_model: bool = False

    def metrics(self, metrics: Any) -> Any:
        """Metrics as the engine calls them: with what `point` gives."""
        if metrics is None or (self.x is None and self.y is None and not self.shows_model):
            return metrics
        return OfWhole(metrics, self.x, self.y)

    def point(self, state: Any) -> tuple[Tree, Tree]:
        """What metrics are called with."""
        return state.x, WithModel(state.y, state.carried[MODEL]) if self.shows_model else state.y

    def start(self, x: Tree, y: Tree, model_state: Tree) -> tuple[Tree, Tree]:
        """The same before there is a state."""
        return x, WithModel(y, model_state) if self.shows_model else y


def view(x: Constants | None, y: Constants | None, metrics: Any, model_state: Tree) -> View:
    """How a run is seen, after checking that its metrics can be called with what there is."""
    if metrics is None:
        return View(x, y)
    checks.function("metrics", metrics)
    try:
        taken = inspect.signature(metrics).parameters
    except (TypeError, ValueError):  # some functions do not say
        return View(x, y)
    asks = PARAMETER in taken
    if asks and model_state is None and taken[PARAMETER].default is inspect.Parameter.empty:
        raise TypeError("metrics has a parameter `model_state`, and the problem has no model_state")
    shows = asks and model_state is not None
    checks.arity("metrics", metrics, ("x", "y", *([PARAMETER] if shows else [])))
    return View(x, y, shows)


def model_state_of(state: Any) -> Tree:
    """The model state that a run carries beside the state of its method, or None."""
    return getattr(state, "carried", {}).get(MODEL)
