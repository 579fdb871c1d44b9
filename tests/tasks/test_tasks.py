"""The tasks: their objectives against formulas written out and finite differences, their metrics by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from runs import enable_x64
from small_tasks import SMALL, blobs, labeled
from wior import tree
from wior.tasks.auc import Primal, Saddle, Score, auc_maximization, imbalanced_blobs
from wior.tasks.invariant_risk import gap_above, logistic_minimizer
from wior.tasks.meta_regression import Adapted
from wior.tasks.portfolio import factor_returns
from wior.tasks.ridge import exact_objective, minimum, ridge_per_class, ridge_per_feature
from wior.tasks.task import Task

every = pytest.mark.parametrize("name", SMALL)


@functools.cache
def made(name) -> Task:
    return SMALL[name][0]()


def away(task, seed=5, scale=0.3):
    """A point near the start at which nothing is zero."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + scale * random.normal(size=leaf.shape), task.x0)


def exact(task, x):
    return wior.hypergradient(task.problem, x, task.y0)


def metrics(task, x, y=None):
    return {name: float(value) for name, value in jax.jit(task.metrics)(x, task.y0 if y is None else y).items()}


def naive_invariant_risk(task, x):
    """h(x) row by row, the mean of the inner minimizers' losses."""
    labels, seen = np.asarray(task.problem.outer_data), np.asarray(task.problem.inner_data)
    scores = [np.mean([c @ x for c in own]) for own in seen]
    losses = [np.log1p(np.exp(-b * s)) for b, s in zip(labels, scores, strict=True)]
    return np.mean(losses) + 0.05 * np.sum(x**2)


def naive_portfolio(task, x):
    earned = np.asarray(task.problem.outer_data) @ x
    return -earned.mean() + np.mean((earned - earned.mean()) ** 2) + 0.05 * np.sum(x**2)


# every task


@every
def test_a_task_has_what_a_run_needs(name):
    task = made(name)
    assert task.name == name
    assert set(metrics(task, task.x0)) == set(task.measures)
    assert task.judged_by in task.measures
    assert set(task.grid) == {"outer_lr", "inner_lr"}
    task.problem.check(task.x0, task.y0)


# the objectives of the other three are written out, or have a closed form, below
@pytest.mark.parametrize("name", ["invariant_risk", "ridge_per_feature", "ridge_per_class"])
def test_the_hypergradient_agrees_with_finite_differences(name):
    task = made(name)
    x, direction = away(task), jax.tree.map(jnp.subtract, away(task, seed=6), task.x0)
    slope = float(tree.vdot(exact(task, x).gradient, direction))
    h = 1e-5
    ends = [float(exact(task, tree.axpy(sign * h, direction, x)).objective) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-9)
    assert abs(slope) > 1e-5


@every
def test_the_papers_algorithm_improves_it(name):
    task, (_, algorithm, measure) = made(name), SMALL[name]
    batch_size = task.batch_size if isinstance(task.batch_size, tuple) else min(task.batch_size, 10)
    result = wior.solve(
        task.problem, algorithm, task.x0, task.y0, batch_size=batch_size, steps=300, metrics=task.metrics, record_every=150
    )  # fmt: skip
    first, last = result.history[measure][[0, -1]]
    assert last < 0.8 * first


@every
def test_a_seed_gives_the_same_bits(name):
    maker = SMALL[name][0]
    one, same, other = (jax.tree.leaves((task.problem, task.x0)) for task in (made(name), maker(seed=0), maker(seed=1)))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@every
def test_equal_settings_are_one_program(name):
    assert jax.tree.structure(made(name).problem) == jax.tree.structure(SMALL[name][0](seed=1).problem)


@every
def test_in_single_precision_everything_is_single(name):
    with enable_x64(False):
        task = SMALL[name][0]()
        for leaf in jax.tree.leaves((task.problem, task.x0, task.y0)):
            assert leaf.dtype in (jnp.float32, jnp.int32)
        found = jax.eval_shape(task.metrics, task.x0, task.y0)
        assert {value.dtype for value in found.values()} == {jnp.dtype("float32")}


# invariant risk


