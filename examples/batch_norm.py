"""Weighs training digits, 40% of them with a wrong label, with a convolution with batch norm in flax.nnx."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import wior
from wior.data import digits

train, clean, test = digits(seed=0, train=1000, clean=300)
random = np.random.default_rng(0)
is_wrong = random.random(len(train.labels)) < 0.4
labels = np.where(is_wrong, (train.labels + random.integers(1, 10, len(train.labels))) % 10, train.labels)


class Network(nnx.Module):
    def __init__(self, rngs):
        self.convolution = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.readout = nnx.Linear(16 * 16, 10, rngs=rngs)

    def __call__(self, features, training):
        seen = self.convolution(features.reshape(-1, 8, 8, 1))
        seen = nnx.relu(self.norm(seen, use_running_average=not training))
        seen = nnx.max_pool(seen, (2, 2), strides=(2, 2))
        return self.readout(seen.reshape(len(features), -1))


# parameters are y, running statistics the model state, and the rest is constant
graph, parameters, statistics = nnx.split(Network(nnx.Rngs(0)), nnx.Param, nnx.BatchStat)


def losses(y, state, batch, training):
    network = nnx.merge(graph, y, state, copy=True)
    found = optax.softmax_cross_entropy_with_integer_labels(network(batch[0], training), batch[1])
    return found, nnx.state(network, nnx.BatchStat)


def inner(x, y, batch, state):  # every ∇_y g of a step puts the new state in place of the old one
    found, state = losses(y, state, batch, training=True)
    penalty = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return jnp.mean(jax.nn.sigmoid(x) * found) + 1e-3 / 2 * penalty, state


def outer(x, y, batch, state):
    return jnp.mean(losses(y, state, batch, training=False)[0])


problem = wior.Bilevel(outer, inner, tuple(clean), (train.features, labels), model_state=statistics)
method = wior.WiORBO(outer_lr=100.0, inner_lr=0.1, adjoint_lr=0.02, damping=1.0)
x0 = wior.PerExample(jnp.zeros(len(labels)))
result = wior.solve(problem, method, x0, parameters, batch_size=50, steps=600)
network = nnx.merge(graph, result.y, result.model_state)
accuracy = np.mean(np.argmax(network(jnp.asarray(test.features), training=False), axis=1) == test.labels)
weights = np.asarray(jax.nn.sigmoid(result.x.rows))
print(f"mean weight    {weights[~is_wrong].mean():.2f} of right labels, {weights[is_wrong].mean():.2f} of wrong ones")
print(f"test accuracy  {accuracy:.3f}")
