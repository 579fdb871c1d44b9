"""Small networks as plain functions of their parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Layer(NamedTuple):
    """inputs · weights + bias."""

    weights: jax.Array
    bias: jax.Array


def mlp_init(key: jax.Array, sizes: Sequence[int], dtype: Any = None) -> tuple[Layer, ...]:
    """Layers of the given sizes, inputs first and logits last: normal weights of variance 2 / inputs (He), biases of zero."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"sizes must be at least two positive widths, inputs first and logits last, got {sizes!r}")
    shapes = list(itertools.pairwise(sizes))
    ends = list(itertools.accumulate(wide * narrow for wide, narrow in shapes))
    # one draw for all layers, since every shape drawn would be compiled by itself
    normal = jnp.split(jax.random.normal(key, (ends[-1],), dtype), ends[:-1])
    return tuple(
        Layer(numbers.reshape(wide, narrow) * (2 / wide) ** 0.5, jnp.zeros(narrow, dtype))
        for numbers, (wide, narrow) in zip(normal, shapes, strict=True)
    )


def mlp(params: Sequence[Layer], inputs: jax.Array) -> jax.Array:
    """Logits (rows, classes): linear layers with rectifiers between them."""
    hidden = inputs
    for layer in params[:-1]:
        hidden = jax.nn.relu(hidden @ layer.weights + layer.bias)
    return hidden @ params[-1].weights + params[-1].bias