def test_invariant_risk_is_a_logistic_regression_on_the_means():
    task = made("invariant_risk")
    x = away(task)
    found = metrics(task, x)
    np.testing.assert_allclose(found["loss"], naive_invariant_risk(task, np.asarray(x)), rtol=1e-13)
    np.testing.assert_allclose(found["loss"], exact(task, x).objective, rtol=1e-10)


def invariant_optimum(task):
    labels, seen = np.asarray(task.problem.outer_data), np.asarray(task.problem.inner_data)
    return logistic_minimizer(labels[:, None] * seen.mean(1), 0.1)


def test_the_gap_is_that_to_the_point_where_the_gradient_vanishes():
    task = made("invariant_risk")
    best, x = invariant_optimum(task), away(task)
    assert np.linalg.norm(exact(task, best).gradient) < 1e-10
    at_best, found = metrics(task, best), metrics(task, x)
    assert at_best["gap"] == at_best["distance"] == 0
    np.testing.assert_allclose(found["gap"], found["loss"] - at_best["loss"], rtol=1e-12)
    np.testing.assert_allclose(found["distance"], np.sum((np.asarray(x) - best) ** 2), rtol=1e-12)


def test_newton_survives_a_start_from_which_its_full_steps_would_not():
    signed = np.array([[30.0, 1.0], [-1.0, 0.2], [-1.2, -0.1], [50.0, -3.0]])
    x = logistic_minimizer(signed, 1e-6)
    share = 1 / (1 + np.exp(signed @ x))
    np.testing.assert_allclose(1e-6 * x - signed.T @ share / 4, 0, atol=1e-12)


@pytest.mark.parametrize("step", [1e-3, -1e-3, 0.5, -3.0, 30.0, -200.0])
def test_small_gaps_keep_their_digits_in_float32(step):
    best = np.array([-4.0, -0.3, 0.0, 1.7, 6.0])
    compiled = jax.jit(gap_above)
    in_double = compiled(jnp.asarray(best), jnp.asarray(step))
    in_single = compiled(jnp.asarray(best, jnp.float32), jnp.asarray(step, jnp.float32))
    assert in_single.dtype == jnp.float32
    np.testing.assert_allclose(in_single.mean(), in_double.mean(), rtol=2e-3)
    mean = lambda s: np.logaddexp(0, -s)
    np.testing.assert_allclose(in_double, mean(best + step) - mean(best) + step / (1 + np.exp(best)), atol=1e-13)


# area under the curve


def test_the_saddle_value_is_the_mean_over_pairs():
    train, _, _ = blobs()
    rows, labels = map(np.asarray, train)
    w = np.array([0.4, -0.7, 0.2])
    share = labels.mean()
    positive, negative = rows[labels == 1] @ w, rows[labels == 0] @ w
    pairs = np.mean([(1 - (s - t)) ** 2 for s in positive for t in negative])
    x, alpha = Score(w, positive.mean(), negative.mean()), negative.mean() - positive.mean()
    loss = Saddle(float(share), 0.0)
    np.testing.assert_allclose(1 + loss(x, alpha, train) / (share * (1 - share)), pairs, rtol=1e-12)
    ascent = [float(loss(x, alpha + step, train)) for step in (-0.1, 0.0, 0.1)]
    assert max(ascent) == ascent[1]


def test_the_primal_value_and_its_minimizer_are_those_of_the_saddle():
    task = made("auc")
    rows, labels = map(np.asarray, task.problem.data)
    saddle = jax.jit(lambda x, alpha: jax.value_and_grad(task.problem.objective, (0, 1))(x, alpha, (rows, labels)))

    def best_alpha(w):
        return (rows[labels == 0] @ w).mean() - (rows[labels == 1] @ w).mean()

    x = away(task)
    value, (_, in_alpha) = saddle(x, best_alpha(np.asarray(x.w)))
    assert abs(in_alpha) < 1e-14
    np.testing.assert_allclose(metrics(task, x)["objective"], value, rtol=1e-12)
    known = Primal.of(rows, labels, task.facts["positive"], task.facts["l2"])
    value, slopes = saddle(known.minimizer, best_alpha(np.asarray(known.minimizer.w)))
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(slopes)) < 1e-14
    np.testing.assert_allclose(known.minimum, value, rtol=1e-10)
    assert metrics(task, known.minimizer)["gap"] < 1e-28


