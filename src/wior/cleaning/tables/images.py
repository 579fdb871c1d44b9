"""Folders of images, folder/class/name.png: of any sizes, gray where all are gray."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from PIL import Image

from wior.cleaning.features.backbones import PIXELS, BackboneError
from wior.cleaning.features.pictures import kept_as_pixels, picture_features
from wior.cleaning.tables.asked import Asked
from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.errors import InputError, counted, listed, shown
from wior.cleaning.tables.image_file import Look, Square, careful, seen, size_and_grayness
from wior.cleaning.tables.job import Job, Labels, VerifiedRows
from wior.cleaning.tables.roles import Roles
from wior.cleaning.tables.row_file import RowFile
from wior.streaming.memory import aligned

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
SIDE = 64  # of pixels as features
THUMBNAIL = 160  # pixels, of a picture on the page
AT_ONCE = 256  # images
THREADS = min(8, os.cpu_count() or 1)
IMAGE, CLASS = "image", "class"
Seen = TypeVar("Seen")


class ImageFolder:
    """The columns are the images' names, class/name.png, and their classes."""

    kind = "images"
    suffix = ""
    names: Sequence[str] = (IMAGE, CLASS)

    def __init__(self, path: Path):
        self.path = path
        self.files: list[tuple[str, str]] = []  # class and name
        self.notes: list[str] = []
        self._look_through()

    @property
    def rows(self) -> int:
        return len(self.files)

    @property
    def ids(self) -> np.ndarray:
        return np.array([f"{label}/{name}" for label, name in self.files])

    @property
    def labels(self) -> np.ndarray:
        return np.array([label for label, _ in self.files])

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        columns = {IMAGE: self.ids, CLASS: self.labels}
        yield {name: Cells(self.path, name, 0, pa.array(columns[name])) for name in names}

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        columns = {IMAGE: self.ids[places], CLASS: self.labels[places]}
        return [[str(columns[name][row]) for name in names] for row in range(len(places))]

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        """Copies of the files; one whose name is taken in its new class gets a number."""
        for new in set(changes.values()):
            _require_folder_name(new)
        kept = [place for place in range(self.rows) if keep[place]]
        taken: set[tuple[str, str]] = set()
        path.mkdir()
        # those that stay keep their names
        for place in sorted(kept, key=lambda place: place in changes):
            old, name = self.files[place]
            folder = changes.get(place, old)
            name = _free_name(folder, name, taken)
            (path / folder).mkdir(exist_ok=True)
            shutil.copy2(self.path / old / self.files[place][1], path / folder / name)

    def each(self, look: Callable[[Image.Image], Seen]) -> Iterator[Seen]:
        """What `look` returns of all images, one after the other."""
        for begin in range(0, self.rows, AT_ONCE):
            with careful():
                yield from self.together(lambda path: seen(path, look), range(begin, min(begin + AT_ONCE, self.rows)))

    def pictures(self, look: Look | Square, places: np.ndarray) -> np.ndarray:
        """(k, h, w) or (k, h, w, 3) of uint8."""
        with careful():
            return np.stack(self.together(lambda path: seen(path, look.pixels), places))

    def together(self, read: Callable[[Path], Seen], places: Iterable[int]) -> list[Seen]:
        """What `read` returns of some files, which are read by some threads."""
        paths = [self.path.joinpath(*self.files[place]) for place in places]
        with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(read, paths))

    def _look_through(self) -> None:
        strange, deeper, empty = [], [], []
        for entry in _visible(self.path):
            if not entry.is_dir():
                if _is_image(entry):
                    raise InputError(
                        f"{entry} lies in no class; images must lie in folders named by their classes, "
                        f"{self.path.name}/class/{entry.name}"
                    )
                strange.append(entry.name)
                continue
            before = len(self.files)
            for file in _visible(entry):
                if file.is_dir():
                    deeper.append(f"{entry.name}/{file.name}")
                elif _is_image(file):
                    self.files.append((entry.name, file.name))
                else:
                    strange.append(f"{entry.name}/{file.name}")
            if len(self.files) == before:
                empty.append(entry.name)
        if not self.files:
            raise InputError(f"{self.path} has no images in folders named by classes; {', '.join(SUFFIXES)} are read")
        for names, what in (
            (strange, "no images"),
            (deeper, "folders inside of classes"),
            (empty, "folders without images"),
        ):
            if names:
                self.notes.append(f"{self.path}: {what}, skipped: {listed(names)}")


class FolderPictures:
    """The images of a folder, decoded some at a time and by some threads."""

    def __init__(self, file: ImageFolder):
        self.file = file

    def __len__(self) -> int:
        return self.file.rows

    def read(self, places: np.ndarray, side: int) -> np.ndarray:
        return self.file.pictures(Square(side), places)

    def digests(self, places: np.ndarray) -> list[bytes]:
        return self.file.together(_digest, places)


