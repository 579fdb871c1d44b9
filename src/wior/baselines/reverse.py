"""Reverse: inner SGD steps, then the derivative of f at their end through all of them.

    y_{k+1} = y_k − γ ∇_y g(x, y_k; ζ_k),  k = 0 … K − 1, from the last y, which counts as a constant
    w = ∇_y f(x, y_K; ξ),  d = ∇_x f(x, y_K; ξ);  for k = K − 1 … 0:
        d ← d − γ ∇²_xy g(x, y_k; ζ_k) w,   w ← w − γ ∇²_yy g(x, y_k; ζ_k) w
    x ← x − η d

The way back needs every y_k. With `checkpoints=None` all K are kept. With `checkpoints=S` only S of them are kept, at
well chosen k, and those between are computed again: the memory is that of S copies of y however large K is, and each
inner step is computed about r more times, where K ≤ binomial(S + r, r) (Griewank 1992). Truncated after K steps, d is
biased: it misses the part Π (I − γ ∇²_yy g) of the way.

Franceschi, Donini, Frasconi, Pontil, "Forward and reverse gradient-based hyperparameter optimization", ICML 2017.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, at_step, one, static
from wior.algorithms.parts.estimators import with_rows
from wior.problems import Bilevel, carried
from wior.problems.per_example import descend, is_per_example, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class Reverse(Algorithm):
    """The derivative through the inner steps, for `Bilevel` problems.

    y makes K inner SGD steps; the outer loss at their end is differentiated backwards through all of them. The
    direction of x is biased, since the steps before the K last ones count as constant.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there.
    inner_lr : float or schedule
        γ, the step size of y. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures. From 2/L on y diverges.
    inner_steps : int, default 10
        K, the number of inner SGD steps on y in one step of the method. More of them, less bias, and more memory.
    checkpoints : int or None, default None
        S, how many iterates of y are kept for the way back. None keeps all K, which is fastest. A smaller number saves
        memory and computes the iterates between them again.

    References
    ----------
    Franceschi, Donini, Frasconi, Pontil, "Forward and reverse gradient-based hyperparameter optimization", ICML 2017.
    The updates as formulas: `help(wior.baselines.reverse)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.Reverse(outer_lr=1.0, inner_lr=0.5, inner_steps=100, checkpoints=10)
    Reverse(outer_lr=1.0, inner_lr=0.5, inner_steps=100, checkpoints=10)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    inner_steps: int = static(10)  # K
    checkpoints: int | None = static(None, checks.positive_integer_or_none)  # S

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    moves = {"x": "outer_lr"}  # it differentiates through its inner steps, and knows the derivative of plain ones
    paper = "Franceschi, Donini, Frasconi, Pontil, ICML 2017"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (self.inner_steps,))

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        x, batches, lr = state.x, draws.inner[0], at_step(self.inner_lr, draws.step)

        def forward(y: Tree, index: jax.Array) -> tuple[Tree, Tree]:
            g_y = oracle.inner_gradient(problem, x, y, problem.inner_batch(index))
            return descend(y, lr, g_y), g_y

        def back(d: Tree, w: Tree, y: Tree, index: jax.Array) -> tuple[Tree, Tree, Tree]:
            """One inner step backwards: d for what all examples share, w, and the rows of the batch."""
            g_xy_w, g_yy_w = oracle.inner_curvature(problem, x, y, problem.inner_batch(index)).both(w)
            d = tree.axpy(-lr, shared_part(x, g_xy_w), d)
            return d, tree.axpy(-lr, g_yy_w, w), tree.scaled(-lr, _rows_part(x, g_xy_w))

        def turn(y: Tree, index: jax.Array) -> tuple[Tree, tuple[Tree, Tree]]:
            moved, g_y = forward(y, index)
            return moved, (y if self.checkpoints is None else None, g_y)

        y, (iterates, g_y) = oracle.scan(turn, state.y, batches)
        f_x, f_y = oracle.outer_gradients(problem, x, y, problem.outer_batch(draws.outer_index))
        if self.checkpoints is None:
            d, rows = _back_from_all(back, iterates, batches, (f_x, f_y))
        else:
            with carried.carrying(carried.held()):  # a step that is made again changes nothing again
                d, rows = _back_from_few(forward, back, state.y, batches, (f_x, f_y), self.checkpoints)
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
        direction = with_rows(d, rows)
        examples = problem.inner_batch(batches.reshape(-1)).examples
        moved = State(descend(x, at_step(self.outer_lr, draws.step), direction, examples), y)
        return moved, Seen((one((f_y, f_x)),), (g_y,))


def _back_from_all(
    back: Callable[..., Any], iterates: Tree, batches: jax.Array, end: tuple[Tree, Tree]
) -> tuple[Tree, Tree]:
    def turn(carry: tuple[Tree, Tree], item: tuple[Tree, jax.Array]) -> tuple[tuple[Tree, Tree], Tree]:
        d, w, rows = back(*carry, *item)
        return (d, w), rows

    backwards = lambda a: jax.tree.map(lambda leaf: leaf[::-1], a)
    (d, _), rows = oracle.scan(turn, end, backwards((iterates, batches)))
    return d, backwards(rows)


def _back_from_few(
    forward: Callable[..., Any],
    back: Callable[..., Any],
    y: Tree,
    batches: jax.Array,
    end: tuple[Tree, Tree],
    checkpoints: int,
) -> tuple[Tree, Tree]:
    """The way back along a schedule made beforehand; what is kept are `checkpoints` iterates and one to work on."""
    slots = tree.put(tree.stack_of_zeros(y, checkpoints + 1), 0, y)
    shapes = oracle.shapes(back, *end, y, batches[0])[2]
    rows = tree.stack_of_zeros(shapes, len(batches))

    def turn(carry: Any, move: Move) -> tuple[Any, None]:
        index = batches[move.step]

        def forwards(slots: Tree, d: Tree, w: Tree, rows: Tree) -> Any:
            moved, _ = forward(jax.tree.map(lambda leaf: leaf[move.load], slots), index)
            return tree.put(slots, move.save, moved), d, w, rows

        def backwards(slots: Tree, d: Tree, w: Tree, rows: Tree) -> Any:
            d, w, own = back(d, w, jax.tree.map(lambda leaf: leaf[move.load], slots), index)
            return slots, d, w, tree.put(rows, move.step, own)

        return oracle.cond(move.back, backwards, forwards, *carry), None

    (_, d, _, rows), _ = oracle.scan(turn, (slots, *end, rows), schedule(len(batches), checkpoints))
    return d, rows


class Move(NamedTuple):
    """Inner step `step` from the iterate in slot `load`, forwards into slot `save`, or backwards."""

    back: Any
    step: Any
    load: Any
    save: Any


@functools.lru_cache(maxsize=32)
def _moves(steps: int, checkpoints: int) -> tuple[Move, ...]:
    """How to go back over `steps` steps with `checkpoints` slots for iterates.

    The first iterate is in slot 0; slot `checkpoints` is the one to work in.
    """
    moves: list[Move] = []
    work = checkpoints

    def run(first: int, last: int, load: int, save: int) -> None:
        moves.extend(
            Move(False, k, load if k == first else work, save if k == last - 1 else work) for k in range(first, last)
        )

    def reverse(first: int, last: int, slot: int, free: tuple[int, ...]) -> None:
        if last - first == 1:
            moves.append(Move(True, first, slot, work))
        elif not free:
            for k in range(last - 1, first - 1, -1):
                run(first, k, slot, work)
                moves.append(Move(True, k, slot if k == first else work, work))
        else:
            middle = first + _ahead(last - first, len(free))
            run(first, middle, slot, free[0])
            reverse(middle, last, free[0], free[1:])
            reverse(first, middle, slot, free)

    reverse(0, steps, 0, tuple(range(1, checkpoints)))
    return tuple(moves)


def schedule(steps: int, checkpoints: int) -> Move:
    """All moves as arrays."""
    return Move(*(jnp.asarray(np.asarray(column)) for column in zip(*_moves(steps, checkpoints), strict=True)))


def _ahead(length: int, free: int) -> int:
    """How far ahead to put the next checkpoint: where the two parts need equally many repetitions."""
    repetitions = next(r for r in range(1, length + 1) if math.comb(free + 1 + r, r) >= length)
    return min(max(1, length - math.comb(free + repetitions, repetitions)), length - 1)


def _rows_part(x: Tree, direction: Tree) -> Tree:
    """The part of a direction of x that belongs to the rows of a batch; None for the rest."""
    return jax.tree.map(lambda leaf, d: d if is_per_example(leaf) else None, x, direction, is_leaf=is_per_example)
