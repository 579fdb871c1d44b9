"""Losses that take more than variables and a batch: a key of `jax.random`, a model state, or both.

A loss asks by the names of its parameters, `key` and `state`. A problem keeps such a loss as an `Asking`, which is
called like every other one and hands over what was asked for. So whatever differentiates losses need not know.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from wior import checks
from wior.problems import carried
from wior.problems.keys import Rows

Tree = Any

KEY, STATE = "key", "state"  # the parameters that a loss asks by
MODEL = "model"  # under which a run carries the model state
LOSSES = ("outer", "inner", "objective")  # the names that losses have in the classes of problems


class Wrapped:
    """A loss around another one, which is the field `loss`; a tree whose arrays are those of the loss and its `_trees`.

    A frozen dataclass that inherits from it gives `with_state`.
    """

    _trees: tuple[str, ...] = ()
    loss: Any

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    def _flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        names = [*(["loss"] if holds_arrays(self.loss) else []), *self._trees]
        fixed = [field.name for field in dataclasses.fields(self) if field.name not in names]  # type: ignore[arg-type]
        pairs = tuple((name, getattr(self, name)) for name in fixed)
        return tuple(getattr(self, name) for name in names), (tuple(names), pairs)

    @classmethod
    def _unflatten(cls, names_fixed: tuple[Any, ...], trees: tuple[Any, ...]) -> Any:
        new, (names, fixed) = object.__new__(cls), names_fixed
        for name, value in (*zip(names, trees, strict=True), *fixed):
            object.__setattr__(new, name, value)
        return new

    def __call__(self, *args: Any) -> Any:
        return self.with_state(present_state(self), *args)[0]

    def with_state(self, state: Tree, *args: Any) -> tuple[Any, Tree]:
        """The value of the loss with this model state, and the state after it."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Asking(Wrapped):
    """A loss of the user's own that is given what it asks for.

    Rows that come without a key are given a fixed one, `jax.random.key(0)`: so are losses evaluated outside of a run.
    """

    loss: Callable[..., Any]
    asks: tuple[str, ...]
    name: str
    updates: bool = False  # whether a gradient of this loss changes the model state
    start: Tree = None

    _trees = ("start",)

    def with_state(self, state: Tree, *args: Any) -> tuple[Any, Tree]:
        *variables, data = args
        rows, key = (data.rows, data.key) if isinstance(data, Rows) else (data, None)
        asked: dict[str, Any] = {}
        if KEY in self.asks:
            asked[KEY] = fixed_key() if key is None else key.ravel()[0]  # of a batch of one outer example, (1,)
        if STATE not in self.asks:
            return self.loss(*variables, rows, **asked), state
        own = jax.tree.map(lambda leaf: leaf, state)  # a state of equinox may be used only once
        found = self.loss(*variables, rows, **asked, state=own)
        return self._parted(found, state)

    def _parted(self, found: Any, state: Tree) -> tuple[Any, Tree]:
        """The loss, and the state after it where this loss changes it."""
        pair = isinstance(found, tuple) and len(found) == 2
        if not pair and not self.updates:
            return found, state
        if not pair:
            raise TypeError(
                f"{self.name} takes the model state and must return a pair, (loss, new_state); it returns "
                f"{type(found).__name__}"
            )
        value, new = found
        if not self.updates:
            return value, state
        shape = lambda leaf: f"{getattr(leaf, 'dtype', None) or jnp.result_type(leaf)}{list(jnp.shape(leaf))}"
        seen, expected = jax.tree.map(shape, new), jax.tree.map(shape, state)
        if jax.tree.flatten(seen) != jax.tree.flatten(expected):
            raise ValueError(
                f"{self.name} must return a new state with the structure, shapes and types of model_state: found "
                f"{seen}, expected {expected}"
            )
        return value, new


