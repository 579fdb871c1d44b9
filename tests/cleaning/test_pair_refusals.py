"""What `LabelCleaner.fit` refuses of pairs, probabilities and chances, by name."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from noisy_blobs import DATA, ROWS
from wior.cleaning import LabelCleaner

P = np.full((ROWS, 3), 1 / 3)
RIGHT = np.where(np.arange(ROWS) < 20, DATA.true, np.nan)


def changed(array, place, value):
    array = np.array(array, float)
    array[place] = value
    return array


def fit(X=DATA.X, y=DATA.y, **given):
    return LabelCleaner(effort="fast").fit(X, y, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X": None}, "^X must be given, or pred_probs in its place$"),
        ({"y": None}, "y should be a 1d array"),
        ({"y_verified": RIGHT[:-1]}, "^y_verified must have one entry for each row of X, None or NaN where nobody looked, got 95 for 96; "),
        ({"y_verified": np.stack([RIGHT] * 2, 1)}, r"^y_verified: .* 1d array"),
        ({"y_verified": RIGHT + 0.5}, "^y_verified: Unknown label type: continuous"),
        ({"y_verified": np.where(np.arange(ROWS) < 5, "1", None)}, "^y and y_verified must both be texts or both be numbers, got the dtypes int64 and <U1$"),
        ({"y_verified": np.where(np.arange(ROWS) < 5, np.arange(ROWS).astype(object), "a")}, "y_verified: y must be texts or numbers alone, got 0 in row 0"),
        ({"X_verified": DATA.X_verified}, "^y_verified must be given with X_verified: the right labels of its rows$"),
        ({"pred_probs": P[:, :2]}, r"^pred_probs must have the shape \(rows, classes\), \(96, 3\), got \(96, 2\); the classes are the sorted labels of y and y_verified$"),
        ({"pred_probs": P[:-1]}, r"^pred_probs must have the shape \(rows, classes\), \(96, 3\), got \(95, 3\)"),
        ({"pred_probs": P[0]}, r"^pred_probs must have the shape .* got \(3,\)"),
        ({"pred_probs": changed(P, (5, 1), 0.5)}, "^pred_probs must sum to 1 in every row, got 1.16667 in row 5$"),
        ({"pred_probs": changed(P, (5, 1), np.nan)}, "^pred_probs must be finite and not negative, got nan in row 5$"),
        ({"pred_probs": changed(P, (5, slice(None)), [-0.2, 0.6, 0.6])}, "^pred_probs must be finite and not negative, got -0.2 in row 5$"),
        ({"pred_probs": np.full((ROWS, 3), "a")}, "^pred_probs must be numbers"),
        ({"chances": np.full(ROWS - 1, 0.5)}, r"^chances must have one number for each row of X, \(96,\), got the shape \(95,\)$"),
        ({"chances": changed(np.full(ROWS, 0.5), 7, 1.5)}, "^chances must lie between 0 and 1, got 1.5 in row 7$"),
        ({"chances": changed(np.full(ROWS, 0.5), 7, -0.1)}, "^chances must lie between 0 and 1, got -0.1 in row 7$"),
        ({"chances": changed(np.full(ROWS, 0.5), 7, np.inf)}, "^chances must lie between 0 and 1, got inf in row 7$"),
        ({"chances": ["often"] * ROWS}, "^chances must be numbers"),
        ({"X": None, "pred_probs": P, "X_verified": DATA.X_verified, "y_verified": DATA.y_verified}, "^X_verified needs X"),
        ({"y": np.zeros(ROWS, int), "y_verified": np.zeros(ROWS)}, "^y must have at least two classes, got one class only: '0'$"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        fit(**given)


@pytest.mark.parametrize("effort", ["slow", None, 1])
def test_an_effort_that_is_not_known(effort):
    with pytest.raises(ValueError, match=f"effort must be one of fast, usual, thorough; got {effort!r}"):
        LabelCleaner(effort=effort).fit(DATA.X, DATA.y)


@pytest.mark.parametrize("weighting", ["noise", "function", "row"])
def test_a_bilevel_problem_needs_verified_rows(weighting):
    with pytest.raises(
        ValueError, match=f"weighting='{weighting}' needs verified rows; weighting='auto' gives a first"
    ):
        LabelCleaner(weighting=weighting).fit(DATA.X, DATA.y)
    with pytest.raises(ValueError, match="y_verified has a label for every row of X; none is left to be judged"):
        LabelCleaner(weighting=weighting).fit(DATA.X, DATA.y, y_verified=DATA.true)


def test_without_rows_there_is_nothing_to_predict_by():
    found = fit(None, pred_probs=P)
    with pytest.raises(NotFittedError, match="fitted on pred_probs alone"):
        found.predict(DATA.X)


def test_a_failed_fit_leaves_the_cleaner_as_it_was():
    cleaner = LabelCleaner(effort="fast")
    with pytest.raises(ValueError, match="chances"):
        cleaner.fit(DATA.X, DATA.y, y_verified=RIGHT, chances=2)
    with pytest.raises(NotFittedError):
        cleaner.predict(DATA.X)
