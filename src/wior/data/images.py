"""Image files to arrays, with Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def color(data: bytes, name: object, side: int) -> np.ndarray:
    """(side, side, 3) of uint8; an image of another size is resized with the Lanczos filter."""
    from PIL import Image

    image = _decoded(data, name).convert("RGB")
    return np.asarray(image if image.size == (side, side) else image.resize((side, side), Image.Resampling.LANCZOS))


def ink(data: bytes, name: object, drawn: int, side: int) -> np.ndarray:
    """A black drawing of `drawn` pixels a side on white, as (side, side) of uint8 with ink 255 on 0."""
    from PIL import Image

    image = _decoded(data, name)
    if image.size != (drawn, drawn):
        raise ValueError(f"{name} must have {drawn} × {drawn} pixels, got {image.width} × {image.height}")
    return 255 - np.asarray(image.convert("L").resize((side, side), Image.Resampling.BILINEAR))


def _decoded(data: bytes, name: object) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("the images of this data set are decoded with Pillow: pip install pillow") from error
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{name} ({len(data):,} bytes) is truncated, damaged or not an image: {error}") from error
    return image
