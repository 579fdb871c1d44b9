"""Arrays in .npz files, never pickled: features under `X` or `features`, labels under `y`, `labels` or as named."""

from __future__ import annotations

import functools
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.columns import LARGEST
from wior.cleaning.tables.errors import InputError, at, listed, shown
from wior.cleaning.tables.job import Job, VerifiedRows
from wior.cleaning.tables.relabel import relabeled, type_for
from wior.cleaning.tables.roles import RoleColumns, Roles, gather, row_numbers
from wior.cleaning.tables.row_file import RowFile, Stamp, require_column
from wior.streaming.memory import aligned

FEATURES = ("X", "features")
ROWS_AT_ONCE = 2**16
LABELS = ("y", "labels")
MOST_FIELDS = 100  # features that a record shows


class ArrayFile:
    """The columns are the arrays of one number or text for each row."""

    kind = "arrays"
    notes: Sequence[str] = ()

    def __init__(self, path: Path):
        self.path = path
        self.suffix = path.suffix
        self._stamp = Stamp(path)
        self._columns: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, array in self._arrays():
            self.shapes[name] = array.shape
            if array.ndim == 1 and array.dtype.kind in "USiufb":
                self._columns[name] = array
        candidates = [name for name in FEATURES if self.shapes.get(name)]
        if not candidates:
            raise InputError(f"{path} must have features under X or features; its arrays are {listed(self.shapes)}")
        self.features_name = candidates[0]
        self.rows = self.shapes[self.features_name][0]
        if self.rows == 0:
            raise InputError(f"{path}: {self.features_name} has no rows")
        self._columns = {name: array for name, array in self._columns.items() if len(array) == self.rows}
        self.names = list(self._columns)

    @functools.cached_property
    def features(self) -> np.ndarray:
        """(n, d) of float32 or, as they are, of uint8."""
        array, name = dict(self._arrays([self.features_name]))[self.features_name], self.features_name
        picture = array.dtype == np.uint8 and (array.ndim == 3 or (array.ndim == 4 and array.shape[3] in (1, 3)))
        if not picture and (array.ndim != 2 or array.dtype.kind not in "iufb"):
            raise InputError(
                f"{self.path}: {name} must be numbers (n, d), or pictures (n, h, w) or (n, h, w, 3) of uint8, "
                f"got {array.dtype} {array.shape}"
            )
        if array.size == 0:
            raise InputError(f"{self.path}: {name} has the shape {array.shape}, and no features")
        array = array.reshape(self.rows, -1)
        if array.dtype.kind == "f":
            self._demand_finite(array)
        features = aligned(array.shape, np.uint8 if array.dtype == np.uint8 else np.float32)
        features[...] = array
        return features

    def _demand_finite(self, array: np.ndarray) -> None:
        for begin in range(0, self.rows, ROWS_AT_ONCE):
            # not (x <= LARGEST) is true of nan as well
            wrong = np.argwhere(~(np.abs(array[begin : begin + ROWS_AT_ONCE]) <= LARGEST))
            if len(wrong):
                row, column = begin + wrong[0, 0], wrong[0, 1]
                raise InputError(
                    f"{at(self.path, row + 1, self.field(column))}: {array[row, column]} must be a finite number"
                )

    @property
    def picture_shape(self) -> tuple[int, ...] | None:
        shape = self.shapes[self.features_name][1:]
        return None if len(shape) == 1 else shape[:2] if shape[2:] == (1,) else shape

    def field(self, column: int) -> str:
        return f"{self.features_name} {column + 1}"

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
        yield {name: Cells(self.path, name, 0, self._arrow(name)) for name in names}

    def records(self, places: np.ndarray, names: Sequence[str]) -> list[list[str]]:
        columns = []
        for name in names:
            if name in self._columns:
                cells = Cells(self.path, name, 0, self._arrow(name).take(pa.array(places)))
                columns.append(cells.texts.to_pylist())
            else:
                number = int(name.removeprefix(self.features_name)) - 1
                columns.append(self.features[places, number].astype(str).tolist())
        return [list(texts) for texts in zip(*columns, strict=True)] if columns else [[] for _ in places]

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        with zipfile.ZipFile(path, "x", self._compression(), allowZip64=True) as archive:
            for name, shape in self.shapes.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    if name == label:
                        np.lib.format.write_array(member, self._relabeled(label, changes)[keep], allow_pickle=False)
                    elif shape[:1] == (self.rows,):
                        self._write_rows(member, name, keep)
                    else:
                        ((_, array),) = self._arrays([name])
                        np.lib.format.write_array(member, array, allow_pickle=False)

    def _write_rows(self, target: IO[bytes], name: str, keep: np.ndarray) -> None:
        """The rows to keep, from file to file and some at a time: neither array is made."""
        self._stamp.check()
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, by_columns, dtype = read(member)
            if by_columns or version > (2, 0):
                ((_, array),) = self._arrays([name])
                np.lib.format.write_array(target, np.ascontiguousarray(array[keep]), allow_pickle=False)
                return
            kept = (int(np.count_nonzero(keep)), *shape[1:])
            header = {"shape": kept, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
            np.lib.format.write_array_header_1_0(target, header)
            size = dtype.itemsize * int(np.prod(shape[1:]))
            for begin in range(0, self.rows, ROWS_AT_ONCE):
                own = keep[begin : begin + ROWS_AT_ONCE]
                rows = np.frombuffer(member.read(len(own) * size), np.uint8).reshape(len(own), size)
                target.write(rows[own].tobytes())

    def _relabeled(self, label: str, changes: Mapping[int, str]) -> np.ndarray:
        places = sorted(changes)
        texts = [changes[place] for place in places]
        column = self._arrow(label)
        kind = type_for(column.type, texts)
        array = relabeled(column, kind, np.array(places, np.int64), texts)
        if not pa.types.is_string(kind):
            return np.asarray(array.to_numpy(zero_copy_only=False), self._columns[label].dtype)
        found = np.array(array.to_pylist())
        return np.char.encode(found, "utf-8") if self._columns[label].dtype.kind == "S" else found

    def _arrow(self, name: str) -> pa.Array:
        array = self._columns[name]
        if array.dtype.kind == "S":
            try:
                array = np.char.decode(array, "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"{at(self.path, column=name)}: its texts are not UTF-8") from error
        elif array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
        return pa.array(array.astype(array.dtype.newbyteorder("=")))

    def _compression(self) -> int:
        with zipfile.ZipFile(self.path) as archive:
            return max(member.compress_type for member in archive.infolist())

    def _arrays(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, np.ndarray]]:
        """One after the other: they need not all be in memory."""
        self._stamp.check()
        name = ""
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                for name in archive.files if names is None else names:
                    yield name, archive[name]
        except (ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            if "allow_pickle" in str(error) and name:
                raise InputError(
                    f"{self.path}: the array {shown(name)} holds Python objects, which are not read; save texts as an "
                    "array of str"
                ) from error
            raise InputError(f"{self.path} is truncated, damaged or no .npz file") from error


def read_arrays(file: RowFile, roles: Roles) -> Job:
    assert isinstance(file, ArrayFile)
    if roles.ignored:
        raise InputError(f"{file.path}: --ignore is for the columns of tables")
    label = _label_name(file, roles.label)
    roles = roles._replace(label=label)
    roles.require(file)
    found = RoleColumns(roles)
    gather(file, found.by_name)
    if found.ids is not None:
        found.ids.require_different()
    features = file.features
    known = {label: {"kind": "label", "values": len(found.labels.numbers)}, file.features_name: _described(file)}
    known |= {name: {"kind": "id"} for name in [roles.id] if name}
    known |= {name: {"kind": "verified"} for name in [roles.verified] if name}
    known |= {name: {"kind": "verified label"} for name in [roles.right] if name}
    fates = {name: known.get(name, {"kind": "ignored", "why": "not asked for"}) for name in file.shapes}
    shown_features = features.shape[1] if file.picture_shape is None and features.shape[1] <= MOST_FIELDS else 0
    labels = found.labels.all()
    classes = sorted(labels.names)
    verified, notes = found.known(file.path)
    return Job(
        file,
        label,
        row_numbers(file.rows) if found.ids is None else found.ids.all(),
        classes,
        labels.among(classes),
        features,
        [name for name in file.names if name != label] + [file.field(column) for column in range(shown_features)],
        fates,
        functools.partial(read_like, file, label, roles.id),
        file.picture_shape,
        [*(f"array {shown(name)} is ignored: {fate['why']}" for name, fate in fates.items() if "why" in fate), *notes],
        verified,
    )


def read_like(like: ArrayFile, label: str, id_name: str | None, file: RowFile) -> VerifiedRows:
    """Verified rows, of the same layout as the rows to judge."""
    assert isinstance(file, ArrayFile)
    label = _label_name(file, label if label in file.names else None)
    wanted, found = like.shapes[like.features_name][1:], file.shapes[file.features_name][1:]
    dtype = like.features.dtype
    if found != wanted or (file.features.dtype != dtype and dtype == np.uint8):
        raise InputError(
            f"{file.path}: {file.features_name} must be as in the training rows, {dtype} (n, {_shape(wanted)}), "
            f"got {file.features.dtype} (n, {_shape(found)})"
        )
    rows = RoleColumns(Roles(label, id_name if id_name in file.names else None))
    gather(file, rows.by_name)
    ids = None if rows.ids is None else rows.ids.all()
    return VerifiedRows(file.path, file.features.astype(dtype, copy=False), rows.labels.all(), ids)


def _label_name(file: ArrayFile, name: str | None) -> str:
    if name is None:
        name = next((name for name in LABELS if name in file.shapes), None)
        if name is None:
            raise InputError(
                f"{file.path} must have labels under y or labels, or name them by --label; its arrays are "
                f"{listed(file.shapes)}"
            )
    if name in file.shapes and name not in file.names:
        raise InputError(
            f"{file.path}: {shown(name)} must have one label for each of {file.rows:,} rows, got the shape "
            f"{file.shapes[name]}"
        )
    require_column(file, name, "--label")
    return name


def _described(file: ArrayFile) -> dict[str, Any]:
    kind = "numbers" if file.picture_shape is None else "pictures"
    return {"kind": kind, "shape": list(file.shapes[file.features_name])}


def _shape(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))
