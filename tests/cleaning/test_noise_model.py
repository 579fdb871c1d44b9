"""The noise model: its losses as formulas, its hyper-gradient, what a trusted class means; the models that learn, and
what each design reads.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import wior
from wior.cleaning import designs, models, noise_model
from wior.cleaning.designs import DESIGNS, Material, RowWeightedLoss, Setting, counted_table, likeliest_table
from wior.cleaning.models import Custom, Network, all_log_probabilities, column_statistics
from wior.cleaning.noise_model import CorrectedLoss, damped, log_posterior, log_table, noise_model_problem
from wior.cleaning.weight_function import WeightFunction
from wior.tasks.networks import Layer, mlp, mlp_init

CLASSES, COLUMNS, ROWS, VERIFIED = 3, 4, 7, 5
NONE = np.zeros(CLASSES, bool)
LAST = np.array([False, False, True])
SHARE, L2 = 0.4, 0.3


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Layers:
    """Layers on features as they are."""

    def logits(self, y, features):
        return mlp(y, features)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Matrix:
    """A linear model without shift, all of it penalized: with L2 its inner problem has one solution."""

    def logits(self, y, features):
        return features @ y


def arrays(seed=0):
    """Features and verified rows, none of the numbers of rows, columns and classes alike."""
    rng = np.random.default_rng(seed)
    features, known = rng.normal(size=(ROWS + 2, COLUMNS)), rng.normal(size=(VERIFIED, COLUMNS))
    return features, (known, np.array([2, 0, 1, 1, 0], np.int32))


PLACES = np.array([8, 0, 3, 5, 2, 1, 6], np.int32)  # of the training rows among all features
GIVEN = np.array([0, 2, 1, 1, 0, 2, 1], np.int32)
PARTNERS = np.array([4, 0, 1, 3, 2, 4, 0], np.int32)


def posed(model, trusted=NONE, damping=0.0, share=SHARE):
    features, verified = arrays()
    numbers = (jnp.asarray(number) for number in (share, L2, damping))
    known = (jnp.asarray(verified[0]), jnp.asarray(verified[1]))
    inner = CorrectedLoss(model, jnp.asarray(features), known, jnp.asarray(trusted), *numbers)
    return noise_model_problem(inner, (PLACES, GIVEN), PARTNERS)


def table(seed=1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(CLASSES, CLASSES)))


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def forward(y, row):
    """A network by itself, for one row."""
    hidden = np.maximum(row @ np.asarray(y[0].weights) + np.asarray(y[0].bias), 0)
    return softmax(hidden @ np.asarray(y[1].weights) + np.asarray(y[1].bias))


def table_by_loops(x, trusted):
    """T[c, given] of the definition: what a trusted class has to do with others is impossible."""
    found = np.zeros_like(x)
    for c in range(len(x)):
        for given in range(len(x)):
            if c == given or not (trusted[c] or trusted[given]):
                found[c, given] = np.exp(x[c, given])
        found[c] /= found[c].sum()
    return found


# the losses


@jax.jit
def losses(problem, x, y, rows):
    return problem.inner(x, y, rows), problem.outer(x, y, problem.outer_data)


@jax.jit
def derivatives(problem, x, y):
    """First ones, and those along them."""
    gradient = lambda x, y: jax.grad(problem.inner, (0, 1))(x, y, problem.inner_data)
    first = gradient(x, y)
    return first, jax.jvp(gradient, (x, y), first)[1]


@pytest.mark.parametrize("trusted", [NONE, LAST], ids=["none trusted", "the last trusted"])
def test_the_losses_are_the_formulas(trusted):
    problem, x = posed(Layers(), trusted, damping=0.7), table()
    y = mlp_init(jax.random.key(2), (COLUMNS, 6, CLASSES), float)
    y = (y[0]._replace(bias=jnp.arange(6.0) / 7), y[1])
    features, (known, right) = arrays()
    t = table_by_loops(np.asarray(x), trusted)
    batch = slice(1, 6)  # not all rows
    corrected = 0.0
    for place, given in zip(PLACES[batch], GIVEN[batch], strict=True):
        p = forward(y, features[place])
        corrected -= np.log(sum(p[c] * t[c, given] for c in range(CLASSES))) / 5
    own = [-np.log(forward(y, known[at])[right[at]]) for at in range(VERIFIED)]
    norm = sum(float((np.asarray(layer.weights) ** 2).sum()) for layer in y)  # without the shifts
    expected = corrected + SHARE * np.mean([own[at] for at in PARTNERS[batch]]) + L2 / 2 * norm
    rows = jax.tree.map(lambda leaf: leaf[batch], problem.inner_data)
    found = losses(problem, x, y, rows)
    np.testing.assert_allclose(found, (expected, np.mean(own)), rtol=1e-12)


def test_a_start_is_the_table_with_no_label_impossible():
    t = np.array([[1.0, 0.0, 0.0], [0.2, 0.5, 0.3], [0.0, 0.9, 0.1]])
    found = np.exp(log_table(noise_model.start(jnp.asarray(t)), jnp.asarray(NONE)))
    np.testing.assert_allclose(found, (t + noise_model.LEAST) / (1 + 3 * noise_model.LEAST), rtol=1e-12)


@pytest.mark.parametrize("trusted", [NONE, LAST, np.array([True, False, True]), ~NONE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_trusted_class_gives_its_own_label_and_no_other_class_gives_it(trusted, dtype):
    x = table().astype(dtype)
    found = np.exp(jax.jit(log_table)(x, jnp.asarray(trusted)))
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(found, table_by_loops(np.asarray(x), trusted), rtol=1e-5, atol=0)
    for c in np.flatnonzero(trusted):
        np.testing.assert_array_equal(found[c], np.eye(CLASSES)[c])
        np.testing.assert_array_equal(found[:, c], np.eye(CLASSES)[c])


@pytest.mark.parametrize("trusted", [NONE, LAST])
def test_the_posterior_is_bayes_rule(trusted):
    x, given = table(), np.array([0, 1, 2, 2, 1])
    p = softmax(2 * np.random.default_rng(3).normal(size=(5, CLASSES)))
    t = table_by_loops(np.asarray(x), trusted)
    found = np.exp(jax.jit(log_posterior)(jnp.log(p), log_table(x, jnp.asarray(trusted)), jnp.asarray(given)))
    for row in range(5):
        joint = [p[row, c] * t[c, given[row]] for c in range(CLASSES)]
        np.testing.assert_allclose(found[row], joint / np.sum(joint), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_certainty_of_the_model_moves_a_trusted_label(dtype):
    """Neither to another class, nor another label to a trusted class."""
    logs = jax.nn.log_softmax(jnp.array([[1e4, 0.0, -1e4], [-1e4, -1e4, 1e4]], dtype))
    found = np.exp(log_posterior(logs, log_table(table().astype(dtype), jnp.asarray(LAST)), jnp.array([2, 0])))
    np.testing.assert_array_equal(found[0], [0, 0, 1])
    assert found[1, 2] == 0
    np.testing.assert_allclose(found[1].sum(), 1, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("trusted", [NONE, LAST], ids=["none trusted", "the last trusted"])
def test_hopeless_rows_leave_finite_derivatives(trusted, dtype):
    """Rows that the model is as sure of as numbers allow, the other way: their given label, and a trusted one."""
    x = table().astype(dtype)
    y = jnp.array([[1e5, 0.0, -1e5]], dtype)
    features, given = jnp.ones((3, 1), dtype), jnp.array([2, 1, 0])
    numbers = (jnp.asarray(number, dtype) for number in (SHARE, L2, 0.3))
    inner = CorrectedLoss(Matrix(), features, (features, given), jnp.asarray(trusted), *numbers)
    problem = noise_model_problem(inner, (np.arange(3), given), np.arange(3))
    for leaf in jax.tree.leaves(derivatives(problem, x, y)):
        assert np.isfinite(leaf).all()
        assert leaf.dtype == dtype


def test_the_damping_is_in_the_hessian_alone():
    y = (jnp.array([[1.0, -2.0]]), {"shift": jnp.array([3.0])})
    flat, shape = ravel_pytree(y)
    loss = lambda flat: damped(shape(flat), 0.7)
    value, gradient, hessian = jax.jit(lambda flat: (loss(flat), jax.grad(loss)(flat), jax.hessian(loss)(flat)))(flat)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)
    np.testing.assert_array_equal(hessian, 0.7 * np.eye(3))


# the hyper-gradient

Y0 = jnp.zeros((COLUMNS, CLASSES))


@pytest.mark.parametrize("trusted", [NONE, LAST], ids=["none trusted", "the last trusted"])
def test_the_hyper_gradient_agrees_with_finite_differences(trusted):
    problem, x = posed(Matrix(), trusted), table()
    found = wior.hypergradient(problem, x, Y0)
    step = 1e-5
    expected = np.zeros((CLASSES, CLASSES))
    for at in np.ndindex(CLASSES, CLASSES):
        up, down = (wior.hypergradient(problem, x.at[at].add(sign * step), found.y).objective for sign in (1, -1))
        expected[at] = (up - down) / (2 * step)
    np.testing.assert_allclose(found.gradient, expected, rtol=1e-5, atol=2e-7)
    assert np.abs(expected[:2, :2]).min() > 1e-4  # something to agree with
    fixed = trusted[:, None] | trusted
    np.testing.assert_array_equal(np.asarray(found.gradient)[fixed], 0)


def test_with_damping_u_solves_the_damped_system():
    """(∇²_yy g + μ I) u = ∇_y f, with the matrices written out."""
    plain, x = posed(Matrix()), table()
    found = wior.hypergradient(posed(Matrix(), damping=0.7), x, Y0)
    size = COLUMNS * CLASSES
    inner = lambda x, flat: plain.inner(x, flat.reshape(Y0.shape), plain.inner_data)
    outer = lambda flat: plain.outer(x, flat.reshape(Y0.shape), plain.outer_data)

    @jax.jit
    def matrices(x, y):
        g_y = jax.grad(inner, 1)
        return g_y(x, y), jax.jacfwd(g_y, 1)(x, y), jax.jacfwd(g_y)(x, y), jax.grad(outer)(y)

    g_y, g_yy, g_yx, f_y = map(np.asarray, matrices(x, found.y.ravel()))
    np.testing.assert_allclose(g_y, 0, atol=1e-9)
    u = np.linalg.solve(g_yy + 0.7 * np.eye(size), f_y)
    np.testing.assert_allclose(np.ravel(found.u), u, rtol=1e-8)
    np.testing.assert_allclose(np.ravel(found.gradient), -u @ g_yx.reshape(size, CLASSES**2), rtol=1e-8, atol=1e-12)


# models

EYE = (Layer(jnp.eye(4, dtype=jnp.float32), jnp.zeros(4, jnp.float32)),)  # logits that are the standardized inputs


def measured(rows=40, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, 4)) * [1, 3, 0.1, 20] + [0, -5, 2, 100]


def inputs(features):
    return np.asarray(Network.standardizing(features, (), 4).logits(EYE, jnp.asarray(features)))


def test_columns_are_standardized():
    features = measured().astype(np.float32)
    expected = (features - features.mean(0)) / features.std(0)
    np.testing.assert_allclose(inputs(features), expected, atol=2e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e9, 1e30])
def test_units_do_not_matter(scale):
    features = (measured() - measured().mean(0)).astype(np.float32)
    np.testing.assert_allclose(inputs((features * scale).astype(np.float32)), inputs(features), atol=2e-5)


@pytest.mark.parametrize("constant", [0.0, 7.0, -1e9, 1e30])
def test_a_constant_column_is_nothing(constant):
    features = measured().astype(np.float32)
    features[:, 2] = constant
    found = inputs(features)
    np.testing.assert_array_equal(found[:, 2], 0)
    np.testing.assert_allclose(found[:, [0, 1, 3]], inputs(measured().astype(np.float32))[:, [0, 1, 3]], atol=1e-6)
    assert np.all(inputs(np.full((5, 4), constant, np.float32)) == 0)


def test_what_lies_far_out_counts_as_five_deviations():
    """Of the training rows' columns: other rows may lie anywhere."""
    model = Network.standardizing(measured().astype(np.float32), (), 4)
    far = measured(1).astype(np.float32) + np.array([[1e6, -1e6, 1e30, 0.0]], np.float32)
    found = np.asarray(model.logits(EYE, jnp.asarray(far)))[0]
    np.testing.assert_allclose(found[:3], [5, -5, 5])
    assert abs(found[3]) < 5


