"""What the tests of loaders make and look for in a folder."""

import importlib
import io

import numpy as np
from PIL import Image

from wior.data.published_file import PublishedFile

CONTENT = bytes(range(256)) * 2000


def visible(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))


def published():
    """Every source that a loader knows."""
    names = ("mnist_images", "omniglot_images", "tabular", "tiny_imagenet_images")
    values = [value for name in names for value in vars(importlib.import_module(f"wior.data.{name}")).values()]
    values += [inner for value in values if isinstance(value, dict) for inner in value.values()]
    return [value for value in values if isinstance(value, PublishedFile)]


def jpeg(rng, size=(84, 84), mode="RGB"):
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (*size[::-1], 3), np.uint8)).convert(mode).save(file, "JPEG")
    return file.getvalue()
