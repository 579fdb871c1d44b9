"""The five problem classes, one file each, and what they share.

`CLASSES` has all five.
"""

from wior.problems.bilevel import Bilevel
from wior.problems.compositional import Compositional
from wior.problems.conditional_bilevel import ConditionalBilevel
from wior.problems.conditional_compositional import ConditionalCompositional
from wior.problems.minimax import Minimax
from wior.problems.per_example import PerExample
from wior.problems.problem import Batch, Problem

CLASSES: tuple[type[Problem], ...] = (
    Bilevel,
    ConditionalBilevel,
    Compositional,
    ConditionalCompositional,
    Minimax,
)

__all__ = [
    "CLASSES",
    "Batch",
    "Bilevel",
    "Compositional",
    "ConditionalBilevel",
    "ConditionalCompositional",
    "Minimax",
    "PerExample",
    "Problem",
]
