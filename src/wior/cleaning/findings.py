"""What is said of every row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wior.cleaning.estimates import FEWEST, Estimates
from wior.cleaning.label_cleaner import LabelCleaner
from wior.cleaning.tables.errors import counted, listed
from wior.cleaning.tables.job import UNKNOWN, Job


class Findings(NamedTuple):
    """Of n rows, the verified ones too; of these the label is known."""

    given: np.ndarray  # places in classes
    suggested: np.ndarray
    scores: np.ndarray
    confidence: np.ndarray
    weights: np.ndarray
    flagged: np.ndarray
    known: np.ndarray  # of bool: verified rows
    threshold: float
    classes: Sequence[str]
    estimates: Estimates | None  # None: no pairs of a given and a right label
    disagreeing: float  # the share of labels that a model of the given labels does not foresee; nan: not known
    paired: np.ndarray  # of bool: verified rows whose given label is the one from before somebody looked
    drawn: np.ndarray  # of bool: those of them whose score was not the reason to look
    beside: int  # verified rows that are not in the table

    @property
    def wrong(self) -> np.ndarray:
        """Verified rows whose given label is not the right one."""
        return self.known & (self.suggested != self.given)

    @property
    def changed(self) -> np.ndarray:
        """The rows whose label another one is likelier than."""
        return self.wrong | (self.flagged & (self.confidence > self.scores) & (self.suggested != self.given))

    def corrected(self, relabel: bool) -> np.ndarray:
        """The rows that have another label in the cleaned copy: those that somebody verified, or all that may."""
        return self.changed if relabel else self.wrong


def findings(job: Job, cleaner: LabelCleaner) -> Findings:
    known = job.right != UNKNOWN
    paired = known & job.paired
    return Findings(
        job.given,
        cleaner.suggested_codes_,
        cleaner.scores_,
        cleaner.confidence_,
        cleaner.weights_,
        cleaner.flagged_,
        known,
        cleaner.threshold_,
        job.classes,
        cleaner.estimates_,
        cleaner.disagreeing_,
        paired,
        paired & ~(job.chances == 0),
        len(job.outside),
    )


def notes(found: Findings, relabel: bool) -> list[str]:
    """What a user must know of these findings."""
    rows = np.bincount(found.given, minlength=len(found.classes))
    corrected = found.corrected(relabel)
    kept = np.bincount(found.given[~found.flagged], minlength=len(found.classes))
    kept += np.bincount(found.suggested[corrected], minlength=len(found.classes))
    empty = [found.classes[int(at)] for at in np.flatnonzero((rows > 0) & (kept == 0))]
    made = []
    if empty:
        made.append(f"every row labeled {listed(empty)} is flagged: the cleaned copy has none of them")
    if found.estimates is None:
        return [*made, _why_no_estimate(found)]
    interval, said = found.estimates.wrong, float((1 - found.scores).sum())
    if not interval.low <= said <= interval.high:
        made.append(
            f"the scores say that {said:,.0f} labels are wrong, the verified rows between {interval.low:,.0f} and "
            f"{interval.high:,.0f}: trust the verified rows, and verify more"
        )
    precision, flagged = found.estimates.precision, found.flagged & ~found.known
    flagged_wrong = float((1 - found.scores[flagged]).mean()) if flagged.any() else 0.0
    if precision is not None and flagged.any() and not precision.low <= flagged_wrong <= precision.high:
        made.append(
            f"of flagged rows {flagged_wrong:.0%} are wrong by their scores, but {precision.low:.0%} to "
            f"{precision.high:.0%} by {counted(found.estimates.pairs, 'verified row')}"
        )
    return made


def _why_no_estimate(found: Findings) -> str:
    """Why nobody knows how many labels are wrong."""
    if not found.known.any():
        if not found.beside:
            return "no row is verified, so the scores are a model's word alone; verify some rows: verify.html"
        return (
            "the verified rows are not rows of the table, so they do not say how its labels are wrong; 'wior verify' "
            "chooses some of the table"
        )
    if not found.paired.any():
        return "the verified rows do not say how labels are wrong, since the labels given to them are not known"
    if not found.drawn.any():
        return (
            "the verified rows were looked at because of their scores, so they do not say how many labels are wrong; "
            "'wior verify' chooses others"
        )
    return (
        f"{counted(int(found.drawn.sum()), 'verified row')} cannot say how many labels are wrong; it takes {FEWEST} at "
        "least"
    )


def sentence(found: Findings) -> str:
    """How many labels are wrong."""
    if found.estimates is None:
        number, rows = float((1 - found.scores).sum()), len(found.scores)
        if np.isnan(found.disagreeing):
            return f"about {number:,.0f} of {rows:,} labels are wrong, by the models alone"
        least, most = f"{number:,.0f}", f"{max(number, found.disagreeing * rows):,.0f}"
        about = f"about {least}" if least == most else f"between {least} and {most}"
        return f"a first guess: {about} of {rows:,} labels are wrong; verified rows will tell"
    low, _, high = found.estimates.wrong
    return f"between {low:,.0f} and {high:,.0f} of {len(found.scores):,} labels are wrong"
