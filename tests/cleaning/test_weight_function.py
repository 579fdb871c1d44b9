"""The weight function: its formula, what it is not differentiated through, and that it finds systematic errors."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior.cleaning.weight_function import FunctionWeightedLoss, WeightFunction, weight_function_problem
from wior.data import digits
from wior.tasks.data_cleaning import auroc, corrupt
from wior.tasks.networks import mlp, mlp_init

CLASSES = 3


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Plain:
    """Layers on features as they are."""

    def logits(self, y, features):
        return mlp(y, features)


def function(seed=0):
    rng = np.random.default_rng(seed)
    return WeightFunction(*(jnp.asarray(rng.normal(size=shape)) for shape in ((4,), (), (CLASSES, CLASSES))))


def rows(seed=1, n=5):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(n, 4))), jnp.asarray(rng.integers(0, CLASSES, n), jnp.int32)


def test_weights_are_the_formula():
    x, logits, given = function(), 2 * np.random.default_rng(2).normal(size=(6, CLASSES)), np.array([0, 2, 1, 1, 0, 2])
    found = x.weights(jnp.asarray(logits), jnp.asarray(given))
    for row, label, weight in zip(logits, given, found, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        seen = np.array([-np.log(p[label]) / 3, p[label], p.max(), -(p * np.log(p)).sum()])
        score = np.asarray(x.slopes) @ seen + float(x.shift) + p @ np.asarray(x.table)[label]
        np.testing.assert_allclose(weight, 1 / (1 + np.exp(-score)), rtol=1e-12)


def test_nothing_known_is_a_weight_of_one_half():
    assert np.all(WeightFunction.zero(CLASSES).weights(jnp.ones((2, CLASSES)), jnp.array([0, 1])) == 0.5)


def test_a_hopeless_label_leaves_finite_weights_and_derivatives():
    logits, given = jnp.array([[1e4, 0.0, 0.0]]), jnp.array([1])
    x = function()
    assert np.isfinite(x.weights(logits, given)).all()
    gradient = jax.grad(lambda x: x.weights(logits, given)[0])(x)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_model_is_not_rewarded_for_lowering_its_own_weights():
    """The derivative in y is that of the loss with its weights held."""
    x, batch, y = function(), rows(), mlp_init(jax.random.key(3), (4, CLASSES), float)
    loss = FunctionWeightedLoss(Plain(), 0.1)
    held = x.weights(mlp(y, batch[0]), batch[1])

    def with_weights_held(y):
        logs = jax.nn.log_softmax(mlp(y, batch[0]))
        losses = -jnp.take_along_axis(logs, batch[1][:, None], -1)[:, 0]
        return jnp.mean(held * losses) + 0.05 * jnp.vdot(y[0].weights, y[0].weights)

    for found, expected in zip(
        jax.tree.leaves(jax.grad(loss, 1)(x, y, batch)), jax.tree.leaves(jax.grad(with_weights_held)(y)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@functools.cache
def cleaned(noise, rate):
    data = digits(0, 1297, 100)
    given = corrupt(data.train.labels, rate, 10, noise)
    problem = weight_function_problem(Plain(), (data.train.features, given.labels), data.clean)
    y0 = mlp_init(jax.random.key(0), (64, 64, 10), np.float32)
    result = wior.solve(
        problem, wior.WiORBO(10.0, 0.5, 0.5), WeightFunction.zero(10, np.float32), y0, batch_size=50, steps=1500
    )
    logits = mlp(result.y, jnp.asarray(data.train.features))
    weights = result.x.weights(logits, jnp.asarray(given.labels))
    given_probability = jnp.take_along_axis(jax.nn.softmax(logits), jnp.asarray(given.labels)[:, None], -1)[:, 0]
    accuracy = np.mean(np.argmax(mlp(result.y, jnp.asarray(data.test.features)), -1) == data.test.labels)
    return weights, given_probability, ~given.wrong, float(accuracy)


@pytest.mark.slow
def test_systematic_errors_of_the_digits_are_found_from_a_hundred_verified_rows():
    """60% of every class has the label of the next one: a model of its own would believe them."""
    weights, probability, right, accuracy = cleaned("pairs", 0.6)
    assert float(auroc(weights, jnp.asarray(right))) > 0.98
    assert float(auroc(probability, jnp.asarray(right))) > 0.98
    assert accuracy > 0.93


@pytest.mark.slow
def test_clean_data_are_left_alone():
    weights, _, right, accuracy = cleaned("uniform", 0.0)
    assert right.all()
    assert np.mean(np.asarray(weights) < 0.5) < 0.02
    assert accuracy > 0.96
