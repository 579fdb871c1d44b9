"""What `test_models_on_devices.py` asks of four virtual devices, in a process of its own since jax counts them once.

Prints the largest difference from the run on one device, for each case, as a JSON object.
"""

import json
import os

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np

import wior

ROWS = np.random.default_rng(0).normal(size=(32, 3))
SETS = np.random.default_rng(1).normal(size=(32, 5, 3))
METHOD = wior.WiORBO(1.0, 0.1, 0.1, damping=0.2)


def outer(x, y, batch, state):
    return jnp.mean(((batch - state) @ y - 1) ** 2)


def inner(x, y, batch, key, state):
    mean, kept = batch.mean(0), batch * jax.random.bernoulli(key, 0.5, batch.shape)
    loss = jnp.mean(jax.nn.sigmoid(x) * ((kept - mean) @ y - 1) ** 2) + jnp.sum(y**2)
    return loss, 0.9 * state + 0.1 * mean


def dropout(x, y, batch, key):
    return jnp.mean((batch * jax.random.bernoulli(key, 0.5, batch.shape) @ y - x) ** 2) + y @ y


def error(x, y, batch):
    return jnp.mean((batch @ y["w"] - 1) ** 2)


def linked(x, y, batch):
    return jnp.mean((y["link"](batch @ y["w"]) - x) ** 2) + y["w"] @ y["w"]


def posed(data):
    return wior.Bilevel(outer, inner, data, data, model_state=jnp.zeros(3))


def cases(mesh):
    """By name: a problem, a method, x0, y0 and settings, and those of the run on many devices beside them."""
    rows, y0 = wior.PerExample(jnp.zeros(32)), jnp.ones(3)
    layout = wior.Layout(mesh, rows="batch", data="batch")
    plain = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    conditional = wior.ConditionalBilevel(plain, dropout, ROWS, SETS)
    module = {"w": jnp.ones(3), "link": jnp.tanh, "places": jnp.arange(3)}
    return {
        "key and state": (posed(ROWS), METHOD, rows, y0, {}, mesh),
        "rows and data split": (posed(ROWS), METHOD, rows, y0, {}, layout),
        "fixed batches": (posed(ROWS), wior.baselines.SABA(1.0, 0.1, 0.1), rows, y0, {}, mesh),
        "micro batches": (posed(ROWS), METHOD, rows, y0, {"micro_batch": 4}, mesh),
        "streamed": (posed(wior.Streamed(ROWS)), METHOD, rows, y0, {}, mesh),
        "conditional": (conditional, wior.WiORCBO(0.1, 0.1, 0.1), jnp.ones(()), y0, {}, mesh),
        "module": (wior.Bilevel(error, linked, ROWS, ROWS), METHOD, jnp.ones(()), module, {}, mesh),
    }


def difference(problem, method, x0, y0, settings, mesh):
    runs = [wior.solve(problem, method, x0, y0, batch_size=8, steps=7, **settings, mesh=one) for one in (None, mesh)]
    kept = [jax.tree.leaves((run.state.x, run.state.y, run.model_state)) for run in runs]
    return max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(*kept, strict=True))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    devices = jax.sharding.Mesh(jax.devices(), ("batch",))
    print(json.dumps({name: difference(*case) for name, case in cases(devices).items()}))
