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

from wior.problems.keys import Rows

Tree = Any

KEY, STATE = "key", "state"


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
        found = self.loss(*variables, rows, **asked, state=state)
        return self._parted(found, state)

    def _parted(self, found: Any, state: Tree) -> tuple[Any, Tree]:
        """The loss and the state after it; an outer loss may leave the state as it was."""
        pair = isinstance(found, tuple) and len(found) == 2
        if not pair and self.name == "outer":
            return found, state
        if not pair:
            raise TypeError(
                f"{self.name} takes the model state and must return a pair, (loss, new_state); it returns "
                f"{type(found).__name__}"
            )
        value, new = found
        as_text = lambda tree: jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree)
        if jax.tree.structure(new) != jax.tree.structure(state) or as_text(new) != as_text(state):
            raise ValueError(
                f"{self.name} must return a new state with the structure, shapes and types of model_state: found "
                f"{as_text(new)}, expected {as_text(state)}"
            )
        return value, new


def fixed_key() -> jax.Array:
    """The key of losses that are evaluated outside of a run."""
    return jax.random.key(0, impl="threefry2x32")


def evaluate(loss: Callable[..., Any], state: Tree, *args: Any) -> tuple[Any, Tree]:
    """The value of a loss and the model state after it, which only a `Wrapped` loss changes."""
    if hasattr(loss, "with_state"):
        found: tuple[Any, Tree] = loss.with_state(state, *args)
        return found
    return loss(*args), state


def start_of(loss: Any) -> Tree:
    """The model state before the first step, which the innermost loss knows."""
    while not isinstance(loss, Asking):
        loss = getattr(loss, "loss", None)
        if loss is None:
            return None
    return loss.start


def present_state(loss: Any) -> Tree:
    return start_of(loss)


def asked_by(loss: Any, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Which of `key` and `state` are parameters of a loss beside those that it is called with by position."""
    try:
        parameters = list(inspect.signature(loss).parameters.values())
    except (TypeError, ValueError):  # some functions do not say
        return ()
    bound = getattr(loss, "keywords", None)  # of a partial, the values that it holds
    taken = [one.name for one in parameters[len(arguments) :] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    taken += [one.name for one in parameters[: len(arguments)] if one.kind == one.KEYWORD_ONLY]
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
