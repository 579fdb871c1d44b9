"""The bilevel noise model as an opinion: a network and the table of which class is labeled how, such that the network
is right on verified rows (`wior.cleaning.noise_model`).

Learned by WiOR-BO with one setting, that which is chosen most. A part of the rows is judged by a model of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np

from wior.cleaning import choosing
from wior.cleaning.choosing import DEFAULT_ORDER, SETTINGS, Length, Watch
from wior.cleaning.designs import Material
from wior.cleaning.models import all_log_probabilities
from wior.cleaning.opinions.rows import Rows
from wior.cleaning.opinions.taught import TaughtNetwork

PASSES, FEWEST_STEPS, MOST_STEPS = 15, 1500, 6000
STEPS_A_PASS = 100
LEAST_BATCH, MOST_BATCH = 32, 512
LEAST_L2, MOST_L2 = 1e-5, 1e-2

Notify = Callable[[str], None]


def of_bilevel(learner: TaughtNetwork, rows: Rows, seed: int, notify: Notify) -> Iterator[np.ndarray]:
    """For every part in turn log p (k, classes) of its rows."""
    unknown, known = np.flatnonzero(rows.in_table & ~rows.known), np.flatnonzero(rows.known)
    batch = int(np.clip(len(unknown) // STEPS_A_PASS, LEAST_BATCH, MOST_BATCH))
    steps = int(np.clip(PASSES * len(unknown) // batch, FEWEST_STEPS, MOST_STEPS))
    given = jnp.asarray(np.maximum(rows.given, 0))  # of rows outside of the table, from which nothing is learned
    for part in range(rows.count_of_parts):
        notify(f"bilevel noise model, part {part + 1} of {rows.count_of_parts}")
        of_others = lambda places, part=part: places[rows.parts[places] != part]
        own, right = (np.resize(of_others(places), len(places)) for places in (unknown, known))  # one program for all
        material = Material(
            learner.model, learner.features, given, jnp.asarray(own.astype(np.int32)),
            (learner.features[right], jnp.asarray(rows.right[right])),
            np.bincount(rows.right[right], minlength=rows.classes) == 0,
            float(np.clip(1 / len(unknown), LEAST_L2, MOST_L2)), seed + part,
        )  # fmt: skip
        length, watch = Length(steps, batch, steps), Watch(lambda step, latest: None, None)
        result = choosing.learn(material, SETTINGS[0], length, choosing.teach(material), DEFAULT_ORDER, watch)
        judged = rows.features[rows.parts == part]
        if result is None:  # it diverged
            yield np.full((len(judged), rows.classes), np.log(1 / rows.classes), np.float32)
        else:
            yield all_log_probabilities(learner.model, result.y, judged)
