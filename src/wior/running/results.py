"""Where runs end: one, and all those of a sweep."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from wior.running import showing
from wior.running.block import Carry

Tree = Any


@dataclasses.dataclass
class Finished:
    """A run as the loop leaves it."""

    carry: Carry
    step: int
    history: dict[str, np.ndarray]
    stopped_by: str
    compile_seconds: float
    metric_seconds: float
    seconds: float  # of steps
    calls: dict[str, Any]


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """The end of a run, and how it went there.

    Attributes
    ----------
    x, y : tree of arrays
        The outer and the inner variables at the end.
    state : NamedTuple
        The algorithm's own state: x, y and what else it carries, such as u. As the argument `state` of `wior.solve` it
        continues the run; its attribute `position` says where that stands.
    history : dict of str to numpy.ndarray
        One entry for each record: `step`, `outer_passes`, `inner_passes`, `seconds`, the counted calls
        (`outer_gradients`, `inner_gradients`, `jacobian_products`, `hessian_products`, in examples, and
        `backward_passes`), and the metrics.
    steps : int
        The steps that were made, those before a `state` included.
    steps_per_epoch : int
        The first step after which the passes over both data sets end together.
    stopped_by : str
        "steps", "seconds", "tolerance", "callback", or the condition of `stop` that held, as it is written, for example
        "Patience('loss', 10)"; "interrupt", "error" or "divergence" in the `.result` of what was raised.
    compile_seconds : float
        The time that compiling took; it is not part of `history["seconds"]`.
    metric_seconds : float
        The time spent in metrics.
    model_state : tree of arrays or None
        The model state at the end, of a problem that has one.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem = wior.Bilevel(outer, inner, rows, rows)
    >>> result = wior.solve(problem, algorithm, jnp.zeros(()), jnp.zeros(3), batch_size=8, epochs=2, record_every=4)
    >>> result.steps, result.steps_per_epoch, result.stopped_by
    (8, 4, 'steps')
    >>> result.history["outer_passes"].tolist()
    [0.0, 1.0, 2.0]
    """

    x: Tree
    y: Tree
    state: Any
    history: dict[str, np.ndarray]
    steps: int
    steps_per_epoch: int
    stopped_by: str
    compile_seconds: float
    metric_seconds: float
    model_state: Tree = None

    def __repr__(self) -> str:
        return showing.of_result(self)

    def to_frame(self) -> Any:
        """The history as a data frame of pandas, which must be installed: a row for each record."""
        return showing.frame(self.history)

    def plot(self, against: str = "passes") -> Any:
        """Every metric against passes over the outer data, or "seconds", or "steps".

        Parameters
        ----------
        against
            "passes", "seconds" or "steps".

        Returns
        -------
        matplotlib.figure.Figure
        """
        return showing.plot(self.history, against)

    def save(self, folder: str | Path) -> None:
        """Writes the result into a folder, whole or not at all, for `wior.load`.

        Parameters
        ----------
        folder
            The folder. A result in it is replaced; what is something else is left as it is, with an error.
        """
        from wior.running import result_folder  # which makes results, and so knows this class

        result_folder.save(self, folder)


@dataclasses.dataclass(frozen=True, repr=False)
class SweepResult:
    """Every run of a grid. Arrays have a first axis of settings and a second of seeds, then what they hold.

    Attributes
    ----------
    settings : list of dict
        The hyper-parameters of each setting, by name.
    seeds : list of int
        The seed of each run of a setting.
    history : dict of str to numpy.ndarray
        As in `Result.history`: metrics are (settings, seeds, records), and what all runs share is (records,).
    x, y : tree of numpy.ndarray
        The variables at the end; leaves are (settings, seeds, ...).
    steps : int
        The steps that each run made.
    steps_per_epoch : int
        The first step after which the passes over both data sets end together.
    compile_seconds, metric_seconds : float
        The time that compiling and metrics took, of all runs together.
    best : dict or None
        The setting whose mean over seeds of the metric `best_by` is best at the end.
    best_index : int or None
        Its place in `settings`.
    best_by : str or None
        The name of that metric.
    model_state : tree of numpy.ndarray or None
        The model states at the end, of a problem that has one; leaves are (settings, seeds, ...).

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem, x0, y0 = wior.Bilevel(outer, inner, rows, rows), jnp.zeros(()), jnp.zeros(3)
    >>> found = wior.sweep(
    ...     problem, algorithm, x0, y0, grid={"outer_lr": [0.01, 0.05]}, seeds=3, batch_size=8, steps=4,
    ...     metrics=lambda x, y: {"loss": outer(x, y, rows)},
    ... )  # fmt: skip
    >>> found.final("loss").shape, found.x.shape, found.y.shape
    ((2, 3), (2, 3), (2, 3, 3))
    """

    settings: list[dict[str, Any]]
    seeds: list[int]
    history: dict[str, np.ndarray]
    x: Tree
    y: Tree
    steps: int
    steps_per_epoch: int
    compile_seconds: float
    metric_seconds: float
    best: dict[str, Any] | None = None
    best_index: int | None = None
    best_by: str | None = None
    model_state: Tree = None

    def __repr__(self) -> str:
        return showing.of_sweep(self)

    def final(self, metric: str) -> np.ndarray:
        """The last value of a metric, (settings, seeds)."""
        return self.history[metric][..., -1]
