"""What is given to `LabelCleaner`, checked."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

SUMS_TO_ONE = 1e-3


def labels_of(y: Any, name: str = "y") -> np.ndarray:
    """Labels as an array of texts or of numbers."""
    with named(name):
        y = column_or_1d(y, warn=True)
        _refuse_mixed(y)
        with warnings.catch_warnings():
            if name != "y":  # of many classes few rows are verified, each of another one
                warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            check_classification_targets(y)
        check_array(y.reshape(-1, 1), dtype=None, ensure_all_finite=y.dtype.kind in "fc", input_name=name)
    return np.asarray(y)


def right_labels(y_verified: Any, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows,) where the right label is known, and the labels there."""
    if isinstance(y_verified, (list, tuple)):
        y_verified = np.array([*y_verified, None], object)[:-1]  # numpy would make a text of a NaN among texts
    with named("y_verified"):
        values = column_or_1d(y_verified)
    if len(values) != len(given):
        raise ValueError(
            f"y_verified must have one entry for each row of X, None or NaN where nobody looked, got {len(values)} for "
            f"{len(given)}; give other verified rows by X_verified and y_verified"
        )
    if values.dtype.kind in "fiub":
        known = ~np.isnan(values)
    else:
        known = ~np.array([_is_missing(value) for value in values.tolist()], bool)
    found = values[known]
    if not len(found):
        return known, given[:0]
    if found.dtype == object:
        with named("y_verified"):
            _refuse_mixed(found)
        found = np.array(found.tolist())
    if given.dtype.kind in "iub" and found.dtype.kind == "f" and np.array_equal(found, np.round(found)):
        found = found.astype(np.int64)  # a column of integers with NaN is one of floats
    if given.dtype == bool and found.dtype.kind in "iu" and set(found.tolist()) <= {0, 1}:
        found = found.astype(bool)
    found = labels_of(found, "y_verified")
    require_one_kind(given, found)
    return known, found


def _is_missing(value: Any) -> bool:
    """None, NaN, or what pandas has in their place."""
    if value is None:
        return True
    differs = value != value  # as NaN does from itself; of pandas' NA nothing can be said
    return not isinstance(differs, (bool, np.bool_)) or bool(differs)


def require_one_kind(given: np.ndarray, verified: np.ndarray) -> None:
    if (given.dtype.kind in "OUT") != (verified.dtype.kind in "OUT"):
        raise ValueError(
            f"y and y_verified must both be texts or both be numbers, got the dtypes {given.dtype} and {verified.dtype}"
        )


def require_two_classes(classes: np.ndarray) -> None:
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes, got one class only: {str(classes[0])!r}")


def checked_chances(chances: Any, rows: int) -> np.ndarray:
    """(rows,) NaN where nobody knows."""
    if chances is None:
        return np.full(rows, np.nan)
    found = _numbers("chances", chances, float)
    if found.shape != (rows,):
        raise ValueError(f"chances must have one number for each row of X, ({rows},), got the shape {found.shape}")
    odd = np.flatnonzero((found < 0) | (found > 1))
    if len(odd):
        raise ValueError(f"chances must lie between 0 and 1, got {found[odd[0]]:g} in row {odd[0]}")
    return found


def checked_probabilities(pred_probs: Any, rows: int, classes: np.ndarray) -> np.ndarray:
    found = _numbers("pred_probs", pred_probs, np.float32)
    if found.shape != (rows, len(classes)):
        raise ValueError(
            f"pred_probs must have the shape (rows, classes), ({rows}, {len(classes)}), got {found.shape}; the classes "
            "are the sorted labels of y and y_verified"
        )
    if not np.isfinite(found).all() or (found < 0).any():
        row = int(np.flatnonzero(~np.isfinite(found).all(1) | (found < 0).any(1))[0])
        raise ValueError(f"pred_probs must be finite and not negative, got {found[row].min():g} in row {row}")
    off = np.flatnonzero(np.abs(found.sum(1) - 1) > SUMS_TO_ONE)
    if len(off):
        raise ValueError(f"pred_probs must sum to 1 in every row, got {found[off[0]].sum():g} in row {off[0]}")
    return found


def _numbers(name: str, values: Any, dtype: Any) -> np.ndarray:
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def is_classifier(model: Any) -> bool:
    """Whether it is an estimator of scikit-learn that gives probabilities."""
    return hasattr(model, "fit") and hasattr(model, "predict_proba") and hasattr(model, "get_params")


@contextlib.contextmanager
def named(argument: str) -> Iterator[None]:
    """What scikit-learn says of X and y, said of the verified rows too."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if argument in ("X", "y"):
            raise
        raise type(error)(f"{argument}: {error}") from error


def _refuse_mixed(y: np.ndarray) -> None:
    texts = [isinstance(label, str) for label in y] if y.dtype == object else []
    if any(texts) and not all(texts):
        row = texts.index(False)
        raise ValueError(f"y must be texts or numbers alone, got {y[row]!r} in row {row}")