def read_images(file: RowFile, roles: Roles, asked: Asked) -> Job:
    assert isinstance(file, ImageFolder)
    for option, value in (("--label", roles.label), ("--id", roles.id), ("--ignore", roles.ignored)):
        if value:
            raise InputError(f"{file.path}: {option} is for tables; the labels of images are the folders they lie in")
    if roles.verified is not None:
        raise InputError(
            f"{file.path}: images have no verified column; give a folder of verified images, class/name.png, by "
            "--verified"
        )
    labels = _labels(file)
    made = _made(file, _Kinds.of(file), asked)
    fates = {IMAGE: made.fate, CLASS: {"kind": "label", "values": len(labels.names)}}
    return Job(
        file,
        CLASS,
        file.ids,
        labels.names,
        labels.codes,
        made.features,
        [],
        fates,
        functools.partial(_read_like, made),
        made.picture_shape,
        [*file.notes, *made.notes],
        pictures=None if made.picture_shape else functools.partial(file.pictures, made.thumbnail),
    )


class _Kinds(NamedTuple):
    """Of what sizes images are, and whether none has color."""

    sizes: collections.Counter[tuple[int, int]]
    gray: bool

    @classmethod
    def of(cls, file: ImageFolder) -> _Kinds:
        sizes: collections.Counter[tuple[int, int]] = collections.Counter()
        gray = True
        for size, colorless in file.each(size_and_grayness):
            sizes[size] += 1
            gray = gray and colorless
        return cls(sizes, gray)

    def one_size(self, largest: int) -> Look:
        """The commonest size, or a square where it is too large."""
        width, height = commonest = self.sizes.most_common(1)[0][0]
        if max(commonest) > largest:
            width = height = largest
        return Look(width, height, self.gray)

    @property
    def thumbnail(self) -> Look:
        """The size of all images, or a square that holds the largest of them."""
        if len(self.sizes) == 1:
            return self.one_size(THUMBNAIL)
        side = min(THUMBNAIL, max(max(size) for size in self.sizes))
        return Look(side, side, self.gray)


class _Made(NamedTuple):
    """What images became."""

    features: np.ndarray
    like: Callable[[ImageFolder], np.ndarray]
    thumbnail: Look
    fate: dict[str, Any]
    notes: Sequence[str] = ()
    picture_shape: tuple[int, ...] | None = None  # where the features are the pixels


def _made(file: ImageFolder, kinds: _Kinds, asked: Asked) -> _Made:
    fate: dict[str, Any] = {"kind": "pictures", "sizes": len(kinds.sizes)}
    if asked.embeddings is not None:
        none = lambda file: np.zeros((file.rows, 0), np.float32)
        return _Made(none(file), none, kinds.thumbnail, fate)
    backbone = asked.backbone
    if backbone is None and len(kinds.sizes) == 1 and kept_as_pixels(kinds.one_size(SIDE).shape):
        backbone = PIXELS
    if backbone == PIXELS:
        look = kinds.one_size(SIDE)
        fate = {"kind": "pictures", "shape": [file.rows, *look.shape]}
        like = functools.partial(_pixels, look)
        return _Made(like(file), like, look, fate, _on_scaled(file, kinds, look), look.shape)
    try:
        made = picture_features(FolderPictures(file), backbone, asked.progress)
    except BackboneError as error:
        raise InputError(str(error)) from error
    fate |= {"backbone": made.backbone, "features": made.values.shape[1]}
    return _Made(made.values, lambda file: made.like(FolderPictures(file)), kinds.thumbnail, fate, made.notes)


def _read_like(made: _Made, file: RowFile) -> VerifiedRows:
    assert isinstance(file, ImageFolder)
    return VerifiedRows(file.path, made.like(file), _labels(file), None, file.ids, file.notes)


def _on_scaled(file: ImageFolder, kinds: _Kinds, look: Look) -> list[str]:
    other = file.rows - kinds.sizes[look.width, look.height]
    scaled = (
        f"{counted(other, 'image')} of {file.rows:,} scaled to {look.width} × {look.height} pixels, "
        "with white beside those of another shape"
    )
    return [scaled] if other else []


def _pixels(look: Look, file: ImageFolder) -> np.ndarray:
    features = aligned((file.rows, *look.shape), np.uint8)
    for begin in range(0, file.rows, AT_ONCE):
        places = np.arange(begin, min(begin + AT_ONCE, file.rows))
        features[places] = file.pictures(look, places)
    return features.reshape(file.rows, -1)


def _labels(file: ImageFolder) -> Labels:
    names = sorted({label for label, _ in file.files})
    place = {name: at for at, name in enumerate(names)}
    return Labels(np.array([place[label] for label, _ in file.files], np.int32), names)


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _visible(folder: Path) -> list[Path]:
    found = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in found:
        try:
            entry.name.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{folder}: the name {entry.name!r} is not UTF-8") from error
    return found


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _require_folder_name(label: str) -> None:
    if not label.strip() or label.startswith(".") or any(letter in label for letter in "/\\\0"):
        raise InputError(f"the label {shown(label)} cannot be the name of a folder of images")


def _free_name(folder: str, name: str, taken: set[tuple[str, str]]) -> str:
    """Names that differ in case alone are one file on some systems."""
    stem, suffix, number, free = Path(name).stem, Path(name).suffix, 1, name
    while (folder.lower(), free.lower()) in taken:
        number += 1
        free = f"{stem}-{number}{suffix}"
    taken.add((folder.lower(), free.lower()))
    return free
