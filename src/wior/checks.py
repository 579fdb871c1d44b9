"""What is wrong with an argument, said before anything is compiled: its name, its value and what would be right."""

from __future__ import annotations

import inspect
import math
import numbers
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior.streaming import refused, sources
from wior.streaming.gathered import Gathered

Tree = Any
# what tracing raises where a function asks for a value that only a run has
NOT_TRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


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


def positive_or_infinite(name: str, value: Any) -> None:
    positive_number(name, value, infinite=True)


def non_negative_number(name: str, value: Any) -> None:
    if not _is_real_number(value):
        raise TypeError(f"{name} must be a number that is not negative, got {value!r} of type {type(value).__name__}")
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}")


def non_negative_number_or_none(name: str, value: Any) -> None:
    if value is not None:
        try:
            non_negative_number(name, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; or None") from None


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
    arity(name, value, ("step",))
    first = value(0)
    if not _is_real_number(first) or not math.isfinite(float(first)) or float(first) < 0:
        raise ValueError(
            f"{name} is a schedule whose value at step 0 is {first!r}; it must be a non-negative finite number"
        )
    try:
        jax.eval_shape(value, jax.ShapeDtypeStruct((), jnp.int32))
    except NOT_TRACEABLE as error:
        raise TypeError(
            f"{name} is a schedule that asks for the value of the step ({type(error).__name__}), by a Python `if` or a "
            "function of numpy, say; it is compiled and must hold for every step: use jnp.where(step < 100, 0.1, 0.01) "
            "or optax.join_schedules"
        ) from error


def _is_real_number(value: Any) -> bool:
    if not isinstance(value, (numbers.Real, np.ndarray, jax.Array)):
        return False
    array = np.asarray(value)
    return array.shape == () and bool(np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer))


def function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {value!r} of type {type(value).__name__}")


