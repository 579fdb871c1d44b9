"""What the nearest rows are: the mean of their posteriors.

A row is judged by rows of other parts. A verified row is judged by rows of its own part, whose models have not learned
from it: what is said of the others begins with its right label, and would give that away.
"""

from __future__ import annotations

import numpy as np

from wior.cleaning.opinions.expansion import Scaling
from wior.cleaning.opinions.rows import Rows

NEAREST = 12
DOUBT = 0.5  # row: what every class has before a neighbor is seen
MOST_ROWS = 20_000  # beyond, looking for neighbors takes too long
LOOKED_AMONG = 8_000  # rows of other parts
ROWS_AT_ONCE = 1024


def of_neighbors(rows: Rows, scaling: Scaling, posterior: np.ndarray, seed: int) -> np.ndarray:
    """log p (N, classes), by the posteriors (N, classes) of the nearest rows in scaled columns."""
    scaled = scaling(rows.features)
    found = np.empty((len(scaled), rows.classes), np.float32)
    rng = np.random.default_rng(seed)

    def judge(here: np.ndarray, others: np.ndarray) -> None:
        others = np.sort(rng.permutation(others)[:LOOKED_AMONG])
        among, lengths = scaled[others], (scaled[others] ** 2).sum(1)
        for at in range(0, len(here), ROWS_AT_ONCE):
            places = here[at : at + ROWS_AT_ONCE]
            distances = lengths - 2 * scaled[places] @ among.T  # but for the length of the row itself
            distances[others == places[:, None]] = np.inf
            near = np.argpartition(distances, min(NEAREST, len(others)) - 1, 1)[:, :NEAREST]
            counts = np.isfinite(np.take_along_axis(distances, near, 1))
            found[places] = (posterior[others[near]] * counts[:, :, None]).sum(1) + DOUBT

    for part in range(rows.count_of_parts):
        inside = rows.parts == part
        judge(np.flatnonzero(inside & ~rows.known), np.flatnonzero(~inside))
        judge(np.flatnonzero(inside & rows.known), np.flatnonzero(inside))
    return np.log(found / found.sum(1, keepdims=True))
