"""What the first-order penalty methods share: a second inner variable, and sums with a weight."""

from __future__ import annotations

from typing import Any, NamedTuple

from wior import tree

Tree = Any


class State(NamedTuple):
    x: Tree
    y: Tree  # near the minimizer of the penalized objective
    z: Tree  # near the minimizer of g


def plus(a: Tree, scale: Any, b: Tree) -> Tree:
    """a + scale · b. A leaf of a that is `None` counts as zero: ∇_x f has none for `PerExample` rows."""
    return tree.sub(a, tree.scaled(-scale, b))
