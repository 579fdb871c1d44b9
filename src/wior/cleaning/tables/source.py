"""Rows with labels, from a file or a folder, and the task that they set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.staging import staged


@dataclass(frozen=True, eq=False)
class Source:
    """n rows with labels."""

    file: RowFile
    label: str  # the column that holds the labels
    ids: np.ndarray  # (n,) of str: row numbers from 1 on where no column has them, "class/name.png" for images
    labels: np.ndarray  # (n,) of str
    features: np.ndarray  # (n, d) of float32, or of uint8
    columns: Sequence[str]  # the fields of a record
    report: Mapping[str, Any]  # what became of every column
    picture_shape: tuple[int, ...] | None = None  # (h, w) or (h, w, 3) where the features of a row are a picture

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def kind(self) -> str:
        """ "table", "arrays" or "images"."""
        return self.file.kind

    def records(self, places: np.ndarray) -> list[list[str]]:
        """The texts of the fields of the rows in `places`."""
        return self.file.records(np.asarray(places, np.int64), self.columns)

    @property
    def images(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """The pictures (k, h, w) or (k, h, w, 3) of uint8 of k places; `None` where rows are no pictures."""
        shape = self.picture_shape
        if shape is None:
            return None
        return lambda places: self.features[places].reshape(len(places), *shape)

    def write(self, target: Path, keep: np.ndarray, labels: np.ndarray) -> Path:
        """A copy of the rows with `keep`, with `labels` (n,), in the source's own format: at `target`, or as cleaned.* in that folder."""
        keep, labels = np.asarray(keep, bool), np.asarray(labels)
        for name, values in (("keep", keep), ("labels", labels)):
            if values.shape != self.labels.shape:
                raise ValueError(
                    f"{name} must have shape {self.labels.shape}, one value for each row, got {values.shape}"
                )
        path = target / f"cleaned{self.path.suffix}" if target.is_dir() else target
        changed = np.flatnonzero(keep & (labels != self.labels))
        write_copy(self.file, path, self.label, keep, {int(place): str(labels[place]) for place in changed})
        return path


def write_copy(file: RowFile, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
    """All of the copy or nothing of it, and never in the source itself."""
    source = file.path.resolve()
    if source in (path.resolve(), *path.resolve().parents):
        raise InputError(f"{path} is the input or lies in it; give another name for the output")
    if file.kind != "images" and path.suffix.lower() != source.suffix.lower():
        raise InputError(f"{path} must end in {source.suffix}, as the input does: it is written in the same format")
    with staged(path) as unfinished:
        file.write(unfinished, label, keep, changes)


class Verified(NamedTuple):
    """The rows of a verified file, with the features of the training rows."""

    path: Path
    features: np.ndarray
    labels: np.ndarray
    ids: np.ndarray | None = None  # where they are to be matched by ids
    names: np.ndarray | None = None  # of image files, for messages
    notes: Sequence[str] = ()


class Training(NamedTuple):
    """Training rows as read, and how verified rows are read like them."""

    source: Source
    marked: np.ndarray | None  # (n,) of bool: the verified column
    notes: Sequence[str]
    read_verified: Callable[[RowFile], Verified]


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to judge, and rows whose labels are right."""

    train: Source
    rows: np.ndarray  # places in train that are to be judged: all that are not known
    verified_features: np.ndarray
    verified_labels: np.ndarray  # of str
    known: dict[int, str]  # places in train that are verified, with the right label
    notes: list[str]  # for the user, one line each
