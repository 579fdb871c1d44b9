"""Invariant risk minimization: a classifier of rows that are only seen through noise, one inner problem for each row.

    min over x of  mean over i of log(1 + exp(−b_i y_i)) + (L2 / 2) ‖x‖²
    where y_i minimizes  mean over j of ½ (y − c_ij·x)²

with c_i Gaussian, b_i = sign(c_i·x̂) for a hidden x̂, and c_ij = c_i + noise · Gaussian. Since y_i is the mean of
c_ij·x, the objective is a logistic regression on the means of the c_ij, and Newton's method finds its minimum x* to the
last digit.

The paper's step sizes, 0.001 for both levels, leave every order far from x* after the twelve passes that are the
default here; at 0.01 and 0.1, in the grid, the orders differ. An inner batch of 10 needs an inner rate of about 0.5, or
y stops short of y_i in its one pass.

Li, Huang, NeurIPS 2024, figure 1 and appendix A, after He, Kasiviswanathan, "Debiasing conditional stochastic
optimization", NeurIPS 2023.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.problems import ConditionalBilevel
from wior.tasks.task import Measure, Task

NEWTON_STEPS = 100


def invariant_risk(
    m: int = 1000, n: int = 100, dimension: int = 10, noise: float = 0.1, l2: float = 0.1, seed: int = 0
) -> Task:
    """The task of a logistic regression on rows that are only seen with noise.

    Its metrics are `gap`, h(x) − h(x*), to full relative precision in float32 as well; `distance`, ‖x − x*‖²; and
    `loss`, h(x).

    Parameters
    ----------
    m, n : int
        The rows, and how often each is seen.
    dimension : int, default 10
        The features of a row.
    noise : float, default 0.1
        The standard deviation of the noise.
    l2 : float, default 0.1
        The coefficient of ½‖x‖².
    seed : int, default 0
        Draws the rows.

    Returns
    -------
    Task
        The problem, where to start, metrics and defaults for a run.

    Examples
    --------
    >>> from wior.tasks.invariant_risk import invariant_risk
    >>> invariant_risk(m=20, n=4).problem.sizes()
    {'outer': 20, 'inner': 4}
    """
    for name, size in (("m", m), ("n", n), ("dimension", dimension)):
        checks.positive_integer(name, size)
    checks.positive_number("l2", l2)
    random = np.random.default_rng(seed)
    hidden = random.normal(size=dimension)
    rows = random.normal(size=(m, dimension))
    seen = rows[:, None] + noise * random.normal(size=(m, n, dimension))
    labels = jnp.asarray(np.where(rows @ hidden > 0, 1.0, -1.0), float)
    problem = ConditionalBilevel(Logistic(l2), squared_error, labels, jnp.asarray(seen, float))

    # the means of what the problem holds, rounded to its precision
    signed = np.asarray(labels, float)[:, None] * np.asarray(problem.inner_data, float).mean(1)
    optimum = logistic_minimizer(signed, l2)
    features, best = jnp.asarray(signed, float), jnp.asarray(optimum, float)

    def metrics(x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
        apart = x - best
        return {
            "gap": jnp.mean(gap_above(features @ best, features @ apart)) + l2 / 2 * apart @ apart,
            "distance": apart @ apart,
            "loss": jnp.mean(jax.nn.softplus(-(features @ x))) + l2 / 2 * x @ x,
        }

    return Task(
        name="invariant_risk",
        title=f"Invariant risk minimization: {m} rows in {dimension} dimensions, each seen {n} times",
        problem=problem,
        x0=jnp.zeros(dimension),
        y0=jnp.zeros(()),
        metrics=metrics,
        measures={
            "gap": Measure("h(x) − h(x*)", log=True),
            "distance": Measure("‖x − x*‖²", log=True),
            "loss": Measure("h(x)"),
        },
        judged_by="gap",
        batch_size=(1, 1),
        steps=12 * m,
        grid={"outer_lr": (0.001, 0.003, 0.01, 0.03), "inner_lr": (0.1, 0.3)},
        facts={"m": m, "n": n, "dimension": dimension, "noise": noise, "l2": l2, "seed": seed},
    )


@dataclasses.dataclass(frozen=True)
class Logistic:
    """f: mean of log(1 + exp(−b y)) over rows, and the penalty of x."""

    l2: float

    def __call__(self, x: jax.Array, y: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.softplus(-labels * y)) + self.l2 / 2 * jnp.vdot(x, x)


def squared_error(x: jax.Array, y: jax.Array, rows: jax.Array) -> jax.Array:
    """g: mean of ½ (y − c·x)² over the views of one row."""
    return 0.5 * jnp.mean((y - rows @ x) ** 2)


def gap_above(best: jax.Array, step: jax.Array) -> jax.Array:
    """ℓ(s + δ) − ℓ(s) − ℓ'(s) δ for the logistic loss ℓ(s) = log(1 + exp(−s)), s = `best` and δ = `step`.

    At the minimizer the slopes add up to nothing with the penalty's, so that the mean of these and (L2 / 2) ‖x − x*‖²
    are h(x) − h(x*), without the difference of two nearly equal numbers that would leave no digits of a gap below 1e-7.
    """
    slope = jax.nn.sigmoid(-best)  # −ℓ'(s)
    near = jnp.abs(step) < 1
    change = jnp.where(
        near,
        jnp.log1p(slope * jnp.expm1(-jnp.where(near, step, 0))),
        jax.nn.softplus(-(best + step)) - jax.nn.softplus(-best),
    )
    return change + slope * step


def logistic_minimizer(signed: np.ndarray, l2: float) -> np.ndarray:
    """The x at which mean log(1 + exp(−a_i·x)) + (L2 / 2) ‖x‖² is smallest.

    It is found by Newton's method with halved steps, in float64.
    """
    n, dimension = signed.shape

    def value(x: np.ndarray) -> Any:
        return np.logaddexp(0, -(signed @ x)).mean() + l2 / 2 * x @ x

    x = np.zeros(dimension)
    for _ in range(NEWTON_STEPS):
        share = 0.5 - 0.5 * np.tanh(signed @ x / 2)  # σ(−a·x), without overflow
        gradient = l2 * x - signed.T @ share / n
        hessian = l2 * np.eye(dimension) + signed.T @ (signed * (share * (1 - share))[:, None]) / n
        step = np.linalg.solve(hessian, gradient)
        if np.linalg.norm(step) < 1e-13 * (1 + np.linalg.norm(x)):
            break
        length = 1.0
        while value(x - length * step) > value(x) + 1e-14 and length > 1e-6:
            length /= 2
        x = x - length * step
    return x
