"""scikit-learn's embedded digits: 1797 images of 8 × 8 pixels, ten classes. Nothing is downloaded."""

from __future__ import annotations

import numpy as np

from wior.data.rows import Split, split


def digits(seed: int = 0, train: int = 1000, clean: int = 400) -> Split:
    """The digits as 64 features in [0, 1], split at random by `seed`.

    What `train` and `clean` leave is the test part.
    """
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    brightest = 16
    return split((features / brightest).astype(np.float32), labels.astype(np.int32), train, clean, seed)
