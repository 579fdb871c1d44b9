"""Losses with and without a fault, and what single parts of `check` say of them."""

import jax
import jax.numpy as jnp
import numpy as np

import wior
from wior.instruments.checking import data, rows, sample, values

RNG = np.random.default_rng(0)
N, INPUTS, CLASSES = 40, 4, 3
FEATURES = RNG.normal(size=(N, INPUTS))
LABELS = RNG.integers(0, CLASSES, N)
SETS = RNG.normal(size=(6, 8, INPUTS))
X0, Y0 = {"ridge": jnp.zeros(CLASSES)}, jnp.asarray(0.1 * RNG.normal(size=(INPUTS, CLASSES)))


def drawn(problem, batches=(8, 8)):
    """Real batches of a problem, as `check` draws them."""
    found = sample.at_hand(problem, batches, np.random.default_rng(0))
    return sample.draw(found, data.broken_places(found, data.not_finite(found)), batches)


def loss_of(problem, name):
    return next(loss for loss in sample.losses_of(problem) if loss.name == name)


def rows_said(problem, name, x, y, batches=(8, 8)):
    return rows.row_findings(drawn(problem, batches), loss_of(problem, name), x, y)


def range_said(problem, name, x, y, batches=(8, 8)):
    return values.out_of_range(values.Losses(drawn(problem, batches), x, y), loss_of(problem, name))


def softmax(row_loss, labels=LABELS, over=jnp.mean):
    """A softmax regression with a ridge for each class; `row_loss(log_probabilities, labels)` gives one loss for each
    row.
    """
    outer = lambda x, y, b: jnp.mean(row_loss(jax.nn.log_softmax(b[0] @ y), b[1]))
    inner = lambda x, y, b: over(row_loss(jax.nn.log_softmax(b[0] @ y), b[1])) + jnp.sum(jnp.exp(x["ridge"]) * y**2)
    return wior.Bilevel(outer, inner, (FEATURES, LABELS), (FEATURES, labels))


def by_place(scores, labels):
    return -scores[jnp.arange(len(labels)), labels]


def by_take(scores, labels):
    return -jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]


def by_one_hot(scores, labels):
    return -jnp.sum(scores * jax.nn.one_hot(labels, CLASSES), 1)


def clipped(scores, labels):
    return -jnp.take_along_axis(scores, labels[:, None], 1, mode="clip")[:, 0]


def filled(scores, labels):
    return -scores.at[jnp.arange(len(labels)), labels].get(mode="fill", fill_value=0)


def with_label(label, row=17):
    labels = LABELS.copy()
    labels[row] = label
    return labels
