"""Data made up from a seed, for the tasks that have data sets: rows in classes, and drawings in classes."""

from __future__ import annotations

import numpy as np

from wior.data.few_shot import FewShotParts, ImageClasses
from wior.data.rows import Parts, Rows

STROKE = 4  # points through which a glyph is drawn
INK = 255


def blobs(
    train: int = 2000,
    valid: int = 500,
    test: int = 1000,
    *,
    classes: int = 4,
    inputs: int = 20,
    noise: float = 0.6,
    seed: int = 0,
) -> Parts:
    """Rows in classes: a Gaussian cloud around a center for each class.

    Parameters
    ----------
    train, valid, test : int
        Rows in each part.
    classes, inputs : int
        Classes and features. The centers differ in half of the features; the others carry no information.
    noise : float
        Standard deviation of a cloud; the centers are standard normal.
    seed : int
        The same seed gives the same rows.

    Returns
    -------
    Parts
        Features (n, inputs) of float32 and labels (n,) in the parts `train`, `valid` and `test`.

    Examples
    --------
    >>> from wior.data import blobs
    >>> parts = blobs(train=100, valid=20, test=50, classes=3, inputs=4)
    >>> parts.train.features.shape, int(parts.train.labels.max())
    ((100, 4), 2)
    """
    for name, number in {
        "train": train,
        "valid": valid,
        "test": test,
        "classes": classes - 1,
        "inputs": inputs,
    }.items():
        if number < 1:
            raise ValueError(f"{name} is too small for blobs, which need rows, inputs and at least two classes")
    random = np.random.default_rng(seed)
    centers = random.normal(size=(classes, inputs)) * (np.arange(inputs) < (inputs + 1) // 2)

    def part(n: int) -> Rows:
        labels = random.integers(0, classes, n).astype(np.int32)
        return Rows((centers[labels] + noise * random.normal(size=(n, inputs))).astype(np.float32), labels)

    return Parts(part(train), part(valid), part(test))


def glyphs(
    train: int = 60, valid: int = 20, test: int = 20, *, per_class: int = 20, side: int = 28, seed: int = 0
) -> FewShotParts:
    """Drawings in classes, for few-shot tasks.

    A class is a line through four points; each image of it moves the points a little.

    Parameters
    ----------
    train, valid, test : int
        Classes in each part.
    per_class : int
        Images of each class.
    side : int
        Pixels along a side.
    seed : int
        The same seed gives the same drawings.

    Returns
    -------
    FewShotParts
        Images (classes, per_class, side, side, 1) of uint8, ink 255 on 0.

    Examples
    --------
    >>> from wior.data import glyphs
    >>> parts = glyphs(train=6, valid=2, test=2, per_class=5)
    >>> parts.train.images.shape
    (6, 5, 28, 28, 1)
    >>> parts.valid.names
    ('valid-0', 'valid-1')
    """
    random = np.random.default_rng(seed)

    def part(name: str, classes: int) -> ImageClasses:
        points = random.uniform(0.15, 0.85, (classes, 1, STROKE, 2))
        tries = points + 0.04 * random.normal(size=(classes, per_class, STROKE, 2))
        return ImageClasses(_drawn(tries, side), tuple(f"{name}-{number}" for number in range(classes)))

    return FewShotParts(part("train", train), part("valid", valid), part("test", test))


def _drawn(tries: np.ndarray, side: int) -> np.ndarray:
    """Lines through points (..., points, 2) in the unit square, as images (..., side, side, 1): ink near the line."""
    along = np.linspace(0, 1, 24)[:, None]
    start, end = tries[..., :-1, None, :], tries[..., 1:, None, :]
    line = (start + along * (end - start)).reshape(*tries.shape[:-2], -1, 2) * (side - 1)
    images = np.zeros((*tries.shape[:-2], side, side), np.uint8)
    places = [np.asarray(place)[..., None] for place in np.indices(tries.shape[:-2])]
    for near in ((0, 0), (0, 1), (1, 0), (1, 1)):
        pixels = np.clip(np.floor(line).astype(int) + near, 0, side - 1)
        images[(*places, pixels[..., 0], pixels[..., 1])] = INK
    return images[..., None]
