"""Bilevel, conditional, compositional and minimax optimization in which the order of the examples is a choice."""

from typing import TYPE_CHECKING, Any

from wior import baselines, orders, streaming
from wior.algorithms import Algorithm, WiORBO, WiORCBO, WiORCComp, WiORComp, WiORMinimax
from wior.devices.layout import Layout
from wior.instruments.check import Finding, Report, check
from wior.instruments.communication import Communication, communication
from wior.instruments.hypergradient import HyperGradient, hypergradient
from wior.instruments.methods import Method, methods
from wior.instruments.order_error import OrderError, order_error, plot_order_errors
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax, Problem
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
