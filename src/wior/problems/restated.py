"""A problem of one class restated as one of a more general class, whose methods then take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wior.problems.problem import Problem


def more_general(kind: type[Problem]) -> Iterator[type[Problem]]:
    """A class of problems, then those that it is a special case of."""
    general: type[Problem] | None = kind
    while general is not None:
        yield general
        general = general.special_case_of


def restated(problem: Any, *kinds: type[Problem]) -> Any:
    """The problem as one of some classes: itself, or restated until it is. Raises `TypeError` where it cannot be."""
    for general in more_general(type(problem)) if isinstance(problem, Problem) else ():
        if issubclass(general, kinds):
            return problem
        problem = problem.restated() if general.special_case_of is not None else problem
    names = " or ".join(kind.__name__ for kind in kinds)
    raise TypeError(
        f"problem must be one of wior's problems that can be restated as {names}, got {type(problem).__name__}"
    )
