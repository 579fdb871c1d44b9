"""What a user defines outside of the package: an order that learns, one that does not, a method, a problem class."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import wior
from wior import oracle, tree
from wior.algorithms import Algorithm
from wior.algorithms.algorithm import BatchKinds, Rate, Seen, at_step, number, one
from wior.orders import AdaptiveOrder, PermutationOrder, RandomReshuffling, next_line
from wior.problems import Bilevel, Problem
from wior.problems.per_example import descend, is_per_example, shared_part


class Lengths(NamedTuple):
    line: jax.Array
    lengths: jax.Array  # of the vectors of the batches of the line


@dataclasses.dataclass(frozen=True)
class LargestFirst(AdaptiveOrder):
    """Examples of batches with long derivatives come first in the next pass."""

    def start(self, key, n, chunk, batch, width, dtype):
        first = RandomReshuffling().one_pass(key, jnp.uint32(0), n)
        line = jnp.concatenate([first, jnp.zeros(2 * chunk, jnp.int32)])
        return Lengths(line, jnp.zeros(-(-(n + chunk) // batch), dtype))

    def observe(self, memory, batch_number, vector):
        return memory._replace(lengths=memory.lengths.at[batch_number].set(jnp.linalg.norm(vector)))

    def rebuild(self, memory, tail, taken, n, chunk, batch):
        place = tail + jnp.arange(n)
        length = jnp.where(place < taken, memory.lengths[jnp.minimum(place // batch, len(memory.lengths) - 1)], 0)
        sorted_pass = jax.lax.dynamic_slice(memory.line, (tail,), (n,))[jnp.argsort(-length)]
        return Lengths(next_line(memory.line, sorted_pass, tail, taken, chunk), jnp.zeros_like(memory.lengths))


@dataclasses.dataclass(frozen=True)
class ThereBackAgain(PermutationOrder):
    """Every permutation is used in three passes, of which the second is read backwards."""

    def permutation(self, number):
        return number // 3, number % 3 == 1


class Pushed(NamedTuple):
    x: Any
    y: Any
    u: Any
    push: Any  # the momentum of the leaves of x that all examples share


@dataclasses.dataclass(frozen=True)
class HeavyBall(Algorithm):
    """WiOR-BO with momentum: p ← β p + ∇_x f − ∇²_xy g u, x ← x − η p. Rows of x have no momentum."""

    outer_lr: Rate
    inner_lr: Rate
    adjoint_lr: Rate
    momentum: float = number(0.5)

    solves = Bilevel
    step_sizes = {"x": "outer_lr", "y": "inner_lr", "u": "adjoint_lr"}

    @property
    def batch_kinds(self):
        return BatchKinds(outer=(1,), inner=(1,))

    def init(self, problem, x, y):
        shared = jax.tree.map(
            lambda leaf: None if is_per_example(leaf) else jnp.zeros_like(leaf), x, is_leaf=is_per_example
        )
        return Pushed(x, y, tree.zeros_like(y), shared)

    def step(self, problem, state, draws):
        x, y, u, push = state
        xi, zeta = problem.outer_batch(draws.outer[0][0]), problem.inner_batch(draws.inner[0][0])
        f_x, f_y = oracle.outer_gradients(problem, x, y, xi)
        g_y, products = oracle.inner_derivatives(problem, x, y, zeta)
        g_xy_u, g_yy_u = products(u)
        direction = tree.sub(f_x, g_xy_u)
        push = jax.tree.map(lambda p, d: self.momentum * p + d, push, shared_part(x, direction))
        along = jax.tree.map(
            lambda leaf, d, p: d if is_per_example(leaf) else p, x, direction, push, is_leaf=is_per_example
        )
        rate = lambda name: at_step(getattr(self, name), draws.step)
        moved = Pushed(
            descend(x, rate("outer_lr"), along, zeta.examples),
            descend(y, rate("inner_lr"), g_y),
            descend(u, rate("adjoint_lr"), tree.sub(g_yy_u, f_y)),
            push,
        )
        return moved, Seen((one((f_y, shared_part(x, f_x))),), (one((g_y, shared_part(x, g_xy_u))),))


def validation_error(x, y, rows):
    return jnp.mean((rows[0] @ y - rows[1]) ** 2)


def penalized_error(x, y, rows):
    weighted = jnp.mean(jax.nn.sigmoid(x["weights"]) * (rows[0] @ y - rows[1]) ** 2)
    return weighted + jnp.exp(x["strength"]) * jnp.sum(y * y)


@dataclasses.dataclass(frozen=True, eq=False)
class Ridge(Problem):
    """The strength of a ridge regression and the weights of its examples, restated as a bilevel problem."""

    training: Any
    validation: Any

    name = "ridge"
    special_case_of = Bilevel
    _losses = ()
    _data = ("training", "validation")

    def sizes(self):
        return {"outer": len(self.validation[1]), "inner": len(self.training[1])}

    def check(self, x, y, batches=None):
        self.restated().check(x, y, batches)

    def restated(self):
        return Bilevel(validation_error, penalized_error, self.validation, self.training)


def ridge(outer=24, inner=40, features=3):
    """A problem of one's own class, and where runs of it start."""
    rng = np.random.default_rng(0)
    rows = lambda n: (rng.normal(size=(n, features)), rng.normal(size=n))
    x0 = {"strength": jnp.zeros(()), "weights": wior.PerExample(jnp.asarray(rng.normal(size=inner)))}
    return Ridge(rows(inner), rows(outer)), x0, jnp.asarray(rng.normal(size=features))
