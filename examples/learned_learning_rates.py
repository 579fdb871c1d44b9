"""A learning rate for each group of parameters, learned while the model trains, by derivatives through its last steps.

A loss that is multiplied by exp(x) is descended exp(x) times as far. With one copy of the loss for each group, in which
the other groups are held fixed, every group has a learning rate of its own. The model is linear, on columns of very
different scales, where no single rate is good.

    python examples/learned_learning_rates.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import wior

GROUPS, COLUMNS, ROWS = 3, 5, 512
SCALES = (0.1, 1.0, 10.0)  # of the columns of each group


def data(seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(2 * ROWS, GROUPS, COLUMNS)) * np.array(SCALES)[:, None]
    slopes = rng.normal(size=(GROUPS, COLUMNS)) / np.array(SCALES)[:, None]
    targets = (features * slopes).sum((1, 2)) + 0.1 * rng.normal(size=2 * ROWS)
    rows = [np.float32(features), np.float32(targets)]
    return [one[:ROWS] for one in rows], [one[ROWS:] for one in rows]


def loss(y, rows):
    return jnp.mean((sum(rows[0][:, g] @ y[g] for g in range(GROUPS)) - rows[1]) ** 2) / 2


def outer(x, y, rows):
    return loss(y, rows)


def inner(x, y, rows):
    fixed = [jax.lax.stop_gradient(group) for group in y]
    alone = lambda g: [y[k] if k == g else fixed[k] for k in range(GROUPS)]
    return sum(jnp.exp(x[g]) * loss(alone(g), rows) for g in range(GROUPS))


training, validation = data()
problem = wior.Bilevel(outer, inner, validation, training, project_x=("box", -9.0, 4.0))
x0 = jnp.full(GROUPS, np.log(0.005, dtype=np.float32))  # a rate that the largest columns can bear
y0 = [jnp.zeros(COLUMNS) for _ in range(GROUPS)]
result, plain = (
    wior.solve(
        problem, wior.baselines.Reverse(outer_lr=rate, inner_lr=1.0, inner_steps=10), x0, y0, batch_size=64, steps=400
    )
    for rate in (optax.adam(0.05), 1e-9)
)
print("learned rates:", " ".join(f"{rate:.4f}" for rate in np.exp(result.x)))
print(f"validation loss with learned rates: {float(loss(result.y, validation)):.4f}")
print(f"validation loss with the first rate: {float(loss(plain.y, validation)):.4f}")
