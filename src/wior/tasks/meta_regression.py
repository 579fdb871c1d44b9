"""Learning to learn sine waves: one step of gradient descent on a few points of a new wave should fit the rest of it.

    min over x of  mean over tasks i of ℓ(x − α ∇ℓ(x; support set of i); query set of i)

with ℓ the mean squared error of a network. The step from x on one point is the inner map r(x; ζ) = x − α ∇ℓ(x; ζ),
whose mean over the support set is the step on the whole of it, so this is a composition with an inner data set for each
task. A task is a wave A sin(z − φ) with A in [0.1, 5], φ in [0, π] and z in [−5, 5]; the network is given z / 5.

Finn, Abbeel, Levine, "Model-agnostic meta-learning", ICML 2017; as conditional stochastic optimization: Hu, Zhang,
Chen, He, "Biased stochastic first-order methods for conditional stochastic optimization", NeurIPS 2020.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks, tree
from wior.problems import ConditionalCompositional
from wior.tasks.networks import mlp, mlp_init
from wior.tasks.task import Measure, Task

Tree = Any
Points = tuple[Any, Any]  # inputs (..., 1) and values (..., 1)


class SineWaves(NamedTuple):
    """Tasks: some points of each wave to learn from, and others to be judged by."""

    support: Points  # (tasks, n, 1) each
    query: Points  # (tasks, queries, 1) each


def meta_regression(
    m: int = 1000,
    n: int = 10,
    queries: int = 10,
    *,
    held_out: int = 200,
    widths: Sequence[int] = (40, 40),
    step_size: float = 0.01,
    batch_size: int | tuple[int, int] = (10, 2),
    steps: int = 10_000,
    seed: int = 0,
) -> Task:
    """The task of learning where a network starts, so that one step fits a sine wave.

    Its metrics are `query_loss` on the test waves after one step on their whole support sets; `valid_loss`, the same on
    the validation waves, by which step sizes are chosen; and `loss` on the training waves, the objective h(x).

    Parameters
    ----------
    m : int, default 1000
        The training waves.
    n, queries : int
        The points of a wave to learn from, and those to judge by.
    held_out : int, default 200
        The waves for validation, and as many for the test.
    widths : sequence of int, default (40, 40)
        The hidden layers of the network.
    step_size : float, default 0.01
        α, the length of the one step.
    batch_size : int or (int, int), default (10, 2)
        The rows of a batch, or a pair (outer, inner), for a run of the task.
    steps : int, default 10000
        The steps of a run of the task.
    seed : int, default 0
        Draws the waves and the network.

    Returns
    -------
    Task
        The problem, where to start, metrics and defaults for a run.
    """
    checks.positive_number("step_size", step_size)
    random = np.random.default_rng(seed)
    train, valid, test = (sine_waves(random, count, n, queries) for count in (m, held_out, held_out))
    sizes = (1, *widths, 1)
    first, *others = mlp_init(jax.random.key(seed), sizes, jnp.result_type(float))
    # without biases every rectifier of the first layer would bend at the same input, 0
    x0 = (first._replace(bias=jnp.asarray(random.uniform(-1, 1, widths[0]), float)), *others)
    step = Adapted(step_size)

    waves = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), test, valid, train)

    def metrics(x: Tree, y: Tree) -> dict[str, jax.Array]:
        # all waves at once: three calls would be compiled three times
        losses = jax.vmap(lambda wave: squared_error(step(x, wave.support), wave.query))(waves)
        parts = jnp.split(losses, [held_out, 2 * held_out])
        return dict(zip(("query_loss", "valid_loss", "loss"), map(jnp.mean, parts), strict=True))

    return Task(
        name="meta_regression",
        title=f"One gradient step to a new sine wave: {m} waves, {n} points to learn each from",
        problem=ConditionalCompositional(squared_error, step, train.query, train.support),
        x0=x0,
        y0=x0,
        metrics=metrics,
        measures={
            "query_loss": Measure("loss after one step, test waves", log=True),
            "valid_loss": Measure("loss after one step, validation waves", log=True),
            "loss": Measure("loss after one step, training waves", log=True),
        },
        judged_by="valid_loss",
        batch_size=batch_size,
        steps=steps,
        grid={"outer_lr": (0.003, 0.01, 0.03), "inner_lr": (0.5, 0.9)},
        facts={
            "m": m,
            "n": n,
            "queries": queries,
            "held_out": held_out,
            "widths": tuple(widths),
            "step_size": step_size,
            "seed": seed,
        },
    )


def squared_error(y: Tree, points: Points) -> jax.Array:
    """ℓ, and f: mean squared error of the network y on points."""
    inputs, values = points
    return jnp.mean((mlp(y, inputs) - values) ** 2)


@dataclasses.dataclass(frozen=True)
class Adapted:
    """r: the network after one step of gradient descent on the points."""

    step_size: float  # α

    def __call__(self, x: Tree, points: Points) -> Tree:
        return tree.axpy(-self.step_size, jax.grad(squared_error)(x, points), x)


def sine_waves(random: np.random.Generator, tasks: int, n: int, queries: int) -> SineWaves:
    """Waves of random heights and phases, n and `queries` points of each."""
    for name, size in (("tasks", tasks), ("n", n), ("queries", queries)):
        checks.positive_integer(name, size)
    height, phase = random.uniform(0.1, 5, (tasks, 1, 1)), random.uniform(0, np.pi, (tasks, 1, 1))
    inputs = random.uniform(-5, 5, (tasks, n + queries, 1))
    dtype = jnp.result_type(float)
    points = (inputs / 5).astype(dtype), (height * np.sin(inputs - phase)).astype(dtype)
    support, query = (tuple(part[:, which] for part in points) for which in (slice(n), slice(n, None)))
    return SineWaves(support, query)  # type: ignore[arg-type]