def test_rows_of_wide_tables_are_as_long_as_those_of_fifty_columns():
    wide = np.random.default_rng(0).normal(size=(60, 300)).astype(np.float32)
    wide[:, :100] = 3.0
    model = Network.standardizing(wide, (500,), 3)
    center, scale, bound = map(np.asarray, (model.center, model.scale, model.bound))
    found = np.clip((wide - center) * scale, -bound, bound)
    np.testing.assert_allclose((found**2).sum(1).mean(), models.LONGEST, rtol=1e-5)
    np.testing.assert_allclose(bound, models.FURTHEST * (models.LONGEST / 200) ** 0.5, rtol=1e-6)
    # and the first layer makes up for it: what it gives has the size that He's start gives to rows of any length
    before = found @ np.asarray(model.init(0)[0].weights)
    np.testing.assert_allclose((before**2).mean(), 2, rtol=0.1)


def test_bytes_are_the_numbers_they_stand_for():
    pixels = np.random.default_rng(0).integers(0, 256, (30, 4), np.uint8)
    np.testing.assert_array_equal(inputs(pixels), inputs(pixels.astype(np.float32)))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_statistics_by_pieces_are_those_of_all_rows(monkeypatch, dtype):
    monkeypatch.setattr(models, "ROWS_AT_ONCE", 7)
    features = (100 + 30 * np.random.default_rng(0).normal(size=(23, 3))).clip(0, 255).astype(dtype)
    mean, deviation = column_statistics(features)
    np.testing.assert_allclose(mean, features.astype(np.float64).mean(0), rtol=1e-12)
    np.testing.assert_allclose(deviation, features.astype(np.float64).std(0), rtol=1e-12)


