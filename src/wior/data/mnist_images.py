"""MNIST: handwritten digits of 28 × 28 pixels, 60000 to train and 10000 to test, in the original idx files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wior.data.files import find
from wior.data.published_file import PublishedFile, contents
from wior.data.rows import Rows, TrainTest

HOME = "https://ossci-datasets.s3.amazonaws.com/mnist"
SIDE, CLASSES = 28, 10
UINT8 = 8  # the idx format's code
CONTENTS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FILES = {
    name: PublishedFile("mnist", (f"{name}.gz", name), f"sha256:{sha256}", f"{HOME}/{name}.gz", of_contents=True)
    for name, sha256 in CONTENTS.items()
}


def mnist(folder: str | Path | None = None, *, progress: bool = False) -> TrainTest:
    """MNIST: features (n, 784) in [0, 1] and labels 0 to 9.

    Parameters
    ----------
    folder : str or Path, optional
        Where to look first; then in `WIOR_DATA`, in the cache, and at the public address.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    TrainTest
        60000 and 10000 rows.

    Examples
    --------
    >>> from wior.data import mnist
    >>> mnist().train.features.shape  # doctest: +SKIP
    (60000, 784)
    """
    paths = {name: find(source, folder=folder, progress=progress) for name, source in FILES.items()}

    def part(prefix: str, n: int) -> Rows:
        return read_part(paths[f"{prefix}-images-idx3-ubyte"], paths[f"{prefix}-labels-idx1-ubyte"], n)

    return TrainTest(part("train", 60000), part("t10k", 10000))


def read_part(images: Path, labels: Path, n: int) -> Rows:
    pixels = read_idx(images, (n, SIDE, SIDE)).reshape(n, -1)
    classes = read_idx(labels, (n,))
    if classes.max() >= CLASSES:
        raise ValueError(f"{labels} must have labels from 0 to {CLASSES - 1}, got {classes.max()}")
    return Rows(pixels.astype(np.float32) / np.float32(255), classes.astype(np.int32))


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """An idx file.

    Two zero bytes, the type's code, the number of axes, their lengths as big-endian int32, the numbers.
    """
    data = contents(path)
    start = 4 + 4 * len(shape)
    if data[:3] != bytes((0, 0, UINT8)) or len(data) < start:
        raise ValueError(f"{path} is not an idx file of bytes: it begins with {data[:4].hex(' ') or 'nothing'}")
    axes = data[3]
    found = tuple(np.frombuffer(data[4 : 4 + 4 * axes], ">i4").tolist())
    if found != shape:
        raise ValueError(f"{path} must have the shape {shape}, its header says {found}")
    values = np.frombuffer(data, np.uint8, offset=start)
    if values.size != np.prod(shape):
        raise ValueError(f"{path} is truncated or damaged: {values.size:,} values for the shape {shape}")
    return values.reshape(shape)
