"""Trees of arrays as JSON and arrays: what a folder of a result holds. Nothing is pickled.

Dictionaries, lists, tuples, named tuples and `PerExample` come back as they were. Another class comes back as a named
tuple of its name with its parts, in its order, so that the leaves stand where they stood.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior.problems.per_example import PerExample

Tree = Any


class Written:
    """Collects the arrays of some trees, and describes each tree as JSON."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def tree(self, name: str, value: Tree) -> Any:
        """The description of a tree whose arrays are called `name` and a number."""
        if value is None:
            return None
        if isinstance(value, PerExample):
            return {"per example": self.tree(name, value.rows)}
        children: Any = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda one: one is not value)[0]
        if len(children) == 1 and children[0][1] is value:
            return self._leaf(name, value)
        parts = [self.tree(name, child) for _, child in children]
        if type(value) is dict and all(type(key) in (str, int) for key in value):
            return {"dict": [[path[0].key, part] for (path, _), part in zip(children, parts, strict=True)]}
        if type(value) in (list, tuple):
            return {type(value).__name__: parts}
        fields = [str(_key(path[0])) for path, _ in children]
        return {"named": type(value).__name__, "fields": fields, "parts": parts}

    def _leaf(self, name: str, value: Any) -> Any:
        place = f"{name}.{len(self.arrays):05d}"
        if isinstance(value, jax.Array) and not value.is_fully_addressable:
            raise ValueError(
                "the result lies on the devices of many processes, and none of them has all of it; a run with "
                "checkpoint= is saved by all"
            )
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            self.arrays[place] = np.asarray(jax.random.key_data(value))
            return {"key": place, "impl": str(jax.random.key_impl(value))}
        array = np.asarray(value)
        if array.dtype == object:
            raise TypeError(f"{name} holds {value!r:.80}, which is no array of numbers")
        if array.dtype.kind == "V":  # such as bfloat16, which numpy's files do not know
            self.arrays[place] = np.frombuffer(array.tobytes(), np.uint8)
            return {"array": place, "dtype": array.dtype.name, "shape": list(array.shape)}
        self.arrays[place] = array
        return {"array": place}


def read(described: Any, arrays: Mapping[str, np.ndarray]) -> Tree:
    """The tree of a description, with numpy's arrays."""
    if described is None:
        return None
    below: Callable[[Any], Tree] = functools.partial(read, arrays=arrays)
    if "array" in described:
        array = arrays[described["array"]]
        if "dtype" in described:
            return np.frombuffer(array.tobytes(), jnp.dtype(described["dtype"])).reshape(described["shape"])
        return array
    if "key" in described:
        return jax.random.wrap_key_data(jnp.asarray(arrays[described["key"]]), impl=described["impl"])
    if "per example" in described:
        return PerExample(below(described["per example"]))
    if "dict" in described:
        return {key: below(part) for key, part in described["dict"]}
    if "list" in described:
        return [below(part) for part in described["list"]]
    if "tuple" in described:
        return tuple(below(part) for part in described["tuple"])
    kind = _named(described["named"], tuple(described["fields"]))
    return kind(*(below(part) for part in described["parts"]))


def _key(key: Any) -> Any:
    return next(getattr(key, name) for name in ("name", "key", "idx") if hasattr(key, name))


@functools.cache  # trees of two results match
def _named(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name if name.isidentifier() else "Node", fields, rename=True)
