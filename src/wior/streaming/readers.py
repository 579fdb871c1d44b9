"""Readers of sources that give many rows at once: arrays, Arrow tables, objects that take an array of row numbers."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

Tree = Any


class Unexpected(Exception):
    pass


def in_one_line(error: Exception) -> str:
    """An error of somebody else's code, whose message may have many lines."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class OfArray:
    """An array of numpy, in memory or mapped from a file."""

    def __init__(self, name: str, source: np.ndarray):
        if source.ndim == 0:
            raise ValueError(
                f"{name} is a single number, {source!r}; it must be an array with one row for each example"
            )
        self.source, self.array = source, source.view(np.ndarray)
        # of any other array `take` would first make a whole copy
        self.taken_from = source.flags.c_contiguous and source.flags.aligned and source.dtype.isnative
        self.row = row_of(name, source.shape[1:], source.dtype)
        self.file = getattr(source, "filename", None)
        self.stat = None if self.file is None else os.stat(self.file)

    def length(self) -> int:
        return len(self.array)

    def demand_whole(self) -> None:
        # to read past the end of a mapped file would end the process
        if self.stat is None or self.file is None or not os.path.exists(self.file):
            return
        now = os.stat(self.file)
        if now.st_ino == self.stat.st_ino and now.st_size < self.stat.st_size:
            raise Unexpected(
                f"its file {str(self.file)!r} had {self.stat.st_size} bytes when the run was set up, and has "
                f"{now.st_size} now"
            )

    def read(self, numbers: np.ndarray, into: list[np.ndarray]) -> None:
        if self.taken_from and into[0].dtype == self.array.dtype:
            # the numbers were checked before; the other modes gather into a buffer first
            np.take(self.array, numbers, 0, out=into[0], mode="clip")
        else:
            into[0][...] = self.array[numbers]


class OfTable:
    """An Arrow table: its columns as views of its chunks, which a memory map leaves in their file."""

    def __init__(self, name: str, source: Any):
        self.source = source
        self.columns = {
            column: [_chunk(f"{name}[{column!r}]", chunk) for chunk in source.column(column).chunks]
            for column in source.column_names
        }
        self.rows = source.num_rows
        # every column may have chunks of its own
        self.ends = {column: np.cumsum([len(chunk) for chunk in chunks]) for column, chunks in self.columns.items()}
        self.row = {
            column: row_of(f"{name}[{column!r}]", chunks[0].shape[1:], chunks[0].dtype)
            for column, chunks in self.columns.items()
            if chunks
        }

    def length(self) -> int:
        return self.rows if self.row else 0

    def demand_whole(self) -> None:
        pass  # a table does not change

    def read(self, numbers: np.ndarray, into: list[np.ndarray]) -> None:
        for column, out in zip(sorted(self.columns), into, strict=True):  # the order of a dictionary's leaves
            chunks, ends = self.columns[column], self.ends[column]
            which = np.searchsorted(ends, numbers, "right")
            by_chunk = np.argsort(which, kind="stable")
            for chunk, places in _groups(which, by_chunk):
                begins = ends[chunk] - len(chunks[chunk])
                out[places] = chunks[chunk][numbers[places] - begins]


class OfObject:
    """Anything with a length that takes an array of row numbers."""

    def __init__(self, name: str, source: Any, first: Tree, given: Any = None):
        """`first` has some rows; `given` is what rows are asked of, where it is not the source itself."""
        self.source, self.given = source, source if given is None else given
        leaves = jax.tree_util.tree_leaves_with_path(first)
        self.structure: Any = jax.tree.structure(first)
        rows = [
            row_of(name + jax.tree_util.keystr(path), np.shape(leaf)[1:], np.asarray(leaf).dtype)
            for path, leaf in leaves
        ]
        self.row = jax.tree.unflatten(self.structure, rows)

    def length(self) -> int:
        return len(self.source)

    def demand_whole(self) -> None:
        pass

    def read(self, numbers: np.ndarray, into: list[np.ndarray]) -> None:
        found = self.given[numbers]
        if jax.tree.structure(found) != self.structure:
            raise Unexpected(f"expected a tree {self.structure}, got {jax.tree.structure(found)}")
        expected = jax.tree_util.tree_leaves_with_path(self.row)
        for (path, row), leaf, out in zip(expected, jax.tree.leaves(found), into, strict=True):
            array = np.asarray(leaf)
            if array.shape != out.shape or array.dtype != row.dtype:
                raise Unexpected(
                    f"expected{jax.tree_util.keystr(path) and ' at ' + jax.tree_util.keystr(path)} "
                    f"{row.dtype}{list(out.shape)}, "
                    f"got {array.dtype}{list(array.shape)}{self._row_apart(numbers, path, row)}"
                )
            out[...] = array

    def _row_apart(self, numbers: np.ndarray, path: Any, row: Any) -> str:
        """The first row whose shape or type is another one, for an error message; nothing where none is found."""
        for number in numbers.tolist():
            try:
                found = dict(jax.tree_util.tree_leaves_with_path(self.given[np.array([number])]))
                alone = np.asarray(found[path])
            except Exception:  # noqa: BLE001 - what is wrong is said without it
                return ""
            if len(alone) == 1 and (alone.shape[1:] != row.shape or alone.dtype != row.dtype):
                return f"; row {number} is {alone.dtype}{list(alone.shape[1:])}"
        return ""


def row_of(name: str, shape: tuple[int, ...], dtype: np.dtype) -> jax.ShapeDtypeStruct:
    if dtype.kind not in "biufc" and not jax.dtypes.issubdtype(dtype, np.number):
        raise TypeError(f"{name} must hold numbers, got dtype {dtype}")
    return jax.ShapeDtypeStruct(shape, dtype)


def _chunk(name: str, chunk: Any) -> np.ndarray:
    """A chunk of an Arrow column as an array that shares its memory; lists of a fixed size are further axes."""
    import pyarrow

    lengths: list[int] = []
    while pyarrow.types.is_fixed_size_list(chunk.type) and chunk.null_count == 0:
        lengths.append(chunk.type.list_size)
        chunk = chunk.flatten()
    if chunk.null_count:
        raise ValueError(f"{name} has {chunk.null_count} missing values; fill them or leave these rows out")
    if not (pyarrow.types.is_integer(chunk.type) or pyarrow.types.is_floating(chunk.type)):
        raise TypeError(
            f"{name} has the type {chunk.type}; it must hold numbers, or lists of a fixed size of them. Cast it, "
            "or take the columns that are needed with table.select"
        )
    return chunk.to_numpy(zero_copy_only=True).reshape(-1, *lengths)


def _groups(which: np.ndarray, by_chunk: np.ndarray) -> Any:
    """(chunk, places) for each chunk that has any."""
    numbers, starts = np.unique(which[by_chunk], return_index=True)
    return zip(numbers.tolist(), np.split(by_chunk, starts[1:]), strict=True)
