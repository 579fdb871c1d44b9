"""Leaves that no step can move: each cause is named, and nothing is said of problems that are sound."""

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import runs
import wior
from small_tasks import SMALL
from wior.data import digits
from wior.problems.movement import unmoved
from wior.tasks import mlp, mlp_init, quadratic
from wior.tasks.data_cleaning import data_cleaning

RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(30, 5)), RNG.integers(0, 3, 30))
X0 = {"log_ridge": jnp.zeros(()), "scale": jnp.zeros(5)}
NETWORK = mlp_init(jax.random.key(0), (5, 4, 3))


def squares(y):
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))


def cross_entropy(y, batch, scale=0.0):
    scores = jax.nn.log_softmax(mlp(y, batch[0] * jnp.exp(scale)))
    return -jnp.mean(jnp.take_along_axis(scores, batch[1][:, None], 1))


def accuracy(y, batch):
    return jnp.mean((jnp.argmax(mlp(y, batch[0]), 1) == batch[1]).astype(float))


def outer(x, y, batch):
    return cross_entropy(y, batch)


def inner(x, y, batch):
    return cross_entropy(y, batch, x["scale"]) + jnp.exp(x["log_ridge"]) * squares(y)


def said(f=outer, g=inner, x0=X0, y0=NETWORK):
    return unmoved(wior.Bilevel(f, g, ROWS, ROWS), x0, y0, (8, 6))


def test_nothing_is_said_of_a_sound_problem_even_where_derivatives_are_zero_at_the_start():
    assert said() == []
    assert said(y0=jax.tree.map(jnp.zeros_like, NETWORK)) == []
    # constant derivatives are not zero
    assert said(f=lambda x, y, b: outer(x, y, b) + x["log_ridge"] + jnp.sum(x["scale"])) == []


def test_an_outer_loss_without_a_derivative_holds_x_where_it_is():
    (sentence,) = said(f=lambda x, y, b: accuracy(y, b))
    assert sentence.startswith("x0 cannot move in any of its leaves (x0['log_ridge'], x0['scale']): it acts through")
    assert "outer has no derivative in y (argmax, rounding, a comparison, as in an accuracy" in sentence


def test_an_outer_loss_that_does_not_know_y_holds_x_where_it_is():
    (sentence,) = said(f=lambda x, y, b: jnp.mean(b[0]))
    assert sentence.endswith("and outer does not depend on y: use y there.")


def test_an_inner_loss_without_a_derivative_holds_y_where_it_is():
    (sentence,) = said(f=lambda x, y, b: outer(x, y, b) + squares(x), g=lambda x, y, b: accuracy(y, b) + squares(x))
    assert sentence.startswith(
        "y0 cannot move in any of its leaves (y0[0].weights, y0[0].bias, y0[1].weights and 1 more): inner uses it, but "
        "has no derivative"
    )


def test_an_inner_loss_that_knows_nothing_of_y_is_named():
    found = said(f=lambda x, y, b: outer(x, y, b) + squares(x), g=lambda x, y, b: squares(x))
    assert len(found) == 1
    assert "inner does not depend on it" in found[0]


def test_a_leaf_of_x_that_no_loss_knows_is_named_alone():
    assert said(g=lambda x, y, b: cross_entropy(y, b, x["scale"])) == [
        "x0['log_ridge'] cannot move: neither outer nor inner depends on it."
    ]


def test_a_leaf_of_x_that_the_inner_solution_does_not_feel_is_named():
    (sentence,) = said(g=lambda x, y, b: cross_entropy(y, b, x["scale"]) + jnp.exp(x["log_ridge"]))
    assert sentence.startswith("x0['log_ridge'] cannot move: inner depends on it, but its derivative in y does not")
    (sentence,) = said(g=lambda x, y, b: cross_entropy(y, b, x["scale"]) + jnp.round(x["log_ridge"]) * squares(y))
    assert sentence.startswith("x0['log_ridge'] cannot move")
    # outer depends on it directly, which moves it
    assert (
        said(lambda x, y, b: outer(x, y, b) + x["log_ridge"] ** 2, lambda x, y, b: cross_entropy(y, b, x["scale"]))
        == []
    )


def test_an_outer_loss_that_rounds_a_leaf_of_x_is_named():
    (sentence,) = said(
        lambda x, y, b: outer(x, y, b) + jnp.round(x["log_ridge"]), lambda x, y, b: cross_entropy(y, b, x["scale"])
    )
    assert sentence.startswith("x0['log_ridge'] cannot move: outer uses it, but has no derivative in it")


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, lambda loss: loss], ids=["jit", "checkpoint", "plain"])
def test_running_statistics_inside_y0_are_named(wrap):
    def normalized(y, batch, mean):
        return cross_entropy(y["network"], (batch[0] - mean, batch[1]))

    def train(x, y, batch):  # the statistics of the batch, as in training
        return normalized(y, batch, jnp.mean(batch[0], 0)) + jnp.exp(x["log_ridge"]) * squares(y["network"])

    def evaluate(x, y, batch):  # those in y0, which nothing updates
        return normalized(y, batch, y["running mean"]) + jnp.sum(x["scale"] ** 2)

    (sentence,) = said(evaluate, wrap(train), y0={"network": NETWORK, "running mean": jnp.zeros(5)})
    assert sentence.startswith("y0['running mean'] cannot move: inner does not depend on it.")
    assert "running statistics of a batch norm, belongs outside of y0, in model_state" in sentence


