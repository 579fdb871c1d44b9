"""The table T of which class is labeled how, and Bayes' rule with it.

T[c, g] is the share of the rows of class c that were given the label g. For very many classes, of which most pairs are
never seen, T is one number: the share of wrong labels, which fall on other classes as these are frequent.
"""

from __future__ import annotations

import numpy as np

from wior.cleaning.opinions.discriminants import MOST_CLASSES, log_normalized
from wior.cleaning.opinions.rows import Rows, members

# rows of a class: what the estimate of its row of the table counts against pairs, while a model is learned and when it
# is judged with
TRUSTED, JUDGED_WITH = 20.0, 300.0
LIKELY = 0.8  # of a label to be right, before anything is known
LEAST = 1e-9


def trusting(classes: int) -> np.ndarray:
    """Most labels are right, and the others anything."""
    return LIKELY * np.eye(classes) + (1 - LIKELY) / classes


def counted_pairs(rows: Rows, plain: np.ndarray) -> np.ndarray:
    """(parts, classes, classes) How the verified rows of the other parts were labeled. Where that is not known, as the
    plain model foresees it (gold loss correction, Hendrycks et al. 2018).
    """
    parts = rows.count_of_parts
    if rows.classes > MOST_CLASSES:
        return np.zeros((parts, 0, 0))
    known = np.flatnonzero(rows.known & ~(rows.paired & (rows.weights == 0)))  # those would show mistakes alone
    labeled = np.where(rows.paired[known, None], members(rows.given[known], rows.classes), np.exp(plain[known]))
    drawn = rows.paired[known]
    weights = np.ones(len(known))
    if drawn.any():  # a pair counts as one row on average, however rare it is to be drawn
        weights[drawn] = rows.weights[known][drawn] / rows.weights[known][drawn].mean()
    counts = np.zeros((parts, rows.classes, rows.classes))
    for part in range(len(counts)):
        others = rows.parts[known] != part
        np.add.at(counts[part], rows.right[known][others], labeled[others] * weights[others, None])
    return counts


def tables(
    rows: Rows, counts: np.ndarray, memberships: np.ndarray | None = None, trusted: float = TRUSTED
) -> np.ndarray:
    """(parts, classes, classes): pairs, and with the weight of `trusted` rows what memberships (N, classes) in the
    right classes say, or that most labels are right.
    """
    if rows.classes > MOST_CLASSES:
        return _shares_of_wrong(rows, memberships)
    towards = trusting(rows.classes) if memberships is None else _shares(memberships, rows)
    total = counts + trusted * towards
    return np.asarray(total / total.sum(-1, keepdims=True))


def posterior_of(logs: np.ndarray, found: np.ndarray, rows: Rows) -> np.ndarray:
    """log p of the right label of every row, its given label known; by the table of its part."""
    posterior = np.array(logs, np.float32)
    labeled = rows.in_table
    if rows.classes > MOST_CLASSES:
        places = np.flatnonzero(labeled)
        given, wrong = rows.given[places], found[rows.parts[places]]
        frequent = np.bincount(given, minlength=rows.classes)[given] / len(given)
        posterior[places] += np.log(wrong * frequent + LEAST)[:, None]
        posterior[places, given] = logs[places, given] + np.log(1 - wrong + wrong * frequent + LEAST)
        posterior[places] = log_normalized(posterior[places])
        return posterior
    for part, table in enumerate(found):
        places = np.flatnonzero((rows.parts == part) & labeled)
        told = np.log(table + LEAST).astype(np.float32).T[rows.given[places]]
        posterior[places] = log_normalized(posterior[places] + told)
    return posterior


def likeliest_tables(logs: np.ndarray, rows: Rows, counts: np.ndarray, passes: int) -> np.ndarray:
    """The tables under which the given labels are likeliest for a model's log p, by expectation maximization."""
    found = tables(rows, counts)
    for _ in range(passes):
        found = tables(rows, counts, memberships_of(logs, found, rows), JUDGED_WITH)
    return found


def memberships_of(logs: np.ndarray, found: np.ndarray, rows: Rows) -> np.ndarray:
    """(N, classes) How much a row belongs to each class, by its given label too; verified rows wholly to their own."""
    memberships = np.exp(posterior_of(logs, found, rows))
    known = np.flatnonzero(rows.known)
    memberships[known] = members(rows.right[known], rows.classes)
    return memberships


def _shares(memberships: np.ndarray, rows: Rows) -> np.ndarray:
    """(parts, classes, classes) How the rows of the other parts that nobody verified are labeled, by their
    memberships.
    """
    parts, classes = rows.count_of_parts, rows.classes
    places = np.flatnonzero(~rows.known & rows.in_table)
    cells, belongs = rows.parts[places] * classes + rows.given[places], memberships[places].T.copy()
    counts = np.empty((parts, classes, classes))
    for taken in range(classes):
        counts[:, taken] = np.bincount(cells, belongs[taken], minlength=parts * classes).reshape(parts, classes)
    counts = counts.sum(0) - counts + 1 / classes
    return np.asarray(counts / counts.sum(2, keepdims=True))


def _shares_of_wrong(rows: Rows, memberships: np.ndarray | None) -> np.ndarray:
    """(parts,)"""
    parts = rows.count_of_parts
    if memberships is None:
        return np.full(parts, 1 - LIKELY)
    places = np.flatnonzero(rows.in_table)
    wrong = 1 - memberships[places, rows.given[places]]
    return np.array([wrong[rows.parts[places] != part].mean() for part in range(parts)])
