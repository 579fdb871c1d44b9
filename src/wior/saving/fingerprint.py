"""What a function computes as it is now, as a short text.

Its program and every array and number that the program holds.

Compiled programs are kept for the next run and found by the identity of the functions they were made of. A function may
read more than its arguments: a global, an attribute, a captured array. So a program is found by its fingerprint too,
and a checkpoint tells its run from another one by the same text.
"""

from __future__ import annotations

import functools
import hashlib
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from wior.saving.code import LONGEST_TEXT, is_full, of_code
from wior.saving.content import add_array

JAX_FOLDER = f"{Path(jax.__file__).parent}{os.sep}"


def fingerprint(function: Callable[..., Any], *args: Any) -> str:
    """A digest of what `function` computes at arguments of these shapes.

    It follows nested programs, and covers the arrays and numbers that they close over.
    """
    return of_program(traced(function, *args))


def traced(function: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """The program of `function` as it is now."""
    # jax keeps traces by the identity of a function: a new lambda is traced anew
    return jax.make_jaxpr(lambda *args: function(*args))(*args)


def of_loss(loss: Callable[..., Any], *args: Any) -> str:
    """A digest of what a loss of (variables ..., batch) computes, derivatives of the user's own included."""
    found = traced(loss, *args)
    return of_program(traced(functools.partial(_with_derivatives, loss), *args) if has_foreign_rules(found) else found)


def _with_derivatives(loss: Callable[..., Any], *args: Any) -> Any:
    """A value, its gradient and the derivative of that along ones: the programs of all rules are in it."""
    *variables, batch = zeros(args)

    def gradient(*variables: Any) -> Any:
        value, back = jax.vjp(lambda *variables: loss(*variables, batch), *variables)
        return value, back(jax.tree.map(jnp.ones_like, value))

    return jax.jvp(gradient, tuple(variables), jax.tree.map(jnp.ones_like, tuple(variables)))


def traced_losses(problem: Any, x: Any, y: Any, batches: tuple[int, int] | None = None) -> ClosedJaxpr:
    """The program of all losses of a problem, at these shapes, with the data as arguments."""

    def losses(problem: Any, x: Any, y: Any) -> list[Any]:
        return [loss(*zeros(args)) for loss, args in problem.loss_calls(x, y, batches).values()]

    return traced(losses, *shapes((problem, x, y)))


def of_losses(problem: Any, x: Any, y: Any, *batches: tuple[int, int] | None) -> str:
    """A digest of what a problem's losses compute with batches of some sizes, with derivatives of the user's own."""

    def losses(problem: Any, x: Any, y: Any, size: Any) -> list[Any]:
        calls = problem.loss_calls(x, y, size).values()
        return [_with_derivatives(loss, *args) for loss, args in calls]

    found = [traced_losses(problem, x, y, size) for size in batches]
    if any(has_foreign_rules(one) for one in found):
        arguments = shapes((problem, x, y))
        found = [traced(functools.partial(losses, size=size), *arguments) for size in batches]
    return " ".join(of_program(one) for one in found)


def shapes(values: Any) -> Any:
    """A tree with the shapes and types of arrays in their place."""

    def shape(leaf: Any) -> Any:
        known = isinstance(leaf, (jax.Array, np.ndarray))
        return (
            jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True))
            if known
            else leaf
        )

    return jax.tree.map(shape, values)


def zeros(values: Any) -> Any:
    """A tree with arrays of zeros in place of shapes."""
    of_shape = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    return jax.tree.map(of_shape, values)


def has_foreign_rules(closed: ClosedJaxpr) -> bool:
    """Whether a program may have derivatives of the user's own (custom_vjp, custom_jvp), which it does not show."""
    return any(_is_foreign(equation) for equation in _equations(closed.jaxpr))


def of_program(closed: ClosedJaxpr) -> str:
    digest = hashlib.sha256()
    _closed(digest, closed)
    return digest.hexdigest()[:LONGEST_TEXT]


def _is_foreign(equation: Any) -> bool:
    """Whether an equation has rules of derivatives that are not jax's own, as far as they can be found.

    Unknown ones are not.
    """
    if not equation.primitive.name.startswith("custom_"):
        return False
    names = ("jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd")
    rules = [one for name in names if name in equation.params for one in _functions(equation.params[name], {})]
    known = len(rules) > 1 and all(one.__code__.co_filename.startswith(JAX_FOLDER) for one in rules)
    return not known


def _functions(value: Any, met: dict[int, Any]) -> Iterator[types.FunctionType]:
    """The functions that a rule of derivatives is made of, as jax wraps them."""
    if id(value) in met:
        return
    met[id(value)] = value
    parts: list[Any] = []
    if isinstance(value, types.FunctionType):
        yield value
        parts = [cell.cell_contents for cell in value.__closure__ or () if is_full(cell)]
    elif isinstance(value, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    elif type(value).__name__ in ("WrappedFun", "custom_jvp", "custom_vjp"):
        parts = [
            getattr(value, name, None) for name in ("f", "f_transformed", "transforms", "fun", "jvp", "fwd", "bwd")
        ]
    for one in (*parts, getattr(value, "__wrapped__", None)):
        yield from _functions(one, met)


def _equations(jaxpr: Jaxpr) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for one in value if isinstance(value, (tuple, list)) else (value,):
                inside = getattr(one, "jaxpr", one)
                if isinstance(inside, Jaxpr):
                    yield from _equations(inside)


def _closed(digest: Any, closed: ClosedJaxpr) -> None:
    _jaxpr(digest, closed.jaxpr)
    for constant in closed.consts:
        add_array(digest, constant)


def _jaxpr(digest: Any, jaxpr: Jaxpr) -> None:
    numbers: dict[Any, int] = {}

    def put(atom: Any) -> None:
        if isinstance(atom, Literal):
            digest.update(f"={atom.aval}".encode())
            add_array(digest, atom.val)
        else:
            number = numbers.setdefault(atom, len(numbers))
            digest.update(f" {number}:{atom.aval}".encode())

    for var in (*jaxpr.constvars, *jaxpr.invars):
        put(var)
    for equation in jaxpr.eqns:
        digest.update(f"\n{equation.primitive.name}".encode())
        for name, value in sorted(equation.params.items()):
            digest.update(f" {name}=".encode())
            _parameter(digest, value, "callback" in equation.primitive.name)
        for atom in (*equation.invars, *equation.outvars):
            put(atom)
    digest.update(b"\n->")
    for atom in jaxpr.outvars:
        put(atom)


def _parameter(digest: Any, value: Any, in_callback: bool) -> None:
    if isinstance(value, ClosedJaxpr):
        _closed(digest, value)
    elif isinstance(value, Jaxpr):
        _jaxpr(digest, value)
    elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
        add_array(digest, value)
    elif isinstance(value, (tuple, list)):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for one in value:
            _parameter(digest, one, in_callback)
    elif isinstance(value, dict):
        for name, one in value.items():
            digest.update(str(name).encode())
            _parameter(digest, one, in_callback)
    elif isinstance(value, (set, frozenset)):  # texts in a set come in another order in every process
        digest.update(repr(sorted(map(repr, value))).encode())
    elif in_callback and callable(getattr(value, "callback_func", value)) and not isinstance(value, type):
        digest.update(of_code(getattr(value, "callback_func", value)).encode())
    elif callable(value) and not isinstance(value, type):
        # rules of derivatives, made anew by every trace; where they are used, what they compute is in the program
        digest.update(type(value).__name__.encode())
    else:
        text = repr(value)
        digest.update(type(value).__name__.encode() if " at 0x" in text else text.encode())
