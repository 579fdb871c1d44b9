"""From rows to what is said of every label: opinions are formed, combined and calibrated.

The closed-form opinions are always formed. A network under forward correction, or a model of the kept rows (a network,
or a classifier of the user's own), joins where verified rows say that it knows more: these take most of the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from wior.cleaning.calibration import Calibrated, calibrated
from wior.cleaning.combining import Combined, Opinion, combine
from wior.cleaning.joining import InParts, Joined, with_one_more
from wior.cleaning.models import Network
from wior.cleaning.opinions.bilevel import of_bilevel
from wior.cleaning.opinions.corrected import (
    ENOUGH,
    FOLDS,
    PASSES,
    USUAL_PASSES,
    Chosen,
    Starts,
    chosen,
    of_right,
)
from wior.cleaning.opinions.discriminants import MOST_CLASSES, Discriminants, best_temperature
from wior.cleaning.opinions.forward import compile_forward, of_forward
from wior.cleaning.opinions.given import Given, of_given
from wior.cleaning.opinions.neighbors import MOST_ROWS, of_neighbors
from wior.cleaning.opinions.rows import Rows, members
from wior.cleaning.opinions.table import counted_pairs, memberships_of, tables
from wior.cleaning.opinions.taught import TaughtNetwork, Teachable, of_taught, teachers
from wior.cleaning.opinions.threads import in_background
from wior.cleaning.opinions.verified import of_verified

# further opinions, in the order in which they are formed
LEARNERS: dict[str, tuple[str, ...]] = {
    "fast": ("neighbors",),
    "usual": ("forward", "neighbors", "taught"),
    "thorough": ("forward", "bilevel", "neighbors", "taught", "taught"),
}

Notify = Callable[[str], None]


@dataclasses.dataclass(frozen=True, eq=False)
class How:
    """What the user has chosen."""

    learner: Teachable | None  # of kept rows; None: closed forms alone
    learners: tuple[str, ...]  # further opinions, as in `LEARNERS`
    standardize: bool | None  # whether each column has a unit of its own; None: where their deviations are far apart
    seed: int


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """What is said of N rows."""

    posterior: np.ndarray  # (N, classes) the probability of every class, the given label known
    calibrated: Calibrated
    combined: Combined
    start: str  # of the corrected model
    passes: int
    disagreeing: float  # the share of given labels that a model of given labels does not foresee
    says: Callable[[np.ndarray], np.ndarray]  # log p (k, classes) of the right label of other rows


def judge(rows: Rows, how: How, probabilities: np.ndarray | None, notify: Notify) -> Judged:
    """What all opinions together say; `probabilities` (N, classes) are those of a model of the user's own."""
    network = _network(rows, how)
    compiling = None
    if network is not None and isinstance(network.model, Network):  # a function of one's own may not be called twice
        compiling = in_background(lambda: compile_forward(network, rows))
    notify("model of the given labels")
    given = of_given(rows, how.standardize, how.seed)
    plain = given.logs if probabilities is None else np.log(np.maximum(probabilities, 1e-7)).astype(np.float32)
    made = given.discriminants
    counts = lambda some: counted_pairs(some, plain)
    best = _chosen(given, rows, plain, notify)
    right = of_right(made, rows, counts, _starts(made, plain), best, notify)
    if best.held_out is not None and (how.learner is None or isinstance(how.learner, TaughtNetwork)):
        # what it says of the verified rows where they did not teach it, not even by way of other rows. Taught models
        # have no such word: where they alone compare with it, both are judged by what they knew
        right[rows.known] = best.held_out
    opinions = [Opinion("corrected", right)]
    if rows.known.any():
        opinions += [Opinion("verified", of_verified(rows, made.expansion.scaling)), Opinion("given", plain)]
    pairs = counts(rows)
    together = combine(rows, opinions, pairs)
    if compiling is not None:
        compiling.join()
    near = lambda posterior: of_neighbors(rows, made.expansion.scaling, posterior, how.seed)
    together, learner = _with_further(rows, Joined(opinions, together), pairs, near, how, notify)
    memberships = _memberships(together, rows)
    if learner is not None:
        notify("model of all kept rows")
        says = learner.taught_by(*teachers(memberships), how.seed)
    else:
        known_or_likeliest = np.where(rows.known, rows.right, memberships.argmax(1))
        sums = made.sums(memberships)
        foreseen = given.of_some.scores(*sums)
        says = made.rule(*sums, best_temperature(foreseen, known_or_likeliest[given.some])[0])
    labeled = rows.in_table
    disagreeing = float((plain[labeled].argmax(1) != rows.given[labeled]).mean())
    scores = calibrated(rows, together.posterior)
    return Judged(together.posterior, scores, together, best.start, best.passes, disagreeing, says)


