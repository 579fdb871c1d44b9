"""The network equals its definition, written out with loops, and the original's numbers."""

import jax
import numpy as np
import pytest

from wior.cleaning.features import backbones
from wior.cleaning.features.efficientnet import embed, network

# of the stages of a network that is small and otherwise as the large one: kernel, expansion, channels out, blocks
STAGES = ((3, 1, 4, 1), (3, 2, 6, 2), (5, 2, 5, 1), (3, 2, 7, 2), (5, 2, 8, 1), (5, 2, 6, 1), (3, 2, 9, 1))
STRIDES = (1, 2, 1, 2, 2, 1, 1, 2, 1)


def small_weights():
    random = np.random.default_rng(3)
    weights = {}

    def layer(name, norm, out, into, size):
        weights[f"{name}.weight"] = random.normal(size=(out, into, size, size)) / size / np.sqrt(into)
        weights[f"{norm}.weight"] = random.uniform(0.5, 2, out)
        weights[f"{norm}.bias"] = random.normal(size=out)
        weights[f"{norm}.running_mean"] = random.normal(size=out) / 4
        weights[f"{norm}.running_var"] = random.uniform(0.1, 0.5, out)

    layer("_conv_stem", "_bn0", 3, 3, 3)
    number, into = 0, 3
    for size, expansion, out, blocks in STAGES:
        for _ in range(blocks):
            name, wide = f"_blocks.{number}", into * expansion
            if expansion > 1:
                layer(f"{name}._expand_conv", f"{name}._bn0", wide, into, 1)
            layer(f"{name}._depthwise_conv", f"{name}._bn1", wide, 1, size)
            layer(f"{name}._project_conv", f"{name}._bn2", out, wide, 1)
            number, into = number + 1, out
    layer("_conv_head", "_bn1", 11, into, 1)
    return weights


def convolved(picture, weights, name, norm, stride=1, groups=1, clip=True):
    """A picture (channels, h, w), and the batch norm after it, one number after the other."""
    kernel = weights[f"{name}.weight"]
    out, into, size, _ = kernel.shape
    side = picture.shape[1]
    after = -(-side // stride)
    missing = max((after - 1) * stride + size - side, 0)
    padded = np.pad(picture, ((0, 0), *[(missing // 2, missing - missing // 2)] * 2))
    made = np.empty((out, after, after))
    for channel in range(out):
        begin = channel // (out // groups) * into
        for row in range(after):
            for column in range(after):
                top, left = row * stride, column * stride
                window = padded[begin : begin + into, top : top + size, left : left + size]
                made[channel, row, column] = (window * kernel[channel]).sum()
    scale, shift, mean, variance = (
        weights[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
    )
    made = (made - mean) / np.sqrt(variance + 1e-3) * scale + shift
    return made.clip(0, 6) if clip else made


def twin(weights, picture):
    values = convolved((picture.transpose(2, 0, 1) - 127.0) / 128, weights, "_conv_stem", "_bn0", 2)
    outputs = []
    for number, stride in enumerate(STRIDES):
        name, before = f"_blocks.{number}", values
        if f"{name}._expand_conv.weight" in weights:
            values = convolved(values, weights, f"{name}._expand_conv", f"{name}._bn0")
        values = convolved(values, weights, f"{name}._depthwise_conv", f"{name}._bn1", stride, len(values))
        values = convolved(values, weights, f"{name}._project_conv", f"{name}._bn2", clip=False)
        if values.shape == before.shape:
            values = values + before
        outputs.append(values.mean((1, 2)))
    head = convolved(values, weights, "_conv_head", "_bn1").mean((1, 2))
    return np.concatenate([head, *outputs[-3:]])


@pytest.mark.parametrize("side", [33, 24])
def test_the_network_is_its_definition(side):
    weights = small_weights()
    made = network(weights)
    assert made.plan == (STRIDES, (6, 7, 8))
    pictures = np.random.default_rng(1).integers(0, 256, (2, side, side, 3), dtype=np.uint8)
    found = np.asarray(jax.jit(embed, static_argnums=1)(made, made.plan, pictures))
    assert found.shape == (2, 11 + 8 + 6 + 9)
    np.testing.assert_allclose(found, [twin(weights, picture) for picture in pictures], rtol=2e-5, atol=2e-5)


# by EfficientNet-PyTorch's own code (efficientnet_lite_pytorch 0.1.0, torch 2.13.0) on the pictures below
GOLDEN = {
    "efficientnet-lite2": (
        [11, 411, 877, 1256],
        [[0.10365, 0.050907, 0.648747, 0.216846], [0.061202, 0.070101, 0.662554, 0.203369]],
        [0.0968257, 0.0843125],
    ),
    "efficientnet-lite0": (
        [0, 458, 824, 1140],
        [[0.42131, 0.118062, 1.915095, 0.079807], [0.216574, 0.078335, 2.515192, 0.060912]],
        [0.1260576, 0.1132298],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_pretrained_network_gives_the_originals_numbers(name):
    if backbones.weights_of(name) is None:
        pytest.skip("its weights are not installed")
    pictures = np.random.default_rng(5).integers(0, 256, (2, 192, 192, 3), dtype=np.uint8)
    found = backbones.open_backbone(name).embed(pictures)[:, :1280]
    columns, numbers, means = GOLDEN[name]
    np.testing.assert_allclose(found[:, columns], numbers, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(found.mean(1), means, rtol=1e-5)
