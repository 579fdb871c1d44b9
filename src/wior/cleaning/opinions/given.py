"""A model of the labels as they are given, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wior.cleaning.opinions.discriminants import SHRINKAGES, Discriminants, at_best_temperature
from wior.cleaning.opinions.expansion import Expansion
from wior.cleaning.opinions.rows import Rows, members

CHOSEN_AMONG = 50_000  # rows, for a shrinkage


class Given(NamedTuple):
    discriminants: Discriminants  # with the scaling and the shrinkage by which given labels are foreseen best
    logs: np.ndarray  # (N, classes): log p of the given label
    share: float  # the shrinkage


def of_given(rows: Rows, standardize: bool | None, seed: int) -> Given:
    """Of very many rows some choose the shrinkage. `standardize`: as in `Scaling.of`."""
    expansion = Expansion.of(rows.features, standardize, seed)
    few = rows
    if len(rows.given) > CHOSEN_AMONG:
        few = rows.some(np.sort(np.random.default_rng(seed).permutation(len(rows.given))[:CHOSEN_AMONG]))
    made = Discriminants(expansion, few.features, few.parts)
    share, logs = _best(made, few)
    if few is not rows:
        made = Discriminants(expansion, rows.features, rows.parts)
        made.shrink(share)
        logs = at_best_temperature(made.scores(*made.sums(members(rows.given, rows.classes))), rows.given)[0]
    return Given(made, logs, share)


def _best(made: Discriminants, rows: Rows) -> tuple[float, np.ndarray]:
    """The best shrinkage, which `made` has then, and log p with it."""
    sums = made.sums(members(rows.given, rows.classes))
    found = []
    for share in SHRINKAGES:
        made.shrink(share)
        logs, loss = at_best_temperature(made.scores(*sums), rows.given)
        found.append((loss, share, logs))
    _, share, logs = min(found, key=lambda one: one[0])
    made.shrink(share)
    return share, logs
