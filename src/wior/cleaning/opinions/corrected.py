"""A model of the right labels, learned from all rows together with the table of which class is labeled how.

Expectation maximization: rows belong to classes as the model, the table and their given labels say; model and table
learn from these memberships. It begins with the table (pairs of given and right labels, or that most labels are right)
or with the model of the verified rows, and is as long as verified rows like best.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from wior.cleaning.opinions.discriminants import (
    MOST_CLASSES,
    Discriminants,
    below_highest,
    best_loss,
    compared,
    log_normalized,
    lowest,
)
from wior.cleaning.opinions.rows import UNKNOWN, Rows
from wior.cleaning.opinions.table import LEAST, memberships_of, tables
from wior.cleaning.opinions.threads import by_one_blas_thread

FOLDS = 3  # of verified rows
PASSES, USUAL_PASSES = 4, 2  # at most, and where verified rows are too few to choose
ENOUGH = 20  # verified rows, to choose by
TEMPERATURES = np.geomspace(0.3, 10, 31)

Notify = Callable[[str], None]
Counts = Callable[[Rows], np.ndarray]


class Pass(NamedTuple):
    logs: np.ndarray  # (N, classes)
    start: str
    number: int


Starts = Mapping[
    str, Callable[[Rows], tuple[np.ndarray, np.ndarray]]
]  # log p and tables, of rows of which some are known


class Chosen(NamedTuple):
    start: str
    passes: int
    held_out: np.ndarray | None = None  # log p (known, classes) of verified rows, each as if nobody had looked at it


@by_one_blas_thread
def chosen(made: Discriminants, rows: Rows, counts: Counts, starts: Starts, notify: Notify) -> Chosen:
    """The start and the number of passes that verified rows like best. They are held out in turn: what a pass says of a
    part has been learned from memberships, and these from verified rows of that part.
    """
    known = np.flatnonzero(rows.known)
    if len(known) < ENOUGH or rows.classes > MOST_CLASSES:  # of very many classes verified rows see few
        return Chosen(next(iter(starts)), USUAL_PASSES)
    logs: dict[tuple[str, int], np.ndarray] = {}
    for fold in range(FOLDS):
        places = known[fold::FOLDS]
        kept = without(rows, places)
        for one in _passes(made, kept, counts(kept), starts, PASSES, notify, f"fold {fold + 1} of {FOLDS}"):
            empty = np.zeros((len(known), rows.classes), np.float32)
            logs.setdefault((one.start, one.number), empty)[fold::FOLDS] = one.logs[places]
    best = min(logs, key=lambda one: best_loss(logs[one], rows.right[known]))
    return Chosen(*best, logs[best])


@by_one_blas_thread
def of_right(
    made: Discriminants, rows: Rows, counts: Counts, starts: Starts, how: Chosen, notify: Notify
) -> np.ndarray:
    """log p (N, classes) of the right label, its given one not known."""
    start = {how.start: starts[how.start]}
    *_, last = _passes(made, rows, counts(rows), start, how.passes, notify, "all verified rows")
    return last.logs


def without(rows: Rows, places: np.ndarray) -> Rows:
    """The rows, as if nobody had looked at those in some places."""
    right, paired = rows.right.copy(), rows.paired.copy()
    right[places], paired[places] = UNKNOWN, False
    return dataclasses.replace(rows, right=right, paired=paired)


def _passes(
    made: Discriminants, rows: Rows, counts: np.ndarray, starts: Starts, passes: int, notify: Notify, what: str
) -> Iterator[Pass]:
    says = {name: start(rows) for name, start in starts.items()}
    for number in range(1, passes + 1):
        memberships = {name: memberships_of(*said, rows) for name, said in says.items()}
        # side by side, so that rows are gone through once for all starts
        scores = made.scores(*made.sums(np.hstack(list(memberships.values()))), models=len(starts))
        for at, name in enumerate(starts):
            notify(f"corrected model from {name}, pass {number}, {what}")
            shares = tables(rows, counts, memberships[name])
            logs = _tempered(scores[:, at * rows.classes : (at + 1) * rows.classes], shares, rows)
            says[name] = logs, shares
            yield Pass(logs, name, number)


def _tempered(scores: np.ndarray, shares: np.ndarray, rows: Rows) -> np.ndarray:
    """log p at the temperature under which given and verified labels are likeliest."""
    places = np.random.default_rng(0).permutation(np.flatnonzero(rows.in_table & ~rows.known))[: compared(rows.classes)]
    known = np.flatnonzero(rows.known)
    below, of_known, given = below_highest(scores[places]), below_highest(scores[known]), rows.given[places]
    if shares.ndim == 1:
        likelihood = lambda p: _evidence(p[given, np.arange(len(given))], shares, rows, places)
    else:
        shown = shares.mean(0)[:, given]
        likelihood = lambda p: np.log((p * shown).sum(0) + LEAST).sum()

    def loss(temperature: float) -> float:
        p = np.exp(below / np.float32(temperature))
        p /= p.sum(0)
        scaled = of_known / np.float32(temperature)
        at_right = scaled[rows.right[known], np.arange(len(known))] - np.log(np.exp(scaled).sum(0))
        return -float(likelihood(p)) - float(at_right.sum(dtype=np.float64))

    return log_normalized(scores / np.float32(lowest(TEMPERATURES, loss)[0]))


def _evidence(p: np.ndarray, shares: np.ndarray, rows: Rows, places: np.ndarray) -> float:
    """log p of the given labels at some places, where the table is one number; `p` are those of a row's own label."""
    wrong = shares[rows.parts[places]]
    frequent = np.bincount(rows.given[rows.in_table], minlength=rows.classes)[rows.given[places]] / rows.in_table.sum()
    return float(np.log(p * (1 - wrong) + wrong * frequent + LEAST).sum())