def test_both_areas_by_hand():
    rows = np.array([[1.0, 9.0], [2.0, 8.0], [3.0, 7.0], [4.0, 6.0]])
    valid, test = (rows, np.array([0, 1, 0, 1])), (rows, np.array([0, 0, 1, 1]))
    task = auc_maximization((rows, np.array([1, 0, 0, 1])), valid, test)
    found = metrics(task, Score(jnp.array([1.0, 0.0]), jnp.zeros(()), jnp.zeros(())))
    assert (found["auroc"], found["valid_auroc"]) == (1.0, 0.75)


def test_blobs_have_the_share_asked_for_and_bad_ones_are_refused():
    for (rows, labels), n in zip(imbalanced_blobs(50, 40, 30, inputs=2, share=0.2), (50, 40, 30), strict=True):
        assert rows.shape == (n, 2)
        assert labels.sum() == n // 5
    with pytest.raises(ValueError, match=r"share must lie between 0 and 1, got 1\.0"):
        imbalanced_blobs(share=1.0)
    train, valid, test = blobs()
    with pytest.raises(ValueError, match="give train, valid and test, or none"):
        auc_maximization(train)
    with pytest.raises(ValueError, match=r"valid must have labels 0 and 1, both of them, got \[0\]"):
        auc_maximization(train, (valid[0], 0 * valid[1]), test)
    with pytest.raises(ValueError, match="test must be features"):
        auc_maximization(train, valid, (test[0], test[1][:3]))


# portfolio


def test_the_portfolio_and_its_optimum_are_the_closed_forms():
    task = made("portfolio")
    x, problem = away(task), task.problem
    composed = jax.jit(
        jax.value_and_grad(lambda x: problem.outer(problem.inner(x, problem.inner_data), problem.outer_data))
    )
    returns = np.asarray(problem.outer_data)
    best = np.linalg.solve(2 * np.cov(returns.T, bias=True) + 0.1 * np.eye(4), returns.mean(0))
    at_best, found = metrics(task, best), metrics(task, x)
    np.testing.assert_allclose(found["loss"], naive_portfolio(task, np.asarray(x)), rtol=1e-11)
    np.testing.assert_allclose(found["loss"], composed(x)[0], rtol=1e-11)
    np.testing.assert_allclose(found["gap"], found["loss"] - at_best["loss"], rtol=1e-12)
    np.testing.assert_allclose(found["distance"], np.sum((np.asarray(x) - best) ** 2), rtol=1e-12)
    assert at_best["gap"] < 1e-30
    assert np.linalg.norm(composed(best)[1]) < 1e-14


def test_returns_have_a_factor_model():
    returns = factor_returns(6, 20_000, factors=1)
    values = np.linalg.eigvalsh(np.cov(returns.T))
    own = np.diag(np.cov(returns.T)).min()
    assert returns.shape == (20_000, 6)
    assert values[-1] > 2 * own  # one factor moves all of them
    assert abs(returns.mean()) < 0.5


# learning to learn


def test_the_inner_map_is_a_step_of_gradient_descent_and_the_mean_of_those_on_single_points():
    task = made("meta_regression")
    x = away(task)
    support = jax.tree.map(lambda leaf: np.asarray(leaf[2]), task.problem.inner_data)
    (w, b), (v, c) = (tuple(map(np.asarray, layer)) for layer in x)
    inputs, values = support
    hidden = np.maximum(inputs @ w + b, 0)
    error = 2 * (hidden @ v + c - values) / len(inputs)
    back = (error @ v.T) * (hidden > 0)
    by_hand = [w - 0.01 * inputs.T @ back, b - 0.01 * back.sum(0), v - 0.01 * hidden.T @ error, c - 0.01 * error.sum(0)]
    step = Adapted(0.01)
    one_by_one = jax.vmap(lambda *point: step(x, tuple(part[None] for part in point)))
    moved, mean = jax.jit(lambda: (step(x, support), tree.mean(one_by_one(*support))))()
    for found in (moved, mean):
        for leaf, expected in zip(jax.tree.leaves(found), by_hand, strict=True):
            np.testing.assert_allclose(leaf, expected, rtol=1e-12)