def arity(name: str, value: Callable[..., Any], parameters: tuple[str, ...], by_name: tuple[str, ...] = ()) -> None:
    """Demands a function that can be called with these arguments, by position, and some by name."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some functions do not say
        return
    try:
        signature.bind(*parameters, **dict.fromkeys(by_name))
    except TypeError as error:
        given = f"{getattr(value, '__name__', type(value).__name__)}{signature}"
        raise TypeError(
            f"{name} is called as {name}({', '.join((*parameters, *by_name))}), and the function given is {given} "
            f"({error}); let it take these arguments in this order"
        ) from None


def metrics_arity(metrics: Any) -> None:
    """Demands that metrics can be called with x and y."""
    function("metrics", metrics)
    arity("metrics", metrics, ("x", "y"))


MOST_LENGTHS = 8  # that an error names


def path_name(argument: str, path: Any) -> str:
    return argument + jax.tree_util.keystr(path)


def rows(name: str, data: Tree) -> int:
    """The common length of the first axes of all leaves of `data`."""
    if isinstance(data, Gathered):
        return data.n
    if data is None:
        raise ValueError(
            f"{name} is None; it must be a tree of arrays with one row for each example. A loss that reads no data "
            "takes a single row and ignores it: give np.zeros((1, 1))"
        )
    readable(name, data)
    leaves = jax.tree_util.tree_leaves_with_path(sources.shapes(data))
    if not leaves:
        raise ValueError(f"{name} has no arrays: {data!r}; it must be a tree of arrays with one row for each example")
    lengths: dict[str, int] = {}
    for path, leaf in leaves:
        try:
            shape = jnp.shape(leaf)
        except TypeError:
            raise TypeError(
                f"{path_name(name, path)} must be an array with one row for each example, got {type(leaf).__name__}: "
                f"{leaf!r:.80}"
            ) from None
        if not shape:
            raise ValueError(
                f"{path_name(name, path)} is a single number, {leaf!r}; it must be an array with one row for each "
                "example"
            )
        lengths[path_name(name, path)] = shape[0]
    if len(set(lengths.values())) > 1:
        listed = [f"{leaf} has {length}" for leaf, length in lengths.items()]
        found = ", ".join(listed[:MOST_LENGTHS])
        if len(listed) > MOST_LENGTHS:  # a list of examples
            found += (
                f" and so on for {len(listed)} arrays; a list of examples is wior.Streamed(examples), and where their "
                "shapes differ wior.Streamed(examples, collate=...)"
            )
        raise ValueError(f"the first axes of {name} must have one length, the number of examples: {found}")
    length = next(iter(lengths.values()))
    if length == 0:
        raise ValueError(f"{name} is empty: its first axis has length 0, and at least one example is needed")
    return length


def readable(name: str, data: Tree) -> None:
    """Refuses data of which rows cannot be taken, and lists of numbers, which are trees of single ones."""
    whole = lambda value: _is_list_of_numbers(value) or refused.is_foreign(value)
    for path, leaf in jax.tree_util.tree_leaves_with_path(data, is_leaf=whole):
        if _is_list_of_numbers(leaf):
            raise TypeError(
                f"{path_name(name, path)} is a list of numbers, {leaf!r:.60}, which is a tree of single numbers; "
                "give an array with one row for each example, np.asarray(...)"
            )
        if not isinstance(leaf, (jax.ShapeDtypeStruct, sources.Streamed)):
            refused.demand_rows(path_name(name, path), leaf)


def non_finite_rows(name: str, data: Tree) -> dict[str, np.ndarray]:
    """The leaves of some data on the device that have rows which are not finite, and the numbers of these rows."""
    rows, numbers = (data.rows, data.examples) if isinstance(data, Gathered) else (data, None)
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(rows):
        if not isinstance(leaf, jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        if not leaf.is_fully_addressable:
            continue
        wrong = np.flatnonzero(~np.asarray(jnp.isfinite(leaf).reshape(len(leaf), -1).all(1)))
        if wrong.size:
            found[path_name(name, path)] = np.unique(wrong if numbers is None else np.asarray(numbers)[wrong])
    return found


def _is_list_of_numbers(value: Any) -> bool:
    """Whether a value is a list of Python numbers, or of lists of them."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, (int, float, complex)) or _is_list_of_numbers(one) for one in value)
    )


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
    """An array whose type does not give way to others'.

    One that does would be a second program after its first step.
    """
    array = jnp.asarray(leaf)
    return jax.lax.convert_element_type(array, array.dtype)


def floating(name: str, variable: Tree) -> Tree:
    """`variable` with every leaf as a floating-point array."""
    whole = lambda value: _is_list_of_numbers(value) or refused.is_foreign(value)
    leaves = jax.tree_util.tree_leaves_with_path(variable, is_leaf=whole)
    if not leaves:
        raise ValueError(f"{name} has no arrays: {variable!r}; it must be a tree of floating-point arrays")
    for path, leaf in leaves:
        _demand_array(path_name(name, path), name, leaf)
        dtype = jnp.result_type(leaf) if not isinstance(leaf, (int, bool)) else jnp.dtype(type(leaf))
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"{path_name(name, path)} has dtype {dtype}; it is differentiated and must be floating point, for "
                "example float32"
            )
        # what lies on many devices is looked at where it lies
        spread = isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1
        if not np.all(jnp.isfinite(leaf).all() if spread else np.isfinite(np.asarray(leaf, np.float64))):
            raise ValueError(
                f"{path_name(name, path)} has values that are not finite; the start of a run must be finite"
            )
    return jax.tree.map(strong, variable)


