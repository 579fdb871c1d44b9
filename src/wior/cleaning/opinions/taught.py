"""A model of the right labels, taught plainly by the rows whose labels are probably right.

A part of the rows is judged by a model of the other parts. What teaches is the likeliest label of a row, where it is
likely enough, and the right label of verified rows.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone

from wior.cleaning import plain
from wior.cleaning.models import Custom, Network, all_log_probabilities, log_probabilities, rows_at_once
from wior.cleaning.opinions.rows import PARTS, Rows
from wior.cleaning.opinions.threads import part_by_part

BATCH, LEARNING_RATE = 64, 1e-3
PASSES, FEWEST_STEPS, MOST_STEPS = 12, 2000, 6000
ENOUGH = 0.7  # of the likeliest label, for a row to teach
LEAST = 1e-6  # probability of a class

Notify = Callable[[str], None]


class Teachable(Protocol):
    """What learns from some rows, and says log p (k, classes) of others."""

    @property
    def at_once(self) -> int: ...

    def taught_by(self, places: np.ndarray, labels: np.ndarray, seed: int) -> Callable[[Any], np.ndarray]: ...


@dataclasses.dataclass(frozen=True, eq=False)
class TaughtNetwork:
    """A network, or a model of the user's own, by Adam. Its features are held once, by the device."""

    model: Network | Custom
    features: jax.Array
    steps: int

    @classmethod
    def of(cls, model: Network | Custom, features: np.ndarray) -> TaughtNetwork:
        steps = int(np.clip(PASSES * len(features) // BATCH, FEWEST_STEPS, MOST_STEPS))
        return cls(model, jax.device_put(features), steps)  # `jnp.asarray` would hold it twice for a moment

    @property
    def at_once(self) -> int:
        """How many networks learn at the same time: a small one keeps one core busy."""
        return min(os.cpu_count() or 1, 2) if jax.default_backend() == "cpu" else 1

    def compile_says(self) -> None:
        """Compiles what a part of the rows is judged by."""
        params = self.model.init(0)
        rows = rows_at_once(-(-len(self.features) // PARTS))
        features = jax.ShapeDtypeStruct((rows, *self.features.shape[1:]), self.features.dtype)
        log_probabilities.lower(self.model, params, features).compile()

    def taught_by(self, places: np.ndarray, labels: np.ndarray, seed: int) -> Callable[[Any], np.ndarray]:
        """`labels`: of all rows, of which those in `places` count."""
        batches = plain.drawn(places, self.steps, BATCH, seed)
        params = plain.trained(
            self.model, self.model.init(seed), (self.features,), jnp.asarray(labels.astype(np.int32)), batches,
            jnp.float32(1 / len(places)), jnp.float32(LEARNING_RATE),
        )  # fmt: skip
        return SaysNetwork(self.model, params)


@dataclasses.dataclass(frozen=True, eq=False)
class TaughtClassifier:
    """A classifier of scikit-learn."""

    classifier: Any
    features: np.ndarray
    classes: int
    at_once = 1  # it may take all cores by itself

    def taught_by(self, places: np.ndarray, labels: np.ndarray, seed: int) -> Callable[[Any], np.ndarray]:
        """`labels`: of all rows, of which those in `places` count."""
        model = clone(self.classifier)
        if "random_state" in model.get_params() and model.get_params()["random_state"] is None:
            model.set_params(random_state=seed)
        model.fit(self.features[places], labels[places])
        return SaysClassifier(model, self.classes)


@dataclasses.dataclass(frozen=True, eq=False)
class SaysNetwork:
    """log p (k, classes) of rows, by a network that has learned."""

    model: Network | Custom
    params: Any

    def __call__(self, features: Any) -> np.ndarray:
        return all_log_probabilities(self.model, self.params, features)


@dataclasses.dataclass(frozen=True, eq=False)
class SaysClassifier:
    """log p (k, classes) of rows, by a classifier that has learned, maybe some of the classes alone."""

    classifier: Any
    classes: int

    def __call__(self, features: np.ndarray) -> np.ndarray:
        found = np.full((len(features), self.classes), LEAST)
        found[:, self.classifier.classes_] = np.maximum(self.classifier.predict_proba(features), LEAST)
        return np.log(found / found.sum(1, keepdims=True)).astype(np.float32)


def teachers(memberships: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of the rows that teach, and the likeliest label of every row."""
    labels = memberships.argmax(1)
    return np.flatnonzero(memberships.max(1) >= ENOUGH), labels


def of_taught(
    learner: Teachable, rows: Rows, memberships: np.ndarray, seed: int, notify: Notify
) -> Iterator[np.ndarray]:
    """For every part in turn log p (k, classes) of its rows, by a model of the other parts."""
    places, labels = teachers(memberships)
    parts = rows.count_of_parts

    def of_part(part: int) -> np.ndarray:
        notify(f"models of kept rows, part {part + 1} of {parts}")
        own = places[rows.parts[places] != part]
        judged = rows.features[rows.parts == part]
        if len(np.unique(labels[own])) < 2:
            return np.full((len(judged), rows.classes), np.log(1 / rows.classes), np.float32)
        return learner.taught_by(own, labels, seed + part)(judged)

    return part_by_part(of_part, parts, learner.at_once)
