"""A job of `wior clean`: rows with labels, and what is known of the right ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.staging import staged

UNKNOWN = -1  # in place of a class, where nobody looked


class Labels(NamedTuple):
    """Labels as places in a list of names, each name once."""

    codes: np.ndarray
    names: Sequence[str]

    def among(self, classes: Sequence[str]) -> np.ndarray:
        """The same labels as places in other names, which hold all of these; int32."""
        place = {name: at for at, name in enumerate(classes)}
        return np.array([place[name] for name in self.names], np.int32)[self.codes]

    def name(self, row: int) -> str:
        return self.names[self.codes[row]]


class VerifiedRows(NamedTuple):
    """The rows of a verified file, with the features of the rows to judge."""

    path: Path
    features: np.ndarray | None  # None: it has ids and labels alone
    labels: Labels
    ids: np.ndarray | None = None  # where they are to be matched by ids
    names: np.ndarray | None = None  # of image files, for messages
    notes: Sequence[str] = ()
    keys: Sequence[bytes] | None = None  # equal where rows are; None: the bytes of the features are


class Known(NamedTuple):
    """The right labels of k rows of the table, as one source has them."""

    source: str  # for messages
    places: np.ndarray  # (k,)
    labels: Labels
    where: Callable[[int], str]  # where the source speaks of the i-th of them
    paired: bool = True  # whether the given label is the one from before somebody looked
    chances: np.ndarray | float = np.nan
    same: str = "the same row"  # by what they are known to be the same row
    beside_given: bool = False  # whether the source names the given label too, which was found to be the table's


@dataclass(frozen=True, eq=False)
class Job:
    """n rows with labels, some of them wrong, and rows whose labels are right."""

    file: RowFile
    label: str  # the column that holds the labels
    ids: np.ndarray  # (n,) of str: row numbers from 1 on where no column has them, "class/name.png" for images
    classes: Sequence[str]
    given: np.ndarray  # (n,) places in classes
    features: np.ndarray  # (n, d) of float32, or of uint8
    fields: Sequence[str]  # of a record
    fates: Mapping[str, Any]  # what became of every column
    like: Callable[[RowFile], VerifiedRows]  # reads verified rows, with features as these rows have
    picture_shape: tuple[int, ...] | None = None  # (h, w) or (h, w, 3) where the features of a row are a picture
    notes: Sequence[str] = ()  # for the user, one line each
    known: Sequence[Known] = ()  # what columns of the table say of right labels, until all sources are settled
    pictures: Callable[[np.ndarray], np.ndarray] | None = None  # of places, where the features are something else
    probabilities: np.ndarray | None = None  # (n, classes): what a model of the user's own says of every row
    right: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))  # (n,) places, or UNKNOWN
    # (n,) with which chance a row was drawn to be verified: nan where nobody knows, 0 where its score was the reason
    chances: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    # (n,) of bool: of a verified row, whether the label given is the one from before somebody looked
    paired: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))
    keys: Callable[[], Sequence[bytes]] | None = None  # (n,) equal where rows are; None: the bytes of the features are
    # verified rows that are none of the n
    outside_features: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0), np.float32))
    outside: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))  # (m,) places in classes

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def kind(self) -> str:
        """ "table", "arrays" or "images"."""
        return self.file.kind

    @property
    def judged(self) -> np.ndarray:
        """The places of the rows to judge: all that are not known."""
        return np.flatnonzero(self.right == UNKNOWN)

    def records(self, places: np.ndarray) -> list[list[str]]:
        """The texts of the fields of the rows in `places`."""
        return self.file.records(np.asarray(places, np.int64), self.fields)

    @property
    def images(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """The pictures (k, h, w) or (k, h, w, 3) of uint8 of k places; `None` where rows are no pictures."""
        if self.pictures is not None:
            return self.pictures
        shape = self.picture_shape
        if shape is None:
            return None
        return lambda places: self.features[places].reshape(len(places), *shape)

    def write(self, target: Path, keep: np.ndarray, changes: Mapping[int, str] | None = None) -> Path:
        """A copy of the rows with `keep`, in the format of the input; `changes` are new labels by place.

        It lies at `target`, or as cleaned.* in that folder.
        """
        keep = np.asarray(keep, bool)
        if keep.shape != self.given.shape:
            raise ValueError(f"keep must have shape {self.given.shape}, one value for each row, got {keep.shape}")
        path = target / f"cleaned{self.file.suffix}" if target.is_dir() else target
        write_copy(self.file, path, self.label, keep, {} if changes is None else changes)
        return path


def write_copy(file: RowFile, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
    """All of the copy or nothing of it, and never in the input itself."""
    source = file.path.resolve()
    if source in (path.resolve(), *path.resolve().parents):
        raise InputError(f"{path} is the input or lies in it; give another name for the output")
    if not path.name.lower().endswith(file.suffix.lower()):
        raise InputError(f"{path} must end in {file.suffix}, the format in which a copy of {file.path} is written")
    with staged(path) as unfinished:
        file.write(unfinished, label, keep, changes)
