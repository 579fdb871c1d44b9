"""F²SA: the hyper-gradient from first derivatives alone, with a penalty that grows.

T times, on a batch of each level:   z ← z − γ_k ∇_y g(x, z; ζ),   y ← y − β_k (∇_y f(x, y; ξ) + λ_k ∇_y g(x, y; ζ))
then:   x ← x − η_k (∇_x f(x, y; ξ') + λ_k (∇_x g(x, y; ζ') − ∇_x g(x, z; ζ')))

with γ_k = γ (k + 1)^(−4/7), β_k and η_k falling as (k + 1)^(−5/7) and λ_k = λ (k + 1)^(1/7): the rule of the paper for
noise in both levels. For noise in neither take 0, 1/3 and 1/3. Both values of ∇_x g are on one batch, where most of
their noise cancels. At a fixed λ the bias is of order 1/λ.

Kwon, Kwon, Wright, Nowak, "A fully first-order method for stochastic bilevel optimization", ICML 2023.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from wior import checks, oracle, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Rate, Seen, decayed, number, one, static
from wior.algorithms.parts.penalty import State, plus
from wior.problems import Bilevel
from wior.problems.per_example import descend, shared_part

Tree = Any


@dataclasses.dataclass(frozen=True)
class F2SA(Algorithm):
    """First derivatives and a growing penalty, for `Bilevel` problems.

    First derivatives alone. z minimizes g and y minimizes f + λ g; the difference of their derivatives in x takes the
    place of the second derivatives.

    Parameters
    ----------
    outer_lr : float or schedule
        η, the step size of x. A number, or a schedule: a function of the step number, as optax has them. No rule gives
        it: take the value that `wior.check` suggests, or start where one step moves x by about a hundredth of its size,
        and try factors of 3 from there. It decays, so the first value may be larger than for other methods.
    inner_lr : float or schedule
        γ, the step size of z. Start with 1/L, with L the largest eigenvalue of the inner Hessian ∇²_yy g, which
        `wior.check` measures.
    penalized_lr : float or schedule
        β, the step size of y, whose objective is f + λ g. Start with `inner_lr` / `penalty`, which is about the largest
        stable value.
    penalty : float, default 1.0
        λ, the weight of g in the first step. The direction of x has a bias of order 1/λ, and noise that grows with λ.
    inner_steps : int, default 1
        T, the number of steps on z and y in one step of the method.
    penalty_growth : float, default 1/7
        How the penalty grows: λ (k + 1)^growth in step k.
    outer_decay : float, default 5/7
        How η and β fall: as (k + 1)^−decay. 0 keeps them constant. Where there is no noise in either level take 1/3
        here and for `penalty_growth`, and 0 for `inner_decay`. A schedule is used as it is.
    inner_decay : float, default 4/7
        How γ falls: as (k + 1)^−decay. A schedule is used as it is.
    separate_streams : bool, default False
        Whether the batches for each purpose come from a stream of examples of their own. If False, all batches of a
        step come one after the other from a single stream, so that a pass reads every example once.

    References
    ----------
    Kwon, Kwon, Wright, Nowak, "A fully first-order method for stochastic bilevel optimization", ICML 2023. The updates
    as formulas: `help(wior.baselines.f2sa)`.

    Examples
    --------
    >>> import wior
    >>> method = wior.baselines.F2SA(outer_lr=1.0, inner_lr=0.5, penalized_lr=0.05, penalty=10.0)
    >>> method.penalty, method.inner_steps
    (10.0, 1)
    """

    outer_lr: Rate  # η
    inner_lr: Rate  # γ
    penalized_lr: Rate  # β, at most about γ/λ
    penalty: float = number(1.0)  # λ
    inner_steps: int = static(1)  # T
    penalty_growth: float = number(1 / 7, checks.non_negative_number)
    outer_decay: float = number(5 / 7, checks.non_negative_number)
    inner_decay: float = number(4 / 7, checks.non_negative_number)
    separate_streams: bool = static(False, checks.boolean)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "penalized_lr", "z": "inner_lr"}
    adds_outer_to_y = True
    paper = "Kwon, Kwon, Wright, Nowak, ICML 2023"

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds((self.inner_steps, 1), (self.inner_steps, 1), self.separate_streams)

    def init(self, problem: Bilevel, x: Tree, y: Tree) -> State:
        return State(x, y, y)

    def step(self, problem: Bilevel, state: State, draws: Draws) -> tuple[State, Seen]:
        x, weight = state.x, decayed(self.penalty, draws.step, -self.penalty_growth)
        inner_lr = decayed(self.inner_lr, draws.step, self.inner_decay)
        penalized_lr = decayed(self.penalized_lr, draws.step, self.outer_decay)

        def turn(
            carry: tuple[Tree, Tree], item: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[Tree, Tree], tuple[Tree, Tree]]:
            y, z = carry
            xi, zeta = problem.outer_batch(item[0]), problem.inner_batch(item[1])
            at_z = oracle.inner_gradient(problem, x, z, zeta)
            f_y, at_y = oracle.outer_gradient_y(problem, x, y, xi), oracle.inner_gradient(problem, x, y, zeta)
            moved = descend(y, penalized_lr, plus(f_y, weight, at_y)), descend(z, inner_lr, at_z)
            return moved, (f_y, (at_y, at_z))

        (y, z), (seen_f, seen_g) = oracle.scan(turn, (state.y, state.z), (draws.outer[0], draws.inner[0]))
        xi, zeta = problem.outer_batch(draws.outer[1][0]), problem.inner_batch(draws.inner[1][0])
        f_x = oracle.outer_gradient_x(problem, x, y, xi)
        apart = tree.sub(oracle.inner_gradient_x(problem, x, y, zeta), oracle.inner_gradient_x(problem, x, z, zeta))
        outer_lr = decayed(self.outer_lr, draws.step, self.outer_decay)
        moved = State(descend(x, outer_lr, plus(f_x, weight, apart), zeta.examples), y, z)
        return moved, Seen((seen_f, one(f_x)), (seen_g, one(shared_part(x, apart))))
