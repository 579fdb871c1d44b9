"""EfficientNet-Lite (Tan and Le, 2019; the Lite models, 2020) without its classifier: pictures become numbers.

    stem     3 × 3 convolution, stride 2
    blocks   1 × 1 expansion, depthwise convolution, 1 × 1 projection; the input is added where the shapes agree
    head     1 × 1 convolution to 1280 channels
    numbers  the means of the head and of the last three stages over the picture

Each convolution is followed by a batch norm, folded into it here, and all but projections by min(max(·, 0), 6).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

STAGE_STRIDES = (1, 2, 2, 2, 1, 2, 1)
POOLED_STAGES = 3
EPSILON = 1e-3  # of the batch norms
MIDDLE, SCALE = 127.0, 128.0  # pixels are (value - 127) / 128, as in training


class Convolution(NamedTuple):
    """A convolution and the batch norm behind it."""

    kernel: np.ndarray  # (height, width, in, out)
    bias: np.ndarray


class Block(NamedTuple):
    expand: Convolution | None
    depthwise: Convolution
    project: Convolution


class Plan(NamedTuple):
    """What is not learned of a network."""

    strides: tuple[int, ...]  # of the blocks
    pooled: tuple[int, ...]  # the blocks whose outputs are features


class Network(NamedTuple):
    stem: Convolution
    blocks: tuple[Block, ...]
    head: Convolution

    @property
    def plan(self) -> Plan:
        """A stage begins where the number of channels changes."""
        stages = itertools.groupby(self.blocks, lambda block: block.project.kernel.shape[3])
        lengths = [len(list(blocks)) for _, blocks in stages]
        strides = [
            stride if first else 1
            for stride, length in zip(STAGE_STRIDES, lengths, strict=True)
            for first in [True] + [False] * (length - 1)
        ]
        ends = list(itertools.accumulate(lengths))
        return Plan(tuple(strides), tuple(end - 1 for end in ends[-POOLED_STAGES:]))


def network(weights: Mapping[str, np.ndarray]) -> Network:
    """The network of the weights, under the names that EfficientNet-PyTorch gives them."""

    def convolution(name: str, norm: str) -> Convolution:
        scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + EPSILON)
        kernel = weights[f"{name}.weight"] * scale[:, None, None, None]
        bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
        return Convolution(np.ascontiguousarray(kernel.transpose(2, 3, 1, 0), np.float32), bias.astype(np.float32))

    blocks = []
    for number in itertools.count():
        name = f"_blocks.{number}"
        if f"{name}._depthwise_conv.weight" not in weights:
            break
        has_expansion = f"{name}._expand_conv.weight" in weights
        blocks.append(
            Block(
                convolution(f"{name}._expand_conv", f"{name}._bn0") if has_expansion else None,
                convolution(f"{name}._depthwise_conv", f"{name}._bn1"),
                convolution(f"{name}._project_conv", f"{name}._bn2"),
            )
        )
    return Network(convolution("_conv_stem", "_bn0"), tuple(blocks), convolution("_conv_head", "_bn1"))


def embed(network: Network, plan: Plan, pictures: jax.Array) -> jax.Array:
    """(k, d) of pictures (k, side, side, 3) of uint8: the head and the last stages, each averaged over the picture."""
    values = (pictures.astype(jnp.float32) - MIDDLE) / SCALE
    values = _clipped(_convolved(values, network.stem, 2))
    pooled = []
    for number, (block, stride) in enumerate(zip(network.blocks, plan.strides, strict=True)):
        before = values
        if block.expand is not None:
            values = _clipped(_convolved(values, block.expand))
        values = _clipped(_convolved(values, block.depthwise, stride))
        values = _convolved(values, block.project)
        if values.shape == before.shape:
            values = values + before
        if number in plan.pooled:
            pooled.append(values.mean((1, 2)))
    head = _clipped(_convolved(values, network.head)).mean((1, 2))
    return jnp.concatenate([head, *pooled], axis=1)


def _convolved(values: jax.Array, layer: Convolution, stride: int = 1) -> jax.Array:
    """By shifted copies of the picture: XLA's own convolutions take eight times as long on a CPU."""
    height, _, inputs, channels = layer.kernel.shape
    if height == 1:
        return values @ layer.kernel[0, 0] + layer.bias
    shifted = list(_shifted(values, height, stride))
    if inputs == 1:  # depthwise
        return sum((part * layer.kernel[row, column, 0] for row, column, part in shifted), jnp.asarray(layer.bias))
    parts = jnp.concatenate([part for _, _, part in shifted], axis=3)
    return parts @ layer.kernel.reshape(-1, channels) + layer.bias


def _shifted(values: jax.Array, size: int, stride: int) -> Iterator[tuple[int, int, jax.Array]]:
    """What each number of a square kernel is multiplied by, with zeros around the picture ("SAME")."""
    after = -(-values.shape[1] // stride)
    missing = max((after - 1) * stride + size - values.shape[1], 0)
    edges = (missing // 2, missing - missing // 2)
    padded = jnp.pad(values, ((0, 0), edges, edges, (0, 0)))
    reach = (after - 1) * stride + 1
    for row in range(size):
        for column in range(size):
            yield row, column, padded[:, row : row + reach : stride, column : column + reach : stride]


def _clipped(values: jax.Array) -> jax.Array:
    return jnp.clip(values, 0, 6)