def given_what_they_ask(problem: Any, losses: dict[str, Any]) -> dict[str, Any]:
    """The losses of a problem, checked, as they are called with variables and a batch alone."""
    state, updates = problem.model_state, ("inner", *(["outer"] if problem.update_state_by == "both" else []))
    bare = {name: loss.loss if isinstance(loss, Asking) else loss for name, loss in losses.items()}
    asks = {name: asked_by(loss, problem._arguments[name]) for name, loss in bare.items()}
    for name, loss in bare.items():
        if STATE in asks[name] and state is None:
            if must_have(loss, STATE):
                raise TypeError(f"{name} has a parameter `state`, and {_no_state(problem)}")
            asks[name] = tuple(one for one in asks[name] if one != STATE)
        checks.arity(name, loss, problem._arguments[name], asks[name])
    takers = [name for name in bare if STATE in asks[name]]
    if state is not None and not takers:
        raise ValueError("model_state is given, but neither outer nor inner has a parameter `state`")
    if not any(asks.values()):
        return bare
    # all of them: where one takes a key, the batches of all have one
    return {
        name: Asking(loss, asks[name], name, name in updates, state if name in takers else None)
        for name, loss in bare.items()
    }


def _no_state(problem: Any) -> str:
    if any(field.name == "model_state" for field in dataclasses.fields(problem)):
        return "the problem has no model_state: give the state before the first step, model_state=..."
    return (
        f"a {type(problem).__name__} problem carries none: of the classes of problems only Bilevel has a model_state. "
        "Let the loss do without"
    )


def fixed_key() -> jax.Array:
    """The key of losses that are evaluated outside of a run."""
    return jax.random.key(0, impl="threefry2x32")


def evaluate(loss: Callable[..., Any], state: Tree, *args: Any) -> tuple[Any, Tree]:
    """The value of a loss and the model state after it, which only a `Wrapped` loss changes."""
    if hasattr(loss, "with_state"):
        found: tuple[Any, Tree] = loss.with_state(state, *args)
        return found
    return loss(*args), state


def innermost(loss: Any) -> Any:
    """What other losses are wrapped around: an `Asking`, or a loss of the user's own."""
    while isinstance(loss, Wrapped) and not isinstance(loss, Asking):
        loss = loss.loss
    return loss


def start_of(loss: Any) -> Tree:
    """The model state before the first step, which the innermost loss knows."""
    return getattr(innermost(loss), "start", None) if isinstance(loss, Wrapped) else None


def may_mix_rows(loss: Any) -> bool:
    """Whether the rows of a batch depend on each other by intent: they share a key, or make a model state."""
    own = innermost(loss)
    return isinstance(own, Asking) and (KEY in own.asks or (STATE in own.asks and own.updates))


def present_state(loss: Any) -> Tree:
    """The model state that a run carries; outside of a run the one before the first step."""
    return carried.value(MODEL) if carried.holds(MODEL) else start_of(loss)


def asked_by(loss: Any, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Which of `key` and `state` are parameters of a loss beside those that it is called with by position."""
    try:
        parameters = list(inspect.signature(loss).parameters.values())
    except (TypeError, ValueError):  # some functions do not say
        return ()
    bound = getattr(loss, "keywords", None)  # of a partial, the values that it holds
    first = {one.name for one in parameters[: len(arguments)] if one.kind != one.KEYWORD_ONLY}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = {one.name for one in parameters if one.kind in by_name} - first
    return tuple(name for name in (KEY, STATE) if name in taken and name not in (bound or {}))


def must_have(loss: Any, name: str) -> bool:
    """Whether a parameter has no default."""
    return bool(inspect.signature(loss).parameters[name].default is inspect.Parameter.empty)


def holds_arrays(loss: Any) -> bool:
    """Whether a loss is a tree, whose arrays are arguments of the compiled program."""
    return callable(loss) and not jax.tree_util.all_leaves([loss])


def takes_key(loss: Any) -> bool:
    """Whether a loss is given a key: itself, or through a loss that it is made of."""
    if isinstance(loss, Asking):
        return KEY in loss.asks
    if dataclasses.is_dataclass(loss) and not isinstance(loss, type):
        return any(takes_key(getattr(loss, field.name)) for field in dataclasses.fields(loss))
    return False
