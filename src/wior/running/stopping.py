"""Conditions that end a run early: small frozen values, computed from the recorded history alone.

So they need no memory of their own, and a resumed run ends where the uninterrupted one does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wior import checks

Tree = Any
History = Mapping[str, np.ndarray]


class Condition:
    """What may end a run: a function of the recorded history.

    A condition of your own is a frozen dataclass that inherits from this class and gives `columns` and `holds`.

    Examples
    --------
    >>> import dataclasses, jax.numpy as jnp, numpy as np, wior
    >>> @dataclasses.dataclass(frozen=True)
    ... class Budget(wior.stop.Condition):
    ...     passes: float
    ...
    ...     def columns(self):
    ...         return ("outer_passes", "inner_passes")
    ...
    ...     def holds(self, history):
    ...         return bool(history["outer_passes"][-1] + history["inner_passes"][-1] >= self.passes)
    >>> problem = wior.Minimax(lambda x, y, batch: jnp.mean((x - batch) ** 2 - (y - x) ** 2), np.arange(8.0))
    >>> method = wior.WiORMinimax(0.1, 0.1)
    >>> result = wior.solve(problem, method, 0.0, 0.0, batch_size=4, steps=100, record_every=1, stop=Budget(6))
    >>> result.steps, result.stopped_by
    (6, 'Budget(passes=6)')
    """

    def columns(self) -> tuple[str, ...]:
        """The columns of the history that it reads: metrics, or what every history has, such as `outer_passes`."""
        raise NotImplementedError

    def holds(self, history: History) -> bool:
        """Whether the run ends at the last record of `history`, which has the columns that it reads."""
        raise NotImplementedError

    def measures(self, problem: Any) -> dict[str, Callable[[Tree, Tree], Any]]:
        """Functions of x and y whose values are recorded besides the metrics, by name; none by default."""
        return {}


class _Shown:
    """Written as it is made: `Patience('loss', 10)`."""

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = [(one, getattr(self, one.name)) for one in fields]
        shown = [(f"{one.name}=" if one.kw_only else "") + repr(value) for one, value in given if value != one.default]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclasses.dataclass(frozen=True, repr=False)
class _Bound(_Shown, Condition):
    """A value that the last record of a column is held against."""

    column: str
    value: float

    def __post_init__(self) -> None:
        _demand_column(self)
        _demand_finite("value", self.value)

    def columns(self) -> tuple[str, ...]:
        return (self.column,)


@dataclasses.dataclass(frozen=True, repr=False)
class AtMost(_Bound):
    """Ends a run at the first record where a column is not above a value.

    Parameters
    ----------
    column : str
        The name of a metric, or of another column of the history.
    value : float
        The value.

    Examples
    --------
    >>> import numpy as np, wior
    >>> wior.stop.AtMost("loss", 0.1).holds({"loss": np.array([0.5, 0.1])})
    True
    """

    def holds(self, history: History) -> bool:
        return bool(history[self.column][-1] <= self.value)


@dataclasses.dataclass(frozen=True, repr=False)
class AtLeast(_Bound):
    """Ends a run at the first record where a column is not below a value.

    Parameters
    ----------
    column : str
        The name of a metric, or of another column of the history: `outer_gradients` makes a budget of derivatives.
    value : float
        The value.

    Examples
    --------
    >>> import numpy as np, wior
    >>> wior.stop.AtLeast("accuracy", 0.9).holds({"accuracy": np.array([0.95, 0.85])})
    False
    """

    def holds(self, history: History) -> bool:
        return bool(history[self.column][-1] >= self.value)


@dataclasses.dataclass(frozen=True, repr=False)
class Patience(_Shown, Condition):
    """Ends a run where the best of the last records is no better than the best before them.

    A value that is not a number is never better.

    Parameters
    ----------
    column : str
        The name of a metric, or of another column of the history.
    records : int
        How many last records.
    by : float, default 0
        By more than how much their best must be better for the run to go on.
    largest : bool, default False
        Whether larger is better.

    Examples
    --------
    >>> import numpy as np, wior
    >>> patience = wior.stop.Patience("loss", 2)
    >>> patience.holds({"loss": np.array([3.0, 1.0, 2.0])}), patience.holds({"loss": np.array([3.0, 1.0, 2.0, 1.0])})
    (False, True)
    """

    column: str
    records: int
    by: float = dataclasses.field(default=0.0, kw_only=True)
    largest: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _demand_column(self)
        checks.positive_integer("records", self.records)
        checks.non_negative_number("by", self.by)
        checks.boolean("largest", self.largest)

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, history: History) -> bool:
        values = np.asarray(history[self.column], float)
        falling = np.where(np.isnan(values), np.inf, -values if self.largest else values)
        if len(falling) <= self.records:
            return False
        return bool(falling[-self.records :].min() >= falling[: -self.records].min() - self.by)


@dataclasses.dataclass(frozen=True, repr=False)
class RelativeChange(_Shown, Condition):
    """Ends a run where a column changes by less than a share of itself from record to record.

    Parameters
    ----------
    column : str
        The name of a metric, or of another column of the history.
    below : float
        The share: |new − old| is not above `below` times |old|.
    records : int, default 1
        For how many changes in a row.

    Examples
    --------
    >>> import numpy as np, wior
    >>> change = wior.stop.RelativeChange("loss", below=0.01)
    >>> change.holds({"loss": np.array([2.0, 1.0])}), change.holds({"loss": np.array([2.0, 1.0, 0.995])})
    (False, True)
    """

    column: str
    below: float = dataclasses.field(kw_only=True)
    records: int = dataclasses.field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        _demand_column(self)
        checks.positive_number("below", self.below)
        checks.positive_integer("records", self.records)

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, history: History) -> bool:
        values = np.asarray(history[self.column][-self.records - 1 :], float)
        if len(values) <= self.records:
            return False
        with np.errstate(invalid="ignore", over="ignore"):  # of a run that diverges
            return bool(np.all(np.abs(np.diff(values)) <= self.below * np.abs(values[:-1])))


class Watched:
    """The columns that conditions read, as they grow."""

    def __init__(self, conditions: Mapping[str, Condition]):
        self.conditions = conditions
        names = {name for condition in conditions.values() for name in condition.columns()}
        self._values = {name: np.zeros(64) for name in names}
        self._length = 0

    def add(self, record: Mapping[str, float]) -> None:
        for name, values in self._values.items():
            if self._length == len(values):
                values = self._values[name] = np.concatenate([values, np.zeros_like(values)])
            values[self._length] = record[name]
        self._length += 1

    def first_that_holds(self) -> str:
        """The name of the first condition that holds at the last record; empty where none does."""
        history = {name: values[: self._length] for name, values in self._values.items()}
        return next((name for name, condition in self.conditions.items() if condition.holds(history)), "")


def listed(stop: Any) -> tuple[Condition, ...]:
    """One condition, or several in a list, as a tuple."""
    found = tuple(stop) if isinstance(stop, (list, tuple)) else () if stop is None else (stop,)
    for one in found:
        if not isinstance(one, Condition):
            hint = " with what it takes" if isinstance(one, type) and issubclass(one, Condition) else ""
            raise TypeError(
                f"stop must be one of wior.stop{hint}, for example wior.stop.Patience('loss', 10), or a list of them; "
                f"got {one!r}"
            )
    return found


def demand_columns(conditions: Sequence[Condition], names: Sequence[str]) -> None:
    for condition in conditions:
        for name in condition.columns():
            if name not in names:
                raise ValueError(f"stop: {condition!r} reads {name!r}; a history of this run has {', '.join(names)}")


def _demand_column(condition: Any) -> None:
    if not isinstance(condition.column, str):
        raise TypeError(f"column must be the name of a metric, got {condition.column!r}")


def _demand_finite(name: str, value: Any) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
