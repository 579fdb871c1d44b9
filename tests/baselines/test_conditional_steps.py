"""Steps of the conditional baselines against their formulas, in a loop over the outer examples."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior.baselines as of
from baseline_twins import NEUMANN, TERMS, At, bent, bent_inner, bent_map, map_of, outer_gradient
from chance import drawn, keys
from twins import VISITED, X, Y, close, lengths, stepped
from wior.running import visits
from wior.tasks import quadratic


@functools.cache
def conditional(kind, ragged):
    build, function = {
        "bilevel": (quadratic.quadratic_conditional, bent_inner),
        "compositional": (quadratic.quadratic_conditional_compositional, bent_map),
    }[kind]
    problem = bent(build(m=5, n=4, ragged=ragged, seed=1), function)
    assert (len(set(lengths(problem)[VISITED])) > 1) == ragged
    return problem


def visit(problem, algorithm, batch=3, seed=5):
    """The batches of a visit to each outer example, as a twin and as a step takes them: its passes, over and over."""
    rng, n, number = np.random.default_rng(seed), problem.sizes()["inner"], algorithm.visit_batches
    passes = visits.passes_of(algorithm, n, batch)
    permutations = [[rng.permutation(count) for _ in range(passes)] for count in lengths(problem)[VISITED]]
    batches = [np.resize(np.concatenate(own), (number, batch)) for own in permutations]
    whole = np.stack([[np.pad(one, (0, n - len(one))) for one in own] for own in permutations])
    lay_out = jax.jit(lambda *one: visits.in_batches(*one, batch, problem.counts is not None, number))
    return batches, lay_out(whole, lengths(problem)[VISITED])


def inner_problems(problem, x, y):
    """For each outer example of the batch its own f and g."""
    f, g = jax.tree.map(np.asarray, (problem.outer_data, problem.inner_data))
    return [At(x, y, [leaf[i : i + 1] for leaf in f], [leaf[i] for leaf in g]) for i in VISITED]


def epoch_sgd(at, levels, lr, batches):
    """2^k steps of length β/2^k in epoch k = 0 … K, from the mean of the iterates of the epoch before."""
    batches = iter(batches)
    for k in range(levels + 1):
        iterates = []
        for _ in range(2**k):
            at = at.after_sgd(lr / 2**k, [next(batches)])
            iterates.append(at.y)
        at = at._replace(y=np.mean(iterates, 0))
    return at


def hypergradient(a, at, batches, length):
    """∇_x f − J u on the last batch, u by a Neumann product on those before it, or by their sum for length None."""
    *for_u, for_x = batches[-TERMS:]
    series = [0], a.neumann_lr, for_u
    return at.D_x(at.neumann_sum(*series) if length is None else at.neumann_product(*series, length), [0], for_x)


def dl_sgd(a, at, batches, length):
    plain = a.inner_steps is not None
    at = at.after_sgd(a.inner_lr, batches[: a.inner_steps]) if plain else epoch_sgd(at, a.levels, a.inner_lr, batches)
    return hypergradient(a, at, batches, length)


def rt_mlmc(a, at, batches, level, length):
    v = lambda k: hypergradient(a, epoch_sgd(at, k, a.inner_lr, batches), batches, length)
    p = 2.0**-level / sum(2.0**-k for k in range(1, a.levels + 1))
    return v(1) + (v(level + 1) - v(level)) / p


@pytest.mark.parametrize(("inner_steps", "ragged"), [(None, False), (4, True)])
def test_a_step_of_dl_sgd_is_the_formula(inner_steps, ragged):
    problem = conditional("bilevel", ragged)
    algorithm = of.DLSGD(*NEUMANN, levels=2, inner_steps=inner_steps, neumann_terms=TERMS)
    batches, laid = visit(problem, algorithm)
    state = algorithm.init(problem, jnp.asarray(X), jnp.asarray(Y))
    for length in range(TERMS):
        found = stepped(problem, algorithm, state, drawn([[VISITED]], [], 3, keys()[length, True], None, laid))
        points = zip(inner_problems(problem, X, Y), batches, strict=True)
        direction = np.mean([dl_sgd(algorithm, at, own, length) for at, own in points], 0)
        assert np.abs(direction).max() > 1e-2
        close(found.x, X - algorithm.outer_lr * direction)
        close(found.y, Y)


MLMC = of.RTMLMC(*NEUMANN, levels=3, neumann_terms=TERMS)


@functools.cache
def mlmc():
    """The estimates at every level and length, found and by the twin: (levels, lengths, 3), the mean over outer
    examples.
    """
    problem = conditional("bilevel", True)
    batches, laid = visit(problem, MLMC)
    state, draws = MLMC.init(problem, X, Y), drawn([[VISITED]], [], 3, keys()[0, False], None, laid)
    points = list(zip(inner_problems(problem, X, Y), batches, strict=True))
    cases = [[(level, p) for p in range(TERMS)] for level in (1, 2, 3)]
    estimates = jax.jit(lambda *case: MLMC.estimate(problem, state, draws, *case)[0])
    found = [[estimates(*map(jnp.int32, case)) for case in row] for row in cases]
    expected = [[np.mean([rt_mlmc(MLMC, *point, *case) for point in points], 0) for case in row] for row in cases]
    return np.array(found), np.array(expected), points, draws


def test_estimates_of_rt_mlmc_are_the_formula():
    found, expected, _, _ = mlmc()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert np.abs(np.diff(expected, axis=0)).max() > 1e-4
    assert np.abs(np.diff(expected, axis=1)).min() > 1e-4


def test_levels_of_rt_mlmc_add_up_to_the_deepest():
    """And lengths, in the mean, to the first terms of the Neumann series; the deepest level is DL-SGD's."""
    (found, _, points, draws), problem = mlmc(), conditional("bilevel", True)
    np.testing.assert_allclose(MLMC.probabilities, np.array([4, 2, 1]) / 7, rtol=1e-14)
    summed = np.einsum("k,kl...->l...", MLMC.probabilities, found)
    deepest = lambda at, own, length: hypergradient(MLMC, epoch_sgd(at, 4, MLMC.inner_lr, own), own, length)
    expected = np.array([np.mean([deepest(*point, length) for point in points], 0) for length in range(TERMS)])
    np.testing.assert_allclose(summed, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        summed.mean(0), np.mean([deepest(*point, None) for point in points], 0), rtol=1e-12, atol=1e-12
    )
    deep = of.DLSGD(*NEUMANN, levels=4, neumann_terms=TERMS)
    for length in (0, 3):
        end = stepped(problem, deep, deep.init(problem, X, Y), draws._replace(key=keys()[length, False]))
        close(end.x, X - deep.outer_lr * summed[length])


