"""Images in classes, of which few-shot tasks are drawn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class ImageClasses(NamedTuple):
    """As many images of each class.

    Images (classes, per class, height, width, channels) of uint8, and the classes' names.
    """

    images: np.ndarray
    names: tuple[str, ...]


class FewShotParts(NamedTuple):
    """Three parts with no class in common."""

    train: ImageClasses
    valid: ImageClasses
    test: ImageClasses


def with_rotations(classes: ImageClasses) -> ImageClasses:
    """Four classes for each one: its images as they are and turned by 90, 180 and 270 degrees.

    Parameters
    ----------
    classes : ImageClasses
        Square images. Of a split data set give one part: no part may have a turned class of another one.

    Returns
    -------
    ImageClasses
        Four times as many classes; the turn, against the clock, is in their names.

    Examples
    --------
    >>> from wior.data import glyphs, with_rotations
    >>> turned = with_rotations(glyphs(train=2, valid=1, test=1).train)
    >>> turned.images.shape
    (8, 20, 28, 28, 1)
    >>> turned.names[:2]
    ('train-0/rot000', 'train-0/rot090')
    """
    images, names = classes
    if images.ndim != 5 or images.shape[2] != images.shape[3]:
        raise ValueError(
            f"images must be square, (classes, per class, side, side, channels), to be turned, got {images.shape}"
        )
    turned = np.stack([np.rot90(images, quarters, axes=(2, 3)) for quarters in range(4)], axis=1)
    turned_names = tuple(f"{name}/rot{degrees:03}" for name in names for degrees in (0, 90, 180, 270))
    return ImageClasses(turned.reshape(-1, *images.shape[1:]), turned_names)
