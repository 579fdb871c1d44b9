"""STORM in front of y and of an implicit hyper-gradient: what SUSTAIN and MRBO share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior import checks, oracle
from wior.algorithms.algorithm import (
    Algorithm,
    BatchKinds,
    Draws,
    Rate,
    Seen,
    at_step,
    damping_term,
    decayed,
    number,
    one,
    static,
)
from wior.algorithms.parts import estimators
from wior.algorithms.parts.implicit import Estimate, Series, neumann_hypergradient
from wior.problems import Bilevel
from wior.problems.per_example import descend, with_rows_of, without_rows

Tree = Any


class State(NamedTuple):
    x: Tree
    y: Tree
    d_x: Tree  # STORM's estimates
    d_y: Tree
    old_x: Tree  # the iterate before this one; rows have no part in it
    old_y: Tree


@dataclasses.dataclass(frozen=True)
class DoubleMomentum(Algorithm):
    """STORM on both levels; the methods say how long the Neumann series is."""

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    neumann_lr: Rate  # τ
    neumann_terms: int = static(4)
    outer_momentum: float = number(0.9, checks.share)  # a
    inner_momentum: float = number(0.9, checks.share)  # b
    decay: float = number(1 / 3, checks.non_negative_number)
    delay: float = number(1.0)  # m
    separate_streams: bool = static(False, checks.boolean)
    damping: float | None = damping_term()  # μ

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "d_x": "outer_lr", "d_y": "inner_lr"}

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1,), (1, self.neumann_terms - 1), self.separate_streams)

    def length(self, draws: Draws) -> jax.Array | None:
        """The number of factors of a Neumann product; None for the whole Neumann sum."""
        raise NotImplementedError

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, estimators.no_estimate(x), estimators.no_estimate(y), without_rows(x), y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        problem = problem.damped(self.damping)
        return storm_step(self, problem, state, draws, at_step(self.neumann_lr, draws.step), self.length(draws))


def storm_step(
    algorithm: DoubleMomentum, problem: Bilevel, state: State, draws: Draws, scale: Any, length: Any
) -> tuple[State, Seen]:
    """One step: both iterates, this one and the one before it, are evaluated on the same batches with one length."""
    (index,), for_u = draws.inner
    xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(index)

    def evaluate(x: Tree, y: Tree) -> tuple[Estimate, Tree]:
        curvature = oracle.inner_curvature(problem, x, y, zeta)
        estimate = neumann_hypergradient(problem, x, y, xi, for_u, curvature.jacobian, Series(scale, length))
        return estimate, curvature.gradient()

    rate: Callable[[Any], Any] = lambda value: decayed(value, draws.step, algorithm.decay, algorithm.delay)
    # the momenta are of the order of the square of the steps
    momentum: Callable[[Any], Any] = lambda value: jnp.where(
        draws.step == 0, 1.0, decayed(value, draws.step, 2 * algorithm.decay, algorithm.delay)
    )
    new, g_y = evaluate(state.x, state.y)
    old, old_g_y = evaluate(with_rows_of(state.x, state.old_x), state.old_y)
    d_x = estimators.storm(state.d_x, new.direction, old.direction, momentum(algorithm.outer_momentum))
    d_y = estimators.storm(state.d_y, g_y, old_g_y, momentum(algorithm.inner_momentum))
    shared = estimators.remembered(state.d_x, d_x)
    moved = State(
        x=descend(state.x, rate(algorithm.outer_lr), d_x, zeta.examples, after=(shared, d_y)),
        y=descend(state.y, rate(algorithm.inner_lr), d_y),
        d_x=shared,
        d_y=d_y,
        old_x=without_rows(state.x),
        old_y=state.y,
    )
    return moved, Seen((new.outer,), ((one(g_y), new.jacobian), new.hessian))
