"""Metrics: checked, compiled where they can be, and kept for the next run that measures the same."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from wior import checks, oracle
from wior.saving import fingerprint
from wior.saving.checkpoint import PROGRAM, describe_code, describe_tree

Tree = Any
Metrics = Callable[[Tree, Tree], dict[str, Any]]

ALWAYS = ("step", "outer_passes", "inner_passes", "seconds", *oracle.CALLS)  # what every history has

# the last ones; `jit` knows a function by its object only, and a bound method not at all
_compiled: collections.deque[tuple[Any, str, str, Any]] = collections.deque(maxlen=8)


def metrics_program(metrics: Metrics | None, x: Tree, y: Tree) -> str | None:
    """The fingerprint of metrics that can be compiled; None for others, which are called as they are."""
    if metrics is None:
        return None
    checks.function("metrics", metrics)
    checks.metrics_arity(metrics)
    if jax.tree_util.all_leaves([metrics]):
        trace = functools.partial(fingerprint.fingerprint, metrics, x, y)
    else:  # of metrics that are a tree of data, the arrays are arguments
        trace = functools.partial(fingerprint.fingerprint, lambda metrics, x, y: metrics(x, y), metrics, x, y)
    try:
        program = trace()
        # a clock or a counter would be frozen in a program: such metrics are called
        return program if trace() == program else None
    except Exception:  # noqa: BLE001 - whatever stops a trace, the call that follows works, or says what is wrong
        return None


def describe_metrics(metrics: Metrics | None, program: str | None) -> dict[str, Any]:
    """What is computed: the program and its data or, of metrics that are not compiled, the code."""
    described: dict[str, Any] = {}
    if program is not None:
        described["program"] = f"{PROGRAM} {program}"
    if metrics is not None and program is None:
        described["code"] = describe_code(metrics)
    elif metrics is not None and not jax.tree_util.all_leaves([metrics]):
        described["data"] = describe_tree(metrics)
    return described


def metric_names(metrics: Metrics | None, x: Tree, y: Tree, compiles: bool) -> tuple[str, ...]:
    """The names that `metrics` returns, after checking that each is a number."""
    if metrics is None:
        return ()
    found = jax.eval_shape(lambda x, y: metrics(x, y), x, y) if compiles else metrics(x, y)
    if not isinstance(found, dict):
        raise TypeError(
            f"metrics must return a dictionary of numbers, such as {{'loss': ...}}; it returns {type(found).__name__}"
        )
    for name, value in found.items():
        if not isinstance(name, str) or name in ALWAYS:
            raise ValueError(f"metrics may not use the name {name!r}; history has {', '.join(ALWAYS)} already")
        if np.shape(value) != ():
            raise ValueError(f"metrics[{name!r}] must be one number, got an array of shape {np.shape(value)}")
    return tuple(found)


def measurement(metrics: Metrics | None, program: str | None) -> Metrics:
    if metrics is None:
        return lambda x, y: {}
    return metrics if program is None else compiled(metrics, "one", program)


def compiled(metrics: Metrics, how: str, program: str) -> Metrics:
    """The compiled metrics of one run or of many, kept for the next run that measures the same."""
    if jax.tree_util.all_leaves([metrics]):
        return _compiled_function(metrics, how, program)
    # a tree of data that runs are judged on: its arrays are arguments, so that trees of one shape are one program
    return functools.partial(_measured_by_tree, how, program, metrics)


def _compiled_function(metrics: Metrics, how: str, program: str) -> Metrics:
    for known, *key, measure in _compiled:
        same = known is metrics or (isinstance(metrics, types.MethodType) and known == metrics)
        if same and key == [how, program]:
            return measure
    measure = jax.jit(lambda x, y: mapped(metrics, how)(x, y))
    _compiled.append((metrics, how, program, measure))
    return measure


@functools.partial(jax.jit, static_argnums=(0, 1))
def _measured_by_tree(how: str, program: str, metrics: Any, x: Tree, y: Tree) -> dict[str, Any]:
    return mapped(metrics, how)(x, y)


def mapped(metrics: Metrics, how: str) -> Metrics:
    if how == "one":
        return metrics
    if how == "side by side":
        return jax.vmap(metrics)
    return lambda x, y: jax.lax.map(lambda point: metrics(*point), (x, y))