def test_rt_mlmc_draws_levels_with_their_probabilities_and_lengths_evenly():
    """Each of many steps is along the estimate of exactly one level and length."""
    number, problem, (_, expected, _, draws) = 2000, conditional("bilevel", True), mlmc()
    state = MLMC.init(problem, jnp.asarray(X), jnp.asarray(Y))
    step = jax.jit(jax.vmap(lambda key: MLMC.step(problem, state, draws._replace(key=key))[0].x))
    found = step(jax.random.split(jax.random.key(1), number))
    ends = (X - MLMC.outer_lr * expected).reshape(-1, 3)
    matches = np.abs(np.asarray(found)[:, None] - ends).max(2) < 1e-12
    np.testing.assert_array_equal(matches.sum(1), 1)
    shares = np.outer(MLMC.probabilities, np.full(TERMS, 1 / TERMS)).reshape(-1)
    deviations = (matches.mean(0) - shares) / np.sqrt(shares * (1 - shares) / number)
    assert np.abs(deviations).max() < 3.5


@pytest.mark.parametrize("ragged", [False, True])
def test_a_step_of_bsgd_is_the_formula(ragged):
    problem, algorithm = conditional("compositional", ragged), of.BSGD(0.07)
    batches, laid = visit(problem, algorithm)
    state, draws = algorithm.init(problem, X, Y), drawn([[VISITED]], [], 3, keys()[0, False], None, laid)
    found = stepped(problem, algorithm, state, draws)
    directions = []
    for i, (own,) in zip(VISITED, batches, strict=True):
        r, r_x = map_of([np.asarray(leaf)[i] for leaf in problem.inner_data], X, own)
        directions.append(r_x.T @ outer_gradient(problem.outer_data, r, [i]))
    assert np.abs(np.mean(directions, 0)).max() > 1e-2
    close(found.x, X - algorithm.outer_lr * np.mean(directions, 0))
