"""Every method, made small, and a problem that it solves."""

import dataclasses

import problems
import wior
from wior.instruments.methods import classes

CLASSES = classes()
SHORT = {"inner_steps": 2, "adjoint_steps": 2, "neumann_terms": 3, "period": 3, "levels": 1, "probability": 0.4}
CASE_OF = {
    wior.Bilevel: problems.bilevel,
    wior.Minimax: problems.minimax,
    wior.Compositional: problems.compositional,
    wior.ConditionalBilevel: problems.conditional_bilevel_ragged,
    wior.ConditionalCompositional: problems.conditional_compositional_ragged,
}


def made(kind, **changes):
    """The method with small step sizes and short loops."""
    fields = {field.name for field in dataclasses.fields(kind)}
    rates = {name: 0.05 for name in fields if name.endswith("_lr")}
    return kind(**(rates | {name: value for name, value in SHORT.items() if name in fields} | changes))
