"""A model of the verified rows alone."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from wior.cleaning.opinions.discriminants import log_normalized
from wior.cleaning.opinions.expansion import Scaling
from wior.cleaning.opinions.rows import Rows
from wior.cleaning.opinions.threads import by_one_blas_thread

PENALTY = 1e-3  # of the weights, for rows of length one
ROWS_AT_ONCE = 65_536


@by_one_blas_thread
def of_verified(rows: Rows, scaling: Scaling) -> np.ndarray:
    """log p (N, classes) by the verified rows of the other parts."""
    known = np.flatnonzero(rows.known)
    taught = scaling(rows.features[known])
    found = np.full((len(rows.given), rows.classes), np.log(1 / rows.classes), np.float32)
    for part in range(rows.count_of_parts):
        learned = rows.parts[known] != part
        labels = rows.right[known][learned]
        if len(np.unique(labels)) < 2:
            continue
        model = LogisticRegression(C=1 / (PENALTY * len(labels)), max_iter=300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)  # of many classes few rows
            model.fit(taught[learned], labels)
        here = np.flatnonzero(rows.parts == part)
        for at in range(0, len(here), ROWS_AT_ONCE):
            places = here[at : at + ROWS_AT_ONCE]
            logs = np.full((len(places), rows.classes), -np.inf)
            logs[:, model.classes_] = model.predict_log_proba(scaling(rows.features[places]))
            # a class that no verified row has is as likely as one that one row has
            logs[:, np.setdiff1d(np.arange(rows.classes), model.classes_)] = -np.log(len(labels) + 1.0)
            found[places] = log_normalized(logs)
    return found
