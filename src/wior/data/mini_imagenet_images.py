"""MiniImageNet: 100 classes of ImageNet, 600 photographs each, 84 × 84 pixels, split 64/16/20 by classes (Ravi and
Larochelle, 2017). ImageNet's terms forbid a public copy, so nothing is downloaded.

It is read in one of two layouts, from `mini_imagenet` in a folder of data sets or from the folder itself:

- `train.csv`, `val.csv`, `test.csv` (also as `ravi_train.csv`, and compressed as `.csv.gz`) with the columns filename
  and label, and beside them `images` with the files. Images of another size are resized with the Lanczos filter.
- `mini-imagenet-cache-train.pkl`, `-val.pkl`, `-test.pkl`: dicts of `image_data`, the images, and `class_dict`, the
  places of each class among them. They are read without running what a pickle file may contain: see `pickles.py`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wior.data.arrays import remembered
from wior.data.few_shot import FewShotParts, ImageClasses
from wior.data.files import VARIABLE, cache_folder, looked_in, places
from wior.data.images import color
from wior.data.pickles import read_plain_pickle
from wior.data.published_file import contents
from wior.running.progress import counter

SIDE, PER_CLASS = 84, 600
CLASSES = {"train": 64, "val": 16, "test": 20}
# sha256 of the sorted names of Ravi's classes, one to a line: other splits of the same 100 classes are in use
RAVI = {
    "train": "0f107a65ea80bf1e1d1e5e18d368f0d007e3e4c1885f33cc071363997e3814e9",
    "val": "489f8af43b2560094c8766f36213842de429622b67b5e9fed1277ebb99806f7d",
    "test": "0db5287e659efd3391c100c88f40df0f66510dfa9be94b8d0ecc66498f4e9810",
}
FOLDERS = ("mini_imagenet", "mini-imagenet", "miniImagenet", ".")
LAYOUTS = (
    "train.csv, val.csv and test.csv (columns filename,label) with the folder images beside them, "
    "or mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl"
)

Classes = dict[str, list[str]]  # the files of each class


def mini_imagenet(folder: str | Path | None = None, *, strict: bool = True, progress: bool = False) -> FewShotParts:
    """MiniImageNet's images, 84 × 84 × 3.

    Decoded images are kept in the cache (1.3 GB), so that only the first call takes minutes.

    Parameters
    ----------
    folder : str or Path, optional
        Where to look first; then in `WIOR_DATA` and in the cache. Nothing is downloaded.
    strict : bool
        Accept nothing but Ravi's classes with 600 images each.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    FewShotParts
        64, 16 and 20 classes of 600 images, sorted by their names in WordNet.

    Examples
    --------
    >>> from wior.data import mini_imagenet
    >>> mini_imagenet("data").train.images.shape  # doctest: +SKIP
    (64, 600, 84, 84, 3)
    """
    unfinished = ""
    for place, name in itertools.product(places(folder), FOLDERS):
        base = place / name
        pickles = {part: path for part in CLASSES if (path := base / f"mini-imagenet-cache-{part}.pkl").is_file()}
        if len(pickles) == len(CLASSES):
            parts = {part: read_pickle(path) for part, path in pickles.items()}
            _check_split(
                {part: {name: len(parts[part].images[0]) for name in parts[part].names} for part in parts}, base, strict
            )
            return FewShotParts(*(parts[part] for part in CLASSES))
        lists = {part: listed for part in CLASSES if (listed := _list(base, part))}
        if len(lists) == len(CLASSES) and (base / "images").is_dir():
            return read_lists(lists, base / "images", strict, progress)
        if found := [path.name for path in (*pickles.values(), *lists.values())]:
            unfinished = unfinished or f" ({base} has {', '.join(found)} alone)"
    raise FileNotFoundError(
        f"MiniImageNet is not in {looked_in(folder)}{unfinished}, and ImageNet's terms allow no public download. Make "
        f"it from ImageNet or get it from somebody who has it, and put {LAYOUTS} into {cache_folder() / FOLDERS[0]}, "
        f"or into DIR/{FOLDERS[0]} of any folder DIR and name DIR in {VARIABLE}, with --data DIR or as folder=DIR. A "
        "color stand-in is tiny_imagenet_fs"
    )


def _list(base: Path, part: str) -> Path | None:
    names = (f"{prefix}{part}.csv{ending}" for prefix in ("", "ravi_") for ending in ("", ".gz"))
    return next((base / name for name in names if (base / name).is_file()), None)


def read_lists(lists: Mapping[str, Path], images: Path, strict: bool = True, progress: bool = False) -> FewShotParts:
    """The images that the lists name, decoded or from the cache."""
    parts = {part: read_list(path) for part, path in lists.items()}
    _check_split({part: {name: len(files) for name, files in parts[part].items()} for part in parts}, images, strict)
    wanted = [file for classes in parts.values() for files in classes.values() for file in files]
    if len(set(wanted)) != len(wanted):
        raise ValueError(f"{images}: an image must be in one list alone, got {len(wanted) - len(set(wanted)):,} in two")
    there = {entry.name: entry.stat() for entry in os.scandir(images)}
    absent = [file for file in wanted if file not in there]
    if absent:
        raise FileNotFoundError(
            f"{images} lacks {len(absent):,} of {len(wanted):,} images in the lists, first {absent[0]}"
        )

    def decode() -> dict[str, np.ndarray]:
        decoded = np.empty((len(wanted), SIDE, SIDE, 3), np.uint8)
        with counter(progress, "decoding MiniImageNet") as at:
            for place, file in enumerate(wanted):
                decoded[place] = color((images / file).read_bytes(), images / file, SIDE)
                at(place + 1, len(wanted))
        return {"images": decoded}

    stamps = (f"{file} {there[file].st_size} {there[file].st_mtime_ns}" for file in wanted)
    made_from = hashlib.sha256("\n".join((str(images.resolve()), *stamps)).encode()).hexdigest()
    expected = {"images": ((len(wanted), SIDE, SIDE, 3), "uint8")}
    decoded = remembered("mini_imagenet_84", made_from, expected, decode)["images"]
    read, start = {}, 0
    for part, classes in parts.items():
        per_class = len(next(iter(classes.values())))
        stop = start + len(classes) * per_class
        block = decoded[start:stop].reshape(len(classes), per_class, SIDE, SIDE, 3)
        read[part], start = ImageClasses(block, tuple(classes)), stop
    return FewShotParts(*(read[part] for part in CLASSES))


def read_list(path: Path) -> Classes:
    """The files of each class, classes sorted by name."""
    try:
        rows = list(csv.reader(io.StringIO(contents(path).decode())))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a list of images: {error}") from error
    if not rows or rows[0] != ["filename", "label"]:
        raise ValueError(
            f"{path} must begin with the line filename,label, got {','.join(rows[0]) if rows else 'nothing'}"
        )
    classes: Classes = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2 or not all(row) or Path(row[0]).name != row[0]:
            raise ValueError(f"{path}, line {number}: must be a file in images and its class, got {','.join(row)!r}")
        classes.setdefault(row[1], []).append(row[0])
    files = [file for listed in classes.values() for file in listed]
    if len(set(files)) != len(files):
        raise ValueError(f"{path} must name each image once, got {len(files) - len(set(files)):,} twice")
    return dict(sorted(classes.items()))


def read_pickle(path: Path) -> ImageClasses:
    """One part, from a dict of `image_data` and `class_dict`."""
    found = read_plain_pickle(path)
    if not isinstance(found, dict) or not {"image_data", "class_dict"} <= set(found):
        raise ValueError(
            f"{path} must have image_data and class_dict, got {list(found) if isinstance(found, dict) else found!r}"
        )
    images, places_of = found["image_data"], found["class_dict"]
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, 3):
        shape = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else repr(images)
        raise ValueError(f"{path}: image_data must be uint8 (images, {SIDE}, {SIDE}, 3), got {shape}")
    if not isinstance(places_of, dict) or not places_of or len({len(places) for places in places_of.values()}) != 1:
        raise ValueError(f"{path}: class_dict must have as many images of each class")
    names = tuple(sorted(places_of))
    places = np.array([list(places_of[name]) for name in names])
    if places.dtype.kind != "i" or not np.array_equal(np.sort(places, axis=None), np.arange(len(images))):
        raise ValueError(f"{path}: class_dict must give each of the {len(images):,} images to one class")
    return ImageClasses(images[places], names)


def _check_split(counts: Mapping[str, Mapping[str, int]], where: Path, strict: bool) -> None:
    """Raises `ValueError` where parts share classes, classes differ in size or, if `strict`, they are not Ravi's."""
    for part, classes in counts.items():
        if len(set(classes.values())) != 1:
            raise ValueError(
                f"{where}: the classes of {part} must have as many images each, got {sorted(set(classes.values()))}"
            )
    for one, other in itertools.combinations(counts, 2):
        if shared := sorted(set(counts[one]) & set(counts[other])):
            raise ValueError(f"{where}: {one} and {other} must have no class in common, got {', '.join(shared[:3])}")
    if not strict:
        return
    for part, classes in counts.items():
        found = (len(classes), *set(classes.values()))
        if found != (CLASSES[part], PER_CLASS):
            raise ValueError(
                f"{where}: {part} must have {CLASSES[part]} classes of {PER_CLASS} images, got {found[0]} of "
                f"{found[1]}; strict=False takes them"
            )
        if hashlib.sha256("\n".join(sorted(classes)).encode()).hexdigest() != RAVI[part]:
            raise ValueError(
                f"{where}: the classes of {part} are not those of Ravi's split, first {min(classes)}; strict=False "
                "takes them"
            )
