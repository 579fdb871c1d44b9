"""A run ends where the exact hyper-gradient is short: the measure of stationarity that rates are stated in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from wior import checks, tree
from wior.instruments.hypergradient import hypergradient
from wior.running.stopping import Condition, History

Tree = Any
COLUMN = "hypergradient_norm"


@dataclasses.dataclass(frozen=True)
class HypergradientNorm(Condition):
    """Ends a run at the first record where ‖∇h(x)‖ is not above a value.

    The norm is that of `wior.hypergradient` on the full data, with the inner problem solved from the present y. It is
    recorded as `hypergradient_norm`, and takes much longer than a step: choose `record_every` accordingly.

    Parameters
    ----------
    below : float
        The value.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> problem = wior.Bilevel(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> result = wior.solve(
    ...     problem, wior.WiORBO(0.05, 0.4, 0.4), 0.0, 0.0, batch_size=8, steps=500, record_every=10,
    ...     stop=wior.stop.HypergradientNorm(below=1e-3),
    ... )  # fmt: skip
    >>> result.steps < 500, bool(result.history["hypergradient_norm"][-1] <= 1e-3), result.stopped_by
    (True, True, 'HypergradientNorm(below=0.001)')
    """

    below: float

    def __post_init__(self) -> None:
        checks.positive_number("below", self.below)

    def columns(self) -> tuple[str, ...]:
        return (COLUMN,)

    def holds(self, history: History) -> bool:
        return bool(history[COLUMN][-1] <= self.below)

    def measures(self, problem: Any) -> dict[str, Callable[[Tree, Tree], Any]]:
        problem.demand_resident("wior.stop.HypergradientNorm")

        def norm(x: Tree, y: Tree) -> Any:
            x, y = jax.tree.map(np.asarray, (x, y))  # the data are on one device, whatever the run's
            return np.asarray(tree.norm(hypergradient(problem, x, y).gradient))

        return {COLUMN: norm}
