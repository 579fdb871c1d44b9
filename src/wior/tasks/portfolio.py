"""A mean-variance portfolio: the variance needs the mean return, itself an average, inside the average.

    min over x of  −mean over t of r_t·x + λ mean over t of (r_t·x − mean over s of r_s·x)² + (L2 / 2) ‖x‖²

as a composition: the inner map is r(x; s) = (x, r_s·x), whose mean y = (x, mean return) the outer loss takes,

    f(y; t) = −r_t·y_x + λ (r_t·y_x − y_mean)² + (L2 / 2) ‖y_x‖².

With μ and Σ the mean and the covariance of the returns, x* = (2 λ Σ + L2 I)⁻¹ μ.

Wang, Fang, Liu, "Stochastic compositional gradient descent", Mathematical Programming 161, 2017; with a portfolio:
Lian, Wang, Liu, "Finite-sum composition optimization via variance reduced gradient descent", AISTATS 2017.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.problems import Compositional
from wior.tasks.task import Measure, Task


class Holding(NamedTuple):
    """y: the portfolio and its mean return."""

    x: jax.Array  # (assets,)
    mean: jax.Array


def portfolio(
    assets: int = 20,
    periods: int = 1000,
    *,
    factors: int = 3,
    risk_aversion: float = 1.0,
    l2: float = 0.1,
    batch_size: int | tuple[int, int] = 10,
    steps: int = 10_000,
    seed: int = 0,
) -> Task:
    """The task of a portfolio with a large mean and a small variance, on `factor_returns`.

    Its metrics are `gap`, h(x) − h(x*) = ½ (x − x*)'(2 λ Σ + L2 I)(x − x*); `distance`, ‖x − x*‖²; and `loss`, h(x).

    Parameters
    ----------
    assets, periods, factors : int
        As in `factor_returns`.
    risk_aversion : float, default 1.0
        λ, the weight of the variance.
    l2 : float, default 0.1
        The coefficient of ½‖x‖².
    batch_size : int or (int, int), default 10
        The rows of a batch, or a pair (outer, inner), for a run of the task.
    steps : int, default 10000
        The steps of a run of the task.
    seed : int, default 0
        Draws the returns.

    Returns
    -------
    Task
        The problem, where to start, metrics and defaults for a run.

    Examples
    --------
    >>> from wior.tasks.portfolio import portfolio
    >>> portfolio(assets=5, periods=40).problem.sizes()
    {'outer': 40, 'inner': 40}
    """
    checks.positive_number("l2", l2)
    returns = jnp.asarray(factor_returns(assets, periods, factors=factors, seed=seed), float)
    rows = np.asarray(returns, float)  # as the problem holds them, in float64
    hessian = 2 * risk_aversion * np.atleast_2d(np.cov(rows.T, bias=True)) + l2 * np.eye(assets)
    optimum = np.linalg.solve(hessian, rows.mean(0))
    minimum = -0.5 * float(rows.mean(0) @ optimum)
    best, curvature = jnp.asarray(optimum, float), jnp.asarray(hessian, float)

    def metrics(x: jax.Array, y: Holding) -> dict[str, jax.Array]:
        apart = x - best
        gap = 0.5 * apart @ curvature @ apart
        return {"gap": gap, "distance": apart @ apart, "loss": minimum + gap}

    return Task(
        name="portfolio",
        title=f"Mean-variance portfolio of {assets} assets over {periods} periods",
        problem=Compositional(MeanVariance(risk_aversion, l2), holding, returns, returns),
        x0=jnp.zeros(assets),
        y0=Holding(jnp.zeros(assets), jnp.zeros(())),
        metrics=metrics,
        measures={
            "gap": Measure("h(x) − h(x*)", log=True),
            "distance": Measure("‖x − x*‖²", log=True),
            "loss": Measure("h(x)"),
        },
        judged_by="gap",
        batch_size=batch_size,
        steps=steps,
        grid={"outer_lr": (0.0001, 0.0003, 0.001), "inner_lr": (0.1, 0.3, 1.0)},
        facts={
            "assets": assets,
            "periods": periods,
            "factors": factors,
            "risk_aversion": risk_aversion,
            "l2": l2,
            "seed": seed,
        },
    )


def holding(x: jax.Array, returns: jax.Array) -> Holding:
    """r: the portfolio as it is, and its mean return over the rows."""
    return Holding(x, jnp.mean(returns @ x))


@dataclasses.dataclass(frozen=True)
class MeanVariance:
    """f: less the return, plus λ times the squared distance to the mean return, and the penalty."""

    risk_aversion: float
    l2: float

    def __call__(self, y: Holding, returns: jax.Array) -> jax.Array:
        earned = returns @ y.x
        risk = jnp.mean((earned - y.mean) ** 2)
        return -jnp.mean(earned) + self.risk_aversion * risk + self.l2 / 2 * jnp.vdot(y.x, y.x)


def factor_returns(assets: int, periods: int, *, factors: int = 3, seed: int = 0) -> np.ndarray:
    """Returns of assets, in percent: a premium for each asset, its share of each factor, and noise of its own.

    Parameters
    ----------
    assets, periods : int
        The columns and the rows.
    factors : int, default 3
        The factors that move all assets.
    seed : int, default 0
        Draws them.

    Returns
    -------
    numpy.ndarray
        (periods, assets).
    """
    for name, size in (("assets", assets), ("periods", periods), ("factors", factors)):
        checks.positive_integer(name, size)
    random = np.random.default_rng(seed)
    premiums = 0.1 * random.normal(size=assets) + 0.1
    loadings = random.normal(size=(factors, assets)) / factors**0.5
    own = random.uniform(0.5, 1.5, assets)
    return premiums + random.normal(size=(periods, factors)) @ loadings + own * random.normal(size=(periods, assets))
