"""One image of a user's: decoded, upright, on white; or an error that names the file."""

from __future__ import annotations

import contextlib
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageOps

from wior.cleaning.features.pictures import squared
from wior.cleaning.tables.errors import InputError

Seen = TypeVar("Seen")
UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    IndexError,
    EOFError,
    KeyError,
    OverflowError,
    struct.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)
GRAY = ("1", "L", "LA", "La", "I", "F")  # and I;16 of any kind


class Look(NamedTuple):
    """How images become pictures of one shape: each as a whole, with white beside it where its shape is another."""

    width: int
    height: int
    gray: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.height, self.width) if self.gray else (self.height, self.width, 3)

    def pixels(self, image: Image.Image) -> np.ndarray:
        image = upright(image, self.width, self.height).convert("L" if self.gray else "RGB")
        if image.size == (self.width, self.height):
            return np.asarray(image)
        scale = min(self.width / image.width, self.height / image.height)
        width, height = (max(1, round(side * scale)) for side in image.size)
        scaled = image.resize((width, height), Image.Resampling.LANCZOS)
        box = Image.new(image.mode, (self.width, self.height), "white")
        box.paste(scaled, ((self.width - width) // 2, (self.height - height) // 2))
        return np.asarray(box)


class Square(NamedTuple):
    """How images become pictures for a backbone: each as a whole, its shape let go."""

    side: int

    def pixels(self, image: Image.Image) -> np.ndarray:
        return squared(upright(image, self.side, self.side), self.side)


def upright(image: Image.Image, width: int, height: int) -> Image.Image:
    """The first frame, decoded to this size at least, turned as its EXIF says; white where it is transparent."""
    longest = max(width, height)
    image.draft(None, (longest, longest))  # spares decoding of a large JPEG in full
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        over_white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(over_white, image.convert("RGBA"))
    return image


def size_and_grayness(image: Image.Image) -> tuple[tuple[int, int], bool]:
    """Width and height as it is looked at, and whether it has no color; not decoded."""
    lies_on_its_side = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    size = image.size[::-1] if lies_on_its_side else image.size
    return size, image.mode in GRAY or image.mode.startswith("I;16")


def seen(path: Path, look: Callable[[Image.Image], Seen]) -> Seen:
    """What `look` returns of an image; within `careful`."""
    try:
        with Image.open(path) as image:
            return look(image)
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be decoded: {error}") from error


@contextlib.contextmanager
def careful() -> Iterator[None]:
    """Images far larger than any photo are errors, odd notes in a file are not; for the threads begun within it too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield
