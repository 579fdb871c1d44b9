"""Who is told of the records of a run while it goes: conditions that may end it, a callback, and loggers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wior import checks
from wior.loggers import Logger
from wior.running.stopping import Condition, Watched

Record = dict[str, Any]
Callback = Callable[[Record], Any]

CALLBACK = "callback"


class Listeners:
    """The listeners of one run. The order is that of `stopped_by`: conditions before the callback."""

    def __init__(self, conditions: Mapping[str, Condition], callback: Callback | None, loggers: Sequence[Logger]):
        self.watched, self.callback, self.loggers = Watched(conditions), callback, loggers
        self._failed: set[int] = set()
        self.silent = not (conditions or callback or loggers)
        self.may_end = bool(conditions or callback)

    def begin(self, columns: Sequence[str], first: int, history: Mapping[str, Sequence[Any]], step: int) -> str:
        """What ends a run before it goes on from `step`, if anything does: one that resumes where it was ended."""
        if self.silent:
            return ""
        earlier = [plain(dict(zip(history, values, strict=True))) for values in zip(*history.values(), strict=True)]
        for logger in self.loggers:
            logger.begin(columns, first, earlier)
        for record in earlier:
            self.watched.add(record)
        return self._asked(earlier[-1]) if earlier and earlier[-1]["step"] == step else ""

    def told(self, values: Mapping[str, Any]) -> str:
        """What ends the run at this record, if anything does."""
        if self.silent:
            return ""
        record = plain(values)
        for number, logger in enumerate(self.loggers):
            self._try(number, logger, functools.partial(logger.record, dict(record)), f"step {record['step']}")
        self.watched.add(record)
        return self._asked(record)

    def end(self, stopped_by: str) -> None:
        for number, logger in enumerate(self.loggers):
            self._try(number, logger, functools.partial(logger.end, stopped_by), "the end")

    def _asked(self, record: Record) -> str:
        stopped_by = self.watched.first_that_holds()
        if self.callback is not None:
            found = self.callback(dict(record))
            if wants_to_stop(found):
                stopped_by = stopped_by or CALLBACK
        return stopped_by

    def _try(self, number: int, logger: Logger, work: Callable[[], None], where: str) -> None:
        """Whatever goes wrong with a log, the run is worth more."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - services raise many kinds
            if number not in self._failed:
                self._failed.add(number)
                said = (str(error).splitlines() or [""])[0][:200]
                warnings.warn(
                    f"the logger {type(logger).__name__} failed at {where} ({type(error).__name__}: {said}); the run "
                    "continues, and this is said once",
                    stacklevel=2,
                )


def plain(values: Mapping[str, Any]) -> Record:
    """The numbers of a record as Python's own."""
    return {name: np.asarray(value).item() for name, value in values.items()}


def wants_to_stop(found: Any) -> bool:
    if found is None:
        return False
    value = np.asarray(found)
    if value.shape != () or value.dtype != bool:
        raise TypeError(f"callback must return True to end the run, or False or nothing; it returned {found!r}")
    return bool(value)


def check_listeners(callback: Any, loggers: Any) -> None:
    if callback is not None:
        checks.function("callback", callback)
        checks.arity("callback", callback, ("record",))
    if not isinstance(loggers, (list, tuple)):
        raise TypeError(f"loggers must be a list, such as [wior.loggers.JsonLines('log.jsonl')]; got {loggers!r}")
    for one in loggers:
        if not isinstance(one, Logger):
            raise TypeError(
                f"loggers must be of wior.loggers, such as wior.loggers.JsonLines('log.jsonl'); got {one!r}"
            )
    places = [_place(one) for one in loggers]
    for place, one in zip(places, loggers, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"loggers has {one!r} twice, which would write every record twice; give each its own path")


def _place(logger: Logger) -> Any:
    """Where a logger writes: a file has one writer."""
    path = getattr(logger, "path", None)
    return path.resolve() if isinstance(path, Path) else id(logger)
