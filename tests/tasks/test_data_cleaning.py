"""Hyper-data cleaning: the corruption and its record, the losses, the metrics, and which weight belongs to which row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

import wior
from wior.algorithms.algorithm import Draws
from wior.algorithms.wior_bo import State
from wior.data import digits, split
from wior.tasks import mlp, mlp_init
from wior.tasks.data_cleaning import auroc, corrupt, data_cleaning, f1

CLASSES = 7
STEP = jax.jit(wior.WiORBO(outer_lr=2.0, inner_lr=0.1, adjoint_lr=0.1).step)


def labels_of(n, seed=0):
    return np.random.default_rng(seed).integers(0, CLASSES, n)


def small_task(rate=0.5, dtype=np.float64, n=23, seed=0):
    random = np.random.default_rng(seed)
    rows = [(random.normal(size=(k, 5)).astype(dtype), random.integers(0, 3, k)) for k in (n, 11, 13)]
    return data_cleaning(*rows, sizes=(5, 4, 3), rate=rate, l2=0.03), rows


# the corruption


@pytest.mark.parametrize("noise", ["uniform", "pairs"])
@pytest.mark.parametrize(("rate", "n"), [(0.0, 50), (0.1, 50), (0.5, 999), (0.6, 1000), (1.0, 50)])
def test_exactly_the_rate_is_wrong_and_the_record_says_which(noise, rate, n):
    true = labels_of(n)
    given = corrupt(true, rate, CLASSES, noise, seed=3)
    assert given.wrong.sum() == round(rate * n)
    np.testing.assert_array_equal(given.labels != true, given.wrong)
    assert given.labels.min() >= 0
    assert given.labels.max() < CLASSES
    assert given.labels.dtype == true.dtype
    np.testing.assert_array_equal(true, labels_of(n))


def test_pairs_go_to_the_next_class():
    true = labels_of(200)
    given = corrupt(true, 0.5, CLASSES, "pairs")
    np.testing.assert_array_equal(given.labels[given.wrong], (true[given.wrong] + 1) % CLASSES)


def test_uniform_draws_every_other_class_equally_often():
    given = corrupt(np.full(60_000, 2), 1.0, CLASSES, "uniform")
    counts = np.bincount(given.labels, minlength=CLASSES)
    assert counts[2] == 0
    expected = 60_000 / (CLASSES - 1)
    assert np.abs(np.delete(counts, 2) - expected).max() < 5 * expected**0.5


def test_which_rows_are_wrong_depends_on_the_seed_alone():
    true = labels_of(300)
    one, same, other = (corrupt(true, 0.4, CLASSES, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.labels, same.labels)
    assert (one.wrong != other.wrong).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.2}, "rate must lie between 0 and 1, got 1.2"),
        ({"rate": float("nan")}, "rate must lie between"),
        ({"noise": "flip"}, "noise must be one of uniform, pairs, redrawn, got 'flip'"),
        ({"classes": 3}, r"labels must lie in 0 … 2"),
        ({"labels": np.zeros(4)}, "labels must be one axis of integers, got dtype float64"),
    ],
)
def test_bad_corruption_is_refused(change, message):
    arguments = {"labels": labels_of(20), "rate": 0.5, "classes": CLASSES, "noise": "uniform"} | change
    with pytest.raises((ValueError, TypeError), match=message):
        corrupt(**arguments)


def test_shapes_that_do_not_fit_are_named():
    _, (train, clean, test) = small_task()
    with pytest.raises(ValueError, match=r"clean must be features \(n, 5\)"):
        data_cleaning(train, (clean[0][:, :4], clean[1]), test, sizes=(5, 3), rate=0.5)
    with pytest.raises(ValueError, match="test must be features"):
        data_cleaning(train, clean, (test[0], test[1][:2]), sizes=(5, 3), rate=0.5)


# the losses


def test_losses_are_the_formulas():
    task, _ = small_task()
    y = mlp_init(jax.random.key(4), task.sizes)
    x = np.random.default_rng(5).normal(size=6)
    features, labels = (np.asarray(part)[:6] for part in task.problem.inner_data)
    hidden = np.maximum(features @ np.asarray(y[0].weights) + np.asarray(y[0].bias), 0)
    logits = hidden @ np.asarray(y[1].weights) + np.asarray(y[1].bias)
    rows = np.log(np.exp(logits).sum(1)) - logits[np.arange(6), labels]
    norm = sum(float((np.asarray(leaf) ** 2).sum()) for leaf in jax.tree.leaves(y))
    expected = np.mean(rows / (1 + np.exp(-x))) + 0.03 / 2 * norm
    np.testing.assert_allclose(task.problem.inner(x, y, (features, labels)), expected, rtol=1e-12)
    np.testing.assert_allclose(task.problem.outer(None, y, (features, labels)), rows.mean(), rtol=1e-12)


def step_from(task, features, index):
    """One step of WiOR-BO with u ≠ 0 on the training rows `index`, from weights that all differ."""
    random = np.random.default_rng(6)
    n = len(task.wrong)
    inner_data = (jnp.asarray(features), task.problem.inner_data[1])
    problem = wior.Bilevel(task.problem.outer, task.problem.inner, task.problem.outer_data, inner_data)
    x = wior.PerExample(jnp.asarray(random.normal(size=n)))
    y, u = task.y0(1), task.y0(2)
    index = jnp.asarray(index)[None]
    draws = Draws((index % 11,), (index,), None, jnp.uint32(0), jnp.asarray(False))
    after, _ = STEP(problem, State(x, y, u), draws)
    return np.asarray(after.x.rows - x.rows), (x, y, u, problem)


def test_a_step_moves_the_weights_of_its_own_rows():
    task, rows = small_task()
    index = [17, 3, 8, 12]
    moved, (x, y, u, problem) = step_from(task, rows[0][0], index)
    own_loss = lambda y, image, label: problem.outer(None, y, (image[None], label[None]))
    along_u = jax.jit(jax.vmap(lambda image, label: jax.jvp(lambda y: own_loss(y, image, label), (y,), (u,))[1]))
    weights = 1 / (1 + np.exp(-np.asarray(x.rows)))
    expected = np.zeros(len(moved))
    expected[index] = (2.0 * weights * (1 - weights) * np.asarray(along_u(*problem.inner_data)) / len(index))[index]
    np.testing.assert_allclose(moved, expected, rtol=1e-10, atol=1e-15)


def test_another_image_in_one_row_changes_the_step_of_that_row_alone():
    task, rows = small_task()
    index, changed = [17, 3, 8, 12], 8
    features = rows[0][0].copy()
    before, _ = step_from(task, features, index)
    features[changed] += 1.0
    after, _ = step_from(task, features, index)
    assert list(np.flatnonzero(np.abs(after - before) > 1e-6)) == [changed]


# the metrics


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_f1_and_auroc_agree_with_scikit_learn(ties, seed):
    random = np.random.default_rng(seed)
    truth = random.random(301) < 0.3
    scores = random.random(301) + 0.3 * truth
    if ties:
        scores = np.round(scores, 1)
    np.testing.assert_allclose(auroc(jnp.asarray(scores), jnp.asarray(truth)), roc_auc_score(truth, scores), rtol=1e-12)
    kept = scores > 0.5
    np.testing.assert_allclose(f1(jnp.asarray(kept), jnp.asarray(truth)), f1_score(truth, kept), rtol=1e-12)


def test_auroc_of_many_rows_keeps_its_digits_in_float32():
    random = np.random.default_rng(0)
    truth = random.random(200_000) < 0.4
    scores = np.round(random.normal(size=truth.size) + truth, 2).astype(np.float32)
    found = auroc(jnp.asarray(scores), jnp.asarray(truth)).astype(jnp.float32)
    np.testing.assert_allclose(found, roc_auc_score(truth, scores), rtol=1e-6)


def test_scores_without_meaning():
    truth = jnp.arange(10) < 4
    assert auroc(jnp.zeros(10), truth) == 0.5
    assert jnp.isnan(auroc(jnp.arange(10.0), jnp.ones(10, bool)))
    assert jnp.isnan(auroc(jnp.arange(10.0), jnp.zeros(10, bool)))
    assert jnp.isnan(auroc(jnp.full(10, jnp.nan), truth))
    assert auroc(jnp.where(truth, jnp.inf, 0.0), truth) == 1.0
    assert auroc(jnp.where(truth, -jnp.inf, jnp.inf), truth) == 0.0
    assert auroc(jnp.full(10, jnp.inf), truth) == 0.5
    assert f1(jnp.zeros(10, bool), jnp.zeros(10, bool)) == 0.0


def test_metrics_are_those_of_the_docstring_under_jit_and_vmap():
    task, rows = small_task()
    y = task.y0(3)
    perfect = jnp.where(jnp.asarray(task.wrong), -1.0, 1.0)
    x = wior.PerExample(jnp.stack([perfect, jnp.zeros_like(perfect), -perfect]))
    ys = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), y)
    found = jax.jit(jax.vmap(task.metrics))(x, ys)
    np.testing.assert_allclose(found["f1"], [1, 0, 0])
    np.testing.assert_allclose(found["auroc"], [1, 0.5, 0])
    guess = np.argmax(np.asarray(mlp(y, rows[2][0])), 1)
    np.testing.assert_allclose(found["accuracy"], np.mean(guess == rows[2][1]))
    np.testing.assert_allclose(found["clean_loss"], task.problem.outer(None, y, rows[1]), rtol=1e-12)
    alone = task.metrics(wior.PerExample(perfect), y)
    for name, value in alone.items():
        np.testing.assert_allclose(value, found[name][0], rtol=1e-12)


# data and networks


def test_digits_are_split_by_the_seed_without_overlap():
    parts = digits(seed=1, train=900, clean=500)
    assert [len(part.labels) for part in parts] == [900, 500, 397]
    assert parts.train.features.shape == (900, 64)
    for part in parts:
        assert part.features.dtype == np.float32
        assert part.labels.dtype == np.int32
        assert part.features.min() == 0
        assert part.features.max() == 1
        assert set(part.labels) == set(range(10))
    again, other = digits(seed=1, train=900, clean=500), digits(seed=2, train=900, clean=500)
    np.testing.assert_array_equal(parts.train.features, again.train.features)
    assert (parts.train.labels != other.train.labels).any()
    numbered = split(np.arange(40.0)[:, None], np.arange(40), train=20, clean=15, seed=0)
    assert sorted(np.concatenate([part.labels for part in numbered])) == list(range(40))
    with pytest.raises(ValueError, match="leave rows of the 1797 to test on"):
        digits(train=1000, clean=797)


def test_a_network_has_the_sizes_and_the_scale_asked_for():
    params = mlp_init(jax.random.key(0), (300, 200, 7), jnp.float32)
    assert [layer.weights.shape for layer in params] == [(300, 200), (200, 7)]
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    assert all((layer.bias == 0).all() for layer in params)
    np.testing.assert_allclose(
        [layer.weights.std() for layer in params], [(2 / 300) ** 0.5, (2 / 200) ** 0.5], rtol=0.1
    )
    assert mlp(params, jnp.ones((4, 300))).shape == (4, 7)
    with pytest.raises(ValueError, match="sizes must be at least two positive widths"):
        mlp_init(jax.random.key(0), (5,))


# the whole


def test_wrong_labels_of_the_digits_are_found_and_made_only_once():
    rows = digits(seed=0, train=600, clean=300)
    task = data_cleaning(*rows, sizes=(64, 16, 10), rate=0.4, noise="pairs")
    given = np.array(task.problem.inner_data[1])
    np.testing.assert_array_equal(given != rows.train.labels, task.wrong)
    algorithm = wior.WiORBO(outer_lr=100.0, inner_lr=0.3, adjoint_lr=0.1)
    result = wior.solve(
        task.problem, algorithm, task.x0, task.y0(), batch_size=25, steps=600, metrics=task.metrics, record_every=600
    )
    keeping_all = 2 * 0.6 / (1 + 0.6)
    first, last = ({name: float(result.history[name][at]) for name in ("clean_loss", "f1", "auroc")} for at in (0, -1))
    assert (first["f1"], first["auroc"]) == (0.0, 0.5)
    assert last["clean_loss"] < first["clean_loss"] / 4
    assert last["f1"] > keeping_all + 0.8 * (1 - keeping_all)
    assert last["auroc"] > 0.95
    np.testing.assert_array_equal(task.problem.inner_data[1], given)
