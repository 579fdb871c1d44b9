"""Blobs with wrong labels, quick fits of them, and what would be chosen from."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import make_blobs

from wior.cleaning import Custom, LabelCleaner, choosing
from wior.tasks.data_cleaning import corrupt

ROWS, VERIFIED = 96, 24
# one setting and twelve steps: all tests that fit on the blobs share these programs
ONE = {"start": "counted", "outer_lr": 1.0, "inner_lr": 0.1, "verified_share": 1.0}
QUICK = {"hidden": (6,), "epochs": 4, "folds": 2, "parts": 0, **ONE}


class Blobs(NamedTuple):
    X: np.ndarray
    y: np.ndarray  # as given: 30% have the label of the next class
    X_verified: np.ndarray
    y_verified: np.ndarray
    true: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def blobs(seed=0):
    """Three classes of different sizes; numbers that float16 holds exactly."""
    X, true = make_blobs([90, 55, 35], 5, centers=None, cluster_std=1.5, random_state=seed)
    X = np.round(X * 8) / 8
    train, verified, test = np.split(np.arange(180), [ROWS, ROWS + VERIFIED])
    given = corrupt(true[train], 0.3, 3, "pairs", seed).labels
    return Blobs(X[train], given, X[verified], true[verified], true[train], X[test], true[test])


DATA = blobs()


def fit(data=DATA, **parameters):
    return LabelCleaner(**{**QUICK, **parameters}).fit(data.X, data.y, data.X_verified, data.y_verified)


def findings(cleaner):
    names = ("scores_", "weights_", "suggested_labels_", "confidence_", "flagged_", "noise_")
    return {name: getattr(cleaner, name) for name in names}


def assert_same_findings(one, other):
    for name, values in findings(one).items():
        np.testing.assert_array_equal(values, findings(other)[name], err_msg=name)


class Asked(NamedTuple):
    material: object
    settings: list
    length: object
    folds: int
    order: object
    run: object


class Stop(Exception):
    pass


def asked(monkeypatch, data=DATA, **parameters):
    """What would be chosen from, for rows that are not learned from."""
    seen = []

    def stop(*arguments):
        seen.append(Asked(*arguments))
        raise Stop

    monkeypatch.setattr(choosing, "choose", stop)
    with pytest.raises(Stop):
        LabelCleaner(**parameters).fit(*data[:4])
    return seen[0]


def two_layers(params, features):
    hidden = jnp.tanh((features / 10) @ params["in"]["weights"] + params["in"]["shift"])
    return hidden @ params["out"]


def own_model():
    rng = np.random.default_rng(3)
    inside = {"weights": rng.normal(size=(5, 7)).astype(np.float32), "shift": np.zeros(7, np.float32)}
    return Custom(two_layers, {"in": inside, "out": np.zeros((7, 3), np.float32)})
