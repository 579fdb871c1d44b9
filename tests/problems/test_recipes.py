"""What docs/models.md says of the libraries of networks: equinox, flax.nnx and flax.linen, with batch norm and dropout."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import wior

FEATURES = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32) + 2
TARGETS = FEATURES[:, 0] ** 2
ROWS = (FEATURES, TARGETS)
METHOD = wior.WiORBO(0.1, 0.05, 0.05, damping=1.0)


def squares(tree):
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


class Equinox(eqx.Module):
    norm: eqx.nn.BatchNorm
    hidden: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="batch", dtype=jnp.float32)
        self.hidden = eqx.nn.Linear(3, 8, key=one, dtype=jnp.float32)
        self.dropout = eqx.nn.Dropout(0.2)
        self.out = eqx.nn.Linear(8, "scalar", key=two, dtype=jnp.float32)

    def __call__(self, features, state, key=None):
        seen, state = self.norm(features, state, inference=key is None)
        hidden = self.dropout(jnp.tanh(self.hidden(seen)), key=key, inference=key is None)
        return self.out(hidden), state


def with_equinox():
    model, state = eqx.nn.make_with_state(Equinox)(jax.random.key(0))

    def applied(y, features, state, keys):
        apply = jax.vmap(y, in_axes=(0, None, None if keys is None else 0), out_axes=(0, None), axis_name="batch")
        return apply(features, state, keys)

    def inner(x, y, batch, key, state):
        found, state = applied(y, batch[0], state, jax.random.split(key, len(batch[1])))
        return jnp.mean((found - batch[1]) ** 2) + jnp.exp(x) * squares(y), state

    def outer(x, y, batch, state):
        return jnp.mean((applied(y, batch[0], state, None)[0] - batch[1]) ** 2)

    return outer, inner, model, state


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(3, rngs=rngs, momentum=0.9)
        self.hidden = nnx.Linear(3, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.2)
        self.out = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, features, key=None):
        hidden = jnp.tanh(self.hidden(self.norm(features, use_running_average=key is None)))
        return self.out(self.dropout(hidden, deterministic=key is None, rngs=key))[:, 0]


def with_nnx():
    graph, parameters, statistics = nnx.split(Nnx(nnx.Rngs(0)), nnx.Param, nnx.BatchStat)

    def inner(x, y, batch, key, state):
        model = nnx.merge(graph, y, state, copy=True)
        loss = jnp.mean((model(batch[0], key) - batch[1]) ** 2) + jnp.exp(x) * squares(y)
        return loss, nnx.state(model, nnx.BatchStat)

    def outer(x, y, batch, state):
        return jnp.mean((nnx.merge(graph, y, state, copy=True)(batch[0]) - batch[1]) ** 2)

    return outer, inner, parameters, statistics


class Linen(linen.Module):
    @linen.compact
    def __call__(self, features, training):
        seen = linen.BatchNorm(use_running_average=not training, momentum=0.9)(features)
        hidden = linen.Dropout(0.2, deterministic=not training)(jnp.tanh(linen.Dense(8)(seen)))
        return linen.Dense(1)(hidden)[:, 0]


def with_linen():
    model = Linen()
    variables = model.init(jax.random.key(0), FEATURES, training=False)

    def inner(x, y, batch, key, state):
        found, changed = model.apply(
            {"params": y, "batch_stats": state}, batch[0], training=True, rngs={"dropout": key}, mutable=["batch_stats"]
        )
        return jnp.mean((found - batch[1]) ** 2) + jnp.exp(x) * squares(y), changed["batch_stats"]

    def outer(x, y, batch, state):
        found = model.apply({"params": y, "batch_stats": state}, batch[0], training=False)
        return jnp.mean((found - batch[1]) ** 2)

    return outer, inner, variables["params"], variables["batch_stats"]


@pytest.mark.parametrize("recipe", [with_equinox, with_nnx, with_linen], ids=lambda recipe: recipe.__name__)
def test_batch_norm_and_dropout(recipe):
    outer, inner, y0, state = recipe()
    problem = wior.Bilevel(outer, inner, ROWS, ROWS, model_state=state)
    metrics = lambda x, y, model_state: {"loss": outer(x, y, ROWS, model_state)}
    run = lambda **more: wior.solve(
        problem, METHOD, jnp.float32(-6), y0, batch_size=8, steps=300, metrics=metrics, **more
    )
    result = run()
    assert result.history["loss"][-1] < 0.3 * result.history["loss"][0]
    # the running mean of the features, whose name and place each library has for itself
    means = [leaf for leaf in jax.tree.leaves(result.model_state) if leaf.shape == (3,)]
    assert any(np.allclose(leaf, FEATURES.mean(0), atol=0.5) for leaf in means)
    np.testing.assert_array_equal(run(seed=0).x, result.x)
    assert run(seed=1).x != result.x
