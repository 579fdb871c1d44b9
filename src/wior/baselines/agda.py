"""AGDA: alternating stochastic descent on x and ascent on y.

    x ← x − η ∇_x f(x, y; ξ),   then y ← y + γ ∇_y f(x, y; ξ')  at the new x, on another batch. Two backward passes.

Where y ascends on data of its own, the other batch ξ' is one of these.

Yang, Kiyavash, He, "Global convergence and variance-reduced optimization for a class of nonconvex-nonconcave minimax
problems", NeurIPS 2020.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, State, at_step, one, static
from wior.problems import Minimax
from wior.problems.per_example import descend, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class AGDA(Algorithm):
    """Alternating descent and ascent, for `Minimax` problems.

    x descends on one batch, then y ascends on another one, at the new x. Two backward passes a step.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. Take the value
        that `wior.check` suggests, or start with a hundredth of `inner_lr`.
    inner_lr : float or schedule
        γ, the step size of y, which ascends. Start with 1/L, with L the largest eigenvalue of −∇²_yy f, which
        `wior.check` measures.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.

    References
    ----------
    Yang, Kiyavash, He, "Global convergence and variance-reduced optimization for a class of nonconvex-nonconcave
    minimax problems", NeurIPS 2020. The updates as formulas: `help(wior.baselines.agda)`.

    Examples
    --------
    >>> import wior
    >>> wior.baselines.AGDA(outer_lr=0.001, inner_lr=0.1)
    AGDA(outer_lr=0.001, inner_lr=0.1, separate_streams=False)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    separate_streams: bool = static(False, checks.boolean)

    solves = Minimax
    step_sizes = {"x": "outer_lr", "y": "inner_lr"}
    paper = "Yang, Kiyavash, He, NeurIPS 2020"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((1, 1), (), self.separate_streams)

    def batch_kinds_for(self, problem: Minimax) -> BatchKinds:
        return self.batch_kinds if problem.ascent_data is None else BatchKinds((1,), (1,))

    def init(self, problem: Minimax, x: Tree, y: Tree) -> State:
        return State(x, y)

    def step(self, problem: Minimax, state: State, draws: Draws) -> tuple[State, Seen]:
        if problem.ascent_data is None:
            for_x, for_y = (problem.outer_batch(index[0]) for index in draws.outer)
        else:
            for_x, for_y = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        f_x = oracle.minimax_gradient_x(problem, state.x, state.y, for_x)
        x = descend(state.x, at_step(self.outer_lr, draws.step), f_x, for_x.examples)
        f_y = oracle.minimax_gradient_y(problem, x, state.y, for_y)
        y = descend(state.y, at_step(self.inner_lr, draws.step), tree.neg(f_y), for_y.examples)
        of_x, of_y = one(shared_part(state.x, f_x)), one(shared_part(state.y, f_y))
        return State(x, y), Seen((of_x, of_y), ()) if problem.ascent_data is None else Seen((of_x,), (of_y,))
