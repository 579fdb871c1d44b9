"""Folders of images, folder/class/name.png: all at one size, gray where all are gray."""

from __future__ import annotations

import collections
import functools
import shutil
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from PIL import ExifTags, Image, ImageOps

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.errors import InputError, counted, listed, shown
from wior.cleaning.tables.job import Job, Labels, VerifiedRows
from wior.cleaning.tables.roles import Roles
from wior.cleaning.tables.row_file import RowFile
from wior.streaming.memory import aligned

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
SIDE = 64
GRAY = ("1", "L", "LA", "La", "I", "F")  # and I;16 of any kind
IMAGE, CLASS = "image", "class"
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
        """What `look` returns of the images; whatever is wrong with one of them is an `InputError` that names it."""
        for label, name in self.files:
            yield _seen(self.path / label / name, look)

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


class Look(NamedTuple):
    """How images become features."""

    width: int
    height: int
    gray: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.height, self.width) if self.gray else (self.height, self.width, 3)

    def pixels(self, image: Image.Image) -> np.ndarray:
        image.draft(None, (self.width, self.height))  # spares decoding of a large JPEG in full
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits
            image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
        if image.has_transparency_data:
            over_white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(over_white, image.convert("RGBA"))
        return np.asarray(self._boxed(image.convert("L" if self.gray else "RGB")))

    def _boxed(self, image: Image.Image) -> Image.Image:
        """Scaled as a whole, with black beside it where its shape is another."""
        if image.size == (self.width, self.height):
            return image
        scale = min(self.width / image.width, self.height / image.height)
        width, height = (max(1, round(side * scale)) for side in image.size)
        scaled = image.resize((width, height), Image.Resampling.LANCZOS)
        box = Image.new(image.mode, (self.width, self.height))
        box.paste(scaled, ((self.width - width) // 2, (self.height - height) // 2))
        return box


def read_images(file: RowFile, roles: Roles) -> Job:
    assert isinstance(file, ImageFolder)
    for option, value in (("--label", roles.label), ("--id", roles.id), ("--ignore", roles.ignored)):
        if value:
            raise InputError(f"{file.path}: {option} is for tables; the labels of images are the folders they lie in")
    if roles.verified is not None:
        raise InputError(
            f"{file.path}: images have no verified column; give a folder of verified images, class/name.png, by "
            "--verified"
        )
    look, note = _choose_look(file)
    labels = _labels(file)
    fates = {
        IMAGE: {"kind": "pictures", "shape": [file.rows, *look.shape]},
        CLASS: {"kind": "label", "values": len(labels.names)},
    }
    return Job(
        file,
        CLASS,
        file.ids,
        labels.names,
        labels.codes,
        _features(file, look),
        [],
        fates,
        functools.partial(read_like, look),
        look.shape,
        [*file.notes, *note],
    )


def read_like(look: Look, file: RowFile) -> VerifiedRows:
    assert isinstance(file, ImageFolder)
    return VerifiedRows(file.path, _features(file, look), _labels(file), None, file.ids, file.notes)


def _labels(file: ImageFolder) -> Labels:
    names = sorted({label for label, _ in file.files})
    place = {name: at for at, name in enumerate(names)}
    return Labels(np.array([place[label] for label, _ in file.files], np.int32), names)


def _choose_look(file: ImageFolder) -> tuple[Look, list[str]]:
    sizes: collections.Counter[tuple[int, int]] = collections.Counter()
    gray = True
    for size, mode in file.each(_size_and_mode):
        sizes[size] += 1
        gray = gray and (mode in GRAY or mode.startswith("I;16"))
    width, height = commonest = sizes.most_common(1)[0][0]
    if max(commonest) > SIDE:
        width, height = SIDE, SIDE
    other = file.rows - sizes[width, height]
    scaled = (
        f"{counted(other, 'image')} of {file.rows:,} scaled to {width} × {height} pixels, "
        "with black beside those of another shape"
    )
    return Look(width, height, gray), [scaled] if other else []


def _features(file: ImageFolder, look: Look) -> np.ndarray:
    features = aligned((file.rows, *look.shape), np.uint8)
    for place, pixels in enumerate(file.each(look.pixels)):
        features[place] = pixels
    return features.reshape(file.rows, -1)


def _size_and_mode(image: Image.Image) -> tuple[tuple[int, int], str]:
    lies_on_its_side = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    return (image.size[::-1] if lies_on_its_side else image.size), image.mode


def _seen(path: Path, look: Callable[[Image.Image], Seen]) -> Seen:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # odd notes in a file, which do no harm
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(path) as image:
                return look(image)
        except UNREADABLE as error:
            raise InputError(f"{path} cannot be decoded: {error}") from error


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
