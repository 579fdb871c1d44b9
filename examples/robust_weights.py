"""Distributionally robust training: each example has an adversary that weighs it, so that a rare digit is learned."""

import jax.numpy as jnp
import numpy as np
import optax

import wior
from wior.data import digits

RARE, KEPT, PRICE = 8, 8, 0.1
full, _, test = digits(seed=0, train=1000, clean=300)
left_out = np.flatnonzero(full.labels == RARE)[KEPT:]
train = tuple(np.delete(part, left_out, axis=0) for part in full)
is_rare = train[1] == RARE


def losses(x, batch):
    return optax.softmax_cross_entropy_with_integer_labels(batch[0] @ x, batch[1])


def objective(x, y, batch):  # an adversary pays for its weight: the best one is 1 + loss / PRICE
    weighted = jnp.mean(y * losses(x, batch) - PRICE / 2 * (y - 1) ** 2)
    return weighted + 0.01 * jnp.sum(x**2)


def recognized(x):
    right, rare = jnp.argmax(test.features @ x, axis=1) == test.labels, test.labels == RARE
    return f"{jnp.mean(right[rare]):.3f} of the rare digit, {jnp.mean(right[~rare]):.3f} of the others"


problem = wior.Minimax(objective, train, project_y="non_negative")
ones = wior.PerExample(jnp.ones(len(is_rare)))  # a row of y for each example: a step moves those of its batch

# a row meets its derivative divided by the 50 examples of a batch: this step goes half of the way
half_way = 0.5 * 50 / PRICE
for name, inner_lr in (("equal", lambda step: 0.0), ("robust", half_way)):
    method = wior.WiORMinimax(outer_lr=0.1, inner_lr=inner_lr)
    result = wior.solve(problem, method, jnp.zeros((64, 10)), ones, batch_size=50, epochs=40)
    print(f"{name:6} weights: right on {recognized(result.x)}")

weights, best = result.y.rows, 1 + losses(result.x, train) / PRICE
print(f"weight {jnp.mean(weights[is_rare]):.2f} of the rare digit, {jnp.mean(weights[~is_rare]):.2f} of the others")
print(f"away from 1 + loss / {PRICE} by {jnp.mean(jnp.abs(weights / best - 1)):.3f} of it")
