"""How much of each source to learn from: weights on a simplex, moved by Adam, beside a strength of regularization.

Four sources of examples of one regression; two are good, one has noisy targets, one has wrong ones. x holds a weight
for each source, which sum to one, and the logarithm of a strength; both are chosen by the error on trusted examples.

    python examples/mixture_on_a_simplex.py
"""

import jax.numpy as jnp
import numpy as np
import optax

import wior

SOURCES, ROWS, COLUMNS = 4, 200, 10


def data(seed=0):
    """Rows (features, target, source) of all sources, and trusted rows."""
    rng = np.random.default_rng(seed)
    slope = rng.normal(size=COLUMNS)
    features = rng.normal(size=(SOURCES, ROWS, COLUMNS))
    targets = features @ slope
    targets[2] += 3 * rng.normal(size=ROWS)
    targets[3] *= -1
    source = np.repeat(np.arange(SOURCES), ROWS)
    trusted = rng.normal(size=(100, COLUMNS))
    noise = 0.1 * rng.normal(size=100)
    return (features.reshape(-1, COLUMNS), targets.ravel(), source), (trusted, trusted @ slope + noise)


def outer(x, y, rows):
    return jnp.mean((rows[0] @ y - rows[1]) ** 2)


def inner(x, y, rows):
    weights = SOURCES * x["sources"][rows[2]]
    return jnp.mean(weights * (rows[0] @ y - rows[1]) ** 2) + jnp.exp(x["strength"]) * jnp.sum(y**2)


def main(epochs=60):
    training, trusted = data()
    project = lambda x: {**x, "sources": optax.projections.projection_simplex(x["sources"])}
    problem = wior.Bilevel(outer, inner, trusted, training, project_x=project)
    method = wior.WiORBO(outer_lr=optax.adam(0.01), inner_lr=0.02, adjoint_lr=0.02)
    x0 = {"sources": jnp.full(SOURCES, 1 / SOURCES), "strength": jnp.array(-2.0)}
    result = wior.solve(
        problem, method, x0, jnp.zeros(COLUMNS), batch_size=(20, 40), epochs=epochs,
        metrics=lambda x, y: {"error": outer(x, y, trusted)},
    )  # fmt: skip
    print("weights of the sources: ", np.round(result.x["sources"], 2))
    print(f"strength: {float(jnp.exp(result.x['strength'])):.3f}")
    print(f"error on trusted rows: {result.history['error'][0]:.2f} -> {result.history['error'][-1]:.3f}")
    return result


if __name__ == "__main__":
    main()
