"""A model of the labels as they are given, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wior.cleaning.opinions.discriminants import (
    SHRINKAGES,
    Discriminants,
    at_best_temperature,
    best_temperature,
    log_normalized,
)
from wior.cleaning.opinions.expansion import Expansion
from wior.cleaning.opinions.rows import Rows, members
from wior.cleaning.opinions.threads import by_one_blas_thread

CHOSEN_AMONG = 20_000  # rows


class Given(NamedTuple):
    discriminants: Discriminants  # with the scaling and the shrinkage by which given labels are foreseen best
    logs: np.ndarray  # (N, classes): log p of the given label
    some: np.ndarray  # the places of the rows by which is chosen: of very many some, with all that are verified
    of_some: Discriminants  # of these


@by_one_blas_thread
def of_given(rows: Rows, standardize: bool | None, seed: int) -> Given:
    """Of very many rows some tell the covariances and choose the shrinkage. `standardize`: as in `Scaling.of`."""
    expansion = Expansion.of(rows.features, standardize, seed)
    places = _some(rows, seed)
    few = rows if len(places) == len(rows.given) else rows.some(places)
    of_some = Discriminants(expansion, few.features, few.parts)
    logs = _at_best_shrinkage(of_some, few)
    if few is rows:
        return Given(of_some, logs, places, of_some)
    made = of_some.of_others(rows.features, rows.parts)
    logs = at_best_temperature(made.scores(*made.sums(members(rows.given, rows.classes))), rows.given)[0]
    return Given(made, logs, places, of_some)


def _some(rows: Rows, seed: int) -> np.ndarray:
    unknown = np.flatnonzero(~rows.known)
    if len(unknown) <= CHOSEN_AMONG:
        return np.arange(len(rows.given))
    drawn = np.random.default_rng(seed).permutation(unknown)[:CHOSEN_AMONG]
    return np.sort(np.concatenate([drawn, np.flatnonzero(rows.known)]))


def _at_best_shrinkage(made: Discriminants, rows: Rows) -> np.ndarray:
    """log p with the best shrinkage, which `made` has then."""
    sums = made.sums(members(rows.given, rows.classes))
    found = []
    for share in SHRINKAGES:
        made.shrink(share)
        scores = made.scores(*sums)
        temperature, loss = best_temperature(scores, rows.given)
        found.append((loss, share, made.factors, scores, temperature))
        found = [min(found, key=lambda one: one[:2])]
    _, _, made.factors, scores, temperature = found[0]
    return log_normalized(scores / np.float32(temperature))
