"""One thing that `check` found in a problem."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """One thing that `wior.check` found in a problem.

    Parameters
    ----------
    severity : {"error", "warning", "note"}
        An error makes a run wrong, a warning is probably not what is wanted, a note is good to know.
    about : str
        The argument or the leaf, for example "inner" or "x0['scale']".
    message : str
        What was found, and what would be right.

    Examples
    --------
    >>> import wior
    >>> wior.Finding("note", "outer_lr", "no step size tried lowers the outer loss").severity
    'note'
    """

    severity: Severity
    about: str
    message: str
