"""Data that stay where they are, on a disk or behind an object, and are read for a few steps at a time.

A leaf of a problem's data is streamed if it is a memory-mapped array, an Arrow table, any object that has a length and
takes an array of row numbers, or is marked with `Streamed`. Its rows are gathered on the host while the device computes
(`feed.py`). Arrays of numpy and jax are not streamed: they go to the device whole.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wior.streaming.memory import aligned

Tree = Any

SAMPLED_ABOVE = 2**24  # bytes; what is larger is known by a sample of its rows
ROWS_IN_SAMPLE = 256
MOST_THREADS = 16
ROWS_AT_ONCE = 2**16
MADE_FROM = b"wior.made_from"


class SourceError(RuntimeError):
    """A source of streamed data changed during a run: it became shorter, or a read failed.

    Examples
    --------
    >>> import numpy as np, wior
    >>> class Shrinking:
    ...     rows = np.ones((4, 2))
    ...     def __len__(self):
    ...         return len(self.rows)
    ...     def __getitem__(self, numbers):
    ...         return self.rows[numbers]
    >>> source = Shrinking()
    >>> streamed, into = wior.Streamed(source), np.empty((1, 2))
    >>> source.rows = np.ones((3, 2))
    >>> streamed.read(np.array([0]), into, "outer_data, read for steps 1 to 4")
    Traceback (most recent call last):
    wior.streaming.sources.SourceError: outer_data, read for steps 1 to 4: it had 4 rows when the run was set up, and
    has 3 now
    """


class Streamed:
    """Marks `source` as data that stay on the host; the rows of the next steps are read while the device computes.

    Parameters
    ----------
    source
        An array, an Arrow table (read as a dictionary of its columns), or an object with a length. For an array of
        int64 in any order, `source[numbers]` of an object returns an array with one row for each number, or a tree of
        such arrays.
    threads
        How many threads may read at once. Where not given: one for an object, which may not be made for more, and as
        many as there are cores, up to 16, for arrays and tables.
    name
        What error messages call it.

    Raises
    ------
    TypeError, ValueError
        Where rows cannot be taken of `source` by their numbers, or `threads` is no positive integer.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm, x0, y0 = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1), jnp.zeros(()), jnp.zeros(3)
    >>> wior.Streamed(rows)
    Streamed(ndarray of 32 rows)
    >>> streamed = wior.Bilevel(outer, inner, wior.Streamed(rows), wior.Streamed(rows))
    >>> found = wior.solve(streamed, algorithm, x0, y0, batch_size=8, steps=4)
    >>> same = wior.solve(wior.Bilevel(outer, inner, rows, rows), algorithm, x0, y0, batch_size=8, steps=4)
    >>> bool((found.y == same.y).all())
    True
    """

    def __init__(self, source: Any, *, threads: int | None = None, name: str = "source"):
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ValueError(f"threads must be a positive integer, got {threads!r}")
        self.reader = _reader(name, source)
        self.n = self.reader.length()
        # arrays that are not streamed take these types when they go to the device
        self.row = jax.tree.map(
            lambda row: jax.ShapeDtypeStruct(row.shape, jax.dtypes.canonicalize_dtype(row.dtype.newbyteorder("="))),
            self.reader.row,
        )
        self.threads = threads or (1 if isinstance(self.reader, _OfObject) else min(MOST_THREADS, os.cpu_count() or 1))

    def __repr__(self) -> str:
        return f"Streamed({type(self.reader.source).__name__} of {self.n} rows)"

    @property
    def row_bytes(self) -> int:
        """The bytes of one row, all arrays together."""
        return sum(math.prod(row.shape) * row.dtype.itemsize for row in jax.tree.leaves(self.row))

    def shapes(self) -> Tree:
        """The shape and type of each array, all rows together."""
        return jax.tree.map(lambda row: jax.ShapeDtypeStruct((self.n, *row.shape), row.dtype), self.row)

    def empty(self, rows: int) -> Tree:
        """Arrays of the host for so many rows."""
        return jax.tree.map(lambda row: aligned((rows, *row.shape), row.dtype), self.row)

    def read(self, numbers: np.ndarray, into: Tree, where: str) -> None:
        """Writes the rows of these numbers into arrays; `where` says in an error which data and steps these are."""
        try:
            self.reader.demand_whole()
            length = self.reader.length()
            if length < self.n:
                raise _Unexpected(f"it had {self.n} rows when the run was set up, and has {length} now")
            self.reader.read(numbers, jax.tree.leaves(into))
        except _Unexpected as wrong:
            raise SourceError(f"{where}: {wrong}") from None
        except Exception as error:
            raise SourceError(
                f"{where}: {len(numbers)} rows were asked for, and reading them failed ({type(error).__name__}: "
                f"{error})"
            ) from error

    def sample(self) -> Tree:
        """Rows to know the data by: all of them where they are few, else a sample from the first to the last."""
        index = np.arange(self.n, dtype=np.int64)
        if self.n * self.row_bytes > SAMPLED_ABOVE:
            rows = min(self.n, ROWS_IN_SAMPLE)
            index = np.array([i * (self.n - 1) // max(rows - 1, 1) for i in range(rows)], np.int64)
        rows_read = self.empty(len(index))
        self.read(index, rows_read, repr(self))
        return rows_read


def from_parquet(path: str | Path, columns: list[str] | None = None, mapped: str | Path | None = None) -> Any:
    """A Parquet file as an Arrow table of which only the rows that are read come into memory.

    Single rows of Parquet cannot be read without their whole row group, so the file is written once, a few rows at a
    time, as an Arrow file that can be memory-mapped. It is written again when the Parquet file or the columns change.

    Parameters
    ----------
    path
        The Parquet file.
    columns
        The names of the columns that are needed; all where not given.
    mapped
        The Arrow file; beside the Parquet file, with `.arrow` at the end of its name, where not given.

    Returns
    -------
    pyarrow.Table
        Data for a problem.

    Raises
    ------
    ValueError
        Where `columns` names one that the file does not have.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, pyarrow, pyarrow.parquet, wior
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.parquet")
    ...     pyarrow.parquet.write_table(pyarrow.table({"age": np.arange(5.0), "id": np.arange(5)}), path)
    ...     table = wior.streaming.from_parquet(path, columns=["age"])
    >>> table.column_names, table.num_rows
    (['age'], 5)
    """
    import pyarrow
    import pyarrow.parquet

    path = Path(path)
    mapped = path.with_name(path.name + ".arrow") if mapped is None else Path(mapped)
    stat = path.stat()
    made_from = json.dumps([stat.st_size, stat.st_mtime_ns, columns]).encode()
    if mapped.exists():
        table = _mapped(mapped)
        if (table.schema.metadata or {}).get(MADE_FROM) == made_from:
            return table
    with pyarrow.parquet.ParquetFile(path) as file:
        missing = sorted(set(columns or ()) - set(file.schema_arrow.names))
        if missing:
            raise ValueError(
                f"columns has {missing}, which {str(path)!r} does not have; it has {file.schema_arrow.names}"
            )
        schema = file.schema_arrow
        if columns is not None:
            schema = pyarrow.schema([schema.field(name) for name in columns])
        schema = schema.with_metadata({MADE_FROM: made_from})
        unfinished = mapped.with_name(f"{mapped.name}.{os.getpid()}")
        try:
            with pyarrow.OSFile(str(unfinished), "wb") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                    writer.write_batch(
                        pyarrow.RecordBatch.from_arrays(batch.select(schema.names).columns, schema=schema)
                    )
            unfinished.replace(mapped)
        finally:
            unfinished.unlink(missing_ok=True)
    return _mapped(mapped)


def _mapped(path: Path) -> Any:
    import pyarrow

    return pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()


def is_source(leaf: Any) -> bool:
    """Whether a leaf stays on the host without being marked."""
    if isinstance(leaf, (Streamed, np.memmap)) or _is_arrow(leaf):
        return True
    if isinstance(leaf, (str, bytes, Mapping)) or hasattr(leaf, "__array__") or hasattr(leaf, "__jax_array__"):
        return False
    return hasattr(leaf, "__len__") and hasattr(leaf, "__getitem__")


def instead_of(leaf: Any) -> str | None:
    """What a value of another library is and what to give in its place; None where it is none of those that are often
    given.
    """
    kind = type(leaf).__name__
    if _is_tensor(leaf):
        return f"is a torch {kind}; give an array of numpy, .detach().cpu().numpy()"
    if hasattr(leaf, "todense") or hasattr(leaf, "tocsr"):
        dense = "toarray" if hasattr(leaf, "toarray") else "todense"
        return (
            f"is a sparse matrix ({kind}), and rows are taken of dense arrays; give .{dense}(), or, where that is too "
            "large, "
            "an object whose source[numbers] returns dense rows (wior.streaming.Streamed)"
        )
    if hasattr(leaf, "to_numpy") and hasattr(leaf, "columns") and hasattr(leaf, "dtypes"):
        text = [str(name) for name, dtype in zip(leaf.columns, leaf.dtypes, strict=True) if not _is_numeric(dtype)]
        if text:
            return (
                f"is a {kind} whose columns {text} do not hold numbers; leave them out or encode them as numbers, "
                "and give the array .to_numpy()"
            )
    return None


def demand_rows(name: str, leaf: Any) -> None:
    """Refuses data whose rows cannot be taken by number: what has an order of its own, or is of another library."""
    kind = type(leaf).__name__
    asked = "examples are read by their numbers, in the order that wior chooses"
    remedy = "give arrays with one row for each example, or an object with a length that takes an array of row numbers"
    wrong = instead_of(leaf)
    if wrong is not None and not _is_tensor_at_hand(leaf):
        raise TypeError(f"{name} {wrong}")
    if isinstance(leaf, (str, bytes, Mapping)) or hasattr(leaf, "__array__") or hasattr(leaf, "shape"):
        return
    if hasattr(leaf, "__next__"):
        raise TypeError(f"{name} is an iterator ({kind}), and {asked}; {remedy}")
    if hasattr(leaf, "dataset") and hasattr(leaf, "__iter__") and not hasattr(leaf, "__getitem__"):
        raise TypeError(
            f"{name} is a {kind}, which makes batches in an order of its own, and {asked}; {remedy}: those that its "
            ".dataset is made of"
        )
    if hasattr(leaf, "__iter__") and not hasattr(leaf, "__getitem__"):
        raise TypeError(f"{name} is a {kind}, which can only be iterated over, and {asked}; {remedy}")
    if callable(leaf) and not hasattr(leaf, "__getitem__"):
        raise TypeError(f"{name} is a function, {getattr(leaf, '__name__', kind)}, and {asked}; {remedy}")


def is_foreign(value: Any) -> bool:
    """Whether a value is to be refused whole: sparse matrices of jax are trees whose rows are no examples, and jax
    warns of iterators.
    """
    return hasattr(value, "todense") or hasattr(value, "__next__")


def any_source(data: Tree) -> bool:
    return any(is_source(leaf) for leaf in jax.tree.leaves(data))


def streamed(name: str, data: Tree) -> Tree:
    """`data` with every leaf streamed: those beside a source are read with it."""

    def convert(path: Any, leaf: Any) -> Streamed:
        if isinstance(leaf, Streamed):
            return leaf
        return Streamed(leaf if is_source(leaf) else np.asarray(leaf), name=name + jax.tree_util.keystr(path))

    return jax.tree_util.tree_map_with_path(convert, data)


def shapes(data: Tree) -> Tree:
    """`data` with the shapes and types of what is streamed in its place."""
    return jax.tree.map(lambda leaf: leaf.shapes() if isinstance(leaf, Streamed) else leaf, data)


class _Unexpected(Exception):
    pass


class _OfArray:
    """An array of numpy, in memory or mapped from a file."""

    def __init__(self, name: str, source: np.ndarray):
        if source.ndim == 0:
            raise ValueError(
                f"{name} is a single number, {source!r}; it must be an array with one row for each example"
            )
        self.source, self.array = source, source.view(np.ndarray)
        # of any other array `take` would first make a whole copy
        self.taken_from = source.flags.c_contiguous and source.flags.aligned and source.dtype.isnative
        self.row = _row(name, source.shape[1:], source.dtype)
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
            raise _Unexpected(
                f"its file {str(self.file)!r} had {self.stat.st_size} bytes when the run was set up, and has "
                f"{now.st_size} now"
            )

    def read(self, numbers: np.ndarray, into: list[np.ndarray]) -> None:
        if self.taken_from and into[0].dtype == self.array.dtype:
            # the numbers were checked before; the other modes gather into a buffer first
            np.take(self.array, numbers, 0, out=into[0], mode="clip")
        else:
            into[0][...] = self.array[numbers]


class _OfTable:
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
            column: _row(f"{name}[{column!r}]", chunks[0].shape[1:], chunks[0].dtype)
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


class _OfObject:
    """Anything with a length that takes an array of row numbers."""

    def __init__(self, name: str, source: Any):
        self.source, self.name = source, name
        demand_rows(name, source)
        if self.length() == 0:
            raise ValueError(f"{name} is empty: its length is 0, and at least one example is needed")
        try:
            first = source[np.zeros(1, np.int64)]
        except Exception as error:
            raise TypeError(
                f"{name}, {type(source).__name__}, must take an array of row numbers, source[np.array([0])], and "
                "return rows; "
                f"it raised {type(error).__name__}: {error}"
            ) from error
        if hasattr(source, "with_format") and hasattr(source, "column_names"):
            lists = [column for column, rows in dict(first).items() if isinstance(rows, list)]
            if lists:
                raise TypeError(
                    f"{name} is a {type(source).__name__} that gives lists, not arrays, for its columns {lists}; "
                    'give .with_format("numpy"), and by .select_columns columns of numbers of one shape'
                )
        leaves = jax.tree_util.tree_leaves_with_path(first)
        for path, leaf in leaves:
            array = np.asarray(leaf)
            if array.ndim == 0 or len(array) != 1:
                raise ValueError(
                    f"{name}{jax.tree_util.keystr(path)} must have one row for each row number; for one number it has "
                    f"shape {array.shape}"
                )
        if not leaves:
            raise ValueError(f"{name} returned no arrays for a row: {first!r}")
        self.structure: Any = jax.tree.structure(first)
        rows = [
            _row(name + jax.tree_util.keystr(path), np.shape(leaf)[1:], np.asarray(leaf).dtype) for path, leaf in leaves
        ]
        self.row = jax.tree.unflatten(self.structure, rows)

    def length(self) -> int:
        return len(self.source)

    def demand_whole(self) -> None:
        pass

    def read(self, numbers: np.ndarray, into: list[np.ndarray]) -> None:
        found = self.source[numbers]
        if jax.tree.structure(found) != self.structure:
            raise _Unexpected(f"expected a tree {self.structure}, got {jax.tree.structure(found)}")
        expected = jax.tree_util.tree_leaves_with_path(self.row)
        for (path, row), leaf, out in zip(expected, jax.tree.leaves(found), into, strict=True):
            array = np.asarray(leaf)
            if array.shape != out.shape or array.dtype != row.dtype:
                raise _Unexpected(
                    f"expected{jax.tree_util.keystr(path) and ' at ' + jax.tree_util.keystr(path)} "
                    f"{row.dtype}{list(out.shape)}, "
                    f"got {array.dtype}{list(array.shape)}"
                )
            out[...] = array


def _reader(name: str, source: Any) -> Any:
    if isinstance(source, Streamed):
        return source.reader
    if _is_arrow(source):
        import pyarrow  # only data that come from it need it

        if not isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
            raise TypeError(
                f"{name} must be an Arrow table, got {type(source).__name__}; wior.streaming.from_parquet(path) maps a "
                "Parquet file as one"
            )
        table = source if isinstance(source, pyarrow.Table) else pyarrow.Table.from_batches([source])
        return _OfTable(name, table)
    if isinstance(source, (np.ndarray, jax.Array)):
        return _OfArray(name, source if isinstance(source, np.ndarray) else np.asarray(source))
    if isinstance(source, (str, bytes, Mapping)) or not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise TypeError(
            f"{name} must have a length and take an array of row numbers, got {type(source).__name__}: {source!r:.80}"
        )
    return _OfObject(name, source)


def _is_tensor(leaf: Any) -> bool:
    return type(leaf).__module__.partition(".")[0] == "torch" and hasattr(leaf, "numpy")


def _is_tensor_at_hand(leaf: Any) -> bool:
    """Whether a tensor can be read as an array: one on another device, or in a graph of derivatives, cannot."""
    if not _is_tensor(leaf):
        return False
    try:
        np.asarray(leaf)
    except (TypeError, RuntimeError):
        return False
    return True


def _is_numeric(dtype: Any) -> bool:
    """Whether a column of pandas (`kind`) or polars (`is_numeric`) holds numbers."""
    return dtype.is_numeric() if hasattr(dtype, "is_numeric") else getattr(dtype, "kind", "O") in "biufc"


def _is_arrow(leaf: Any) -> bool:
    return type(leaf).__module__.partition(".")[0] == "pyarrow" and not hasattr(leaf, "to_numpy")


def _row(name: str, shape: tuple[int, ...], dtype: np.dtype) -> jax.ShapeDtypeStruct:
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
