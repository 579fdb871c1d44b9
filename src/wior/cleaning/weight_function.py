"""Hyper-data cleaning with a weight *function*: which labels are wrong follows from what the model says of them.

    min over x of  mean over verified rows of CE(y_x; row)
    where y_x minimizes  mean over training rows of w(x, y; row) CE(y; row) + (L2 / 2) ‖weights of y‖²

    w = σ(a·φ + b + Σ_c p_c T[given, c])

with p the model's probabilities for the row, φ = (loss of the given label, its probability, the largest probability,
the entropy of p), and T a table of given × predicted class. x = (a, b, T) has K² + 5 numbers for K classes, however
many rows there are: a hundred verified rows are enough to learn it, where one weight for each row would fit them by
heart. T is what finds systematic errors: "given 3, the model says 2" is learned as wrong although each such row looks
as sure as any.

No derivative is taken through φ and p: otherwise the model would be rewarded for outputs that lower its own weights.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior.cleaning.noise_model import VerifiedLoss
from wior.problems import Bilevel
from wior.tasks.networks import squares, weighted_loss

FEATURES = 4
LARGEST_LOSS = 10.0  # of a label, as the weight function sees it


class WeightFunction(NamedTuple):
    """x: what makes a label count."""

    slopes: jax.Array  # a, of loss, probability of the given label, largest probability, entropy
    shift: jax.Array  # b
    table: jax.Array  # T (classes, classes), given × predicted

    @classmethod
    def zero(cls, classes: int, dtype: Any = None) -> WeightFunction:
        """Every weight ½."""
        return cls(jnp.zeros(FEATURES, dtype), jnp.zeros((), dtype), jnp.zeros((classes, classes), dtype))

    def weights(self, logits: jax.Array, given: jax.Array) -> jax.Array:
        """The weights (rows,) of rows with these logits (rows, classes) and given labels (rows,)."""
        logs = jax.lax.stop_gradient(jax.nn.log_softmax(logits))
        p = jnp.exp(logs)
        loss = -jnp.take_along_axis(logs, given[:, None], -1)[:, 0]
        seen = jnp.stack(
            [jnp.minimum(loss, LARGEST_LOSS) / 3, jnp.exp(-loss), jnp.max(p, -1), -jnp.sum(p * logs, -1)], -1
        )
        return jax.nn.sigmoid(seen @ self.slopes + self.shift + jnp.sum(p * self.table[given], -1))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["model", "l2"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class FunctionWeightedLoss:
    """g: mean of weight · cross entropy on training rows, and the penalty of the model's weights."""

    model: Any
    l2: jax.Array

    def __call__(self, x: WeightFunction, y: Any, batch: Any) -> jax.Array:
        features, given = batch
        logits = self.model.logits(y, features)
        return weighted_loss(x.weights(logits, given), logits, given) + self.l2 / 2 * squares(y)


def weight_function_problem(model: Any, train: Any, verified: Any, l2: float = 1e-3) -> Bilevel:
    """The problem on training rows with given labels and rows with labels that are right, both (features, integer
    labels).
    """
    return Bilevel(VerifiedLoss(model), FunctionWeightedLoss(model, jnp.asarray(l2)), tuple(verified), tuple(train))
