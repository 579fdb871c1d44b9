"""Finds wrong labels: one weight for each training row, learned from a few rows whose labels are right."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

import wior
from wior.data import digits

WRONG = 0.4
L2 = 1e-3

train, clean, test = digits(seed=0, train=1000, clean=300)

# labels are made wrong once, before anything else: every corrupted label differs from the true one
random = np.random.default_rng(0)
is_wrong = random.permutation(len(train.labels)) < WRONG * len(train.labels)
shift = random.integers(1, 10, len(train.labels))
labels = np.where(is_wrong, (train.labels + shift) % 10, train.labels)


def cross_entropy(y, batch):
    features, labels = batch
    log_probabilities = jax.nn.log_softmax(features @ y["weights"] + y["bias"])
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]


def inner(x, y, batch):  # x: the logits of this batch's own rows, since x0 is PerExample
    penalty = jnp.sum(y["weights"] ** 2) + jnp.sum(y["bias"] ** 2)
    return jnp.mean(jax.nn.sigmoid(x) * cross_entropy(y, batch)) + L2 / 2 * penalty


def outer(x, y, batch):
    return jnp.mean(cross_entropy(y, batch))


problem = wior.Bilevel(outer, inner, outer_data=clean, inner_data=(train.features, labels))
result = wior.solve(
    problem,
    wior.WiORBO(outer_lr=300.0, inner_lr=0.3, adjoint_lr=0.1),
    x0=wior.PerExample(jnp.zeros(len(labels))),
    y0={"weights": jnp.zeros((64, 10)), "bias": jnp.zeros(10)},
    order=wior.orders.RandomReshuffling(),
    batch_size=50,
    steps=1000,
    metrics=lambda x, y: {"clean_loss": outer(x, y, problem.outer_data)},
)

weight = np.asarray(jax.nn.sigmoid(result.x.rows))
guess = np.argmax(test.features @ result.y["weights"] + result.y["bias"], axis=1)
print(f"{is_wrong.sum()} of {len(labels)} training labels are wrong")
print(f"clean loss     {result.history['clean_loss'][0]:.3f} -> {result.history['clean_loss'][-1]:.3f}")
print(f"F1             {f1_score(~is_wrong, weight > 0.5):.3f}  (rows kept as clean: weight > 0.5)")
print(f"AUROC          {roc_auc_score(~is_wrong, weight):.3f}  (weight as a score for 'this label is right')")
print(f"test accuracy  {np.mean(guess == test.labels):.3f}")
print(f"{result.steps} steps in {result.history['seconds'][-1]:.2f} seconds")
