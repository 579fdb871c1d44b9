"""Damping: μ I beside the Hessian of the inner loss, in every product with it and nowhere else."""

from __future__ import annotations

from typing import Any

from wior import tree

Tree = Any


def damped(problem: Any, product: Tree, u: Tree) -> Tree:
    """∇²_yy g u + μ u, of a problem with damping; the product itself of any other."""
    return product if problem.damping is None else tree.axpy(problem.damping, u, product)
