"""First step sizes, from the curvature of the inner problem and from short runs.

**inner_lr and adjoint_lr** are 1/L, with L the largest eigenvalue of the inner Hessian on a batch: y and u both descend
on quadratics with that Hessian, which is stable below 2/L. A compositional problem has L = 1, where a rate of 1 would
follow every batch without averaging; 1/2 is taken.

In a conditional problem y and u start anew at every visit and make T updates. With the smallest eigenvalue μ, a rate γ
leaves (1 − γ μ)^T of the distance to the solution. Where 10/(μ T) is below 1/L, it comes near enough and averages more.
Where one pass does not come near, more are suggested (`inner_epochs`): a y that stays short of its solution makes the
direction of x wrong, and x may run away with any step size.

**outer_lr** has no such rule: the curvature of the hyper-objective is not known, and the noise of small batches may
matter more than it. So x is frozen until y and u have settled, the direction of x is measured, and short runs are made:
the first with a step size that moves x by a hundredth of its own size, the next with four times as much as long as the
outer loss falls nearly as far, twice at most, or with a quarter as long as it does not fall. After each run y settles
again, and the outer loss is compared to that of a run as long with x frozen. A third of the largest step size that
comes near the best is suggested, since what serves a short run is too much for a long one. A run has at least ten times
L/μ steps if there is time, because x may lower the outer loss only as long as y has not followed; where there is not,
the step size is divided by what is missing. The direction of a `PerExample` row is that of a step which visits it,
about 1/batch of a derivative: step sizes of 10 to 1000 are usual there, and the same rule finds them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from wior.instruments.checking.curvature import Spectrum
from wior.instruments.checking.finding import Finding
from wior.instruments.checking.sample import Sample
from wior.instruments.checking.short_runs import FROZEN, Settings, ShortRuns, method_for
from wior.problems import Compositional
from wior.problems.per_example import all_rows, is_per_example

Tree = Any

FIRST_MOVE = 0.01  # of the size of x, in a step
ROWS_MOVE = 16.0  # times as far may a `PerExample` row move: it is visited once a pass
FACTOR = 4.0
LARGER, SMALLER = 2, 5  # step sizes tried beyond the first: more than that moves x by its own size in a few steps
ENOUGH_TO_GO_ON = 0.5  # of the best fall of the outer loss, for a larger step size to be tried
NEARLY_BEST = 0.95
MARGIN = 3.0
# a run must last so many times the steps in which y comes nearer by a factor e in its slowest direction
TIMES = 10.0
WAY = 10.0  # γ μ T at which a visit has come near enough to its solution
LEAST_WAY = 6.0  # and the least, as −log of what is left
MOST_EPOCHS = 10


class FirstSteps(NamedTuple):
    """Suggested settings by the names of the method's fields, what was found on the way, and the memory of a step."""

    settings: Settings
    findings: list[Finding]
    memory_bytes: int | None


def first_steps(sample: Sample, curvature: Spectrum, x: Tree, y: Tree) -> FirstSteps:
    """Suggests step sizes for the paper's algorithm of the problem's class; none where every short run diverges."""
    settings, findings = inner_settings(sample, curvature)
    rate = 1 / curvature.largest if settings else 1.0
    needed = 0.0
    if not sample.conditional and curvature.smallest > 1e-6 * curvature.largest > 0:
        needed = TIMES * curvature.largest / curvature.smallest
    runs = ShortRuns(sample, x, y, settings, rate, needed)
    if not settings:
        return FirstSteps({}, findings, runs.memory_bytes)
    settled = runs.settled()
    if settled is None:
        message = (
            f"do not settle with x frozen, even with {_shown(runs.settings)}: the inner problem may have no solution "
            "near y0."
        )
        return FirstSteps({}, [*findings, Finding("warning", "y and u", message)], runs.memory_bytes)
    outer_lr, more = _outer_rate(runs, settled)
    rounded_settings = {
        name: rounded(value) if name.endswith("_lr") else value for name, value in runs.settings.items()
    }
    if outer_lr is not None:
        rounded_settings = {"outer_lr": outer_lr, **rounded_settings}
    return FirstSteps(rounded_settings, [*findings, *more], runs.memory_bytes)


