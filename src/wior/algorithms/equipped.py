"""A method with what it does not know of: optimizers in place of its step sizes, constraints, and what is carried.

The engine takes it in place of the method where there is something of this kind. Its state is that of the method with
one more field, `carried`.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
from typing import Any

from wior import tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Seen
from wior.problems import carried
from wior.problems.constraints import Proximal
from wior.problems.constraints import check as check_constraint
from wior.problems.losses import MODEL
from wior.problems.moving import Constraints, Mover, state_name
from wior.problems.optimizers import demand_usable, is_optimizer
from wior.problems.per_example import all_rows

Tree = Any


@functools.lru_cache(maxsize=256)
def _with_carried(kind: Any) -> Any:
    """A state with what is carried as one more field; `without` is the class of that without it."""
    new_class: Any = collections.namedtuple
    made = new_class(kind.__name__, (*kind._fields, "carried"))
    made.without = kind
    return made


@dataclasses.dataclass(frozen=True)
class Equipped(Algorithm):
    """A method, and what is carried beside its state."""

    algorithm: Any
    constraints: Constraints = dataclasses.field(default=Constraints(), metadata={"static": True})
    carries_model: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def batch_kinds(self) -> BatchKinds:
        return self.algorithm.batch_kinds

    def batch_kinds_for(self, problem: Any) -> BatchKinds:
        return self.algorithm.batch_kinds_for(problem)

    @property
    def visit_batches(self) -> int | None:
        return self.algorithm.visit_batches

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "algorithm":
            raise AttributeError(name)
        return getattr(self.algorithm, name)

    def moved(self) -> dict[str, str]:  # type: ignore[override]
        return self.algorithm.moved()

    def init(self, problem: Any, x: Tree, y: Tree) -> Any:
        state = self.algorithm.init(problem, x, y)
        kind: Any = type(state)
        model = {MODEL: problem.model_state} if self.carries_model else {}
        return _with_carried(kind)(*state, self._first(x, y) | model)

    def step(self, problem: Any, state: Any, draws: Draws) -> tuple[Any, Seen]:
        with carried.carrying(state.carried) as last:
            moved, seen = self._method().step(problem, state.without(*state[:-1]), draws)
        return type(state)(*moved, last), seen

    def _first(self, x: Tree, y: Tree) -> carried.Held:
        starts = {"x": lambda: x, "y": lambda: y, "z": lambda: y, "u": lambda: tree.zeros_like(y)}
        return {
            state_name(variable): getattr(self.algorithm, field).init(starts[variable]())
            for variable, field in self.algorithm.moved().items()
            if is_optimizer(getattr(self.algorithm, field))
        }

    def _method(self) -> Algorithm:
        """The method, with movers in place of step sizes that are more than numbers."""
        by_field: dict[str, list[str]] = {}
        for variable, field in self.algorithm.moved().items():
            by_field.setdefault(field, []).append(variable)
        method = copy.copy(self.algorithm)
        for field, variables in by_field.items():
            rate = getattr(self.algorithm, field)
            own = {variable: self.constraints.on(variable) for variable in variables}
            if is_optimizer(rate) or any(one is not None for one in own.values()):
                object.__setattr__(method, field, Mover(rate, own, variables[0]))
        return method


def _of_method(name: str) -> property:
    return property(lambda self: getattr(self.algorithm, name))


# of the method, and not what `Algorithm` has for all
for _name in ("solves", "step_sizes", "moves", "paper", "fixed_batches", "takes_large_batches", "adds_outer_to_y",
              "cost_varies"):  # fmt: skip
    setattr(Equipped, _name, _of_method(_name))


def method_of(algorithm: Algorithm) -> Algorithm:
    """The method itself."""
    return algorithm.algorithm if isinstance(algorithm, Equipped) else algorithm


def equipped(
    algorithm: Algorithm, constraints: Constraints, x: Tree, y: Tree, carries_model: bool = False
) -> Algorithm:
    """The method as the engine takes it: itself, where there is nothing that it does not know of."""
    moved = algorithm.moved()
    fields = {field: getattr(algorithm, field) for field in moved.values()}
    for name, variable, start in (("project_x", "x", x), ("project_y", "y", y)):
        constraint = constraints.on(variable)
        if constraint is None:
            continue
        if variable not in moved:
            raise ValueError(
                f"{type(algorithm).__name__} cannot keep {variable} in {name}: it does not move {variable} by plain "
                "steps, which could be projected; use another method"
            )
        if isinstance(constraint, Proximal) and is_optimizer(fields[moved[variable]]):
            raise TypeError(
                f"{name} is a proximal step, which needs to know how long a step is; {moved[variable]} is an optimizer "
                "of optax, whose steps have no one length: give a number or a schedule"
            )
        check_constraint(name, constraint, f"{variable}0", all_rows(start))
    for variable, field in moved.items():
        if is_optimizer(fields[field]):
            demand_usable(field, fields[field], x if variable == "x" else y)
    if constraints == Constraints() and not carries_model and not any(is_optimizer(rate) for rate in fields.values()):
        return algorithm
    return Equipped(algorithm, constraints, carries_model)