def test_deviations_beside_a_large_mean_keep_their_digits():
    features = np.full((1000, 1), 2.0**20, np.float32)
    features[::2] += 1
    np.testing.assert_array_equal(np.ravel(column_statistics(features)), [2.0**20 + 0.5, 0.5])


def test_a_network_begins_by_its_seed_and_a_linear_model_at_zero():
    network, linear = (Network.standardizing(measured().astype(np.float32), hidden, 3) for hidden in ((5,), ()))
    one, same, other = (network.init(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[0].weights, same[0].weights)
    assert np.all(np.asarray(one[0].weights) != np.asarray(other[0].weights))
    assert [layer.weights.shape for layer in one] == [(4, 5), (5, 3)]
    (only,) = linear.init(1)
    np.testing.assert_array_equal(only.weights, np.zeros((4, 3)))
    assert {leaf.dtype for leaf in jax.tree.leaves((one, only))} == {np.dtype(np.float32)}


def test_a_custom_model_begins_with_its_parameters_whatever_the_seed():
    params = {"slope": np.arange(12.0).reshape(4, 3), "shift": [np.ones(3)]}
    model = Custom(lambda params, features: features @ params["slope"] + params["shift"][0], params)
    start = model.init(5)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(start))
    features = measured(2)
    np.testing.assert_allclose(model.logits(start, features), features @ params["slope"] + 1)