def _demand_array(leaf_name: str, name: str, leaf: Any) -> None:
    """Refuses a leaf of a variable that is no array of numbers."""
    if _is_list_of_numbers(leaf):
        raise TypeError(
            f"{leaf_name} is a list of numbers, {leaf!r:.60}, which is a tree of single numbers; give one array, "
            "jnp.asarray([...], float)"
        )
    wrong = refused.instead_of(leaf)
    if wrong is not None:
        raise TypeError(f"{leaf_name} {wrong}, or an array of jax")
    try:
        jnp.result_type(leaf)
    except TypeError:
        if hasattr(leaf, "to_numpy"):
            raise TypeError(f"{leaf_name} is a {type(leaf).__name__}; give the array .to_numpy()") from None
        dtype = getattr(leaf, "dtype", None)
        is_what = "is a function" if callable(leaf) and dtype is None else f"is of type {type(leaf).__name__}"
        raise TypeError(
            f"{leaf_name} {is_what}, {leaf!r:.80}, and no array of floating-point "
            f"numbers{f' (its dtype is {dtype})' if dtype is not None else ''}; {name} is differentiated leaf by leaf. "
            "Of a module give its arrays alone and put it together again inside the losses: eqx.partition(model, "
            "eqx.is_inexact_array) and eqx.combine for equinox, nnx.split(model, nnx.Param, ...) and nnx.merge for flax"
        ) from None


def warn_of_few_digits(name: str, variable: Tree) -> None:
    """Half precision is for data and losses: of what is carried from step to step it loses the small changes."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(variable):
        if leaf.dtype.itemsize < 4:
            warnings.warn(
                f"{path_name(name, path)} is {leaf.dtype}: a step below about "
                f"1/{2 / float(jnp.finfo(leaf.dtype).eps):.0f} of a value is lost in it; keep x and y in float32, and "
                "cast inside the losses where they are to be computed in half precision",
                stacklevel=4,
            )


def scalar_loss(name: str, loss: Callable[..., Any], *args: Any) -> None:
    """Traces `loss` on shapes alone and demands one floating-point number."""
    found = jax.eval_shape(loss, *args)
    leaves, rows_given = jax.tree.leaves(found), _rows_of_batch(args[-1])
    if len(leaves) != 1 or not hasattr(found, "shape"):
        raise TypeError(
            f"{name} must return one number, the mean loss of the batch; it returns {jax.tree.map(_describe, found)}"
        )
    if found.shape != () and found.shape[:1] == (rows_given,):
        raise ValueError(
            f"{name} must return one number, the mean loss of the batch; for a batch of {rows_given} rows it returns "
            f"an array of shape {found.shape}, one loss for each row: take the mean, jnp.mean(...)"
        )
    if found.shape != ():
        raise ValueError(
            f"{name} must return one number, the mean loss of the batch; it returns an array of shape {found.shape}"
        )
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise TypeError(f"{name} must return a floating-point number; it returns dtype {found.dtype}")


def _rows_of_batch(batch: Tree) -> int | None:
    leaves = jax.tree.leaves(batch)
    return leaves[0].shape[0] if leaves else None


def mean_of_rows(name: str, found: Tree, batch: Tree, like: Tree) -> None:
    """Refuses a map that returns a value for each row of its batch where one mean of them is expected."""
    rows_given, shapes = _rows_of_batch(batch), [jnp.shape(leaf) for leaf in jax.tree.leaves(like)]
    returned = [jnp.shape(leaf) for leaf in jax.tree.leaves(found)]
    if returned == [(rows_given, *shape) for shape in shapes]:
        raise ValueError(
            f"{name} must return the mean over the rows of the batch, shaped like y0; for a batch of {rows_given} rows "
            f"it returns {jax.tree.map(_describe, found)}, one value for each row: take the mean, jnp.mean(..., axis=0)"
        )


def same_structure(name: str, found: Tree, like_name: str, like: Tree) -> None:
    """`found` (shapes) must match `like` leaf by leaf."""
    describe = lambda tree: jax.tree.map(_describe, tree)
    found_paths, like_paths = (
        [(jax.tree_util.keystr(path), jnp.shape(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(t)]
        for t in (found, like)
    )
    if found_paths != like_paths:
        raise ValueError(
            f"{name} must have the structure and shapes of {like_name}: found {describe(found)}, expected "
            f"{describe(like)}"
        )
    for a in jax.tree.leaves(found):
        if not jnp.issubdtype(a.dtype, jnp.floating):
            raise TypeError(f"{name} must be floating point, found dtype {a.dtype}")


def _describe(leaf: Any) -> str:
    return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"
