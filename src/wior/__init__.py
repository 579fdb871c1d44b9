"""Bilevel, conditional, compositional and minimax optimization in which the order of the examples is a choice."""

from typing import TYPE_CHECKING, Any

from wior import baselines, orders, sources
from wior.algorithms import WiORBO, WiORCBO, WiORCComp, WiORComp, WiORMinimax
from wior.checkpoint import AnotherRunError, Checkpoint
from wior.communication import Communication, communication
from wior.hypergradient import HyperGradient, hypergradient
from wior.instruments.check import Finding, Report, check
from wior.interruption import Interrupted
from wior.layout import Layout
from wior.loop import NonFiniteError
from wior.methods import Method, methods
from wior.order_error import OrderError, order_error, plot_order_errors
from wior.per_example import PerExample
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax
from wior.solve import Result, solve
from wior.sources import SourceError, Streamed
from wior.sweep import SweepResult, sweep

if TYPE_CHECKING:
    from wior.cleaning import LabelCleaner

__version__ = "0.1.0"

__all__ = [
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
    "baselines",
    "check",
    "communication",
    "hypergradient",
    "methods",
    "order_error",
    "orders",
    "plot_order_errors",
    "solve",
    "sources",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "LabelCleaner":  # scikit-learn takes a second to import, and only this needs it
        from wior.cleaning import LabelCleaner

        return LabelCleaner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
