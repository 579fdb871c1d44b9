"""Opinions that take long join the others where verified rows say that they know more.

They come part by part. The verified rows of the first part are looked at alone: where an opinion does not help there,
the models of the other parts are never learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wior.cleaning.combining import Combined, Opinion, combine
from wior.cleaning.opinions.rows import Rows

WORTH_IT = 0.95  # times the loss on verified rows: more, and an opinion does not join
PROMISING = 0.99  # the same on the verified rows of the first part
FEWEST = 8  # of these, to give up by


class InParts(NamedTuple):
    """An opinion that comes part by part."""

    name: str
    parts: Iterable[np.ndarray]  # log p (k, classes) of the rows of each part in turn


class Joined(NamedTuple):
    opinions: list[Opinion]
    combined: Combined


def with_one_more(
    rows: Rows, opinions: Sequence[Opinion], combined: Combined, counts: np.ndarray, one_more: InParts
) -> Joined | None:
    """The opinions with one more, which takes the place of one of its name, and what they say together; None where it
    does not join.
    """
    logs = np.empty((len(rows.given), rows.classes), np.float32)
    found = Opinion(one_more.name, logs)
    for part, of_part in enumerate(one_more.parts):
        here = rows.parts == part
        logs[here] = of_part
        if part == 0 and not _promising(rows, opinions, found, counts):
            return None
    more = [*(one for one in opinions if one.name != found.name), found]
    again = combine(rows, more, counts)
    return Joined(more, again) if again.loss <= WORTH_IT * combined.loss else None  # nan where no row is verified


def _promising(rows: Rows, opinions: Sequence[Opinion], one_more: Opinion, counts: np.ndarray) -> bool:
    """Whether an opinion lowers the loss on verified rows of the first part, each time with the weights best there."""
    places = np.flatnonzero((rows.parts == 0) & rows.known)
    if len(places) < FEWEST:
        return bool(rows.known.any())
    some = rows.some(places)
    loss = lambda those: combine(some, [Opinion(one.name, one.logs[places]) for one in those], counts).loss
    return bool(loss([*opinions, one_more]) <= PROMISING * loss(opinions))
