"""Pictures for the page: reduced, and many on one sheet, since a browser decodes a hundred sheets sooner than 100,000
files.

A sheet is a PNG, or a JPEG where that is less than half as large, which is so for photographs and never for digits.
Cells begin at multiples of 8 pixels, the block of a JPEG, so that no picture leaks into its neighbor. Transparent
pictures lie on white, as they do where people look at them.
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

LONGEST_SIDE = 96
SHEET_PIXELS = 2**18  # a megabyte when decoded
BLOCK = 8

Images = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Grid:
    """How pictures of one size lie on a sheet."""

    height: int
    width: int

    @property
    def cell(self) -> tuple[int, int]:
        return _blocks(self.height), _blocks(self.width)

    @property
    def across(self) -> int:
        return max(1, math.isqrt(SHEET_PIXELS) // self.cell[1])

    @property
    def pictures(self) -> int:
        return self.across * max(1, SHEET_PIXELS // (self.across * math.prod(self.cell)))


@dataclasses.dataclass(frozen=True)
class Sheet:
    kind: str  # the MIME type
    content: bytes
    pictures: int


def grid_of(images: Images, place: int, longest: int = LONGEST_SIDE) -> Grid:
    """The grid for pictures of the size of the one in `place`, reduced where a side is longer than `longest`."""
    height, width = _read(images, np.array([place])).shape[1:3]
    shrink = max(1.0, max(height, width) / longest)
    return Grid(max(1, round(height / shrink)), max(1, round(width / shrink)))


def sheets(images: Images, places: np.ndarray, grid: Grid, limit: int) -> Iterator[Sheet]:
    """Sheets with the pictures in `places`, until the next one would take the sum of their bytes above `limit`."""
    total, shape = 0, None
    for start in range(0, len(places), grid.pictures):
        pictures = _read(images, places[start : start + grid.pictures])
        if shape not in (None, pictures.shape[1:]):
            raise ValueError(f"images must return pictures of one shape, got {shape} and {pictures.shape[1:]}")
        shape = pictures.shape[1:]
        kind, content = _encoded(_laid_out(_reduced(pictures, grid), grid))
        total += len(content)
        if total > limit:
            return
        yield Sheet(kind, content, len(pictures))


def _read(images: Images, places: np.ndarray) -> np.ndarray:
    pictures = np.asarray(images(places))
    color = pictures.shape[3:]
    if (
        pictures.dtype != np.uint8
        or pictures.ndim not in (3, 4)
        or color not in ((), (3,), (4,))
        or 0 in pictures.shape
    ):
        raise ValueError(
            f"images must return uint8 pictures (k, height, width), (k, height, width, 3) or, with transparency, "
            f"(k, height, width, 4), got {pictures.dtype} {pictures.shape}"
        )
    if len(pictures) != len(places):
        raise ValueError(f"images must return one picture for each of {len(places)} places, got {len(pictures)}")
    return _over_white(pictures) if color == (4,) else pictures


def _over_white(pictures: np.ndarray) -> np.ndarray:
    colors, cover = pictures[..., :3].astype(np.uint16), pictures[..., 3:].astype(np.uint16)
    return ((colors * cover + 255 * (255 - cover) + 127) // 255).astype(np.uint8)


def _reduced(pictures: np.ndarray, grid: Grid) -> np.ndarray:
    if pictures.shape[1:3] == (grid.height, grid.width):
        return pictures
    size = (grid.width, grid.height)
    return np.stack(
        [np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS)) for picture in pictures]
    )


def _laid_out(pictures: np.ndarray, grid: Grid) -> np.ndarray:
    (down, across), color = grid.cell, pictures.ndim - 3
    rows = math.ceil(len(pictures) / grid.across)
    columns = min(len(pictures), grid.across)
    edges = ((0, 0), (0, down - grid.height), (0, across - grid.width), *[(0, 0)] * color)
    cells = np.pad(pictures, edges, mode="edge")
    sheet = np.full((rows * columns, *cells.shape[1:]), 255, np.uint8)
    sheet[: len(cells)] = cells
    sheet = sheet.reshape(rows, columns, *cells.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(sheet.reshape(rows * down, columns * across, *cells.shape[3:]))


def _encoded(sheet: np.ndarray) -> tuple[str, bytes]:
    image, png, jpeg = Image.fromarray(sheet), io.BytesIO(), io.BytesIO()
    image.save(png, "PNG")
    image.save(jpeg, "JPEG", quality=85, subsampling=0)
    if len(jpeg.getvalue()) < len(png.getvalue()) / 2:
        return "image/jpeg", jpeg.getvalue()
    return "image/png", png.getvalue()


def _blocks(length: int) -> int:
    return math.ceil(length / BLOCK) * BLOCK
