"""Hyper-data cleaning: learn which labels of a training set are wrong from a small set whose labels are right.

    min over x of  mean over clean rows of CE(y_x; row)
    where y_x minimizes  mean over training rows of σ(x_i) CE(y; row i) + (L2 / 2) ‖y‖²

x has one logit for each training row and σ(x_i) is that row's weight; y is a network. Labels are corrupted once, when
the task is made, and the record of which ones is kept for the metrics. No loss ever sees it.

Li, Huang, NeurIPS 2024, appendix A. The paper's weights are x itself; a sigmoid keeps them between 0 and 1, as does
clipping.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior.problems import Bilevel
from wior.problems.per_example import PerExample
from wior.tasks.networks import Layer, label_losses, mlp, mlp_init, weighted_loss
from wior.tasks.task import state_type

Tree = Any
Labeled = tuple[Any, Any]  # features (n, inputs) and labels (n,)

NOISES = ("uniform", "pairs", "redrawn")
WEIGHTS = ("sigmoid", "clipped")


class Corrupted(NamedTuple):
    """Labels of which some are wrong, and the record of which."""

    labels: np.ndarray
    wrong: np.ndarray  # (n,) of bool


def corrupt(labels: Any, rate: float, classes: int, noise: str = "uniform", seed: int = 0) -> Corrupted:
    """Replaces round(rate · n) of the labels, chosen at random, by others.

    `uniform` draws the new label from the other classes, `pairs` turns class c into c + 1 and the last into 0: a new
    label always differs from the true one. `redrawn` draws it from all classes; one that comes out right is recorded as
    right.
    """
    labels = np.asarray(labels)
    if noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}, got {noise!r}")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate!r}")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"labels must be one axis of integers, got dtype {labels.dtype} and shape {labels.shape}")
    if classes < 2 or (labels.size and not 0 <= labels.min() <= labels.max() < classes):
        raise ValueError(f"labels must lie in 0 … {classes - 1} with at least two classes, got classes={classes!r}")
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(labels))[: round(rate * len(labels))]
    wrong = np.zeros(len(labels), bool)
    wrong[chosen] = True
    shift = 1 if noise == "pairs" else random.integers(noise == "uniform", classes, len(labels))
    return Corrupted(
        np.where(wrong, (labels + shift) % classes, labels).astype(labels.dtype), wrong & (shift % classes != 0)
    )


@dataclasses.dataclass(frozen=True, eq=False)
class DataCleaning:
    """The task of finding wrong labels, made by `data_cleaning`.

    Parameters
    ----------
    problem : Bilevel
        The problem to solve.
    x0 : PerExample
        Where x starts: every weight is ½, nothing is decided.
    sizes : tuple of int
        The widths of the network.
    wrong : numpy.ndarray
        (n,) of bool, which training labels were corrupted. No loss sees it.
    test : pair of arrays
        Features and labels of the test rows.
    metrics : callable
        `metrics(x, y)` judges a solution, as `wior.solve` takes it.

    Examples
    --------
    >>> import numpy as np
    >>> from wior.tasks.data_cleaning import data_cleaning
    >>> rows, labels = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    >>> task = data_cleaning((rows, labels), (rows, labels), (rows, labels), sizes=(4, 3), rate=0.5)
    >>> int(task.wrong.sum()), [layer.weights.shape for layer in task.y0()]
    (15, [(4, 3)])
    """

    problem: Bilevel
    x0: PerExample
    sizes: tuple[int, ...]
    wrong: np.ndarray
    test: Labeled
    metrics: CleaningMetrics

    def y0(self, seed: int = 0) -> tuple[Layer, ...]:
        """A network to start from.

        Parameters
        ----------
        seed : int, default 0
            Draws its weights.

        Returns
        -------
        tuple of Layer
        """
        return mlp_init(jax.random.key(seed), self.sizes, self.x0.rows.dtype)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["clean", "right", "test", "held_out"], meta_fields=["weights"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class CleaningMetrics:
    """How good the weights and the network are.

    - `clean_loss`: mean cross entropy on all clean rows, the outer objective at y;
    - `f1`: of the rows kept as clean. Positive means kept: weight > ½. A kept row is right where its label is the true
      one;
    - `auroc`: of the weight as a score for "this label is right", ties counted half; NaN where no label or every label
      is wrong;
    - `accuracy`: of the network on the test rows;
    - `held_out_loss`: mean cross entropy on rows that nothing was learned from, where there are such.
    """

    clean: Labeled
    right: jax.Array
    test: Labeled
    held_out: Labeled | None
    weights: str

    def __call__(self, x: PerExample, y: Tree) -> dict[str, jax.Array]:
        weights = weight(x.rows, self.weights)
        features, labels = self.test
        found = {
            "clean_loss": clean_loss(None, y, self.clean),
            "f1": f1(weights > 0.5, self.right),
            "auroc": auroc(weights, self.right),
            "accuracy": jnp.mean(jnp.argmax(mlp(y, features), -1) == labels),
        }
        return found if self.held_out is None else {**found, "held_out_loss": clean_loss(None, y, self.held_out)}


def data_cleaning(
    train: Labeled,
    clean: Labeled,
    test: Labeled,
    *,
    sizes: Sequence[int],
    rate: float,
    noise: str = "uniform",
    l2: float = 1e-3,
    seed: int = 0,
    held_out: Labeled | None = None,
    weights: str = "sigmoid",
) -> DataCleaning:
    """The task of finding wrong labels, on given data: some of the training labels are corrupted here, once.

    Parameters
    ----------
    train, clean, test : pair of arrays
        Features (n, inputs) and integer labels (n,). `train` comes with correct labels; `clean` are the few rows whose
        labels are trusted.
    sizes : sequence of int
        The widths of the network, from the inputs to one logit for each class.
    rate : float
        The share of the training labels that is corrupted.
    noise : {"uniform", "pairs", "redrawn"}, default "uniform"
        What takes the place of a label: one of the other classes, the next class, or one drawn from all classes.
    l2 : float, default 1e-3
        The coefficient of ½‖y‖² in the inner loss.
    seed : int, default 0
        Chooses the labels that are corrupted.
    held_out : pair of arrays or None, default None
        Rows to choose between runs by.
    weights : {"sigmoid", "clipped"}, default "sigmoid"
        What the weight of a row is: σ(x), or x clipped to [0, 1].

    Returns
    -------
    DataCleaning
        The problem, where to start, which labels are wrong, and metrics.

    Examples
    --------
    >>> import numpy as np
    >>> from wior.tasks.data_cleaning import data_cleaning
    >>> rows, labels = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    >>> task = data_cleaning((rows, labels), (rows, labels), (rows, labels), sizes=(4, 3), rate=0.2)
    >>> task.problem.sizes(), int(task.wrong.sum())
    ({'outer': 30, 'inner': 30}, 6)
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(WEIGHTS)}, got {weights!r}")
    parts = {"train": train, "clean": clean, "test": test} | ({} if held_out is None else {"held_out": held_out})
    for name, (features, labels) in parts.items():
        if np.ndim(features) != 2 or np.shape(features)[1] != sizes[0] or np.shape(labels) != np.shape(features)[:1]:
            raise ValueError(
                f"{name} must be features (n, {sizes[0]}), the first of sizes, and labels (n,); "
                f"got shapes {np.shape(features)} and {np.shape(labels)}"
            )
    features, labels = train
    given = corrupt(labels, rate, sizes[-1], noise, seed)
    problem = Bilevel(clean_loss, WeightedLoss(l2, weights), tuple(clean), (features, given.labels))
    on_device = lambda part: (jnp.asarray(part[0]), jnp.asarray(part[1]))
    start = 0.0 if weights == "sigmoid" else 0.5
    return DataCleaning(
        problem=problem,
        x0=PerExample(jnp.full(len(given.labels), start, state_type(features))),
        sizes=tuple(sizes),
        wrong=given.wrong,
        test=tuple(test),
        metrics=CleaningMetrics(
            problem.outer_data, jnp.asarray(~given.wrong), on_device(test), held_out and on_device(held_out), weights
        ),
    )


