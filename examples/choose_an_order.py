"""Ridge regression with a penalty to choose for each feature, solved under every order of the examples."""

import jax
import jax.numpy as jnp
import numpy as np

import wior

ROWS, FEATURES = 400, 8
BATCH, EPOCHS, SEEDS = 10, 20, 5

random = np.random.default_rng(0)
truth = np.array([3.0, -2.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0])


def draw(rows):
    features = random.normal(size=(rows, FEATURES))
    targets = features @ truth + random.normal(size=rows)
    return features.astype(np.float32), targets.astype(np.float32)


train, held_out = draw(ROWS), draw(ROWS)


def squared_error(y, batch):
    features, targets = batch
    return jnp.mean((features @ y - targets) ** 2) / 2


def inner(x, y, batch):  # exp(x) are the penalties
    return squared_error(y, batch) + jnp.sum(jnp.exp(x) * y**2) / 2


def outer(x, y, batch):  # a useless feature would have its penalty grow for ever
    return squared_error(y, batch) + 0.05 * jnp.sum(x**2) / 2


def objective(x):  # the inner solution has a closed form here, so every order can be judged exactly
    features, targets = train
    y = jnp.linalg.solve(features.T @ features / ROWS + jnp.diag(jnp.exp(x)), features.T @ targets / ROWS)
    return outer(x, y, held_out)


gradient_norm = jax.jit(jax.vmap(lambda x: jnp.linalg.norm(jax.grad(objective)(x))))

problem = wior.Bilevel(outer, inner, outer_data=held_out, inner_data=train)
algorithm = wior.WiORBO(outer_lr=0.1, inner_lr=0.1, adjoint_lr=0.1)
settings = {"grid": {}, "seeds": SEEDS, "batch_size": BATCH, "epochs": EPOCHS}
print(f"gradient norm of the objective after {EPOCHS} epochs, mean ± standard deviation over {SEEDS} seeds")
for name, order in wior.orders.BY_NAME.items():
    result = wior.sweep(problem, algorithm, jnp.zeros(FEATURES), jnp.zeros(FEATURES), order=order, **settings)
    norms = np.asarray(gradient_norm(result.x[0]))
    print(f"{name:<20} {norms.mean():.4f} ± {norms.std(ddof=1):.4f}")
