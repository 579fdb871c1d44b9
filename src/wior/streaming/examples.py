"""The reader of sources that give one row at a time: a data set of torch, or a list of arrays of unequal shape.

What a row is follows from the first rows, and every other row must be the same: its arrays are put beside each other in
memory that is laid out before they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from wior.streaming.readers import Unexpected, in_one_line, row_of

Tree = Any
Collate = Callable[[list[Any]], Tree]

FIRST_ROWS = 4  # that are looked at when a problem is made


class OfExamples:
    """Anything with a length that takes the number of one row; `collate` makes arrays of a list of rows."""

    def __init__(self, name: str, source: Any, collate: Collate | None = None):
        self.source, self.collate = source, collate
        first = range(min(self.length(), FIRST_ROWS))
        try:
            trees = [self._alone(number) for number in first]
            leaves = jax.tree_util.tree_leaves_with_path(trees[0])
            if not leaves:
                made = "" if collate is None else " in what collate made of it"
                raise Unexpected(f"row 0 has no arrays{made}: {source[0]!r:.80}")
            self.row = jax.tree_util.tree_map_with_path(
                lambda path, leaf: row_of(name + jax.tree_util.keystr(path), leaf.shape, leaf.dtype), trees[0]
            )
            for number, found in zip(first, trees, strict=True):
                self._demand_like_the_first(number, found)
            if collate is not None:
                self._demand_rows_by_themselves(trees)
        except Unexpected as wrong:
            raise ValueError(f"{name}: {wrong}") from wrong.__cause__

    def length(self) -> int:
        return len(self.source)

    def demand_whole(self) -> None:
        pass

    def read(self, numbers: np.ndarray, into: list[np.ndarray]) -> None:
        if self.collate is None:
            for place, number in enumerate(numbers.tolist()):
                found = self._alone(number)
                self._demand_like_the_first(number, found)
                for out, leaf in zip(into, jax.tree.leaves(found), strict=True):
                    out[place] = leaf
            return
        found = self._together([self._given(number) for number in numbers.tolist()])
        if not self._is_like_the_first(jax.tree.map(lambda leaf: leaf[0], found)):
            for number in numbers.tolist():
                self._demand_like_the_first(number, self._alone(number))
            raise Unexpected(
                f"collate gave {len(numbers)} rows together as {_described(found)}, and each by itself as row 0, "
                f"{_described(self.row)}; it must give every row one shape, whatever rows are with it"
            )
        for out, leaf in zip(into, jax.tree.leaves(found), strict=True):
            out[...] = leaf

    def _given(self, number: int) -> Any:
        try:
            return self.source[number]
        except Exception as error:
            raise Unexpected(f"reading row {number} failed ({in_one_line(error)})") from error

    def _alone(self, number: int) -> Tree:
        """One row as a tree of arrays."""
        given = self._given(number)
        if self.collate is not None:
            return jax.tree.map(lambda leaf: leaf[0], self._together([given]))
        try:
            return as_arrays(given)
        except (TypeError, ValueError, RuntimeError) as error:
            raise Unexpected(f"row {number} is no tree of arrays ({in_one_line(error)})") from error

    def _together(self, rows: list[Any]) -> Tree:
        """Some rows as one tree of arrays with a first axis of rows."""
        assert self.collate is not None
        try:
            found = as_arrays(self.collate(rows))
        except Exception as error:
            raise Unexpected(f"collate failed on a list of {len(rows)} ({in_one_line(error)})") from error
        for path, leaf in jax.tree_util.tree_leaves_with_path(found):
            if leaf.ndim == 0 or len(leaf) != len(rows):
                raise Unexpected(
                    "collate must return arrays with one row for each row of the list that it is given; for "
                    f"{len(rows)} of them it returned the shape {leaf.shape}{_at(path)}"
                )
        return found

    def _is_like_the_first(self, found: Tree) -> bool:
        return not any(self._differences(found))

    def _demand_like_the_first(self, number: int, found: Tree) -> None:
        for difference in self._differences(found):
            remedy = (
                "where shapes differ, wior.Streamed(source, collate=...) takes a function that pads a list of rows"
                if self.collate is None
                else "collate must give every row one shape: pad to a length of your own, not to the longest given"
            )
            raise Unexpected(f"row {number} {difference}; {remedy}")

    def _differences(self, found: Tree) -> Iterator[str]:
        """In what a row differs from the first one."""
        structures: list[Any] = [jax.tree.structure(found), jax.tree.structure(self.row)]
        if structures[0] != structures[1]:
            yield f"is {_described(found)}, and row 0 is {_described(self.row)}"
            return
        expected = jax.tree_util.tree_leaves_with_path(self.row)
        for (path, row), leaf in zip(expected, jax.tree.leaves(found), strict=True):
            if leaf.shape != row.shape or leaf.dtype != row.dtype:
                yield f"is {_described(leaf)}{_at(path)}, and row 0 is {_described(row)}{_at(path)}"

    def _demand_rows_by_themselves(self, trees: list[Tree]) -> None:
        """Refuses a collate whose rows depend on the rows beside them: these are not the rows of a batch."""
        found = self._together([self._given(number) for number in range(len(trees))])
        for path, leaf in jax.tree_util.tree_leaves_with_path(found):
            for number, one in enumerate(trees):
                alone = dict(jax.tree_util.tree_leaves_with_path(one)).get(path)
                if alone is None or alone.shape != leaf.shape[1:] or not _equal(alone, leaf[number]):
                    raise Unexpected(
                        f"collate must treat each row by itself, since rows are read many at a time; row {number} "
                        f"in a list of its own differs from row {number} among {len(trees)}{_at(path)}"
                    )


def as_arrays(given: Any) -> Tree:
    """What a source or a collate function returned as a tree of arrays of numpy; a list of numbers is an array."""
    if isinstance(given, Mapping):
        return {key: as_arrays(value) for key, value in given.items()}
    if isinstance(given, tuple):
        values = [as_arrays(value) for value in given]
        return type(given)(*values) if hasattr(given, "_fields") else tuple(values)
    if isinstance(given, list) and any(isinstance(value, (Mapping, tuple)) or np.ndim(value) for value in given):
        return [as_arrays(value) for value in given]
    return None if given is None else np.asarray(given)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _described(tree: Tree) -> Any:
    described = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree)
    return described if isinstance(described, str) else repr(described).replace("'", "")


def _at(path: Any) -> str:
    return f" at {jax.tree_util.keystr(path)}" if path else ""
