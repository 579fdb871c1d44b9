"""Examples with labels, and the parts that a data set is cut into."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Examples with labels: features (n, ...) of float32 and labels (n,) of int32."""

    features: np.ndarray
    labels: np.ndarray


class Split(NamedTuple):
    """Three disjoint parts of one data set."""

    train: Rows
    clean: Rows  # labels that are trusted, to learn from: the outer data
    test: Rows  # held out, to judge by


class TrainTest(NamedTuple):
    """The two parts that a data set is published in."""

    train: Rows
    test: Rows


class Parts(NamedTuple):
    """The three parts that a data set is published in."""

    train: Rows
    valid: Rows
    test: Rows


def split(features: np.ndarray, labels: np.ndarray, train: int, clean: int, seed: int) -> Split:
    """Cuts rows into three parts at random, without overlap.

    Parameters
    ----------
    features, labels : ndarray
        All rows, (n, ...) and (n,).
    train, clean : int
        Rows in these parts; all others are the test part.
    seed : int
        The same seed gives the same parts.

    Returns
    -------
    Split
        The parts `train`, `clean` and `test`.

    Examples
    --------
    >>> import numpy as np
    >>> from wior.data import split
    >>> parts = split(np.arange(10.0), np.arange(10), train=5, clean=3, seed=0)
    >>> [len(part.labels) for part in parts]
    [5, 3, 2]
    >>> sorted(np.concatenate([part.labels for part in parts]).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    n = len(labels)
    if train < 1 or clean < 1 or train + clean >= n:
        raise ValueError(
            f"train and clean must be at least 1 and leave rows of the {n} to test on, got train={train} and "
            f"clean={clean}"
        )
    shuffled = np.random.default_rng(seed).permutation(n)
    parts = np.split(shuffled, [train, train + clean])
    return Split(*(Rows(features[part], labels[part]) for part in parts))