def inner_settings(sample: Sample, curvature: Spectrum) -> tuple[Settings, list[Finding]]:
    """The step sizes of y and u, and for a conditional problem the passes of a visit.

    Nothing is suggested where the curvature is not known.
    """
    smallest, largest = curvature.smallest, curvature.largest
    names = [field.name for field in dataclasses.fields(method_for(sample.problem))]
    rates = [name for name in names if name in ("inner_lr", "adjoint_lr")]
    if not (math.isfinite(largest) and largest > 0):
        return {}, []
    if isinstance(sample.problem, Compositional):
        return dict.fromkeys(rates, 0.5), []
    if not sample.conditional:
        return dict.fromkeys(rates, 1 / largest), []
    # at 1/L the last batch alone would decide in the direction of L
    updates, rate = _updates(sample), 0.9 / largest
    if not smallest > 1e-6 * largest:
        return dict.fromkeys(rates, rate), []
    needed = math.ceil(LEAST_WAY / (-math.log1p(-rate * smallest) * updates) - 1e-9)
    epochs = min(needed, MOST_EPOCHS)
    settings: Settings = dict.fromkeys(rates, min(rate, WAY / (epochs * updates * smallest)))
    if epochs == 1:
        return settings, []
    message = (
        f"one pass over an inner set makes {updates} update{'s' if updates > 1 else ''}, which leaves y and u short of "
        f"their solutions, and the direction of x is wrong by as much. About {needed} passes would be enough; {epochs} "
        "are suggested."
    )
    return {**settings, "inner_epochs": epochs}, [Finding("note", "inner_epochs", message)]


def _updates(sample: Sample) -> int:
    """The updates of one pass over an inner set, the smallest one that was looked at."""
    sizes = [
        len(np.unique(sample.own_rows(place.outer[0], sample.problem.sizes()["inner"]))) for place in sample.places
    ]
    return -(-min(sizes) // sample.batches[1])


def _outer_rate(runs: ShortRuns, settled: Any) -> tuple[float | None, list[Finding]]:
    """A third of the largest step size with which a short run lowers the outer loss nearly as far as any does."""
    move = _relative_move(runs, settled)
    if not (math.isfinite(move) and move > 0):
        message = (
            "does not move at the start: the hyper-gradient is zero there. No outer_lr is suggested; start elsewhere."
        )
        return None, [Finding("note", "x0", message)]
    frozen, first = runs.after(settled, FROZEN), FIRST_MOVE / move
    falls: dict[float, float] = {}  # how far the outer loss falls, by step size
    for power in range(1 + LARGER):
        outer_lr = first * FACTOR**power
        falls[outer_lr] = frozen - runs.after(settled, outer_lr)
        if not falls[outer_lr] > ENOUGH_TO_GO_ON * max(falls.values()):
            break
    for power in range(1, 1 + SMALLER):
        if max(falls.values()) > 0:
            break
        falls[first / FACTOR**power] = frozen - runs.after(settled, first / FACTOR**power)
    farthest = max(falls.values())
    if not farthest > 0:
        message = (
            f"no step size tried, from {min(falls):.1g} to {max(falls):.1g}, lowers the outer loss in {runs.steps} "
            "steps: x0 may be optimal already, or the batches are too small."
        )
        return rounded(min(falls) / MARGIN, down=True), [Finding("note", "outer_lr", message)]
    best = max(outer_lr for outer_lr, fall in falls.items() if fall >= NEARLY_BEST * farthest)
    return rounded(best / MARGIN / runs.too_short, down=True), []


def _relative_move(runs: ShortRuns, settled: Any) -> float:
    """How far a step of size 1 moves the leaf of x that moves most, relative to the size of that leaf."""
    before = _arrays(runs.x)  # and not the frozen one, which is no longer zero where it was
    overall = _size(np.concatenate([leaf.ravel() for leaf in before]))
    own = jax.tree.leaves(runs.x, is_leaf=is_per_example)
    scales = [
        (max(_size(values), overall) or 1.0) * (ROWS_MOVE if is_per_example(leaf) else 1.0)
        for leaf, values in zip(own, before, strict=True)
    ]

    def measured(outer_lr: float) -> float:
        moves = []
        for place in range(len(runs.sample.places)):
            after = _arrays(runs.run(settled, outer_lr, place, 1).x)
            changes = [new - old for new, old in zip(after, before, strict=True)]
            # of the rows of a `PerExample` leaf, a step moves those of its batch
            moves.append(max(_size(change[change != 0]) / scale for change, scale in zip(changes, scales, strict=True)))
        return float(np.mean(moves)) / outer_lr

    move = measured(1.0)
    # a change far below x, or far above it, is measured again where digits are not lost
    if move == 0:
        return measured(1e6)
    if not math.isfinite(move):
        return measured(1e-6)
    return move if 1e-3 < move < 1e3 else measured(0.1 / move)


def _arrays(x: Tree) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(all_rows(x))]


def _size(values: np.ndarray) -> float:
    """The root mean square."""
    return math.sqrt(float(np.mean(values**2))) if values.size else 0.0


def rounded(value: float, *, down: bool = False) -> float:
    """A number to two significant digits, or the next of 1, 2 and 5 times a power of ten below it."""
    if not down:
        return float(f"{value:.2g}")
    power = 10.0 ** math.floor(math.log10(value))
    digit = max(digit for digit in (1, 2, 5) if digit * power <= value * (1 + 1e-9))
    return float(f"{digit * power:.1g}")


def _shown(settings: Settings) -> str:
    return ", ".join(f"{name}={value:.2g}" for name, value in settings.items())
