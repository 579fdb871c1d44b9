"""Hyper-data cleaning with a noise model: which labels come out of which is learned, and every row, right or wrong,
teaches.

    min over x of  mean over verified rows of −log p(true label; row)
    where y_x minimizes  mean over training rows of −log Σ_c p(c; row) T[c, given] + λ · mean over verified rows of −log
    p(true label; row)
                         + (L2 / 2) ‖weights of y‖²

p = softmax of the model y; T = softmax of the rows of x: T[c, given] is the probability that a row of class c was
labeled `given`. By Bayes' rule a label is right with probability p(given) T[given, given] / Σ_c p(c) T[c, given].

The corrected loss with a known T is Patrini et al., CVPR 2017; T from rows that are verified, estimated once, is
Hendrycks et al., NeurIPS 2018. Here T is the outer variable of a bilevel problem: it is whatever makes the model that
follows from it right on verified rows.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior.problems import Bilevel
from wior.tasks.networks import label_losses, squares

Tree = Any
LEAST = 1e-3  # probability of a label at the start, so that none is impossible for ever
NEVER = -1e3  # the logarithm of a probability that is zero in any precision; infinity would have no second derivative


def start(table: jax.Array) -> jax.Array:
    """x for a table T (classes, classes)."""
    return jnp.log(table + LEAST)


def log_table(x: jax.Array, trusted: jax.Array) -> jax.Array:
    """log T; a trusted class gives its own label alone, and no other class gives it."""
    classes = len(trusted)
    foreign = (trusted[:, None] | trusted[None, :]) & ~jnp.eye(classes, dtype=bool)
    return jax.nn.log_softmax(jnp.where(foreign, NEVER, x), -1)


def log_posterior(log_probabilities: jax.Array, log_t: jax.Array, given: jax.Array) -> jax.Array:
    """log P(class | row, given label), (rows, classes), of rows with these log probabilities (rows, classes)."""
    possible = jnp.where(log_t > NEVER / 2, log_t, -jnp.inf)  # a model may be surer than NEVER
    return jax.nn.log_softmax(log_probabilities + possible.T[given], -1)


def posterior(log_probabilities: np.ndarray, log_t: jax.Array, given: Any) -> np.ndarray:
    return np.array(jnp.exp(log_posterior(jnp.asarray(log_probabilities), log_t, given)))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["model"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class VerifiedLoss:
    """f: mean cross entropy of rows with labels that are right."""

    model: Any

    def __call__(self, x: Tree, y: Tree, batch: Any) -> jax.Array:
        features, labels = batch
        return jnp.mean(label_losses(self.model.logits(y, features), labels))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["model", "features", "verified", "trusted", "share", "l2", "damping"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True, eq=False)
class CorrectedLoss:
    """g, for batches of places of training rows, their given labels, and places of verified rows, as many of these as
    of those.
    """

    model: Any
    features: jax.Array  # of all training rows: the batch points to some
    verified: Any  # (features, labels), all of them
    trusted: jax.Array  # (classes,) of bool
    share: jax.Array  # λ
    l2: jax.Array
    damping: jax.Array  # μ

    def __call__(self, x: jax.Array, y: Tree, batch: Any) -> jax.Array:
        places, given, partners = batch
        logs = jax.nn.log_softmax(self.model.logits(y, self.features[places]))
        corrected = -jnp.mean(jax.nn.logsumexp(logs + log_table(x, self.trusted).T[given], -1))
        known = jnp.mean(label_losses(self.model.logits(y, self.verified[0][partners]), self.verified[1][partners]))
        return corrected + self.share * known + self.l2 / 2 * squares(y) + damped(y, self.damping)


def damped(y: Tree, damping: Any) -> jax.Array:
    """(μ / 2) ‖y − y‖²: nothing in value and gradient, and μ I in the Hessian.

    The Hessian of a network is not positive definite. Where it is not, u grows without bound and takes x with it; with
    μ above its most negative eigenvalue u is that of a proximal step.
    """
    apart = (leaf - jax.lax.stop_gradient(leaf) for leaf in jax.tree.leaves(y))
    return damping / 2 * sum((jnp.vdot(part, part) for part in apart), jnp.zeros(()))


def noise_model_problem(inner: CorrectedLoss, train: Any, partners: Any) -> Bilevel:
    """The problem on the training rows `train`, (places in the features of `inner`, given labels).

    `partners` (rows,) are places of verified rows.
    """
    return Bilevel(VerifiedLoss(inner.model), inner, inner.verified, (*train, partners))
