"""One visit to the inner problem of an outer example, shared by the conditional algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from wior import oracle, tree
from wior.algorithms.algorithm import Draws, Seen, State, Visits, at_step, is_infinite, one
from wior.problems import carried
from wior.problems.inner_sets import InnerSet
from wior.problems.per_example import descend

Tree = Any
Update = Callable[[Tree, Tree, jax.Array, jax.Array | None], tuple[Tree, Tree, Tree]]


def visit(update: Update, y: Tree, u: Tree, visits: Visits, radius: Any) -> tuple[Tree, Tree, Tree]:
    """Runs `update(y, u, index, weights) -> y, u, seen` over the batches of one visit.

    Returns y, u and what was seen of each batch. A batch of padding alone leaves y and u as they are; u is projected
    where a later pass begins.
    """

    def body(carry: tuple[Tree, Tree], batch: Visits) -> tuple[tuple[Tree, Tree], Tree]:
        y, u = carry
        if not is_infinite(radius):
            u = tree.where(batch.starts_pass, tree.project(u, radius), u)
        before = carried.held()
        new_y, new_u, seen = update(y, u, batch.examples, batch.weights)
        if batch.weights is None:
            return (new_y, new_u), seen
        active = jnp.any(batch.weights > 0)
        carried.keep_unless(active, before)
        return tree.where(active, (new_y, new_u), (y, u)), seen

    (y, u), seen = oracle.scan(body, (y, u), visits)
    return y, u, seen


def outer_step(algorithm: Any, state: State, draws: Draws, direction: Tree, seen: Tree) -> tuple[State, Seen]:
    """The step of x along −direction, and the derivatives that were seen of the inner sets."""
    moved = State(descend(state.x, at_step(algorithm.outer_lr, draws.step), direction), state.y)
    return moved, Seen(outer=(one(direction),), inner=(seen,))


def full_weights(sets: InnerSet) -> jax.Array | None:
    """The weights of whole inner sets: zero past their counts, `None` where nothing is padded."""
    if sets.counts is None:
        return None
    n = jax.tree.leaves(sets.rows)[0].shape[1]
    return (jnp.arange(n) < sets.counts[:, None]).astype(jnp.int32)