def _with_further(
    rows: Rows, joined: Joined, counts: np.ndarray, near: Callable[[np.ndarray], np.ndarray], how: How, notify: Notify
) -> tuple[Combined, Teachable | None]:
    """What the opinions say with further ones, those that take long as far as they join; and who learns from the kept
    rows, where one of them did.
    """
    (opinions, together), pupil, learner = joined, how.learner, None
    network = _network(rows, how)
    refused: set[str] = set()
    for number, name in enumerate(how.learners):
        if name in refused:
            continue
        if name == "neighbors":  # after the networks, which learn nothing from verified rows by way of others
            if rows.known.any() and len(rows.given) <= MOST_ROWS:
                opinions = [*opinions, Opinion(name, near(together.posterior))]
                together = combine(rows, opinions, counts)
            continue
        if pupil is None or not rows.known.any():
            continue
        if name == "taught":
            if isinstance(pupil, TaughtNetwork):
                continue  # verified rows have taught what teaches it, and would judge it too kindly
            parts = of_taught(pupil, rows, _memberships(together, rows), how.seed + 100 * number, notify)
        elif network is None:
            continue
        elif name == "forward":
            parts = of_forward(network, rows, counts, how.seed, notify)
        else:
            parts = of_bilevel(network, rows, how.seed, notify)
        more = with_one_more(rows, opinions, together, counts, InParts(name, parts))
        if more is None:
            refused.add(name)
        else:
            (opinions, together), learner = more, pupil
    return together, learner


def _network(rows: Rows, how: How) -> TaughtNetwork | None:
    """The network that learns from all given labels, where verified rows are enough to judge it."""
    enough = rows.known.sum() >= ENOUGH and (~rows.known).sum() >= ENOUGH and rows.classes <= MOST_CLASSES
    if enough and "forward" in how.learners and isinstance(how.learner, TaughtNetwork):
        return how.learner
    return None


def _starts(made: Discriminants, plain: np.ndarray) -> Starts:
    """The ways in which the corrected model may begin."""

    def by_pairs(some: Rows) -> tuple[np.ndarray, np.ndarray]:
        return plain, tables(some, counted_pairs(some, plain))

    def by_verified(some: Rows) -> tuple[np.ndarray, np.ndarray]:
        logs, no_pairs = of_verified(some, made.expansion.scaling), 0 * counted_pairs(some, plain)
        return logs, tables(some, no_pairs, memberships_of(logs, tables(some, no_pairs), some))

    return {"the pairs": by_pairs, "the verified rows": by_verified}


def _chosen(given: Given, rows: Rows, plain: np.ndarray, notify: Notify) -> Chosen:
    """Of very many rows some choose, and all that are verified."""
    made = given.of_some
    if made is not given.discriminants:
        rows, plain = rows.some(given.some), plain[given.some]
    return chosen(made, rows, lambda some: counted_pairs(some, plain), _starts(made, plain), notify)


def passes_at_most(rows: Rows) -> int:
    """The passes of the corrected model that `judge` tells of."""
    return FOLDS * 2 * PASSES + PASSES if rows.known.sum() >= ENOUGH else USUAL_PASSES


def learners_at_most(rows: Rows, how: How) -> int:
    """The models of other parts that `judge` tells of."""
    return (len(how.learners) - how.learners.count("neighbors")) * rows.count_of_parts


def _memberships(together: Combined, rows: Rows) -> np.ndarray:
    memberships = together.posterior.copy()
    known = np.flatnonzero(rows.known)
    memberships[known] = members(rows.right[known], rows.classes)
    return memberships


def unhelpful(together: Combined) -> bool:
    """Whether verified rows show that the features say nothing of the right labels, beyond chance."""
    gains: Any = together.gains
    return len(gains) >= 10 and gains.mean() < 2 * gains.std(ddof=1) / len(gains) ** 0.5
