"""Steps of the paper's methods in matrices, on the quadratic problems, and what tests compare with."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import wior
from problems import flat
from wior.algorithms.algorithm import Draws
from wior.running import visits
from wior.tasks import quadratic

RATES = (0.07, 0.11, 0.13)  # η, γ, ρ
BRIEFLY = {"steps": 7, "record_every": 7}  # runs of one block, which tests share as far as they can
RNG = np.random.default_rng(0)
X, Y, U = RNG.normal(size=3), RNG.normal(size=5), RNG.normal(size=5)
XI, ZETA = [3, 0, 5], [7, 1, 1, 4]  # a batch may hold an example twice


@jax.jit
def stepped(problem, algorithm, state, draws):
    """One step, compiled once for all problems and algorithms of the same make."""
    return algorithm.step(problem, state, draws)[0]


def draw(outer, inner=(), visits=None, step=0, starts_epoch=False):
    """The draws of one step: for each stream the examples of its batch."""
    batches = lambda streams: tuple(jnp.asarray(stream)[None] for stream in streams)
    return Draws(batches(outer), batches(inner), visits, jnp.uint32(step), jnp.asarray(starts_epoch))


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(flat(found), expected, rtol=tolerance, atol=tolerance)


def same(found, expected, tolerance=1e-12):
    """Two trees leaf by leaf."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    close(found, flat(expected), tolerance)


def mean(rows, index):
    """The mean coefficients of some examples, in numpy."""
    return [np.asarray(leaf)[np.asarray(index)].mean(0) for leaf in rows]


def projected(u, radius):
    return u * min(1.0, radius / np.linalg.norm(u))


# The quadratic problems, on vectors as they are and on nested trees.


def tree_x(vector):
    return {"first": vector[:2], "rest": [vector[2]]}


def tree_y(vector):
    return {"matrix": jnp.reshape(vector[:4], (2, 2))}, vector[4:]


FORMS = {"vectors": (lambda x: jnp.asarray(x), lambda y: jnp.asarray(y)), "trees": (tree_x, tree_y)}
in_both_forms = pytest.mark.parametrize("form", FORMS)


def loss_of_trees(x, y, rows, loss):
    return loss(flat(x), flat(y), rows)


def loss_of_tree(y, rows, loss):
    return loss(flat(y), rows)


def map_of_tree(x, rows, function):
    return tree_y(function(flat(x), rows))


WRAPPERS = {
    wior.Bilevel: (loss_of_trees, loss_of_trees),
    wior.Minimax: (loss_of_trees,),
    wior.Compositional: (loss_of_tree, map_of_tree),
    wior.ConditionalBilevel: (loss_of_trees, loss_of_trees),
    wior.ConditionalCompositional: (loss_of_tree, map_of_tree),
}


def in_form(form, problem):
    """The problem with its losses on vectors or on trees."""
    if form == "vectors":
        return problem
    keyword = {map_of_tree: "function"}
    losses = (
        functools.partial(wrapper, **{keyword.get(wrapper, "loss"): getattr(problem, name)})
        for wrapper, name in zip(WRAPPERS[type(problem)], problem._losses, strict=False)
    )
    return type(problem)(*losses, *(getattr(problem, name) for name in problem._data))


BILEVEL = quadratic.quadratic()
MINIMAX = quadratic.quadratic_minimax()
COMPOSITIONAL = quadratic.quadratic_compositional()


def bilevel_twin(problem, state, outer, inner, rates):
    """A step with a batch for each of ∇_y f, ∇_x f, ∇_y g, ∇²_yy g u, ∇²_xy g u."""
    (x, y, u), (eta, gamma, rho) = state, rates
    C, D, _, c, _ = mean(problem.outer_data, outer[0])
    f_y = C @ y + D.T @ x + c
    _, D, E, _, e = mean(problem.outer_data, outer[1])
    f_x = D @ y + E @ x + e
    A, B, a, _ = mean(problem.inner_data, inner[0])
    g_y = A @ y + B @ x + a
    g_yy_u = mean(problem.inner_data, inner[1])[0] @ u
    g_xy_u = mean(problem.inner_data, inner[2])[1].T @ u
    return x - eta * (f_x - g_xy_u), y - gamma * g_y, u - rho * (g_yy_u - f_y)


def compositional_twin(problem, state, xi, zeta, rates):
    (x, y, u), (eta, gamma, rho) = state, rates
    C, c = mean(problem.outer_data, xi)
    R, r = mean(problem.inner_data, zeta)
    return x - eta * R.T @ u, (1 - gamma) * y + gamma * (R @ x + r), (1 - rho) * u + rho * (C @ y + c)


def minimax_twin(problem, x, y, xi, rates):
    C, D, E, c, e = mean(problem.data, xi)
    return x - rates[0] * (D @ y + E @ x + e), y + rates[1] * (C @ y + D.T @ x + c)


# Conditional problems: a plain loop over the visits of each outer example.

CONDITIONAL = quadratic.quadratic_conditional(m=5, n=4)
CONDITIONAL_COMP = quadratic.quadratic_conditional_compositional(m=5, n=4)
VISITED = [4, 0, 2]


def lengths(problem):
    n = problem.sizes()["inner"]
    return np.full(problem.sizes()["outer"], n) if problem.counts is None else np.asarray(problem.counts)


def random_passes(problem, inner_epochs, seed=5):
    """For each outer example of the batch, as many permutations of its own inner set."""
    rng = np.random.default_rng(seed)
    return [[rng.permutation(lengths(problem)[i]) for _ in range(inner_epochs)] for i in VISITED]


def laid_out(problem, passes, batch):
    """The same passes as a step takes them: padded, and in batches."""
    whole = np.zeros((len(passes), len(passes[0]), problem.sizes()["inner"]), np.int32)
    for i, own in enumerate(passes):
        for s, one in enumerate(own):
            whole[i, s, : len(one)] = one
    counts = jnp.asarray(lengths(problem)[VISITED])
    return visits.in_batches(jnp.asarray(whole), counts, batch, problem.counts is not None)


# PerExample leaves.


def gathered(x, index):
    return x | {"rows": x["rows"][index]}


def dense(build):
    """The same problem with a plain vector of weights, of which the loss takes those of its batch by itself."""
    problem, algorithm, x, y, batch_size = build()
    numbered = lambda data: data | {"index": np.arange(len(data["target"]))}
    if isinstance(problem, wior.Minimax):
        posed = wior.Minimax(
            lambda x, y, b: problems.objective_with_rows(gathered(x, b["index"]), y, b), numbered(problem.data)
        )
    elif isinstance(problem, wior.Compositional):
        inner = lambda x, b: problems.inner_map_with_rows(gathered(x, b["index"]), b)
        posed = wior.Compositional(problem.outer, inner, problem.outer_data, numbered(problem.inner_data))
    else:
        inner = lambda x, y, b: problems.inner_with_rows(gathered(x, b["index"]), y, b)
        posed = wior.Bilevel(problem.outer, inner, problem.outer_data, numbered(problem.inner_data))
    return problems.Case(posed, algorithm, x | {"rows": x["rows"].rows}, y, batch_size)
