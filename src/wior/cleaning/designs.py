"""Three things the outer variable may be: a noise model, a weight function, or a weight for each row.

A design poses the bilevel problem, says where it starts, and reads its solution: the probability of every class for a
row whose given label is known, and the weight that the row had in training.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from wior.cleaning import noise_model
from wior.cleaning.models import Model, all_log_probabilities, tempered
from wior.cleaning.noise_model import CorrectedLoss, VerifiedLoss, noise_model_problem
from wior.cleaning.weight_function import WeightFunction, weight_function_problem
from wior.problems import Bilevel
from wior.problems.per_example import PerExample
from wior.tasks.networks import squares, weighted_loss

Tree = Any
LIKELY = 0.9  # of a label to be right, before anything is known
DAMPING = 0.3  # of the Hessian of a noise model
PASSES = 50  # of the estimate of a table


class Setting(NamedTuple):
    """How one candidate learns."""

    weighting: str
    start: str  # of the table of a noise model: "trusting" or "counted"; of the weights: "even"
    outer_lr: float
    inner_lr: float
    share: float = 0.0  # λ, the share of verified rows in the inner loss of a noise model

    def describe(self) -> str:
        return f"{self.weighting}, {self.start} start, η {self.outer_lr:g}, γ {self.inner_lr:g}" + (
            f", λ {self.share:g}" if self.weighting == "noise" else ""
        )


class Material(NamedTuple):
    """What is learned from."""

    model: Model
    features: jax.Array
    given: jax.Array
    rows: jax.Array  # places of the rows to learn from
    verified: tuple[jax.Array, jax.Array]
    trusted: np.ndarray  # (classes,) of bool: classes without a verified row, whose labels are taken as they are
    l2: float
    seed: int

    @property
    def classes(self) -> int:
        return len(self.trusted)


class Reading(NamedTuple):
    """What a solution says of the training rows."""

    posterior: np.ndarray  # (rows, classes): the probability of every class, the given label known
    weights: np.ndarray  # (rows,)
    table: np.ndarray  # (classes, classes): T[c, given]


class Design(Protocol):
    def problem(self, material: Material, setting: Setting) -> Bilevel: ...

    def start(self, material: Material, setting: Setting, taught: Tree) -> Tree: ...

    def read(self, material: Material, x: Tree, y: Tree, temperature: float) -> Reading: ...


class NoiseModel:
    """x is the table T: which class is labeled how."""

    def problem(self, material: Material, setting: Setting) -> Bilevel:
        rng = np.random.default_rng(material.seed)
        partners = np.resize(rng.permutation(len(material.verified[1])), len(material.rows)).astype(np.int32)
        verified = (jnp.asarray(material.verified[0]), jnp.asarray(material.verified[1]))
        numbers = (jnp.asarray(number) for number in (setting.share, material.l2, DAMPING))
        trusted = jnp.asarray(material.trusted)
        inner = CorrectedLoss(material.model, jnp.asarray(material.features), verified, trusted, *numbers)
        return noise_model_problem(inner, (material.rows, material.given[material.rows]), partners)

    def start(self, material: Material, setting: Setting, taught: Tree) -> jax.Array:
        table = trusting_table(material.classes)
        if setting.start == "counted":
            logs = all_log_probabilities(material.model, taught, material.features)
            table = counted_table(np.exp(logs, out=logs), np.asarray(material.given), np.asarray(material.rows))
        return noise_model.start(jnp.asarray(table, jnp.float32))

    def read(self, material: Material, x: jax.Array, y: Tree, temperature: float = 1.0) -> Reading:
        logs = tempered(all_log_probabilities(material.model, y, material.features), temperature)
        log_t = noise_model.log_table(x, jnp.asarray(material.trusted))
        posterior = noise_model.posterior(logs, log_t, material.given)
        return Reading(posterior, _at(posterior, material.given), np.asarray(jnp.exp(log_t)))


class Function:
    """x is a function of the model's output and the given label."""

    def problem(self, material: Material, setting: Setting) -> Bilevel:
        train = (material.features[material.rows], material.given[material.rows])
        return weight_function_problem(material.model, train, material.verified, material.l2)

    def start(self, material: Material, setting: Setting, taught: Tree) -> WeightFunction:
        return WeightFunction.zero(material.classes, jnp.float32)

    def read(self, material: Material, x: WeightFunction, y: Tree, temperature: float = 1.0) -> Reading:
        logs = tempered(all_log_probabilities(material.model, y, material.features), temperature)
        return _read_weights(material, logs, np.asarray(x.weights(jnp.asarray(logs), material.given)))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["model", "l2"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class RowWeightedLoss:
    """g: mean of σ(x_i) · cross entropy on training rows, and the penalty of the model's weights."""

    model: Any
    l2: jax.Array

    def __call__(self, x: jax.Array, y: Tree, batch: Any) -> jax.Array:
        features, given = batch
        loss = weighted_loss(jax.nn.sigmoid(x), self.model.logits(y, features), given)
        return loss + self.l2 / 2 * squares(y)


class Row:
    """x is one weight for each row: the paper's, for many verified rows. All rows are learned from."""

    def problem(self, material: Material, setting: Setting) -> Bilevel:
        inner = RowWeightedLoss(material.model, jnp.asarray(material.l2))
        return Bilevel(VerifiedLoss(material.model), inner, material.verified, (material.features, material.given))

    def start(self, material: Material, setting: Setting, taught: Tree) -> PerExample:
        return PerExample(jnp.zeros(len(material.given), jnp.float32))

    def read(self, material: Material, x: PerExample, y: Tree, temperature: float = 1.0) -> Reading:
        logs = tempered(all_log_probabilities(material.model, y, material.features), temperature)
        return _read_weights(material, logs, np.asarray(jax.nn.sigmoid(x.rows)))


DESIGNS: dict[str, Design] = {"noise": NoiseModel(), "function": Function(), "row": Row()}


def trusting_table(classes: int) -> np.ndarray:
    """Most labels are right, and the others anything."""
    return LIKELY * np.eye(classes) + (1 - LIKELY) / classes


def counted_table(probabilities: np.ndarray, given: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """How the rows that a model takes for a class are labeled, (classes, classes); all of them, or those at `rows`,
    which may repeat.
    """
    classes = probabilities.shape[1]
    counts = np.full((classes, classes), 1.0 / classes)
    times = None if rows is None else np.bincount(rows, minlength=len(given))
    for taken in range(classes):
        weights = probabilities[:, taken] if times is None else probabilities[:, taken] * times
        counts[taken] += np.bincount(given, weights, minlength=classes)
    return counts / counts.sum(1, keepdims=True)


def likeliest_table(
    logs: np.ndarray, given: jax.Array, trusted: np.ndarray, log_t: jax.Array | None = None, passes: int = PASSES
) -> jax.Array:
    """log T under which the given labels are likeliest for a model's log p, by expectation maximization from log T, or
    from a trusting start.
    """
    log_t = log_table_of(trusting_table(len(trusted)), trusted) if log_t is None else log_t
    for _ in range(passes):
        posterior = noise_model.posterior(logs, log_t, given)
        log_t = log_table_of(counted_table(posterior, np.asarray(given)), trusted)
    return log_t


def log_table_of(table: np.ndarray, trusted: np.ndarray) -> jax.Array:
    """log T of counted shares, in which no label is impossible but those that trusted classes rule out."""
    return noise_model.log_table(noise_model.start(jnp.asarray(table, jnp.float32)), jnp.asarray(trusted))


def _read_weights(material: Material, logs: np.ndarray, weights: np.ndarray) -> Reading:
    log_t = likeliest_table(logs, material.given, material.trusted)
    return Reading(noise_model.posterior(logs, log_t, material.given), weights, np.asarray(jnp.exp(log_t)))


def _at(posterior: np.ndarray, given: Any) -> np.ndarray:
    return np.take_along_axis(posterior, np.asarray(given)[:, None], 1)[:, 0]
