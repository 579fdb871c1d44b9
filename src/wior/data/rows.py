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
    """`train` and `clean` rows drawn at random without overlap, and all the others as the test part."""
    n = len(labels)
    if train < 1 or clean < 1 or train + clean >= n:
        raise ValueError(
            f"train and clean must be at least 1 and leave rows of the {n} to test on, got train={train} and "
            f"clean={clean}"
        )
    shuffled = np.random.default_rng(seed).permutation(n)
    parts = np.split(shuffled, [train, train + clean])
    return Split(*(Rows(features[part], labels[part]) for part in parts))