def test_log_probabilities_by_pieces_are_those_of_all_rows(monkeypatch):
    model, features = Matrix(), measured(5)
    y = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3))) / 50
    whole = np.log(softmax(features @ np.asarray(y)))
    monkeypatch.setattr(models, "ROWS_AT_ONCE", 3)
    np.testing.assert_allclose(all_log_probabilities(model, y, features), whole, rtol=1e-9)


# designs


def simulated(rows=4000, seed=0):
    """Rows with known p, their classes drawn from it, and labels drawn from a table that is not symmetric."""
    rng = np.random.default_rng(seed)
    t = np.array([[0.7, 0.3, 0.0], [0.1, 0.5, 0.4], [0.05, 0.0, 0.95]])
    p = softmax(4 * rng.normal(size=(rows, CLASSES)))
    true = np.array([rng.choice(CLASSES, p=row) for row in p])
    given = np.array([rng.choice(CLASSES, p=t[c]) for c in true])
    return t, p, given


def test_the_counted_table_is_counted():
    _, p, given = simulated(11)
    expected = np.full((CLASSES, CLASSES), 1 / CLASSES)
    for row in range(11):
        for c in range(CLASSES):
            expected[c, given[row]] += p[row, c]
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(counted_table(p, given), expected, rtol=1e-12)


