"""What `LabelCleaner` refuses, by name."""

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning, NotFittedError

from noisy_blobs import DATA, QUICK, ROWS, VERIFIED, asked, fit
from wior.cleaning import LabelCleaner
from wior.orders import Incremental


def changed(name, value):
    return lambda: fit(DATA._replace(**{name: value}))


def with_value(array, place, value):
    array = array.astype(float)
    array[place] = value
    return array


MIXED = np.array(["a", None, "b", *"abc" * 7], object)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("X", with_value(DATA.X, (3, 1), np.nan), "X contains NaN"),
        ("X", with_value(DATA.X, (3, 1), np.inf), "X contains infinity"),
        ("X_verified", with_value(DATA.X_verified, (3, 1), np.nan), "X_verified: .* contains NaN"),
        ("X", DATA.X[:, 0], "Expected 2D array, got 1D array"),
        ("X_verified", DATA.X_verified[:, 0], "X_verified: Expected 2D array"),
        ("X", DATA.X[:0], r"0 sample\(s\)"),
        ("X_verified", DATA.X_verified[:0], r"X_verified: .* 0 sample\(s\)"),
        ("X_verified", DATA.X_verified[:, :3], "X_verified: X has 3 features, .* expecting 5"),
        ("X", np.full((ROWS, 5), "word"), "could not convert string to float"),
        ("y", DATA.y[:-1], "y must have one label for each row of X, got 95 for 96"),
        ("y_verified", DATA.y_verified[:-1], "y_verified must have one label for each row of X_verified, got 23 for 24"),
        ("y", np.stack([DATA.y] * 2, 1), r"y should be a 1d array, got an array of shape \(96, 2\)"),
        ("y_verified", np.stack([DATA.y_verified] * 2, 1), r"y_verified: .* 1d array"),
        ("y", DATA.y + 0.5, "Unknown label type: continuous"),
        ("y_verified", DATA.y_verified + 0.5, "y_verified: Unknown label type: continuous"),
        ("y_verified", MIXED, "y_verified: y must be texts or numbers alone, got None in row 1"),
        ("y", np.resize(MIXED, ROWS), "y must be texts or numbers alone, got None in row 1"),
        ("y_verified", np.full(VERIFIED, "1"), "y and y_verified must both be texts or both be numbers, got the dtypes int64 and <U1"),
        ("y_verified", np.full(VERIFIED, 1), "y_verified must have at least two classes, got one class only: '1'; verify some rows"),
        ("y", None, "y should be a 1d array"),
        ("y_verified", None, "y_verified must be given with X_verified: the right labels of its rows"),
        ("X_verified", None, "y_verified must have one entry for each row of X, None or NaN where nobody looked, got 24 for 96; give other verified rows by X_verified and y_verified"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used_are_named(name, value, message):
    with pytest.raises(ValueError, match=message):
        fit(DATA._replace(**{name: value}))


def test_there_must_be_two_classes():
    with pytest.raises(ValueError, match="y must have at least two classes, got one class only: 'a'"):
        fit(DATA._replace(y=np.full(ROWS, "a"), y_verified=np.full(VERIFIED, "a")))


def test_there_must_be_four_verified_rows():
    few = np.array([np.flatnonzero(DATA.y_verified == label)[0] for label in range(3)])
    with pytest.raises(ValueError, match="X_verified must have at least 4 rows, got 3"):
        fit(DATA._replace(X_verified=DATA.X_verified[few], y_verified=DATA.y_verified[few]))


def test_labels_in_a_column_are_used_with_a_warning(monkeypatch):
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        asked(monkeypatch, DATA._replace(y=DATA.y[:, None]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"weighting": "rows"}, "weighting must be one of auto, noise, function, row; got 'rows'"),
        (
            {"model": "tree"},
            "model must be one of auto, linear, mlp, a wior.cleaning.Custom or a classifier of scikit-learn; got 'tree'",
        ),
        ({"model": ["mlp"]}, r"model must be one of .*; got \['mlp'\]"),
        ({"start": "even"}, "start must be one of None, trusting, counted; got 'even'"),
        ({"hidden": (64, 0)}, r"hidden must be widths of layers, positive integers such as \(64,\), got \(64, 0\)"),
        ({"hidden": 64}, "hidden must be widths of layers, .* got 64"),
        ({"hidden": (64.5,)}, r"hidden must be widths of layers, .* got \(64.5,\)"),
        ({"outer_lr": 0}, "outer_lr must be a positive finite number, got 0"),
        ({"inner_lr": float("nan")}, "inner_lr must be a positive finite number, got nan"),
        ({"inner_lr": "0.1"}, "inner_lr must be a positive finite number, got '0.1'"),
        ({"l2": -1}, "l2 must be a finite number that is not negative, got -1"),
        ({"l2": True}, "l2 must be a number that is not negative, got True"),
        ({"verified_share": float("inf")}, "verified_share must be a finite number that is not negative, got inf"),
        ({"epochs": 0}, "epochs must be a positive integer, got 0"),
        ({"epochs": 2.5}, "epochs must be a positive integer, got 2.5"),
        ({"batch_size": -3}, "batch_size must be a positive integer, got -3"),
        ({"folds": 1}, "folds must lie between 2 and the number of verified rows, 24; got 1"),
        ({"folds": 25}, "folds must lie between 2 and the number of verified rows, 24; got 25"),
        ({"folds": "two"}, "folds must be a positive integer, got 'two'"),
        ({"parts": 1}, "parts must be 0 or an integer of at least 2, got 1"),
        ({"parts": -2}, "parts must be 0 or an integer of at least 2, got -2"),
        ({"threshold": 1.5}, "threshold must lie between 0 and 1, or be None, got 1.5"),
        ({"threshold": float("nan")}, "threshold must lie between 0 and 1, or be None, got nan"),
        ({"order": "random"}, "order must be one of wior.orders, got 'random'"),
        ({"order": Incremental}, "order must be one of wior.orders, got <class"),
        ({"random_state": None}, "random_state must be an integer, got None"),
        ({"random_state": -1}, r"random_state must lie between 0 and 2\*\*63 - 1, got -1"),
        ({"random_state": 2**63}, "random_state must lie between 0 and"),
        ({"checkpoint": 5}, "checkpoint must be a folder or None, got 5"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fit(**parameters)


def test_before_a_fit_and_after_a_failed_one_nothing_is_predicted():
    cleaner = LabelCleaner(**QUICK)
    with pytest.raises(NotFittedError):
        cleaner.predict(DATA.X)
    with pytest.raises(ValueError, match="got one class only: '1'"):
        cleaner.fit(DATA.X, DATA.y, DATA.X_verified, np.ones(VERIFIED, int))
    with pytest.raises(NotFittedError):
        cleaner.predict_proba(DATA.X)
