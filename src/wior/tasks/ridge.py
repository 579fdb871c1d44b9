"""Choosing ridges by a validation set: one for each feature, or one for each class.

    min over x of  mean over validation rows of CE(y_x; row)
    where y_x minimizes  mean over training rows of CE(y; row) + ½ Σ_k exp(x_k) ‖y_k‖²

x has the logarithm of a ridge for each k; y_k is the weight of feature k, or the weights (inputs,) of class k.

Pedregosa, "Hyperparameter optimization with approximate gradient", ICML 2016; the two benchmarks, on ijcnn1 and on
covtype, are those of Dagréou, Ablin, Vaiter, Moreau, "A framework for bilevel optimization that enables stochastic and
global variance reduction algorithms", NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wior.problems import Bilevel
from wior.tasks.task import Measure, Task, state_type

Labeled = tuple[Any, Any]  # features (n, inputs) and integer labels (n,)
Parts = dict[str, Labeled]


def ridge_per_feature(
    train: Labeled,
    valid: Labeled,
    test: Labeled,
    *,
    start: float = -3.0,
    batch_size: int | tuple[int, int] = 64,
    steps: int = 5000,
) -> Task:
    """The task of choosing a ridge for each feature of a logistic regression.

    Its metrics are `test_loss` and `accuracy`, the mean cross entropy on the test rows and the share of them that y
    classifies correctly; and `valid_loss`, the outer objective at the current y. `exact_objective` gives h(x), with the
    inner problem solved.

    Parameters
    ----------
    train, valid, test : pair of arrays
        Features (n, inputs) and labels (n,) in {0, 1}.
    start : float, default -3.0
        The logarithm of every ridge at the start.
    batch_size : int or (int, int), default 64
        The rows of a batch, or a pair (outer, inner), for a run of the task.
    steps : int, default 5000
        The steps of a run of the task.

    Returns
    -------
    Task
        The problem, where to start, metrics and defaults for a run.
    """
    features = _features(_checked(train, valid, test, 2))
    return _task(
        Bilevel(binary_outer, binary_inner, tuple(valid), tuple(train)),
        (train, valid, test),
        (binary_loss, lambda y, rows: rows @ y > 0),
        name="ridge_per_feature",
        title=f"A ridge for each of {features} features of a logistic regression",
        x0=jnp.full(features, start, state_type(train[0])),
        y0=jnp.zeros(features, state_type(train[0])),
        grid={"outer_lr": (0.1, 0.3, 1.0, 3.0), "inner_lr": (1.0, 3.0)},
        batch_size=batch_size,
        steps=steps,
    )


def ridge_per_class(
    train: Labeled,
    valid: Labeled,
    test: Labeled,
    classes: int,
    *,
    start: float = -3.0,
    batch_size: int | tuple[int, int] = 256,
    steps: int = 5000,
) -> Task:
    """The task of choosing a ridge for each class of a softmax regression, with the metrics of `ridge_per_feature`.

    Parameters
    ----------
    train, valid, test : pair of arrays
        Features (n, inputs) and integer labels (n,) from 0 to classes − 1.
    classes : int
        The number of classes.
    start : float, default -3.0
        The logarithm of every ridge at the start.
    batch_size : int or (int, int), default 256
        The rows of a batch, or a pair (outer, inner), for a run of the task.
    steps : int, default 5000
        The steps of a run of the task.

    Returns
    -------
    Task
        The problem, where to start, metrics and defaults for a run.
    """
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes!r}")
    features = _features(_checked(train, valid, test, classes))
    return _task(
        Bilevel(softmax_outer, softmax_inner, tuple(valid), tuple(train)),
        (train, valid, test),
        (softmax_loss, lambda y, rows: jnp.argmax(rows @ y, -1)),
        name="ridge_per_class",
        title=f"A ridge for each of {classes} classes of a softmax regression",
        x0=jnp.full(classes, start, state_type(train[0])),
        y0=jnp.zeros((features, classes), state_type(train[0])),
        grid={"outer_lr": (0.1, 1.0, 3.0), "inner_lr": (0.1, 0.3)},
        batch_size=batch_size,
        steps=steps,
    )


def exact_objective(problem: Bilevel, x: jax.Array) -> jax.Array:
    """h(x) of the problem of `ridge_per_feature` on all data.

    The inner problem is solved by ten Newton steps with the (features, features) Hessian. h is differentiated through
    the last step only, which is exact at the inner solution.
    """

    def newton(x: jax.Array, y: jax.Array) -> jax.Array:
        inner = lambda y: problem.inner(x, y, problem.inner_data)
        return y - jnp.linalg.solve(jax.hessian(inner)(y), jax.grad(inner)(y))

    fixed = lax.stop_gradient(x)
    y = lax.fori_loop(0, 9, lambda _, y: newton(fixed, y), jnp.zeros_like(fixed))
    return problem.outer(x, newton(x, y), problem.outer_data)


def minimum(objective: Callable[[jax.Array], tuple[Any, jax.Array]], x: jax.Array, steps: int = 400) -> float:
    """The smallest value that gradient descent with Barzilai–Borwein step sizes finds.

    `objective(x)` returns value and gradient.
    """
    value, gradient = objective(x)
    best, length = float(value), 1.0
    for _ in range(steps):
        moved = x - length * gradient
        value, after = objective(moved)
        step, change = moved - x, after - gradient
        curvature = float(jnp.abs(step @ change))
        length = min(float(step @ step) / curvature, 1e3) if curvature > 0 else 1.0
        x, gradient, best = moved, after, min(best, float(value))
    return best


def binary_loss(y: jax.Array, batch: Labeled) -> jax.Array:
    """Mean cross entropy of σ(row·y)."""
    score = batch[0] @ y
    return jnp.mean(jax.nn.softplus(score) - batch[1] * score)


def binary_outer(x: jax.Array, y: jax.Array, batch: Labeled) -> jax.Array:
    """f on validation rows."""
    return binary_loss(y, batch)


def binary_inner(x: jax.Array, y: jax.Array, batch: Labeled) -> jax.Array:
    """g on training rows, with the ridges."""
    return binary_loss(y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y * y)


def softmax_loss(y: jax.Array, batch: Labeled) -> jax.Array:
    """Mean cross entropy of softmax(row·y)."""
    logits = jax.nn.log_softmax(batch[0] @ y)
    return -jnp.mean(jnp.take_along_axis(logits, batch[1][:, None], -1))


def softmax_outer(x: jax.Array, y: jax.Array, batch: Labeled) -> jax.Array:
    """f on validation rows."""
    return softmax_loss(y, batch)


def softmax_inner(x: jax.Array, y: jax.Array, batch: Labeled) -> jax.Array:
    """g on training rows, with the ridges."""
    return softmax_loss(y, batch) + 0.5 * jnp.sum(jnp.exp(x) * jnp.sum(y * y, 0))


def _task(
    problem: Bilevel,
    parts: tuple[Labeled, Labeled, Labeled],
    judge: tuple[Callable[..., jax.Array], Callable[..., jax.Array]],
    **more: Any,
) -> Task:
    """A task judged on the validation rows of `parts`, (train, valid, test); `judge` is the loss and what predicts,
    `more` are fields of `Task`.
    """
    loss, predict = judge
    test = tuple(map(jnp.asarray, parts[2]))

    def metrics(x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
        return {
            "test_loss": loss(y, test),
            "accuracy": jnp.mean(predict(y, test[0]) == test[1], dtype=y.dtype),
            "valid_loss": loss(y, problem.outer_data),
        }

    return Task(
        problem=problem,
        metrics=metrics,
        measures={
            "test_loss": Measure("loss on the test rows"),
            "accuracy": Measure("accuracy on the test rows", largest=True),
            "valid_loss": Measure("loss on the validation rows"),
        },
        judged_by="valid_loss",
        facts={
            **dict(zip(("train", "valid", "test"), (len(labels) for _, labels in parts), strict=True)),
            "features": np.shape(parts[0][0])[1],
        },
        **more,
    )


def _checked(train: Labeled, valid: Labeled, test: Labeled, classes: int) -> Labeled:
    features = np.shape(train[0])[-1]
    for name, (rows, labels) in (("train", train), ("valid", valid), ("test", test)):
        if np.ndim(rows) != 2 or np.shape(rows)[1] != features or np.shape(labels) != np.shape(rows)[:1]:
            raise ValueError(
                f"{name} must be features (n, {features}) and labels (n,), got shapes {np.shape(rows)} and "
                f"{np.shape(labels)}"
            )
        found = np.asarray(labels)
        if not np.issubdtype(found.dtype, np.integer) or not 0 <= found.min() <= found.max() < classes:
            raise ValueError(
                f"{name} must have integer labels 0 … {classes - 1}, got dtype {found.dtype} "
                f"with values from {found.min()} to {found.max()}"
            )
    return train


def _features(part: Labeled) -> int:
    return int(np.shape(part[0])[1])
