"""`tiny_imagenet_fs`: 100 classes of Tiny ImageNet, a stand-in where MiniImageNet cannot be had.

Photographs of 64 × 64 pixels, 250 of a class, split 64/16/20 by classes as MiniImageNet is. It is not MiniImageNet:
other classes for the most part, smaller and fewer images. Results on it bear its own name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wior.data.arrays import read_arrays
from wior.data.few_shot import FewShotParts, ImageClasses
from wior.data.files import find
from wior.data.images import color
from wior.data.published_file import PublishedFile
from wior.running.progress import counter

SIDE, PER_CLASS = 64, 250
CLASSES = {"train": 64, "val": 16, "test": 20}
SHA256 = {
    "train": "1e44423fc5b9f430b307f324f29ff91503c53c69c94ce8616088f0b2bddded58",
    "val": "07c91f15a39f5cff732813376d7d0755df7fe97ed02878d1e5d2406331920f5a",
    "test": "9a8df4b305683ded83f4ed2e9833f82b7b256d210582944169d8b45132cf5cc0",
}
FILES = {
    part: PublishedFile("tiny_imagenet_fs", (f"{part}.npz",), f"sha256:{sha256}") for part, sha256 in SHA256.items()
}


def tiny_imagenet_fs(folder: str | Path | None = None, *, progress: bool = False) -> FewShotParts:
    """The stand-in's images, 64 × 64 × 3, decoded from JPEG. Takes some seconds.

    Parameters
    ----------
    folder : str or Path, optional
        Where to look first; then in `WIOR_DATA`, in the cache, and at the public address.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    FewShotParts
        64, 16 and 20 classes of 250 images, named as in WordNet.

    Examples
    --------
    >>> from wior.data import tiny_imagenet_fs
    >>> tiny_imagenet_fs().train.images.shape  # doctest: +SKIP
    (64, 250, 64, 64, 3)
    """
    paths = {part: find(source, folder=folder, progress=progress) for part, source in FILES.items()}
    return FewShotParts(*(read_part(paths[part], CLASSES[part], PER_CLASS, progress) for part in CLASSES))


def read_part(path: Path, classes: int, per_class: int, progress: bool = False) -> ImageClasses:
    """Image i is the JPEG file `jpeg[offsets[i]:offsets[i + 1]]`."""
    n = classes * per_class
    arrays = read_arrays(
        path,
        {"jpeg": ((None,), "uint8"), "offsets": ((n + 1,), "i"), "labels": ((n,), "i"), "wnids": ((classes,), "U")},
    )
    labels, offsets, jpeg = arrays["labels"], arrays["offsets"], arrays["jpeg"]
    counts = np.unique(labels, return_counts=True)
    if counts[0].tolist() != list(range(classes)) or (counts[1] != per_class).any():
        raise ValueError(f"{path} must have {per_class} images of each of {classes} classes")
    if offsets[0] != 0 or offsets[-1] != len(jpeg) or (np.diff(offsets) <= 0).any():
        raise ValueError(f"{path}: offsets must rise from 0 to {len(jpeg):,}, the number of bytes in jpeg")
    images = np.empty((n, SIDE, SIDE, 3), np.uint8)
    with counter(progress, f"decoding {path.name}") as at:
        for place, i in enumerate(np.argsort(labels, kind="stable")):
            images[place] = color(jpeg[offsets[i] : offsets[i + 1]].tobytes(), f"image {i} of {path}", SIDE)
            at(place + 1, n)
    return ImageClasses(images.reshape(classes, per_class, SIDE, SIDE, 3), tuple(arrays["wnids"].tolist()))
