"""What is wrong with an argument, said before anything is compiled: its name, its value and what would be right."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import sources
from wior.gathered import Gathered

Tree = Any


def positive_integer(name: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a positive integer, got {value!r} of type {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def positive_number(name: str, value: Any, *, infinite: bool = False) -> None:
    """A real number above zero; `infinite` allows inf."""
    expected = "a positive number" if infinite else "a positive finite number"
    if not _is_real_number(value):
        raise TypeError(f"{name} must be {expected}, got {value!r} of type {type(value).__name__}")
    number = float(value)
    if math.isnan(number) or number <= 0 or (math.isinf(number) and not infinite):
        raise ValueError(f"{name} must be {expected}, got {value!r}")


def non_negative_number(name: str, value: Any) -> None:
    if not _is_real_number(value):
        raise TypeError(f"{name} must be a number that is not negative, got {value!r} of type {type(value).__name__}")
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}")


def share(name: str, value: Any) -> None:
    """A weight or a probability: above 0, at most 1."""
    if not _is_real_number(value):
        raise TypeError(f"{name} must be a number above 0 and at most 1, got {value!r} of type {type(value).__name__}")
    if not 0 < float(value) <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {value!r}")


def share_or_none(name: str, value: Any) -> None:
    if value is not None:
        try:
            share(name, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; or None") from None


def boolean(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")


def positive_integer_or_none(name: str, value: Any) -> None:
    if value is not None:
        try:
            positive_integer(name, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; or None") from None


def step_size(name: str, value: Any) -> None:
    """A positive finite number, or a schedule: a function of the step that returns one."""
    if not callable(value):
        try:
            positive_number(name, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; or give a schedule, a function of the step number") from None
        return
    first = value(0)
    if not _is_real_number(first) or not math.isfinite(float(first)) or float(first) < 0:
        raise ValueError(
            f"{name} is a schedule whose value at step 0 is {first!r}; it must be a non-negative finite number"
        )


def _is_real_number(value: Any) -> bool:
    if not isinstance(value, (numbers.Real, np.ndarray, jax.Array)):
        return False
    array = np.asarray(value)
    return array.shape == () and bool(np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer))


def function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {value!r} of type {type(value).__name__}")


def path_name(argument: str, path: Any) -> str:
    return argument + jax.tree_util.keystr(path)


def rows(name: str, data: Tree) -> int:
    """The common length of the first axes of all leaves of `data`."""
    if isinstance(data, Gathered):
        return data.n
    leaves = jax.tree_util.tree_leaves_with_path(sources.shapes(data))
    if not leaves:
        raise ValueError(f"{name} has no arrays: {data!r}; it must be a tree of arrays with one row for each example")
    lengths: dict[str, int] = {}
    for path, leaf in leaves:
        shape = jnp.shape(leaf)
        if not shape:
            raise ValueError(
                f"{path_name(name, path)} is a single number, {leaf!r}; it must be an array with one row for each example"
            )
        lengths[path_name(name, path)] = shape[0]
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{leaf} has {length}" for leaf, length in lengths.items())
        raise ValueError(f"the first axes of {name} must have one length, the number of examples: {found}")
    length = next(iter(lengths.values()))
    if length == 0:
        raise ValueError(f"{name} is empty: its first axis has length 0, and at least one example is needed")
    return length


def arrays(name: str, data: Tree) -> Tree:
    """`data` with every leaf as an array on the device, unless it is streamed."""

    def convert(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, (jax.ShapeDtypeStruct, sources.Streamed)):
            return leaf
        try:
            return strong(leaf)
        except TypeError:
            raise TypeError(
                f"{path_name(name, path)} must be an array of numbers, got {type(leaf).__name__}: {leaf!r:.80}"
            ) from None

    return jax.tree_util.tree_map_with_path(convert, data)


def strong(leaf: Any) -> jax.Array:
    """An array whose type does not give way to others': one that does would be a second program after its first step."""
    array = jnp.asarray(leaf)
    return jax.lax.convert_element_type(array, array.dtype)


def floating(name: str, variable: Tree) -> Tree:
    """`variable` with every leaf as a floating-point array."""
    leaves = jax.tree_util.tree_leaves_with_path(variable)
    if not leaves:
        raise ValueError(f"{name} has no arrays: {variable!r}; it must be a tree of floating-point arrays")
    for path, leaf in leaves:
        dtype = jnp.result_type(leaf) if not isinstance(leaf, (int, bool)) else jnp.dtype(type(leaf))
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"{path_name(name, path)} has dtype {dtype}; it is differentiated and must be floating point, for example float32"
            )
        # what lies on many devices is looked at where it lies
        spread = isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1
        if not np.all(jnp.isfinite(leaf).all() if spread else np.isfinite(np.asarray(leaf, np.float64))):
            raise ValueError(
                f"{path_name(name, path)} has values that are not finite; the start of a run must be finite"
            )
    return jax.tree.map(strong, variable)


def warn_of_few_digits(name: str, variable: Tree) -> None:
    """Half precision is for data and losses: of what is carried from step to step it loses the small changes."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(variable):
        if leaf.dtype.itemsize < 4:
            warnings.warn(
                f"{path_name(name, path)} is {leaf.dtype}: a step below about 1/{2 / float(jnp.finfo(leaf.dtype).eps):.0f} of a value is lost in it; "
                "keep x and y in float32, and cast inside the losses where they are to be computed in half precision",
                stacklevel=4,
            )


def scalar_loss(name: str, loss: Callable[..., Any], *args: Any) -> None:
    """Traces `loss` on shapes alone and demands one floating-point number."""
    found = jax.eval_shape(loss, *args)
    leaves = jax.tree.leaves(found)
    if len(leaves) != 1 or not hasattr(found, "shape"):
        raise TypeError(
            f"{name} must return one number, the mean loss of the batch; it returns {jax.tree.map(_describe, found)}"
        )
    if found.shape != ():
        raise ValueError(
            f"{name} must return one number, the mean loss of the batch; it returns an array of shape {found.shape}"
        )
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise TypeError(f"{name} must return a floating-point number; it returns dtype {found.dtype}")


def same_structure(name: str, found: Tree, like_name: str, like: Tree) -> None:
    """`found` (shapes) must match `like` leaf by leaf."""
    describe = lambda tree: jax.tree.map(_describe, tree)
    found_paths, like_paths = (
        [(jax.tree_util.keystr(path), jnp.shape(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(t)]
        for t in (found, like)
    )
    if found_paths != like_paths:
        raise ValueError(
            f"{name} must have the structure and shapes of {like_name}: found {describe(found)}, expected {describe(like)}"
        )
    for a in jax.tree.leaves(found):
        if not jnp.issubdtype(a.dtype, jnp.floating):
            raise TypeError(f"{name} must be floating point, found dtype {a.dtype}")


def _describe(leaf: Any) -> str:
    return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"
