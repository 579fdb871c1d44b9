"""What a function that cannot be traced does: its code, and the numbers, texts and arrays that the code reads.

Values that the code itself stores to (a counter, the best so far) are left out: they change without changing the
function.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from wior.saving.content import add_array

LONGEST_TEXT = 16
Met = dict[int, Any]  # what was read, by identity; kept alive, since an identity is given again to something else


def of_code(function: Any) -> str:
    """A digest of a function by its code."""
    digest = hashlib.sha256()
    _callable(digest, function, {})
    return digest.hexdigest()[:LONGEST_TEXT]


def _callable(digest: Any, value: Any, met: Met) -> None:
    if id(value) in met:
        return
    met[id(value)] = value
    if isinstance(value, functools.partial):
        for one in (value.func, *value.args, *value.keywords.values()):
            _read(digest, one, met)
        digest.update(repr(sorted(value.keywords)).encode())
    elif isinstance(value, types.MethodType):
        _callable(digest, value.__func__, met)
        _attributes(digest, value.__self__, value.__func__, met)
    elif isinstance(value, types.FunctionType):
        _function(digest, value, met)
    elif hasattr(value, "__wrapped__"):
        _callable(digest, value.__wrapped__, met)
    elif callable(value) and isinstance(type(value).__call__, types.FunctionType):
        _callable(digest, type(value).__call__, met)
        _attributes(digest, value, type(value).__call__, met)
    else:
        digest.update(getattr(value, "__qualname__", type(value).__qualname__).encode())


def _function(digest: Any, function: types.FunctionType, met: Met) -> None:
    code = function.__code__
    _code(digest, code)
    stored = set(_stored(code, "STORE_GLOBAL", "STORE_DEREF"))
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    read = [cell.cell_contents for name, cell in cells if name not in stored and is_full(cell)]
    names = [name for name in _names(code) if name not in stored]
    read += [function.__globals__[name] for name in names if name in function.__globals__]
    for one in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *read):
        _read(digest, one, met)


def _attributes(digest: Any, value: Any, method: Any, met: Met) -> None:
    """The attributes of the object that a method belongs to, without those that it stores to."""
    stored = set(_stored(method.__code__, "STORE_ATTR"))
    for name, one in vars(value).items() if hasattr(value, "__dict__") else ():
        if name not in stored:
            digest.update(name.encode())
            _read(digest, one, met)


def _read(digest: Any, value: Any, met: Met) -> None:
    """What code reads: values by their content, functions of the user's by theirs; modules and classes by name."""
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        add_array(digest, value)
    elif isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        digest.update(repr(value).encode())
    elif isinstance(value, (list, set)):  # what code collects changes without changing the code
        digest.update(type(value).__name__.encode())
    elif isinstance(value, frozenset):
        digest.update(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, (tuple, dict)):
        if id(value) in met:
            return
        met[id(value)] = value
        digest.update(repr(sorted(map(repr, value))).encode() if isinstance(value, dict) else b"tuple")
        for one in value.values() if isinstance(value, dict) else value:
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


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code and those of the functions that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _inside(constant)


def _names(code: types.CodeType) -> list[str]:
    return [name for one in _inside(code) for name in one.co_names]


def _stored(code: types.CodeType, *operations: str) -> Iterator[str]:
    """The names that a code stores to by some operations."""
    for one in _inside(code):
        for instruction in dis.get_instructions(one):
            if instruction.opname in operations:
                yield str(instruction.argval)


def is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
