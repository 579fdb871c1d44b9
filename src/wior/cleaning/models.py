"""What the labels are learned by: a linear model or a network on standardized features, or a function of the user's
own.

A model is a tree with `init(seed)`, which makes its parameters, and `logits(parameters, features)`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from wior.saving.fingerprint import of_loss
from wior.tasks.networks import Layer, mlp, mlp_init

Tree = Any
FURTHEST = 5.0  # standard deviations: what lies further counts as that far
LONGEST = 50.0  # mean square length of a row, so that one inner step size fits few columns and many
ROWS_AT_ONCE, SIZES = 8192, 256


class Model(Protocol):
    """What a model must have; it must also be a tree."""

    def init(self, seed: int) -> Tree: ...

    def logits(self, params: Tree, features: jax.Array) -> jax.Array: ...


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["center", "scale", "bound"],
    meta_fields=["hidden", "classes", "gain"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """Layers with rectifiers between them, on columns that are standardized in the batch: no second copy of the data is
    made.
    """

    center: jax.Array
    scale: jax.Array
    bound: jax.Array  # of a standardized value
    hidden: tuple[int, ...]  # none: a linear model
    classes: int
    gain: float  # of the first layer, for rows that are shorter than they have columns

    @classmethod
    def standardizing(cls, features: np.ndarray, hidden: tuple[int, ...], classes: int) -> Network:
        mean, deviation = column_statistics(features)
        varying = deviation > np.maximum(1e-6 * np.abs(mean), 1e-36)
        length = min(float(varying.sum()), LONGEST)
        shrink = (length / max(int(varying.sum()), 1)) ** 0.5
        scale = np.where(varying, shrink / np.where(varying, deviation, 1.0), 0.0)
        gain = (features.shape[1] / max(length, 1.0)) ** 0.5
        center, factor, bound = (jnp.asarray(value, jnp.float32) for value in (mean, scale, FURTHEST * shrink))
        return cls(center, factor, bound, hidden, classes, gain)

    def init(self, seed: int) -> tuple[Layer, ...]:
        first, *others = _layers(jax.random.key(seed), (len(self.center), *self.hidden, self.classes), jnp.float32)
        if not self.hidden:  # nothing to break the symmetry of
            return (first._replace(weights=jnp.zeros_like(first.weights)),)
        return (first._replace(weights=first.weights * self.gain), *others)

    def logits(self, params: Tree, features: jax.Array) -> jax.Array:
        inputs = (features.astype(jnp.float32) - self.center) * self.scale
        return mlp(params, jnp.clip(inputs, -self.bound, self.bound))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["params"], meta_fields=["function"])
@dataclasses.dataclass(frozen=True, eq=False)
class Custom:
    """A model of one's own: `function(params, features)` returns logits (rows, classes), from `params`, a tree of
    arrays.
    """

    function: Callable[[Tree, jax.Array], jax.Array]
    params: Tree

    def init(self, seed: int) -> Tree:
        return jax.tree.map(jnp.asarray, self.params)

    def logits(self, params: Tree, features: jax.Array) -> jax.Array:
        return self.function(params, features)

    def as_now(self, features: np.ndarray) -> Custom:
        """This model with a function that equals another one only if both compute the same: programs are kept by it."""
        function = self.function.function if isinstance(self.function, _FunctionAsNow) else self.function
        program = of_loss(function, self.init(0), jnp.asarray(features[:1]))
        return dataclasses.replace(self, function=_FunctionAsNow(function, program))


@dataclasses.dataclass(frozen=True)
class _FunctionAsNow:
    function: Callable[..., Any]
    program: str

    def __call__(self, params: Tree, features: jax.Array) -> jax.Array:
        return self.function(params, features)


def column_statistics(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column, some rows at a time."""
    rows = len(features)
    parts = range(0, rows, ROWS_AT_ONCE)
    mean = sum(features[at : at + ROWS_AT_ONCE].sum(0, dtype=np.float64) for at in parts) / rows
    variance = sum(((features[at : at + ROWS_AT_ONCE] - mean) ** 2).sum(0) for at in parts) / rows
    return mean, np.sqrt(variance)


_layers = jax.jit(mlp_init, static_argnums=(1, 2))  # one program, which is compiled sooner than many small ones


@jax.jit
def log_probabilities(model: Any, params: Tree, features: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(model.logits(params, features))


def tempered(logs: np.ndarray, temperature: float) -> np.ndarray:
    """log p (..., classes) of logits that are divided by a temperature; above 1 it is less sure."""
    scaled = logs / temperature
    highest = scaled.max(-1, keepdims=True)
    return scaled - highest - np.log(np.exp(scaled - highest).sum(-1, keepdims=True))


def all_log_probabilities(model: Any, params: Tree, features: Any, places: np.ndarray | None = None) -> np.ndarray:
    """log p (rows, classes) of all rows, or of those in `places`, some at a time."""
    if isinstance(model, Custom):
        model = model.as_now(features)
    places = np.arange(len(features)) if places is None else places
    size = rows_at_once(len(places))
    found = []
    for at in range(0, max(len(places), 1), size):
        some = places[at : at + size]
        if len(some):
            some = np.pad(some, (0, size - len(some)), mode="edge")
        found.append(np.asarray(log_probabilities(model, params, jnp.asarray(features[some]))))
    return np.concatenate(found)[: len(places)]


def rows_at_once(rows: int) -> int:
    """How many of so many rows are judged at once: all pieces have one size, since each size is compiled by itself."""
    pieces = max(-(-rows // ROWS_AT_ONCE), 1)
    return max(-(-rows // pieces // SIZES) * SIZES, SIZES)
