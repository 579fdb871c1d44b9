"""One thing that `check` found in a problem."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """What was found, how bad it is and which argument it is about.

    An `error` makes a run wrong, a `warning` is probably not what is wanted, a `note` is good to know.
    """

    severity: Severity
    about: str  # the argument or the leaf, for example "inner" or "x0['scale']"
    message: str