def test_the_trusting_table_trusts():
    found = designs.trusting_table(4)
    np.testing.assert_allclose(found.sum(1), 1)
    np.testing.assert_allclose(np.diag(found), 0.9 + 0.1 / 4)
    assert len(np.unique(found)) == 2


def test_the_likeliest_table_is_the_one_that_made_the_labels():
    t, p, given = simulated()
    found = np.exp(likeliest_table(np.log(p).astype(np.float32), jnp.asarray(given), NONE))
    np.testing.assert_allclose(found, t, atol=0.03)
    seen = counted_table(p, given)  # what a count makes of it: not the same
    assert np.abs(seen - t).max() > 0.1


def test_the_likeliest_table_leaves_a_trusted_class_alone():
    _, p, given = simulated(200)
    found = np.exp(likeliest_table(np.log(p).astype(np.float32), jnp.asarray(given), LAST))
    np.testing.assert_array_equal(found[2], [0, 0, 1])
    np.testing.assert_array_equal(found[:, 2], [0, 0, 1])
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-6)


def material(trusted=NONE, rows=None):
    features, verified = arrays()
    given = np.array([0, 2, 1, 1, 0, 2, 1, 0, 2], np.int32)
    rows = np.arange(len(given)) if rows is None else rows
    return Material(
        Matrix(),
        jnp.asarray(features),
        jnp.asarray(given),
        jnp.asarray(rows, jnp.int32),
        tuple(map(jnp.asarray, verified)),
        trusted,
        L2,
        0,
    )


Y = jnp.asarray(np.random.default_rng(4).normal(size=(COLUMNS, CLASSES)))


def bayes(p, t, given):
    joint = p * t.T[given]
    return joint / joint.sum(1, keepdims=True)


@pytest.mark.parametrize("trusted", [NONE, LAST])
def test_a_noise_model_weighs_a_row_by_the_probability_of_its_label(trusted):
    own, x = material(trusted), table()
    found = DESIGNS["noise"].read(own, x, Y)
    given, t = np.asarray(own.given), table_by_loops(np.asarray(x), trusted)
    posterior = bayes(softmax(np.asarray(own.features @ Y)), t, given)
    np.testing.assert_allclose(found.posterior, posterior, rtol=1e-9)
    np.testing.assert_allclose(found.weights, posterior[np.arange(len(given)), given], rtol=1e-9)
    np.testing.assert_allclose(found.table, t, rtol=1e-9, atol=0)


