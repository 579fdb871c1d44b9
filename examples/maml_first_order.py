"""Meta-learning from gradients alone: one start for many regressions, by a method without second derivatives.

Every task is a sine wave of its own height and shift. x is a start, y the parameters of all tasks, each drawn to x by
a penalty (implicit MAML): where the losses of held-out points are least, x is a start from which few steps help.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import wior

TASKS, SHOTS, HIDDEN, PULL = 64, 10, 32, 0.1


def waves(seed, tasks=TASKS):
    """For every point of every task a row (task, input, target); the first half of a task is for learning."""
    rng = np.random.default_rng(seed)
    height, shift = rng.uniform(0.5, 2.0, (tasks, 1)), rng.uniform(0, 1.0, (tasks, 1))
    inputs = rng.uniform(-3, 3, (tasks, 2 * SHOTS))
    task = np.broadcast_to(np.arange(tasks)[:, None], inputs.shape)
    rows = [np.float32(one) for one in (inputs, height * np.sin(inputs + shift))]
    half = lambda part: tuple(one[:, part].ravel() for one in (task, *rows))
    return half(slice(SHOTS)), half(slice(SHOTS, None))


def init(key):
    first, second = (jax.random.normal(k, (HIDDEN,)) for k in jax.random.split(key))
    return {"in": first, "bias": jnp.linspace(-2, 2, HIDDEN), "out": second / HIDDEN**0.5}


def errors(y, rows):
    own = jax.tree.map(lambda leaf: leaf[rows[0]], y)  # the parameters of each row's task
    hidden = jnp.tanh(rows[1][:, None] * own["in"] + own["bias"])
    return ((hidden * own["out"]).sum(1) - rows[2]) ** 2


def outer(x, y, rows):
    return jnp.mean(errors(y, rows))


def inner(x, y, rows):
    away = jax.tree.map(lambda one, start: jnp.sum((one - start) ** 2), y, x)
    return jnp.mean(errors(y, rows)) + PULL / TASKS * sum(jax.tree.leaves(away))


start = init(jax.random.key(0))
learning, held_out = waves(1)
every = lambda x: jax.tree.map(lambda leaf: jnp.tile(leaf, (TASKS, *(1,) * leaf.ndim)), x)
problem = wior.Bilevel(outer, inner, held_out, learning)
method = wior.baselines.MEHA(outer_lr=optax.adam(3e-3), inner_lr=0.3, penalized_lr=0.3)
result = wior.solve(problem, method, start, every(start), batch_size=320, epochs=1500)
new_learning, new_held_out = waves(2)
for name, x in (("random start", start), ("learned start", result.x)):
    y = every(x)
    for _ in range(20):  # few steps on tasks that are new
        y = jax.tree.map(lambda v, g: v - 0.5 * g, y, jax.grad(inner, 1)(x, y, new_learning))
    print(f"{name}: error on held-out points of new tasks {float(outer(x, y, new_held_out)):.3f}")
