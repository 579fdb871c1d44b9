"""Data that stay where they are, on a disk or behind an object, and are read for a few steps at a time.

A leaf of a problem's data is streamed if it is a memory-mapped array, an Arrow table, any object that has a length and
takes the number of a row or an array of row numbers, or is marked with `Streamed`. Its rows are gathered on the host
while the device computes (`feed.py`). Arrays of numpy and jax are not streamed: they go to the device whole.
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

from wior.streaming.examples import Collate
from wior.streaming.memory import aligned
from wior.streaming.opening import is_arrow, reader_of
from wior.streaming.readers import OfArray, OfTable, Unexpected, in_one_line

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
        An array, an Arrow table (read as a dictionary of its columns), a data set of Hugging Face of any format, a list
        of rows, or an object with a length, which takes an array of int64 in any order, `source[numbers]`, and returns
        an array with one row for each number or a tree of such arrays; or which takes the number of one row,
        `source[3]`, as a data set of torch does, and returns an array, a number, a tensor, a picture, or a tuple or
        dictionary of them. Every row must have the shapes and dtypes of the first one, and must be the same whenever
        it is read.
    collate
        A function that takes a list of rows, as the source gives them one by one, and returns arrays with one row for
        each: for rows of unequal shape. It must give a row one shape whatever rows are beside it: pad to a length of
        your own.
    threads
        How many threads may read at once. Where not given: one for a list or an object, which may not be made for more,
        and as many as there are cores, up to 16, for arrays and tables. More help a data set that opens files.
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

    Rows of unequal length, padded to four numbers:

    >>> unequal = [np.ones(1), np.ones(3), np.ones(2)]
    >>> pad = lambda rows: np.stack([np.pad(row, (0, 4 - len(row))) for row in rows])
    >>> wior.Streamed(unequal, collate=pad).shapes().shape
    (3, 4)
    """

    def __init__(
        self, source: Any, *, collate: Collate | None = None, threads: int | None = None, name: str = "source"
    ):
        if collate is not None and not callable(collate):
            raise TypeError(f"collate must be a function of a list of rows, got {collate!r:.80}")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ValueError(f"threads must be a positive integer, got {threads!r}")
        self.reader: Any = source.reader if isinstance(source, Streamed) else reader_of(name, source, collate)
        self.n = self.reader.length()
        # arrays that are not streamed take these types when they go to the device
        self.row = jax.tree.map(
            lambda row: jax.ShapeDtypeStruct(row.shape, jax.dtypes.canonicalize_dtype(row.dtype.newbyteorder("="))),
            self.reader.row,
        )
        many = isinstance(self.reader, (OfArray, OfTable))
        self.threads = threads or (min(MOST_THREADS, os.cpu_count() or 1) if many else 1)

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
                raise Unexpected(f"it had {self.n} rows when the run was set up, and has {length} now")
            self.reader.read(numbers, jax.tree.leaves(into))
        except Unexpected as wrong:
            raise SourceError(f"{where}: {wrong}") from None
        except Exception as error:
            raise SourceError(
                f"{where}: {len(numbers)} rows were asked for, and reading them failed ({in_one_line(error)})"
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
    if isinstance(leaf, (Streamed, np.memmap)) or is_arrow(leaf):
        return True
    if isinstance(leaf, (str, bytes, Mapping)) or hasattr(leaf, "__array__") or hasattr(leaf, "__jax_array__"):
        return False
    return hasattr(leaf, "__len__") and hasattr(leaf, "__getitem__")


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
