"""What a function computes as it is now, as a short text: its program and every array and number that the program holds.

Compiled programs are kept for the next run and found by the identity of the functions they were made of. A function may read
more than its arguments: a global, an attribute, a captured array. So a program is found by its fingerprint too, and
a checkpoint tells its run from another one by the same text.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

LONGEST_TEXT = 16
JAX_FOLDER = f"{Path(jax.__file__).parent}{os.sep}"
_numbers = itertools.count()
_digests: dict[int, tuple[Any, bytes]] = {}  # of arrays of jax, which never change


def fingerprint(function: Callable[..., Any], *args: Any) -> str:
    """A digest of what `function` computes at arguments of these shapes.

    It follows nested programs, and covers the arrays and numbers that they close over.
    """
    return of_program(traced(function, *args))


def traced(function: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """The program of `function` as it is now."""
    # jax keeps traces by the identity of a function: a new lambda is traced anew
    return jax.make_jaxpr(lambda *args: function(*args))(*args)


def traced_losses(problem: Any, x: Any, y: Any, batches: tuple[int, int] | None = None) -> ClosedJaxpr:
    """The program of all losses of a problem, at these shapes, with the data as arguments."""

    def losses(problem: Any, x: Any, y: Any) -> list[Any]:
        return [loss(*zeros(args)) for loss, args in problem.loss_calls(x, y, batches).values()]

    return traced(losses, *shapes((problem, x, y)))


def of_losses(problem: Any, x: Any, y: Any) -> str:
    """A digest of what the losses of a problem compute; with derivatives of the user's own, which they do not show, always another one."""
    found = traced_losses(problem, x, y)
    return f"{of_program(found)} {next(_numbers)}" if has_foreign_rules(found) else of_program(found)


def shapes(values: Any) -> Any:
    """A tree with the shapes and types of arrays in their place."""

    def shape(leaf: Any) -> Any:
        known = isinstance(leaf, (jax.Array, np.ndarray))
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)) if known else leaf

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


def of_code(function: Any) -> str:
    """A digest of a function that cannot be traced: its code, and the numbers, texts and arrays that the code reads."""
    digest = hashlib.sha256()
    _callable(digest, function, set())
    return digest.hexdigest()[:LONGEST_TEXT]


def _is_foreign(equation: Any) -> bool:
    if not equation.primitive.name.startswith("custom_"):
        return False
    program = equation.params.get("call_jaxpr", equation.params.get("fun_jaxpr"))
    about = getattr(getattr(program, "jaxpr", program), "debug_info", None)
    return JAX_FOLDER not in str(getattr(about, "func_src_info", ""))


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
        _array(digest, constant)


def _jaxpr(digest: Any, jaxpr: Jaxpr) -> None:
    numbers: dict[Any, int] = {}

    def put(atom: Any) -> None:
        if isinstance(atom, Literal):
            digest.update(f"={atom.aval}".encode())
            _array(digest, atom.val)
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


def _parameter(digest: Any, value: Any, by_identity: bool) -> None:
    if isinstance(value, ClosedJaxpr):
        _closed(digest, value)
    elif isinstance(value, Jaxpr):
        _jaxpr(digest, value)
    elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
        _array(digest, value)
    elif isinstance(value, (tuple, list)):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for one in value:
            _parameter(digest, one, by_identity)
    elif isinstance(value, dict):
        for name, one in value.items():
            digest.update(str(name).encode())
            _parameter(digest, one, by_identity)
    elif by_identity and hasattr(value, "callback_func"):  # what runs on the host is read there, in every step
        digest.update(str(id(value.callback_func)).encode())
    elif callable(value) and not isinstance(value, type):
        # rules of derivatives, made anew by every trace; where they are used, what they compute is in the program
        digest.update(type(value).__name__.encode())
    else:
        text = repr(value)
        digest.update(type(value).__name__.encode() if " at 0x" in text else text.encode())


def _array(digest: Any, value: Any) -> None:
    if not isinstance(value, jax.Array):
        digest.update(_content(np.asarray(value)))
        return
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        digest.update(str(value.dtype).encode())
        value = jax.random.key_data(value)
    known = _digests.get(id(value))
    if known is None or known[0]() is not value:
        number = id(value)
        known = weakref.ref(value, lambda _: _digests.pop(number, None)), _content(_whole(value))
        _digests[number] = known
    digest.update(known[1])


def _whole(value: jax.Array) -> np.ndarray:
    if value.is_fully_addressable:
        return np.asarray(value)
    return np.stack([np.asarray(shard.data) for shard in value.addressable_shards])


def _content(value: np.ndarray) -> bytes:
    data = np.ascontiguousarray(value)
    text = f"{data.dtype}{data.shape}".encode()
    if data.dtype == object:
        return hashlib.blake2b(text + repr(value).encode(), digest_size=16).digest()
    found = hashlib.blake2b(text, digest_size=16)
    found.update(data.reshape(-1).view(np.uint8).data)
    return found.digest()


def _callable(digest: Any, value: Any, met: set[int]) -> None:
    if id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, functools.partial):
        for one in (value.func, *value.args, *value.keywords.items()):
            _read(digest, one, met)
    elif isinstance(value, types.MethodType):
        _callable(digest, value.__func__, met)
        _read(digest, vars(value.__self__) if hasattr(value.__self__, "__dict__") else None, met)
    elif isinstance(value, types.FunctionType):
        _code(digest, value.__code__)
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
        names = [value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__]
        for one in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items(), *cells, *names):
            _read(digest, one, met)
    elif hasattr(value, "__wrapped__"):
        _callable(digest, value.__wrapped__, met)
    elif callable(value) and isinstance(type(value).__call__, types.FunctionType):
        _callable(digest, type(value).__call__, met)
        _read(digest, vars(value) if hasattr(value, "__dict__") else None, met)
    else:
        digest.update(getattr(value, "__qualname__", type(value).__qualname__).encode())


def _read(digest: Any, value: Any, met: set[int]) -> None:
    """What code reads: values by their content, functions of the user's by theirs; modules and classes by name."""
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        _array(digest, value)
    elif isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        digest.update(repr(value).encode())
    elif isinstance(value, (list, set)):  # what code collects changes without changing the code
        digest.update(type(value).__name__.encode())
    elif isinstance(value, frozenset):
        digest.update(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, (tuple, dict)):
        if id(value) in met:
            return
        met.add(id(value))
        for one in value.items() if isinstance(value, dict) else value:
            _read(digest, one, met)
    elif isinstance(value, (types.ModuleType, type)):
        digest.update(value.__name__.encode())
    elif callable(value):
        _callable(digest, value, met)
    else:
        digest.update(type(value).__qualname__.encode())


def _code(digest: Any, code: types.CodeType) -> None:
    digest.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _code(digest, constant)
        else:  # texts in a set come in another order in every process
            text = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
            digest.update(repr(text).encode())
    digest.update(repr(code.co_names).encode())


def _names(code: types.CodeType) -> list[str]:
    inside = [name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _names(constant)]
    return [*code.co_names, *inside]


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
