"""Data that are refused, and what to give instead: what an order cannot choose from, what is of another library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


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
    wrong = instead_of(leaf)
    if wrong is not None and not _is_tensor_at_hand(leaf):
        raise TypeError(f"{name} {wrong}")
    if isinstance(leaf, Mapping):
        raise TypeError(
            f"{name} is a {kind} with the keys {list(leaf)[:8]}, which is no tree of arrays; give one of its values, "
            "or all of them in a dictionary, dict(...)"
        )
    if isinstance(leaf, (str, bytes)) or hasattr(leaf, "__array__") or hasattr(leaf, "shape"):
        return
    reason = "an order needs to choose which example comes next"
    remedy = (
        "give the data set that it goes through: arrays with one row for each example, or an object with a length that "
        "takes the number of a row or an array of row numbers"
    )
    if hasattr(leaf, "dataset") and hasattr(leaf, "__iter__") and not hasattr(leaf, "__getitem__"):
        size = getattr(leaf, "batch_size", None)
        asked = f"batch_size={size}" if isinstance(size, int) else "batch_size"
        raise TypeError(
            f"{name} is a {kind}, which chooses the examples of a batch by itself, and {reason}; give the data set and "
            f"not the loader: its .dataset, and {asked} to wior.solve"
        )
    if hasattr(leaf, "__next__"):
        raise TypeError(f"{name} is an iterator ({kind}), and {reason}; {remedy}")
    has_rows = hasattr(leaf, "__getitem__") and hasattr(leaf, "__len__") and not _is_stream(leaf)
    if hasattr(leaf, "__iter__") and not has_rows:
        raise TypeError(f"{name} is a {kind}, which can only be iterated over, and {reason}; {remedy}")
    if hasattr(leaf, "__getitem__") and not hasattr(leaf, "__len__"):
        raise TypeError(f"{name} is a {kind}, which has no length; give it a __len__, the number of its examples")
    if callable(leaf) and not hasattr(leaf, "__getitem__"):
        raise TypeError(f"{name} is a function, {getattr(leaf, '__name__', kind)}, and {reason}; {remedy}")


def is_foreign(value: Any) -> bool:
    """Whether a value is to be refused whole: sparse matrices of jax are trees whose rows are no examples, and jax
    warns of iterators.
    """
    return hasattr(value, "todense") or hasattr(value, "__next__")


def _is_stream(leaf: Any) -> bool:
    """Whether it is a data set of torch without numbers, which has a `__getitem__` that only raises."""
    return any(kind.__name__ == "IterableDataset" for kind in type(leaf).__mro__)


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