@pytest.mark.parametrize("weighting", ["row", "function"])
def test_weights_are_read_as_they_are_and_the_table_is_estimated(weighting):
    own, design = material(LAST), DESIGNS[weighting]
    rng = np.random.default_rng(5)
    given, logits = np.asarray(own.given), np.asarray(own.features @ Y)
    if weighting == "row":
        x = wior.PerExample(jnp.asarray(rng.normal(size=len(given))))
        weights = 1 / (1 + np.exp(-np.asarray(x.rows)))
    else:
        x = WeightFunction(*(jnp.asarray(rng.normal(size=shape)) for shape in ((4,), (), (CLASSES, CLASSES))))
        weights = np.asarray(x.weights(jnp.asarray(logits), own.given))
    found = design.read(own, x, Y)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-9)
    t = np.exp(likeliest_table(np.log(softmax(logits)), own.given, LAST))
    np.testing.assert_allclose(found.table, t, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.posterior, bayes(softmax(logits), t, given), rtol=1e-5, atol=1e-12)
    np.testing.assert_array_equal(found.posterior[given == 2], np.eye(CLASSES)[[2] * 3])


@pytest.mark.parametrize("weighting", list(DESIGNS))
def test_every_design_poses_a_problem_and_begins_it(weighting):
    own, design = material(), DESIGNS[weighting]
    setting = Setting(weighting, "trusting", 1.0, 0.1, 0.7)
    problem, x = design.problem(own, setting), design.start(own, setting, Y)
    problem.check(x, Y)
    assert problem.sizes() == {"outer": VERIFIED, "inner": 9}
    read = design.read(own, x, Y)
    assert read.weights.shape == (9,)
    np.testing.assert_allclose(read.table.sum(1), 1, rtol=1e-6)
    if weighting != "noise":
        np.testing.assert_allclose(read.weights, 0.5)  # nothing is known yet


def test_row_weights_multiply_the_losses():
    own = material()
    loss, x = RowWeightedLoss(Matrix(), jnp.asarray(L2)), np.random.default_rng(6).normal(size=9)
    p = softmax(np.asarray(own.features @ Y))
    losses = -np.log(p[np.arange(9), np.asarray(own.given)])
    expected = np.mean(losses / (1 + np.exp(-x))) + L2 / 2 * float((np.asarray(Y) ** 2).sum())
    np.testing.assert_allclose(loss(jnp.asarray(x), Y, (own.features, own.given)), expected, rtol=1e-9)


def test_a_noise_model_learns_from_the_rows_it_is_told_to():
    rows = np.array([7, 1, 2, 8])
    own, design = material(rows=rows), DESIGNS["noise"]
    setting = Setting("noise", "counted", 1.0, 0.1, 0.7)
    places, given, partners = design.problem(own, setting).inner_data
    np.testing.assert_array_equal(places, rows)
    np.testing.assert_array_equal(given, np.asarray(own.given)[rows])
    assert len(set(np.asarray(partners).tolist())) == 4  # of five verified rows none twice
    counted = counted_table(softmax(np.asarray(own.features @ Y))[rows], np.asarray(own.given)[rows])
    found = design.start(own, setting, Y)
    np.testing.assert_allclose(found, noise_model.start(jnp.asarray(counted, jnp.float32)), rtol=1e-5)
    trusting = design.start(own, setting._replace(start="trusting"), Y)
    expected = noise_model.start(jnp.asarray(designs.trusting_table(CLASSES), jnp.float32))
    np.testing.assert_array_equal(trusting, expected)


def test_every_verified_row_is_a_partner_as_often_as_any_other():
    own = material()._replace(given=jnp.zeros(13, jnp.int32), features=jnp.zeros((13, COLUMNS)), rows=jnp.arange(13))
    partners = DESIGNS["noise"].problem(own, Setting("noise", "trusting", 1.0, 0.1, 1.0)).inner_data[2]
    assert sorted(np.bincount(partners, minlength=VERIFIED)) == [2, 2, 3, 3, 3]