def weight(x: jax.Array, weights: str) -> jax.Array:
    """The weights of rows in the inner loss."""
    return jax.nn.sigmoid(x) if weights == "sigmoid" else jnp.clip(x, 0, 1)


def clean_loss(x: Tree, y: Tree, batch: Labeled) -> jax.Array:
    """f: mean cross entropy on clean rows."""
    return jnp.mean(cross_entropy(y, batch))


@dataclasses.dataclass(frozen=True)
class WeightedLoss:
    """g: mean of weight · cross entropy on training rows, and the penalty.

    It is a value: equal coefficients share one compiled program.
    """

    l2: float
    weights: str = "sigmoid"

    def __call__(self, x: jax.Array, y: Tree, batch: Labeled) -> jax.Array:
        features, labels = batch
        penalty = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(y))
        return weighted_loss(weight(x, self.weights), mlp(y, features), labels) + self.l2 / 2 * penalty


def cross_entropy(y: Tree, batch: Labeled) -> jax.Array:
    """One value for each row."""
    features, labels = batch
    return label_losses(mlp(y, features), labels)


def f1(predicted: jax.Array, truth: jax.Array) -> jax.Array:
    """2 · true positives / (predicted positives + positives); zero where there are neither."""
    positives = jnp.sum(predicted) + jnp.sum(truth)
    return 2 * jnp.sum(predicted & truth) / jnp.maximum(positives, 1)


def auroc(scores: jax.Array, truth: jax.Array) -> jax.Array:
    """The probability that a positive row has a higher score than a negative one, ties counted half."""
    negatives = jnp.sum(~truth)
    ranked = jnp.sort(jnp.where(truth, jnp.inf, scores))  # the negative rows, then as many infinities as others
    below, up_to = (jnp.minimum(jnp.searchsorted(ranked, scores, side), negatives) for side in ("left", "right"))
    # shares before sums: a sum of counts would outgrow the digits of float32 on a large data set
    share = (below + up_to).astype(jnp.promote_types(scores.dtype, jnp.float32)) / (2 * negatives)
    return jnp.where(jnp.isnan(scores).any(), jnp.nan, jnp.mean(share, where=truth))
