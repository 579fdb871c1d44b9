"""Constraints of the upper level as penalties: values and derivatives by hand, every class, one program."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import wior
from problems import flat
from wior.running import block

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(8, 3))


def outer(x, y, batch):
    return jnp.mean((batch @ y - 1) ** 2) + 0.1 * x @ x


def inner(x, y, batch):
    return jnp.mean((batch @ y - x.sum()) ** 2) + jnp.sum((y - x) ** 2)


def constraints(x, y):
    return {"y": y - 0.2, "both": x @ y - 1}


def test_the_loss_and_its_derivatives_have_the_squares_of_what_is_above_zero():
    x, y = jnp.asarray([1.0, 2.0, -1.0]), jnp.asarray([0.5, 0.7, -3.0])
    loss = wior.penalized(outer, constraints, 3.0)
    # y − 0.2 is (0.3, 0.5, −3.2), and x·y − 1 is 3.9
    np.testing.assert_allclose(loss(x, y, DATA), outer(x, y, DATA) + 3 * (0.3**2 + 0.5**2 + 3.9**2), rtol=1e-12)
    of_x, of_y = jax.grad(loss, (0, 1))(x, y, DATA)
    f_x, f_y = jax.grad(outer, (0, 1))(x, y, DATA)
    np.testing.assert_allclose(of_x - f_x, 6 * 3.9 * y, rtol=1e-12)
    np.testing.assert_allclose(of_y - f_y, 6 * (3.9 * x + jnp.array([0.3, 0.5, 0.0])), rtol=1e-12)
    satisfied = wior.penalized(outer, lambda x, y: (x.sum() - 9, ()), 3.0)
    assert satisfied(x, y, DATA) == outer(x, y, DATA)


def test_a_larger_weight_comes_nearer_to_the_constraint_and_compiles_nothing():
    """f = ½|x − a|², c = x₀ − ½: the solution is (a₀ + w)/(1 + 2w) with a factor 2w, and its multiplier is a₀ − ½."""
    a = jnp.asarray([2.0, -1.0])
    f = lambda x, y, batch: 0.5 * jnp.sum((x - a) ** 2) + 0.0 * jnp.mean(batch)
    g = lambda x, y, batch: 0.5 * jnp.sum((y - x) ** 2) + 0.0 * jnp.mean(batch)
    c = lambda x, y: x[0] - 0.5
    x = y = jnp.zeros(2)
    found, programs = [], []
    for weight in (1.0, 10.0, 100.0):
        problem = wior.Bilevel(wior.penalized(f, c, weight), g, DATA, DATA)
        method = wior.WiORBO(outer_lr=0.5 / weight, inner_lr=0.5, adjoint_lr=0.5)
        result = wior.solve(problem, method, x, y, batch_size=8, steps=4000, record_every=4000)
        x, y = result.x, result.y
        found.append(float(x[0]))
        programs.append(block.one_run._cache_size())
    np.testing.assert_allclose(found, [(2 + w) / (1 + 2 * w) for w in (1, 10, 100)], rtol=1e-6)
    np.testing.assert_allclose(found[-1] - 0.5, 1.5 / 200, rtol=0.01)
    assert programs[0] == programs[-1]


@pytest.mark.parametrize("name", problems.CASES)
def test_every_class_of_problems_takes_it(name):
    """As a loss that has the penalty written into it."""
    problem, method, x, y, batch_size = problems.CASES[name]()
    which = "objective" if isinstance(problem, wior.Minimax) else "outer"
    own = getattr(problem, which)
    above = lambda *variables: flat(variables[-1]) - 0.1

    def written(*arguments):
        return own(*arguments) + 0.3 * jnp.sum(jnp.maximum(above(*arguments[:-1]), 0) ** 2)

    rest = {field.name: getattr(problem, field.name) for field in dataclasses.fields(problem) if field.name != which}
    runs = [
        wior.solve(type(problem)(**{which: loss}, **rest), method, x, y, batch_size=batch_size, steps=7, record_every=7)
        for loss in (wior.penalized(own, above, 0.3), written, own)
    ]
    states = [np.asarray(flat((run.x, run.state))) for run in runs]
    np.testing.assert_allclose(states[0], states[1], rtol=1e-11, atol=1e-13)
    assert np.abs(states[0] - states[2]).max() > 1e-6
    np.testing.assert_array_equal(runs[0].history["backward_passes"], runs[2].history["backward_passes"])


def test_a_run_with_a_penalty_is_resumed_and_swept(tmp_path):
    make = lambda weight: wior.Bilevel(wior.penalized(outer, constraints, weight), inner, DATA, DATA)
    method, options = wior.WiORBO(0.01, 0.1, 0.1), {"batch_size": 3, "record_every": 9}
    x = y = jnp.ones(3)
    whole = wior.solve(make(2.0), method, x, y, steps=18, **options)
    wior.solve(make(2.0), method, x, y, steps=7, checkpoint=tmp_path / "run", **options)
    resumed = wior.solve(make(2.0), method, x, y, steps=18, checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(resumed.x, whole.x)
    with pytest.raises(wior.AnotherRunError):
        wior.solve(make(3.0), method, x, y, steps=20, checkpoint=tmp_path / "run", **options)
    together = wior.sweep(make(2.0), method, x, y, grid={"outer_lr": [0.01, 0.02]}, steps=18, **options)
    np.testing.assert_allclose(together.x[0, 0], whole.x, rtol=1e-10)


def test_a_loss_that_holds_arrays_and_one_that_returns_more():
    @jax.tree_util.register_pytree_node_class
    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        def __call__(self, x, y, batch):
            return self.scale * outer(x, y, batch)

        def tree_flatten(self):
            return (self.scale,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    loss = wior.penalized(Scaled(jnp.asarray(2.0)), constraints, 3.0)
    assert len(jax.tree.leaves(loss)) == 2
    again = jax.tree.unflatten(jax.tree.structure(loss), [jnp.asarray(4.0), jnp.asarray(0.0)])
    x = y = jnp.ones(3)
    np.testing.assert_allclose(again(x, y, DATA), 4 * outer(x, y, DATA))
    more = wior.penalized(lambda x, y, batch, key=None: (outer(x, y, batch), key), constraints, 3.0)
    value, state = more(x, y, DATA, key=7)
    np.testing.assert_allclose(value, outer(x, y, DATA) + 3 * (3 * 0.8**2 + 2**2))
    assert state == 7
    assert repr(wior.penalized(outer, constraints, 3)) == "penalized(outer, constraints, 3.0)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((outer, constraints, 0), "weight must be a positive finite number, got 0"),
        ((outer, constraints, "much"), "weight must be a positive finite number, got 'much'"),
        ((3, constraints, 1.0), "outer must be a function, got 3"),
        ((outer, 3, 1.0), "constraints must be a function, got 3"),
    ],
)
def test_what_is_wrong_names_its_argument(arguments, message):
    with pytest.raises((TypeError, ValueError)) as error:
        wior.penalized(*arguments)
    assert message in str(error.value)


def test_a_problem_without_outer_data_has_constraints_of_y():
    inner = lambda x, batch: x - jnp.mean(batch)
    options = {"batch_size": 8, "steps": 2000}
    method = wior.WiORComp(outer_lr=0.01, inner_lr=0.5, adjoint_lr=0.5)
    problem = wior.Compositional(wior.penalized(lambda y: y**2, lambda y: 1 - y, 3.0), inner, None, np.arange(8.0))
    result = wior.solve(problem, method, 0.0, 0.0, **options)
    assert float(result.y) == pytest.approx(3 / 4)  # 2y = 6(1 − y)


@pytest.mark.parametrize(
    ("constraints", "shown"),
    [
        (lambda x, y: None, "None"),
        (lambda x, y: y <= 1, "values of type bool"),
        (lambda x, y: {"a": y, "b": jnp.sum(y > 1)}, "values of type int"),
    ],
)
def test_what_would_be_no_penalty_is_refused(constraints, shown):
    problem = wior.Bilevel(wior.penalized(outer, constraints, 1.0), inner, DATA, DATA)
    with pytest.raises(
        TypeError, match=f"constraints must return numbers that should not be above .* it returned {shown}"
    ):
        wior.solve(problem, wior.WiORBO(0.1, 0.1, 0.1), jnp.zeros(3), jnp.zeros(3), steps=1)
