"""The arguments of a run, checked one by one: each error names the argument, its value and what would be right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wior.algorithms.algorithm import Algorithm
from wior.loggers import Logger
from wior.orders import Order, named
from wior.orders.substitutes import ONE_EXAMPLE
from wior.problems import Problem
from wior.problems.restated import more_general, restated
from wior.running.listeners import Callback
from wior.running.measuring import Metrics
from wior.saving.checkpoint import Checkpoint

WITHOUT_DATA = {"order": ONE_EXAMPLE, "batch_size": 1}  # of an outer level without data
Orders = Order | str | tuple[Order | str, Order | str]


@dataclasses.dataclass(frozen=True)
class Arguments:
    """How long and in which order a run goes, and what it measures: the arguments of `solve` as they were given."""

    order: Orders
    batch_size: int | tuple[int, int]
    epochs: int | None = None
    steps: int | None = None
    seconds: float | None = None
    tolerance: tuple[str, float] | None = None
    seed: int | None = None
    metrics: Metrics | None = None
    record_every: int | None = None
    stop: Any = None
    callback: Callback | None = None
    loggers: Sequence[Logger] = ()
    state: Any = None
    micro_batch: int | tuple[int, int] | None = None


def demand_algorithm(algorithm: Any) -> None:
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        fields = [field for field in dataclasses.fields(algorithm) if field.default is dataclasses.MISSING]
        example = ", ".join(f"{field.name}=0.1" for field in fields)
        raise TypeError(
            f"algorithm is the class {algorithm.__name__}; give one with its step sizes: "
            f"{algorithm.__name__}({example})"
        )
    if not isinstance(algorithm, Algorithm):
        raise TypeError(
            "algorithm must be one of wior's algorithms, for example wior.WiORBO(outer_lr=0.1, inner_lr=0.1, "
            "adjoint_lr=0.1); "
            f"got {algorithm!r} of type {type(algorithm).__name__}"
        )


def both(name: str, value: Any, problem: Problem, checked: Callable[[str, Any], Any]) -> tuple[Any, Any]:
    """One value for both levels, or a pair (outer, inner), each as `checked` gives it back."""
    if isinstance(value, list):
        listed = ", ".join(map(repr, value))
        raise TypeError(f"{name} is a list, {value!r}; a pair (outer, inner) is a tuple: {name}=({listed})")
    pair = isinstance(value, tuple)
    if pair and (len(problem.sizes()) == 1 or problem.lacks_outer_data):
        raise ValueError(
            f"{name} is a pair, {value!r}, but a {type(problem).__name__} problem has one data set: give one value"
        )
    if pair and len(value) != 2:
        raise ValueError(f"{name} must be one value or a pair (outer, inner), got {len(value)} values: {value!r}")
    if not pair and problem.lacks_outer_data:
        return checked(name, WITHOUT_DATA[name]), checked(name, value)
    if not pair:
        return (checked(name, value),) * 2
    outer, inner = value
    return checked(f"{name} (outer)", outer), checked(f"{name} (inner)", inner)


def posed_for(problem: Problem, algorithm: Algorithm) -> Any:
    """The problem as the algorithm takes it: itself, or restated where one class is a special case of another."""
    if algorithm.solves not in more_general(type(problem)):
        raise TypeError(
            f"{type(algorithm).__name__} solves {algorithm.solves.__name__} problems; the problem given is "
            f"{type(problem).__name__}"
        )
    posed = restated(problem, algorithm.solves)
    if getattr(posed, "ascent_data", None) is not None and not algorithm.batch_kinds_for(posed).inner:
        raise TypeError(
            f"{type(algorithm).__name__} reads one data set, and the Minimax problem has two: its batch_kinds_for must "
            "name an inner batch where the problem has ascent_data"
        )
    return posed


def not_streamed(problem: Any, algorithm: Algorithm, why: str) -> str:
    return (
        f"the {' and '.join(problem.streamed())} data are streamed, and {type(algorithm).__name__} {why}; "
        "give arrays that fit on the device, or another method"
    )


def check_tolerance(tolerance: Any, names: tuple[str, ...]) -> None:
    if not isinstance(tolerance, tuple) or len(tolerance) != 2 or tolerance[0] not in names:
        raise ValueError(
            f"tolerance must be (name, value) with the name of a metric, one of {list(names)}; got {tolerance!r}"
        )
    if not np.isfinite(tolerance[1]):
        raise ValueError(f"tolerance must have a finite value, got {tolerance!r}")


def as_checkpoint(checkpoint: str | Path | Checkpoint | None) -> Checkpoint | None:
    return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)


def title(algorithm: Algorithm, order: Orders) -> str:
    """What a progress bar calls a run."""
    given = order if isinstance(order, tuple) else (order,)
    names = dict.fromkeys(type(named("order", one)).__name__ for one in given)
    return f"{type(algorithm).__name__}, {' / '.join(names)}"
