"""Bilevel, conditional, compositional and minimax optimization in which the order of the examples is a choice.

A run takes a problem, a method and an order. The problem (`Bilevel`, `ConditionalBilevel`, `Compositional`,
`ConditionalCompositional`, `Minimax`) has two losses and their data. The method is one of the paper (`WiORBO`,
`WiORCBO`, `WiORComp`, `WiORCComp`, `WiORMinimax`) or one of `wior.baselines`; its fields are its hyper-parameters. The
order, one of `wior.orders`, says which example comes next.

- `check` looks for mistakes in a problem and suggests first step sizes.
- `solve` makes one run, `sweep` a grid of step sizes and seeds as one program.
- `hypergradient`, `order_error`, `communication` and `methods` measure.

Examples
--------
y is to follow x plus the mean of the inner data, and x is to bring y to the mean of the outer data:

>>> import jax.numpy as jnp, numpy as np, wior
>>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
>>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
>>> problem = wior.Bilevel(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
>>> method = wior.WiORBO(outer_lr=0.05, inner_lr=0.4, adjoint_lr=0.4)
>>> start = jnp.zeros(())
>>> result = wior.solve(problem, method, start, start, order="random-reshuffling", batch_size=4, steps=400)
>>> abs(float(result.x) - 1) < 0.2
True
"""

from typing import TYPE_CHECKING, Any

from wior import baselines, orders, streaming
from wior.algorithms import Algorithm, WiORBO, WiORCBO, WiORCComp, WiORComp, WiORMinimax
from wior.devices.layout import Layout
from wior.instruments.check import Finding, Report, check
from wior.instruments.communication import Communication, communication
from wior.instruments.hypergradient import HyperGradient, hypergradient
from wior.instruments.methods import Method, methods
from wior.instruments.order_error import OrderError, order_error, plot_order_errors
from wior.problems import (
    Bilevel,
    Compositional,
    ConditionalBilevel,
    ConditionalCompositional,
    Minimax,
    Problem,
    constraints,
)
from wior.problems.per_example import PerExample
from wior.running.interruption import Interrupted
from wior.running.loop import NonFiniteError
from wior.running.solve import Result, solve
from wior.running.sweep import SweepResult, sweep
from wior.saving.checkpoint import AnotherRunError, Checkpoint
from wior.streaming import SourceError, Streamed
from wior.version import __version__

if TYPE_CHECKING:
    from wior.cleaning import LabelCleaner

__all__ = [
    "Algorithm",
    "AnotherRunError",
    "Bilevel",
    "Checkpoint",
    "Communication",
    "Compositional",
    "ConditionalBilevel",
    "ConditionalCompositional",
    "Finding",
    "HyperGradient",
    "Interrupted",
    "LabelCleaner",
    "Layout",
    "Method",
    "Minimax",
    "NonFiniteError",
    "OrderError",
    "PerExample",
    "Problem",
    "Report",
    "Result",
    "SourceError",
    "Streamed",
    "SweepResult",
    "WiORBO",
    "WiORCBO",
    "WiORCComp",
    "WiORComp",
    "WiORMinimax",
    "__version__",
    "baselines",
    "check",
    "communication",
    "constraints",
    "hypergradient",
    "methods",
    "order_error",
    "orders",
    "plot_order_errors",
    "solve",
    "streaming",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "LabelCleaner":  # scikit-learn takes a second to import, and only this needs it
        from wior.cleaning import LabelCleaner

        return LabelCleaner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
