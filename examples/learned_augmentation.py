"""Learns how far to shift and how much to blur the training digits, by the loss on digits that were photographed so."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import wior
from wior.data import digits

train, validation, test = digits(seed=0, train=300, clean=600)


def shifted(images, across, down):
    """Images (n, 8, 8), each moved by its own number of pixels, with values between pixels interpolated."""
    place = jnp.arange(8.0)
    along = lambda by: jax.nn.relu(1 - jnp.abs(place[:, None] - place[None, :] - by[:, None, None]))
    return along(down) @ images @ jnp.swapaxes(along(across), 1, 2)


def moved(features, scale, key):
    across, down = scale * jax.random.normal(key, (2, len(features)))
    return shifted(features.reshape(-1, 8, 8), across, down).reshape(features.shape)


# what the network will meet: digits that are not centered
validation, test = (
    (moved(jnp.asarray(rows.features), 1.0, jax.random.key(seed)), rows.labels)
    for seed, rows in enumerate((validation, test))
)


def loss(y, features, labels):
    logits = jax.nn.tanh(features @ y["hidden"]) @ y["out"]
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def inner(x, y, batch, key):  # `key`: new shifts for each batch, the same ones in all derivatives of it
    features, labels = batch
    penalty = jnp.sum(y["hidden"] ** 2) + jnp.sum(y["out"] ** 2)
    return loss(y, moved(features, jnp.exp(x), key), labels) + 1e-3 * penalty


def outer(x, y, batch):
    return loss(y, *batch)


keys = jax.random.split(jax.random.key(5))
y0 = {"hidden": jax.random.normal(keys[0], (64, 64)) / 8, "out": jax.random.normal(keys[1], (64, 10)) / 8}
problem = wior.Bilevel(outer, inner, validation, tuple(train))
method = wior.WiORBO(outer_lr=0.3, inner_lr=0.2, adjoint_lr=0.05, damping=0.5)
metrics = lambda x, y: {"validation_loss": outer(x, y, problem.outer_data)}
result = wior.solve(problem, method, jnp.log(0.1), y0, batch_size=50, steps=1500, metrics=metrics)

right = np.argmax(jax.nn.tanh(test[0] @ result.y["hidden"]) @ result.y["out"], axis=1) == test[1]
history = result.history["validation_loss"]
print(f"shift            0.10 -> {np.exp(result.x):.2f} pixels; the digits to recognize are shifted by 1.00")
print(f"validation loss  {history[0]:.3f} -> {history[-1]:.3f}")
print(f"test accuracy    {np.mean(right):.3f}")
