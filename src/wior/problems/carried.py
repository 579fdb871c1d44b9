"""What a run carries beside the state of its method: the states of optimizers and of models.

A method is a function of its own state and knows nothing of these. While a step is traced they lie here by name; who
needs one takes its value and puts a new one. The loops and branches of `oracle` carry them as jax wants it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import jax

from wior import tree

Tree = Any
Held = dict[str, Tree]


class _Open(threading.local):
    def __init__(self) -> None:
        self.held: list[Held] = []


_open = _Open()


@contextlib.contextmanager
def carrying(values: Held) -> Iterator[Held]:
    """Holds some values while a step, or the body of a loop, is traced; what is yielded has their last ones."""
    held = dict(values)
    _open.held.append(held)
    try:
        yield held
    finally:
        _open.held.pop()


def held() -> Held:
    """All values; none outside of `carrying`."""
    return dict(_open.held[-1]) if _open.held else {}


def holds(name: str) -> bool:
    return bool(_open.held) and name in _open.held[-1]


def value(name: str) -> Tree:
    return _open.held[-1][name]


def put(name: str, new: Tree) -> None:
    """The new value of a name, in the types of the old one, as a loop demands."""
    old = _open.held[-1][name]
    _open.held[-1][name] = jax.tree.map(lambda like, leaf: jax.numpy.asarray(leaf).astype(like.dtype), old, new)


def put_all(values: Held) -> None:
    """What a loop or a branch returned."""
    if _open.held:
        _open.held[-1].update(values)


def keep_unless(condition: Any, before: Held) -> None:
    """The values from before, unless the condition holds."""
    if before:
        put_all(tree.where(condition, held(), before))
