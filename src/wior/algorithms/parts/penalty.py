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
    """a + scale · b, where a leaf that is `None` in a, as ∇_x f is for rows, counts as zero."""
    return tree.sub(a, tree.scaled(-scale, b))