def test_loops_and_branches_are_followed():
    def inner_in_a_loop(x, y, batch):
        def add(total, row):
            held = jax.lax.cond(row[0] > 0, jax.lax.stop_gradient, lambda ridge: jnp.round(ridge), x["log_ridge"])
            return total + held * squares(y) + jnp.sum(row * x["scale"]) * squares(y), None

        return jax.lax.scan(add, 0.0, batch[0])[0] + squares(y)

    (sentence,) = said(g=inner_in_a_loop)
    assert sentence.startswith("x0['log_ridge'] cannot move")


def test_rows_that_no_loss_reads_are_named_and_those_that_one_reads_are_not():
    x0 = {"weights": wior.PerExample(jnp.zeros(30))}
    weighted = lambda x, y, b: jnp.mean(jnp.exp(x["weights"]) * jnp.sum(b[0] @ y[0].weights, 1) ** 2) + squares(y)
    assert said(g=weighted, x0=x0) == []
    assert said(g=lambda x, y, b: cross_entropy(y, b), x0=x0) == [
        "x0['weights'] cannot move: neither outer nor inner depends on it."
    ]


def test_the_other_classes():
    data, y0 = RNG.normal(size=(6, 5)), jnp.ones(5)
    sets = RNG.normal(size=(6, 4, 5))
    x0 = {"a": jnp.ones(5), "b": jnp.ones(2)}
    of_a = lambda x, y, b: jnp.mean(b @ (x["a"] * y)) - jnp.sum(y**2) + jnp.sum(x["a"] ** 2)
    assert unmoved(wior.Minimax(of_a, data), x0, y0, (4, 4)) == [
        "x0['b'] cannot move: objective does not depend on it."
    ]
    (no_y,) = unmoved(wior.Minimax(lambda x, y, b: jnp.mean(b @ x["a"]) + jnp.sum(x["b"]), data), x0, y0, (4, 4))
    assert no_y.startswith("y0 cannot move: objective does not depend on it")
    map_of_a, squared = lambda x, b: jnp.mean(b, 0) * x["a"], lambda y, b: jnp.mean((b @ y) ** 2)
    for problem in (
        wior.Compositional(squared, map_of_a, data, data),
        wior.ConditionalCompositional(squared, map_of_a, data, sets),
        wior.ConditionalCompositional(squared, map_of_a, data, sets, np.array([4, 3, 2, 1, 4, 4])),
    ):
        (sentence,) = unmoved(problem, x0, y0, (2, 3))
        assert sentence.startswith("x0['b'] cannot move")
    represented = wior.ConditionalBilevel(
        lambda x, y, b: jnp.mean((b @ y) ** 2),
        lambda features, y, b: jnp.mean((features @ y - 1) ** 2),
        data,
        sets,
        represent=lambda x, b: b * x["a"],
    )
    (sentence,) = unmoved(represented, x0, y0, (2, 3))
    assert sentence == "x0['b'] cannot move: neither outer nor inner depends on it."


def test_streamed_data_are_looked_at_without_being_read():
    def unreadable(numbers):
        raise AssertionError("read")

    class Rows:
        def __len__(self):
            return 30

        def __getitem__(self, numbers):
            return ROWS[0][numbers] if len(numbers) <= 2 else unreadable(numbers)

    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean((b @ y) ** 2), lambda x, y, b: jnp.mean((b @ y - 1) ** 2), Rows(), Rows()
    )
    assert unmoved(problem, jnp.zeros(2), jnp.zeros(5), (4, 4)) == [
        "x0 cannot move: neither outer nor inner depends on it."
    ]


def test_a_loss_that_cannot_be_traced_is_left_to_other_checks():
    assert said(f=lambda x, y, b: 1 / 0) == []
    assert unmoved(None, X0, NETWORK, (8, 6)) == []


@pytest.mark.parametrize("name", problems.CASES)
def test_no_false_alarm_on_the_problems_of_the_tests(name):
    case = problems.CASES[name]()
    batches = case.batch_size if isinstance(case.batch_size, tuple) else (case.batch_size,) * 2
    assert unmoved(case.problem, case.x0, case.y0, batches) == []


@pytest.mark.parametrize("name", SMALL)
def test_no_false_alarm_on_the_tasks(name):
    task = SMALL[name][0]()
    batches = task.batch_size if isinstance(task.batch_size, tuple) else (task.batch_size,) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unmoved(task.problem, task.x0, task.y0, batches) == []


def test_no_false_alarm_on_quadratics_and_data_cleaning():
    x, y = jnp.zeros(3), jnp.zeros(5)
    made = [
        quadratic.quadratic(),
        quadratic.quadratic_with_waves(),
        quadratic.quadratic_conditional(ragged=True),
        quadratic.quadratic_minimax(),
        quadratic.quadratic_compositional(),
        quadratic.quadratic_conditional_compositional(ragged=True),
    ]
    for one in made:
        assert unmoved(one.problem, x, y, (2, 3)) == []
    assert unmoved(runs.problem(), *runs.start(), (3, 5)) == []
    parts = digits()
    task = data_cleaning(parts.train, parts.clean, parts.test, sizes=(64, 32, 10), rate=0.3)
    unmoved(task.problem, task.x0, task.y0(), (64, 64))
    before = time.perf_counter()
    assert unmoved(task.problem, task.x0, task.y0(), (64, 64)) == []
    assert time.perf_counter() - before < 1.0