def test_the_training_loss_is_the_objective_and_the_others_are_of_other_waves():
    task = made("meta_regression")
    x, problem = away(task), task.problem

    def composed(x):
        each = jax.vmap(lambda support, query: problem.outer(problem.inner(x, support), query))
        return jnp.mean(each(problem.inner_data, problem.outer_data))

    found = metrics(task, x)
    np.testing.assert_allclose(found["loss"], jax.jit(composed)(x), rtol=1e-12)
    assert len({round(value, 9) for value in found.values()}) == 3


def test_waves_are_waves():
    inputs, values = (np.asarray(part, float)[0, :, 0] for part in made("meta_regression").problem.inner_data)
    # a sin(z − φ) is linear in sin z and cos z: four points, two unknowns
    basis = np.stack([np.sin(5 * inputs), np.cos(5 * inputs)], 1)
    amplitudes, *_ = np.linalg.lstsq(basis, values, rcond=None)
    np.testing.assert_allclose(basis @ amplitudes, values, atol=1e-12)
    assert 0.1 <= np.linalg.norm(amplitudes) <= 5


# ridges


def test_the_exact_objective_and_its_gradient_are_those_of_the_hypergradient():
    task = made("ridge_per_feature")
    objective = jax.jit(jax.value_and_grad(functools.partial(exact_objective, task.problem)))
    x = away(task)
    value, gradient = objective(x)
    found = exact(task, x)
    np.testing.assert_allclose(value, found.objective, rtol=1e-11)
    np.testing.assert_allclose(gradient, found.gradient, rtol=1e-8, atol=1e-12)
    lowest = minimum(objective, x, steps=60)
    assert lowest < float(value)
    assert all(float(objective(away(task, seed, 2.0))[0]) > lowest for seed in range(5))


def test_ridge_metrics_by_hand():
    rows, labels = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), np.array([1, 0, 0])
    task = ridge_per_feature((rows, labels), (rows[:2], labels[:2]), (rows, labels))
    found = metrics(task, task.x0, jnp.array([2.0, -1.0]))
    likely = np.array([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-2)), 1 - 1 / (1 + np.exp(-1))])
    np.testing.assert_allclose(found["test_loss"], -np.log(likely).mean(), rtol=1e-12)
    np.testing.assert_allclose(found["valid_loss"], -np.log(likely[:2]).mean(), rtol=1e-12)
    np.testing.assert_allclose(found["accuracy"], 2 / 3, rtol=1e-12)


def test_two_classes_are_a_logistic_regression_of_their_difference():
    parts = labeled(2)
    binary, softmax = made("ridge_per_feature"), ridge_per_class(*parts, 2)
    y = np.random.default_rng(0).normal(size=(4, 2))
    one, other = metrics(binary, binary.x0, y[:, 1] - y[:, 0]), metrics(softmax, softmax.x0, y)
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=1e-12)
    x = np.array([-1.0, 0.5])
    loss = other["valid_loss"]
    np.testing.assert_allclose(
        jax.jit(softmax.problem.inner)(x, y, softmax.problem.outer_data),
        loss + 0.5 * (np.exp(-1.0) * np.sum(y[:, 0] ** 2) + np.exp(0.5) * np.sum(y[:, 1] ** 2)),
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows, labels: (rows, labels + 1),
            "valid must have integer labels 0 … 1, got dtype int64 with values from",
        ),
        (lambda rows, labels: (rows, labels + 0.0), "valid must have integer labels 0 … 1, got dtype float64"),
        (lambda rows, labels: (rows[:, :3], labels), r"valid must be features \(n, 4\) and labels \(n,\), got shapes"),
    ],
)
def test_bad_rows_are_refused(change, message):
    train, valid, test = labeled(2)
    with pytest.raises(ValueError, match=message):
        ridge_per_feature(train, change(*valid), test)
