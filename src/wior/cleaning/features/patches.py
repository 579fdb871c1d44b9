"""Features of pictures by k-means of their patches (Coates and Ng, 2011), where no pretrained network is installed.

patches       6 × 6 pixels, brightness and contrast taken away, whitened (ZCA)
centers       k-means of patches drawn at random
activation    max(0, mean distance to all centers - distance to this one)
pooling       the root of the mean over each of 3 × 3 parts of the picture, the largest value in each quarter
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.cluster import MiniBatchKMeans

SIDE = 32  # that pictures are scaled to
WIDTH = 6  # of a patch
CENTERS = 400
PATCHES = 100_000  # that the centers are learned from
EVEN = 0.01  # added to the variance of a patch: where nothing is to be seen, noise is not made large
FAINT = 0.1  # likewise to the variances that are whitened
MEANS, LARGEST = 3, 2  # parts of a picture along a side
BLOCK = 32  # pictures at once: their activations take 37 MB
SEED = 0


class Patches(NamedTuple):
    """What was learned of patches."""

    mean: np.ndarray  # (d,) of patches with contrast taken away
    whitening: np.ndarray  # (d, d)
    centers: np.ndarray  # (d, k)

    def embed(self, pictures: np.ndarray) -> np.ndarray:
        """(n, 13 k) of pictures (n, SIDE, SIDE, 3) of uint8; float32."""
        made = np.empty((len(pictures), (MEANS**2 + LARGEST**2) * self.centers.shape[1]), np.float32)
        for begin in range(0, len(pictures), BLOCK):
            block = pictures[begin : begin + BLOCK]
            whole = np.zeros((BLOCK, *block.shape[1:]), np.uint8)  # one shape is one program
            whole[: len(block)] = block
            made[begin : begin + BLOCK] = np.asarray(_pooled(self, whole))[: len(block)]
        return made


def learn(pictures: np.ndarray) -> Patches:
    """From pictures (n, SIDE, SIDE, 3) of uint8."""
    random = np.random.default_rng(SEED)
    sampled = random.integers(0, [len(pictures), SIDE - WIDTH + 1, SIDE - WIDTH + 1], (PATCHES, 3))
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (WIDTH, WIDTH), (1, 2))
    patches = np.asarray(_even(windows[tuple(sampled.T)].reshape(PATCHES, -1).astype(np.float32)))
    mean = patches.mean(0)
    patches = patches - mean
    variances, axes = np.linalg.eigh(patches.T @ patches / PATCHES)
    whitening = (axes / np.sqrt(variances.clip(0) + FAINT)) @ axes.T
    clusters = MiniBatchKMeans(CENTERS, init="random", n_init=1, batch_size=4096, max_iter=12, random_state=SEED)
    clusters.fit(patches @ whitening)
    return Patches(mean, whitening, np.ascontiguousarray(clusters.cluster_centers_.T.astype(np.float32)))


@jax.jit
def _pooled(learned: Patches, pictures: jax.Array) -> jax.Array:
    reach = pictures.shape[1] - WIDTH + 1
    shifted = [
        pictures[:, row : row + reach, column : column + reach] for row in range(WIDTH) for column in range(WIDTH)
    ]
    patches = jnp.stack(shifted, -1).astype(jnp.float32)
    count, across = patches.shape[:2]
    patches = (_even(patches.reshape(count * across**2, -1)) - learned.mean) @ learned.whitening
    squares = (patches**2).sum(1, keepdims=True) + (learned.centers**2).sum(0) - 2 * patches @ learned.centers
    distances = jnp.sqrt(jnp.maximum(squares, 0))
    active = jnp.maximum(distances.mean(1, keepdims=True) - distances, 0).reshape(count, across, across, -1)
    means = [jnp.sqrt(cell.mean((1, 2))) for cell in _cells(active, MEANS)]
    return jnp.concatenate([*means, *(cell.max((1, 2)) for cell in _cells(active, LARGEST))], axis=1)


def _cells(active: jax.Array, along: int) -> list[jax.Array]:
    """The parts of (n, h, h, k), so many along a side."""
    edges = [round(active.shape[1] * number / along) for number in range(along + 1)]
    spans = list(itertools.pairwise(edges))
    return [active[:, top:bottom, left:right] for top, bottom in spans for left, right in spans]


def _even(patches: jax.Array) -> jax.Array:
    """Patches (n, d) of values from 0 to 255 without their brightness and contrast."""
    patches = patches / 255
    patches = patches - patches.mean(1, keepdims=True)
    return patches / jnp.sqrt((patches**2).mean(1, keepdims=True) + EVEN)
