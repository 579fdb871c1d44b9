"""Indices out of range inside a loss, which JAX clamps, fills or drops without a word; and where NaN comes from.

`jax.experimental.checkify` finds them. It reports every index out of range, those asked for on purpose too:
`mode="clip"` and a `fill_value` other than NaN. These reads are replaced by the same reads of indices in range before
it looks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import checkify

Tree = Any

READS = ("gather", "dynamic_slice")
WRITES = ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "dynamic_update_slice")
LOOPS = ("scan", "while", "cond")
OWN = (os.path.dirname(jax.__file__), os.path.dirname(__file__))


def range_checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled function that returns what was out of range, `error.get_exception()`, and the value."""
    return jax.jit(checkify.checkify(_watched(function), errors=checkify.index_checks | checkify.user_checks))


def nan_checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled function that returns where the first NaN or division by zero arose, and the value."""
    return jax.jit(checkify.checkify(function, errors=checkify.nan_checks | checkify.div_checks))


def lines_of(function: Callable[..., Any], args: tuple[Any, ...], wanted: Callable[[Any], bool]) -> list[str]:
    """The lines of the user's files, as "file:line", at which a function does what is `wanted` of an equation."""
    program = jax.make_jaxpr(function)(*args).jaxpr
    found = [line for equation, line in _equations(program, None) if line is not None and wanted(equation)]
    return list(dict.fromkeys(found))


def is_read_of(name: str, shape: tuple[int, ...]) -> Callable[[Any], bool]:
    """Whether an equation is this primitive on an array of this shape."""

    def wanted(equation: Any) -> bool:
        return bool(equation.primitive.name == name and tuple(equation.invars[0].aval.shape) == tuple(shape))

    return wanted


def line_of_error(error: Any) -> str | None:
    """The line of the user's files at which an error of checkify arose, where it says so."""
    return _users_line(getattr(error, "traceback_info", None))


def _equations(program: Any, called_at: str | None) -> Iterator[tuple[Any, str | None]]:
    """All equations of a program and of the programs inside of it, with the line each comes from."""
    for equation in program.eqns:
        # the frames of a function that was traced by itself end there: its caller's line stands for them
        line = _users_line(getattr(equation.source_info, "traceback", None)) or called_at
        yield equation, line
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner, line)


def _users_line(traceback: Any) -> str | None:
    for frame in getattr(traceback, "frames", ()):
        if not frame.file_name.startswith(OWN) and "<frozen" not in frame.file_name:
            return f"{os.path.basename(frame.file_name)}:{frame.line_num}"
    return None


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with reads out of range on purpose made harmless, and with `one_hot` asked for its range."""

    def run(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        if not any(_on_purpose(equation) or _is_one_hot(equation) for equation, _ in _equations(closed.jaxpr, None)):
            return function(*args)
        return jax.tree.unflatten(
            jax.tree.structure(shapes), _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        )

    return run


def _evaluate(program: Any, constants: Any, inputs: list[Any]) -> list[Any]:
    """Runs a program equation by equation. Loops and branches are run as a whole."""
    values = dict(zip([*program.constvars, *program.invars], [*constants, *inputs], strict=True))
    read = lambda var: var.val if hasattr(var, "val") else values[var]
    for equation in program.eqns:
        operands, inner = [read(var) for var in equation.invars], _inside(equation)
        if _is_one_hot(equation):
            _demand_classes(operands[0], equation)
        if _on_purpose(equation):
            outputs = [_read_in_range(equation, *operands)]
        elif inner is not None:
            outputs = _evaluate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)
        else:
            outputs = _alone(program, equation, operands)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(var) for var in program.outvars]


def _alone(program: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """The results of one equation, run as a program of its own, so that it keeps the line it comes from."""
    given = [(var, value) for var, value in zip(equation.invars, operands, strict=True) if not hasattr(var, "val")]
    inputs = dict(given)  # a variable may be an operand twice
    own = program.replace(constvars=[], invars=list(inputs), outvars=list(equation.outvars), eqns=[equation])
    return jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(own, ()))(*inputs.values())


def _inside(equation: Any) -> Any:
    """The program that an equation calls once, with its own operands; None for loops, branches and simple equations."""
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    if inner is None or equation.primitive.name in LOOPS:
        return None
    own = getattr(inner, "jaxpr", inner)
    fits = hasattr(own, "eqns") and len(own.invars) == len(equation.invars)
    return inner if fits and len(own.outvars) == len(equation.outvars) else None


def _on_purpose(equation: Any) -> bool:
    if equation.primitive.name != "gather":
        return False
    fill = equation.params.get("fill_value")
    filled = equation.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP and fill is not None
    # NaN and the smallest integer are what JAX fills with unless it is told
    told = filled and not np.isnan(fill) and fill not in (np.iinfo(np.int32).min, np.iinfo(np.int64).min)
    return bool(equation.params["mode"] == lax.GatherScatterMode.CLIP or told)


def _read_in_range(equation: Any, operand: Any, index: Any) -> Any:
    """The value of a read that is out of range on purpose, with its indices brought into range."""
    params, numbers = equation.params, equation.params["dimension_numbers"]
    sizes, mapped = np.array(operand.shape), np.array(numbers.start_index_map)
    last = (sizes[mapped] - np.array(params["slice_sizes"])[mapped]).astype(index.dtype)
    inside = jnp.clip(index, 0, last).astype(index.dtype)
    options = {"slice_sizes": params["slice_sizes"], "mode": lax.GatherScatterMode.PROMISE_IN_BOUNDS}
    value = lax.gather(operand, inside, dimension_numbers=numbers, **options)
    if params["mode"] == lax.GatherScatterMode.CLIP:
        return value
    kept = np.delete(np.arange(value.ndim), numbers.offset_dims)
    is_inside = lax.broadcast_in_dim(jnp.all(index == inside, -1), value.shape, tuple(kept))
    return jnp.where(is_inside, value, jnp.asarray(params["fill_value"], value.dtype))


def _is_one_hot(equation: Any) -> bool:
    return equation.params.get("name") == "_one_hot" and len(equation.invars) == 1


def _demand_classes(labels: Any, equation: Any) -> None:
    """Checks the labels of `one_hot`: those beyond the classes give rows of zeros. −1, often meant so, is allowed."""
    before, after = list(labels.shape), list(equation.outvars[0].aval.shape)
    axis = next((i for i, size in enumerate(after) if before[i : i + 1] != [size]), len(before))
    classes = after[axis]
    wrong = (labels < -1) | (labels >= classes)
    label = jnp.ravel(labels)[jnp.argmax(jnp.ravel(wrong))]
    checkify.check(~jnp.any(wrong), "one_hot {label} {classes}", label=label, classes=jnp.int32(classes))
