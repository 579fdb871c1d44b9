"""What a run of a task needs: the problem, where to start, what to measure, and defaults for the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior.problems import Problem

Tree = Any


class Measure(NamedTuple):
    """How a metric is named on an axis, which end of it is good, and how it is drawn."""

    label: str
    largest: bool = False
    log: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A problem on its data, ready to be run by any method under any order."""

    name: str
    title: str  # one line for people
    problem: Problem
    x0: Tree
    y0: Tree
    metrics: Callable[[Tree, Tree], dict[str, jax.Array]]
    measures: Mapping[str, Measure]  # of every metric, the most telling first
    judged_by: str  # the metric by which step sizes are chosen
    batch_size: int | tuple[int, int]
    steps: int
    # the step sizes to try: `outer_lr` for x, `inner_lr` for y, `adjoint_lr` for every other rate of a method;
    # where `adjoint_lr` is not given, `inner_lr` is taken
    grid: Mapping[str, tuple[float, ...]]
    side_by_side: bool | None = None  # how the runs of a grid are best made, where `sweep` would not know
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # hyper-parameters for methods that have them
    facts: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # data, sizes, seeds: what a report says of the task

    def __post_init__(self) -> None:
        if self.judged_by not in self.measures:
            raise ValueError(f"judged_by must be one of the measures {list(self.measures)}, got {self.judged_by!r}")


def state_type(features: Any) -> Any:
    """The dtype of x and y for given features: theirs, but at least float32.

    Half precision would lose small steps.
    """
    return jnp.promote_types(jnp.asarray(features).dtype, jnp.float32)
