"""Learns how much each task counts in training a network with one trunk, by the loss of the task that matters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import wior
from wior.data import digits

train, validation, test = digits(seed=0, train=200, clean=400)


def tasks(rows, seed):
    """The digit, which matters; whether it is even, which helps; and a label made at random, which does not."""
    labels = np.asarray(rows.labels)
    return rows.features, (labels, labels % 2, np.random.default_rng(seed).integers(0, 10, len(labels)))


def losses(y, batch):
    features, labels = batch
    trunk = jnp.tanh(features @ y["trunk"])
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return jnp.stack([jnp.mean(cross_entropy(trunk @ head, own)) for head, own in zip(y["heads"], labels, strict=True)])


def inner(x, y, batch):
    penalty = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return jnp.sum(jax.nn.softmax(x) * losses(y, batch)) + 1e-3 * penalty


def outer(x, y, batch):
    return losses(y, batch)[0]


keys = jax.random.split(jax.random.key(0), 4)
sizes = [(16, 10), (16, 2), (16, 10)]
y0 = {
    "trunk": jax.random.normal(keys[0], (64, 16)) / 8,
    "heads": [jax.random.normal(key, size) / 4 for key, size in zip(keys[1:], sizes, strict=True)],
}
problem = wior.Bilevel(outer, inner, tasks(validation, 1), tasks(train, 2))
# the network is not convex in y: damping keeps the adjoint u bounded
method = wior.WiORBO(outer_lr=0.3, inner_lr=0.5, adjoint_lr=0.2, damping=0.5)
metrics = lambda x, y: {"loss": outer(x, y, problem.outer_data)}
result = wior.solve(problem, method, jnp.zeros(3), y0, batch_size=50, steps=2000, micro_batch=25, metrics=metrics)

trunk = jnp.tanh(test.features @ result.y["trunk"])
accuracy = np.mean(np.argmax(trunk @ result.y["heads"][0], axis=1) == test.labels)
print(f"validation loss  {result.history['loss'][0]:.3f} -> {result.history['loss'][-1]:.3f}")
for name, weight in zip(("digit", "parity", "noise"), jax.nn.softmax(result.x), strict=True):
    print(f"weight of {name:6s} {weight:.3f}")
print(f"test accuracy    {accuracy:.3f}")
