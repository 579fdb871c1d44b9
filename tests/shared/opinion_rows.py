"""Rows that opinions are formed of: classes of different sizes, labels of the next class, pairs with unequal chances."""

import numpy as np

from wior.cleaning.opinions.rows import UNKNOWN, Rows, parted


def opinion_rows(count=120, classes=3, pairs=30, beside=6, seed=0, distance=1.0):
    """`count` rows of a table with 30% wrong labels, of which `pairs` are verified, and `beside` more rows."""
    rng = np.random.default_rng(seed)
    true = rng.choice(classes, count + beside, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    true[: 2 * classes] = np.arange(2 * classes) % classes
    centers = distance * rng.normal(size=(classes, 4)) * [3, 1, 1, 2]
    features = (centers[true] + rng.normal(size=(count + beside, 4))).astype(np.float32)
    given = np.where(rng.random(count + beside) < 0.3, (true + 1) % classes, true).astype(np.int32)
    given[count:] = UNKNOWN
    right = np.full(count + beside, UNKNOWN, np.int32)
    verified = rng.permutation(count)[:pairs]
    right[verified], right[count:] = true[verified], true[count:]
    paired = np.zeros(count + beside, bool)
    paired[verified] = True
    weights = np.where(paired, rng.uniform(1, 9, count + beside), 0.0)
    return Rows(features, given, right, paired, weights, classes, parted(given, right, seed))


def log_probabilities(rows, seed=0, sharpness=1.0):
    """log p (N, classes) of nobody in particular."""
    logits = sharpness * np.random.default_rng(seed).normal(size=(len(rows.given), rows.classes))
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)
