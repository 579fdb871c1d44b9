"""The workloads of the benchmarks: the same single-loop step on problems of growing size."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import wior


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    problem: Any
    x0: Any
    y0: Any
    batch: Any


def logistic(batch: int = 64) -> Workload:
    """Logistic regression, 22 features, one ridge for each: the size of ijcnn1."""
    rng = np.random.default_rng(0)

    def rows(n: int) -> tuple[Any, Any]:
        return rng.normal(size=(n, 22)).astype(np.float32), rng.choice([-1.0, 1.0], n).astype(np.float32)

    def outer(x: Any, y: Any, batch: Any) -> Any:
        features, labels = batch
        return jnp.mean(jax.nn.softplus(-labels * (features @ y)))

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return outer(x, y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y * y)

    problem = wior.Bilevel(outer, inner, rows(14_990), rows(35_000))
    return Workload(f"logistic, 22 features, batch {batch}", problem, jnp.zeros(22), jnp.zeros(22), batch)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]


def image_rows(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.random((n, 784), np.float32), rng.integers(0, 10, n).astype(np.int32)


def linear_softmax(batch: int) -> Workload:
    """Softmax regression on 784 features, one ridge for each class."""

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(cross_entropy(batch[0] @ y, batch[1]))

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return outer(x, y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y * y)

    problem = wior.Bilevel(outer, inner, image_rows(5_000, 1), image_rows(40_000, 2))
    return Workload(f"linear softmax 784×10, batch {batch}", problem, jnp.full(10, -5.0), jnp.zeros((784, 10)), batch)


def mlp(batch: int = 256) -> Workload:
    """A network 784-300-100-10, one ridge for each layer."""
    sizes = (784, 300, 100, 10)
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = list(itertools.pairwise(sizes))
    y0 = [(jax.random.normal(k, s) * (2 / s[0]) ** 0.5, jnp.zeros(s[1])) for k, s in zip(keys, shapes, strict=True)]

    def outer(x: Any, y: Any, batch: Any) -> Any:
        hidden = batch[0]
        for weights, bias in y[:-1]:
            hidden = jax.nn.relu(hidden @ weights + bias)
        return jnp.mean(cross_entropy(hidden @ y[-1][0] + y[-1][1], batch[1]))

    def inner(x: Any, y: Any, batch: Any) -> Any:
        ridge = sum(jnp.exp(x[i]) * (jnp.sum(w * w) + jnp.sum(b * b)) for i, (w, b) in enumerate(y))
        return outer(x, y, batch) + 0.5 * ridge

    problem = wior.Bilevel(outer, inner, image_rows(5_000, 1), image_rows(40_000, 2))
    return Workload(f"MLP 784-300-100-10, batch {batch}", problem, jnp.full(3, -7.0), y0, batch)


def cleaning(n: int, batch: int = 64) -> Workload:
    """Cleaning: one weight for each of n rows, of which only 16 features so that 4·10⁷ rows fit."""
    rng = np.random.default_rng(3)
    inner_rows = (rng.random((n, 16), np.float32), rng.integers(0, 10, n, dtype=np.int32))
    outer_rows = (rng.random((5_000, 16), np.float32), rng.integers(0, 10, 5_000, dtype=np.int32))

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(cross_entropy(batch[0] @ y, batch[1]))

    def inner(x: Any, y: Any, batch: Any) -> Any:
        losses = cross_entropy(batch[0] @ y, batch[1])
        return jnp.mean(jax.nn.sigmoid(x) * losses) + 5e-4 * jnp.sum(y * y)

    problem = wior.Bilevel(outer, inner, outer_rows, inner_rows)
    return Workload(f"cleaning, n = {n:.0e}", problem, wior.PerExample(jnp.zeros(n)), jnp.zeros((16, 10)), batch)


# The other classes of problems, on softmax regressions of the same size.


def conditional_softmax(tasks: int = 1_000, inner_rows: int = 32) -> Workload:
    """A softmax regression for each task, one ridge for each class shared by all; 8 tasks and 8 inner rows a batch."""
    outer, inner = linear_softmax(1).problem.outer, linear_softmax(1).problem.inner
    sets = jax.tree.map(lambda a: a.reshape(tasks, inner_rows, *a.shape[1:]), image_rows(tasks * inner_rows, 4))
    problem = wior.ConditionalBilevel(outer, inner, image_rows(tasks, 5), sets)
    name = f"a softmax 784×10 for each of {tasks} tasks, batch 8 × 8"
    return Workload(name, problem, jnp.full(10, -1.0), jnp.zeros((784, 10)), (8, 8))


def compositional_softmax(batch: int) -> Workload:
    """The cross entropy of softmax regression plus the square of the mean logits, an expectation inside a function."""
    problem = wior.Compositional(_of_mean_logits, _mean_logits, image_rows(5_000, 1), image_rows(40_000, 2))
    return Workload(f"compositional softmax 784×10, batch {batch}", problem, jnp.zeros((784, 10)), jnp.zeros(10), batch)


def conditional_compositional_softmax(tasks: int = 1_000, inner_rows: int = 32) -> Workload:
    sets = jax.tree.map(lambda a: a.reshape(tasks, inner_rows, *a.shape[1:]), image_rows(tasks * inner_rows, 4))
    problem = wior.ConditionalCompositional(_of_mean_logits, _mean_logits, image_rows(tasks, 5), sets)
    name = f"mean logits 784×10 of each of {tasks} tasks, batch 8 × 8"
    return Workload(name, problem, jnp.zeros((784, 10)), jnp.zeros(10), (8, 8))


def minimax_softmax(batch: int) -> Workload:
    """Softmax regression against the worst weights of the classes."""

    def objective(x: Any, y: Any, batch: Any) -> Any:
        losses = cross_entropy(batch[0] @ x, batch[1])
        return jnp.mean((1 + y[batch[1]]) * losses) - 0.5 * jnp.sum(y * y) + 5e-4 * jnp.sum(x * x)

    problem = wior.Minimax(objective, image_rows(40_000, 2))
    return Workload(f"minimax softmax 784×10, batch {batch}", problem, jnp.zeros((784, 10)), jnp.zeros(10), batch)


def _mean_logits(x: Any, batch: Any) -> Any:
    return jnp.mean(batch[0] @ x, 0)


def _of_mean_logits(y: Any, batch: Any) -> Any:
    return jnp.mean(cross_entropy(jnp.broadcast_to(y, (len(batch[1]), 10)), batch[1])) + 0.5 * jnp.sum(y * y)
