"""Pictures become features: embeddings of a backbone, some pictures at a time, and their principal components."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from wior.cleaning.features import patches
from wior.cleaning.features.backbones import EXTRA, NETWORKS, PATCHES, Backbone, Embed, best_installed, open_backbone
from wior.cleaning.features.components import Components
from wior.cleaning.features.embedding_cache import EmbeddingCache
from wior.running.progress import counter
from wior.streaming.memory import aligned

BLOCK = 64  # pictures at once
SAMPLE = 4_000  # pictures from which components are learned
LEARNED_FROM = 4_000  # pictures from which patches are drawn
SMALL = 32  # pixels a side: gray pictures up to this size are features as they are
SEED = 0


class Pictures(Protocol):
    """Pictures that are read some at a time."""

    def __len__(self) -> int: ...

    def read(self, places: np.ndarray, side: int) -> np.ndarray:
        """(k, side, side, 3) of uint8: each scaled to a square."""
        ...

    def digests(self, places: np.ndarray) -> list[bytes]:
        """Of their contents."""
        ...


class ArrayPictures:
    """Pictures (n, h, w), (n, h, w, 1) or (n, h, w, 3) of uint8 in memory."""

    def __init__(self, pixels: np.ndarray):
        self.pixels = pixels[..., 0] if pixels.shape[3:] == (1,) else pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, places: np.ndarray, side: int) -> np.ndarray:
        return np.stack([squared(Image.fromarray(self.pixels[place]), side) for place in places])

    def digests(self, places: np.ndarray) -> list[bytes]:
        shape = repr(self.pixels.shape[1:]).encode()
        return [hashlib.sha256(shape + self.pixels[place].tobytes()).digest() for place in places]


class PictureFeatures(NamedTuple):
    """The features of pictures, and how to make those of others."""

    values: np.ndarray  # (n, d) of float32
    like: Callable[[Pictures], np.ndarray]  # the same of other pictures; of the same content the same numbers
    backbone: str
    notes: tuple[str, ...] = ()


def squared(image: Image.Image, side: int) -> np.ndarray:
    """(side, side, 3): the whole image, its shape let go."""
    return np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR))


def kept_as_pixels(shape: tuple[int, ...]) -> bool:
    """Whether pictures of a shape (h, w) or (h, w, 3) are features as they are, unless a backbone is asked for."""
    return len(shape) == 2 and max(shape) <= SMALL


def picture_features(pictures: Pictures, backbone: str | None = None, progress: bool = False) -> PictureFeatures:
    """Features of all pictures by the backbone of that name, or by the best one that is installed.

    `BackboneError` where it is not known or fails.
    """
    maker = _Maker(pictures, open_backbone(backbone or best_installed()))
    with counter(progress, f"pictures embedded by {maker.name}") as told:
        values = maker.learn(pictures, told)
    notes = [_what_is_missed()] if backbone is None and maker.name == PATCHES else []
    return PictureFeatures(values, maker.like, maker.name, tuple(notes))


def _what_is_missed() -> str:
    return (
        f"pictures became features by {PATCHES}; the pretrained network {next(iter(NETWORKS))} knows far more of "
        f"photos: {EXTRA}"
    )


class _Maker:
    """Makes features of pictures, and remembers of which contents."""

    def __init__(self, pictures: Pictures, backbone: Backbone):
        self.name, self.side = backbone.name, backbone.side
        self.embed: Embed = backbone.embed or _learned(pictures).embed
        self.cache = None if backbone.version is None else EmbeddingCache(backbone.version)
        self.components: Components | None = None
        self.known: dict[bytes, np.ndarray] = {}  # features by content

    def learn(self, pictures: Pictures, told: Callable[[int, int | None], None]) -> np.ndarray:
        """The features of all pictures, by the components of some of them."""
        count = len(pictures)
        sample = _spread(count, SAMPLE)
        embedded: dict[bytes, np.ndarray] = {}
        contents: list[bytes] = []
        for block in _blocks(sample):
            digests = pictures.digests(block)
            embedded |= self._embedded(pictures, block, digests, embedded)
            contents += digests
            told(len(contents), count)
        self.components = Components.of(np.stack(list(embedded.values())), count)
        self._keep(embedded)
        values = aligned((count, len(self.known[contents[0]])), np.float32)
        values[sample] = [self.known[digest] for digest in contents]
        done = len(sample)
        for block in _blocks(np.setdiff1d(np.arange(count), sample)):
            values[block] = self._made(pictures, block)
            done += len(block)
            told(done, count)
        return values

    def like(self, pictures: Pictures) -> np.ndarray:
        return np.concatenate([self._made(pictures, block) for block in _blocks(np.arange(len(pictures)))])

    def _made(self, pictures: Pictures, places: np.ndarray) -> np.ndarray:
        digests = pictures.digests(places)
        self._keep(self._embedded(pictures, places, digests, self.known))
        return np.stack([self.known[digest] for digest in digests])

    def _keep(self, embedded: Mapping[bytes, np.ndarray]) -> None:
        if embedded:
            assert self.components is not None
            made = self.components.apply(np.stack(list(embedded.values())))
            self.known |= dict(zip(embedded, made, strict=True))

    def _embedded(
        self, pictures: Pictures, places: np.ndarray, digests: Sequence[bytes], known: Container[bytes]
    ) -> dict[bytes, np.ndarray]:
        """The embeddings of contents that are not known yet."""
        wanted: dict[bytes, int] = {}
        for digest, place in zip(digests, places, strict=True):
            if digest not in known:
                wanted.setdefault(digest, place)
        found = {} if self.cache is None else self.cache.find(list(wanted))
        missing = [digest for digest in wanted if digest not in found]
        if missing:
            made = self.embed(pictures.read(np.array([wanted[digest] for digest in missing]), self.side))
            if self.cache is None:
                return dict(zip(missing, made, strict=True))
            new = dict(zip(missing, made.astype(np.float16), strict=True))
            self.cache.keep(new)
            found |= new
        return {digest: found[digest].astype(np.float32) for digest in wanted}


def _learned(pictures: Pictures) -> patches.Patches:
    chosen = _spread(len(pictures), LEARNED_FROM)
    return patches.learn(np.concatenate([pictures.read(block, patches.SIDE) for block in _blocks(chosen)]))


def _spread(count: int, most: int) -> np.ndarray:
    """So many places of `count`, at random, in their order."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(SEED).choice(count, most, replace=False))


def _blocks(places: np.ndarray) -> Iterator[np.ndarray]:
    for begin in range(0, len(places), BLOCK):
        yield places[begin : begin + BLOCK]
