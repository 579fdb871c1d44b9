"""Problems with streamed data, sources of every kind, and how two runs are compared."""

import dataclasses

import jax
import numpy as np
import pyarrow as pa

import wior

NAMES = ("outer_data", "inner_data", "data", "ascent_data")


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def assert_same_run(a, b):
    assert same(a.state, b.state)
    assert a.history.keys() == b.history.keys()
    for name in a.history:
        if name != "seconds":
            np.testing.assert_array_equal(a.history[name], b.history[name], err_msg=name)
    assert (a.steps, a.steps_per_epoch, a.stopped_by) == (b.steps, b.steps_per_epoch, b.stopped_by)


def streamed(problem, names=NAMES, mark=wior.Streamed):
    """The same problem with its data marked as streamed."""
    present = [name for name in names if getattr(problem, name, None) is not None]
    change = {name: jax.tree.map(lambda a: mark(np.asarray(a)), getattr(problem, name)) for name in present}
    return dataclasses.replace(problem, **change)


class Rows:
    """Any object with a length that takes row numbers; it goes wrong after so many reads."""

    def __init__(self, data, wrong=None, after=10**9):
        self.data = jax.tree.map(np.asarray, data)
        self.wrong, self.after = wrong, after
        self.reads = []

    def __len__(self):
        n = len(jax.tree.leaves(self.data)[0])
        return n - 1 if self.wrong == "shrinks" and len(self.reads) >= self.after else n

    def __getitem__(self, numbers):
        assert numbers.dtype == np.int64
        assert numbers.ndim == 1
        self.reads.append(numbers)
        rows = jax.tree.map(lambda a: a[numbers], self.data)
        if len(self.reads) <= self.after:
            return rows
        return {
            "short": lambda: jax.tree.map(lambda a: a[:-1], rows),
            "narrow": lambda: rows | {"features": rows["features"][:, 1:]},
            "whole numbers": lambda: rows | {"targets": rows["targets"].astype(np.int32)},
            "leaf missing": lambda: {name: rows[name] for name in ("features", "targets")},
            "raises": lambda: rows["nothing"],
            "shrinks": lambda: rows,
        }[self.wrong]()


def table(data, chunk=5):
    """An Arrow table in several chunks; more axes are lists of a fixed size."""

    def column(a):
        a = np.asarray(a)
        values = pa.array(a.reshape(-1))
        return values if a.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, a.shape[1])

    whole = pa.table({name: column(a) for name, a in data.items()})
    return pa.concat_tables([whole.slice(i, chunk) for i in range(0, whole.num_rows, chunk)])


def mapped(folder, data):
    def one(path, a):
        a = np.asarray(a)
        file = folder / f"{jax.tree_util.keystr(path)}.npy"
        np.save(file, a)
        return np.load(file, mmap_mode="r")

    return jax.tree_util.tree_map_with_path(one, data)
