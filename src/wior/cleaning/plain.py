"""A model trained plainly, by Adam on rows whose labels are taken as they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from wior.tasks.networks import label_losses, squares

Tree = Any


def drawn(places: np.ndarray, steps: int, batch: int, seed: int) -> jax.Array:
    """(steps, batch): passes over `places`, each in an order of its own."""
    rng = np.random.default_rng(seed)
    passes = -(-steps * batch // len(places))
    laid = np.concatenate([rng.permutation(places) for _ in range(passes)])[: steps * batch]
    return jnp.asarray(laid.reshape(steps, batch).astype(np.int32))


@jax.jit
def trained(
    model: Any, params: Tree, features: tuple[jax.Array, ...], labels: jax.Array, batches: jax.Array, l2: Any, lr: Any
) -> Tree:  # fmt: skip
    """The parameters after a step on each of `batches`, places in one or two tables of features, the second following
    the first.
    """
    rule = optax.adam(lr)

    def loss(params: Tree, places: jax.Array) -> jax.Array:
        losses = label_losses(model.logits(params, rows_of(features, places)), labels[places])
        return jnp.mean(losses) + l2 / 2 * squares(params)

    def step(carry: tuple[Tree, Any], places: jax.Array) -> tuple[tuple[Tree, Any], None]:
        params, state = carry
        updates, state = rule.update(jax.grad(loss)(params, places), state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, rule.init(params)), batches)[0][0]


def rows_of(features: tuple[jax.Array, ...], places: jax.Array) -> jax.Array:
    """Rows of tables, one after the other, that are never joined: the first may be most of the memory."""
    first, *others = features
    if not others:
        return first[places]
    (second,), n = others, len(first)
    here = (places < n).reshape(-1, *(1,) * (first.ndim - 1))
    return jnp.where(here, first[jnp.minimum(places, n - 1)], second[jnp.maximum(places - n, 0)])
