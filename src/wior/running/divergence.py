"""Why a variable became infinite or NaN: rows of the data, inner steps that diverge, or a step size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks, tree
from wior.algorithms.algorithm import at_step
from wior.problems.movement import two_batches, two_losses
from wior.problems.optimizers import is_optimizer
from wior.running.block import Carry
from wior.running.feed import Feed
from wior.running.plan import InnerSets
from wior.running.setup import Setup

NAMED = 5  # rows that a sentence names
STEPS_TO_DIVERGE, GROWN = 20, 10.0  # inner steps that are tried, and by how much a gradient may grow along them


def why_non_finite(setup: Setup, feed: Feed | None, variables: list[str], before: Carry, step: int) -> str:
    """The likely cause, for an error that says which variables the step after `step` broke."""
    problem = getattr(setup.problem, "problem", setup.problem)  # of fixed batches, the one they were cut from
    data = {name: getattr(problem, name) for name in problem._data}
    if feed is not None:
        data |= feed.read_by(step, before)
    faults = {leaf: rows for name, value in data.items() for leaf, rows in checks.non_finite_rows(name, value).items()}
    if faults and not _masked(setup, problem, faults):
        named = "; ".join(_said(leaf, rows) for leaf, rows in faults.items())
        return f"the data are not finite: {named}. Remove or replace these rows, or mask them; no step size helps."
    algorithm = setup.algorithm
    names = [algorithm.step_sizes.get(name, "outer_lr") for name in variables]
    what = "the likely cause is a step size that is too large"
    if setup.plan.inner_sets is not None and feed is None and _inner_steps_diverge(setup, setup.plan.inner_sets):
        # the inner variables of a conditional problem live inside a step, so that x is the first to be seen
        names, what = (
            ["inner_lr"],
            "inner steps diverge at x0 already: the likely cause is an inner step size that is too large",
        )
    rates = ", ".join(_rate(name, getattr(algorithm, name)) for name in dict.fromkeys(names))
    return (
        f"{what}: try a smaller one ({rates}). "
        "wior.check(problem, x0, y0) looks for other causes and suggests first step sizes."
    )


def _rate(name: str, value: Any) -> str:
    return f"{name}, an optimizer" if is_optimizer(value) else f"{name}={value!r}"


def _said(leaf: str, rows: np.ndarray) -> str:
    listed = ", ".join(map(str, rows[:NAMED])) + (", …" if len(rows) > NAMED else "")
    return f"{leaf} has NaN or infinity in {len(rows)} row{'s' if len(rows) > 1 else ''} ({listed})"


def _masked(setup: Setup, problem: Any, faults: dict[str, np.ndarray]) -> bool:
    """Whether the losses and their gradients are finite on rows that are not, as they are where a loss masks them."""
    if problem.conditional or problem.streamed():
        return False  # such rows are not looked at one by one
    rows = np.unique(np.concatenate(list(faults.values()))).astype(np.int32)
    try:
        for loss, level in zip(two_losses(problem), (0, 1), strict=True):
            index = np.resize(rows, setup.batches[level])
            of = np.where(index < list(problem.sizes().values())[-1 if level else 0], index, 0)
            batch = two_batches(problem, jnp.asarray(of), jnp.asarray(of))[level]
            found = jax.value_and_grad(loss, (0, 1))(setup.x, setup.y, batch)
            if not bool(tree.all_finite(found)):
                return False
    except Exception:  # noqa: BLE001 - what cannot be looked at is not known to be masked
        return False
    return True


def _inner_steps_diverge(setup: Setup, sets: InnerSets) -> bool:
    """Whether the gradient of a first inner batch grows along its own descent at x0."""
    rate = getattr(setup.algorithm, "inner_lr", None)
    if rate is None or is_optimizer(rate):
        return False
    _, g = two_losses(setup.problem)
    batch = min(sets.batch, sets.n)
    _, zeta = two_batches(setup.problem, jnp.zeros(1, jnp.int32), jnp.arange(batch, dtype=jnp.int32))
    gradient = jax.jit(lambda y: jax.grad(g, 1)(setup.x, y, zeta))
    y, gamma = setup.y, at_step(rate, jnp.uint32(0))
    first = tree.norm(gradient(y))
    for _ in range(STEPS_TO_DIVERGE):
        y = jax.tree.map(lambda value, slope: value - gamma * slope, y, gradient(y))
    return not bool(tree.norm(gradient(y)) <= GROWN * first)
