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
    """The layers of a network: normal weights of variance 2 / inputs (He), biases of zero.

    Parameters
    ----------
    key : jax.Array
        A key of `jax.random`.
    sizes : sequence of int
        The widths, inputs first and logits last.
    dtype : default None
        The dtype of the weights; None is jax's default.

    Returns
    -------
    tuple of Layer

    Examples
    --------
    >>> import jax
    >>> from wior.tasks import mlp_init
    >>> [layer.weights.shape for layer in mlp_init(jax.random.key(0), (4, 8, 3))]
    [(4, 8), (8, 3)]
    """
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
    """A network of linear layers with rectifiers between them.

    Parameters
    ----------
    params : sequence of Layer
        The layers, made by `mlp_init`.
    inputs : jax.Array
        (rows, inputs).

    Returns
    -------
    jax.Array
        Logits (rows, classes).

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from wior.tasks import mlp, mlp_init
    >>> mlp(mlp_init(jax.random.key(0), (4, 8, 3)), jnp.ones((5, 4))).shape
    (5, 3)
    """
    hidden = inputs
    for layer in params[:-1]:
        hidden = jax.nn.relu(hidden @ layer.weights + layer.bias)
    return hidden @ params[-1].weights + params[-1].bias


def label_losses(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The cross entropy of each row (...,), for logits (..., classes) and integer labels (...,)."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]


def squares(params: Any) -> jax.Array:
    """The sum of squares of everything but biases and scales."""
    return sum((jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(params) if jnp.ndim(leaf) > 1), jnp.zeros(()))


def weighted_loss(weights: jax.Array, logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean over rows of weight · cross entropy."""
    return jnp.mean(weights * label_losses(logits, labels))


class Convolution(NamedTuple):
    """A 3 × 3 convolution, then scale and shift of each normalized channel."""

    kernel: jax.Array  # (3, 3, channels in, channels out)
    scale: jax.Array
    shift: jax.Array


def convolutions_init(key: jax.Array, channels: int, filters: int, layers: int = 4) -> tuple[Convolution, ...]:
    """`layers` convolutions with `filters` filters each.

    Kernels are normal with variance 2 / inputs (He), scales are 1, shifts are 0.
    """
    made = []
    for own, wide in zip(jax.random.split(key, layers), (channels, *(filters,) * (layers - 1)), strict=True):
        kernel = jax.random.normal(own, (3, 3, wide, filters)) * (2 / (9 * wide)) ** 0.5
        made.append(Convolution(kernel, jnp.ones(filters), jnp.zeros(filters)))
    return tuple(made)


def convolutions(params: Sequence[Convolution], images: jax.Array, strided: bool) -> jax.Array:
    """Features (rows, ...) of images (rows, height, width, channels), each layer halving height and width.

    Layers are convolution, normalization, rectifier, as in Finn, Abbeel, Levine (ICML 2017): `strided` convolutions and
    a mean over what is left of the image for Omniglot, else maximum over 2 × 2 pixels and all of what is left. An image
    is normalized by itself, over its pixels and channels, where they use the statistics of a batch: the features of an
    example must not depend on the other examples of the batch.
    """
    hidden = images
    for layer in params:
        hidden = convolve(hidden, layer.kernel, 2 if strided else 1)
        hidden = jax.nn.relu(_normalized(hidden) * layer.scale + layer.shift)
        if not strided:
            hidden = _halved(hidden)
    return hidden.mean((1, 2)) if strided else hidden.reshape(len(hidden), -1)


def convolve(images: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Images (rows, height, width, channels) convolved with a 3 × 3 kernel, edges padded with zeros."""
    if jax.default_backend() != "cpu":
        return jax.lax.conv_general_dilated(
            images, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    # XLA's convolutions on a CPU are some ten times slower inside a loop than outside; a matrix product is not
    return _patches(images, stride) @ kernel.reshape(-1, kernel.shape[-1])


def _patches(images: jax.Array, stride: int) -> jax.Array:
    """The 3 × 3 neighbors of every pixel in reach of the stride, as channels."""
    sizes = images.shape[1:3]
    places = [-(-size // stride) for size in sizes]
    missing = [max((place - 1) * stride + 3 - size, 0) for place, size in zip(places, sizes, strict=True)]
    padded = jnp.pad(images, ((0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)))
    last = [(place - 1) * stride + 1 for place in places]
    shifted = [
        padded[:, down : down + last[0] : stride, right : right + last[1] : stride]
        for down in range(3)
        for right in range(3)
    ]
    return jnp.concatenate(shifted, -1)


def _normalized(hidden: jax.Array) -> jax.Array:
    centered = hidden - hidden.mean((1, 2, 3), keepdims=True)
    return centered * jax.lax.rsqrt(jnp.mean(centered**2, (1, 2, 3), keepdims=True) + 1e-5)


def _halved(hidden: jax.Array) -> jax.Array:
    """The maximum over 2 × 2 pixels; an odd last row or column is left out."""
    rows, height, width, channels = hidden.shape
    even = hidden[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(rows, height // 2, 2, width // 2, 2, channels).max((2, 4))
