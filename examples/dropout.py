"""Tunes the penalty of each layer of a dropout network in equinox; the module itself is y."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import wior
from wior.data import digits

train, validation, test = digits(seed=0, train=1000, clean=300)


class Network(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.first, self.second = eqx.nn.Linear(64, 64, key=one), eqx.nn.Linear(64, 10, key=two)
        self.dropout = eqx.nn.Dropout(0.3)

    def __call__(self, features, key=None):
        hidden = jax.nn.relu(self.first(features))
        return self.second(self.dropout(hidden, key=key, inference=key is None))


def cross_entropy(logits, labels):
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def inner(x, y, batch, key):  # `key` is another one in every batch, and the same for all derivatives of a batch
    features, labels = batch
    logits = jax.vmap(y)(features, jax.random.split(key, len(labels)))
    penalties = jnp.exp(x) * jnp.stack([jnp.sum(layer.weight**2) for layer in (y.first, y.second)])
    return cross_entropy(logits, labels) + jnp.sum(penalties)


def outer(x, y, batch):
    return cross_entropy(jax.vmap(y)(batch[0]), batch[1])


problem = wior.Bilevel(outer, inner, outer_data=tuple(validation), inner_data=tuple(train))
result = wior.solve(
    problem,
    wior.WiORBO(outer_lr=10.0, inner_lr=0.1, adjoint_lr=0.05, damping=1.0),
    x0=jnp.full(2, -6.0),
    y0=Network(jax.random.key(0)),
    batch_size=50,
    steps=1500,
    metrics=lambda x, y: {"validation_loss": outer(x, y, problem.outer_data)},
)
right = jnp.argmax(jax.vmap(result.y)(test.features), axis=1) == test.labels
loss = result.history["validation_loss"]
print(f"validation loss  {loss[0]:.3f} -> {loss[-1]:.3f}")
print(f"log penalties    {np.round(result.x, 2)}")
print(f"test accuracy    {np.mean(right):.3f}")
