"""scikit-learn's embedded digits: 1797 images of 8 × 8 pixels, ten classes. Nothing is downloaded."""

from __future__ import annotations

import numpy as np

from wior.data.rows import Split, split


def digits(seed: int = 0, train: int = 1000, clean: int = 400) -> Split:
    """The digits as 64 features in [0, 1], split at random.

    Parameters
    ----------
    seed : int
        Of the split.
    train, clean : int
        Rows in these parts; all others are the test part.

    Returns
    -------
    Split
        The parts `train`, `clean` and `test`, each with features (n, 64) and labels 0 to 9.

    Examples
    --------
    >>> from wior.data import digits
    >>> parts = digits(seed=0, train=1000, clean=400)
    >>> parts.train.features.shape, parts.clean.features.shape, parts.test.features.shape
    ((1000, 64), (400, 64), (397, 64))
    """
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    brightest = 16
    return split((features / brightest).astype(np.float32), labels.astype(np.int32), train, clean, seed)
