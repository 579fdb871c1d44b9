"""What is defined outside of the package runs like what is inside: orders, a method, a problem class.

On eight devices they are run by `extensions` in `on_eight_devices.py`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import extensions
import runs
import wior
from extensions import HeavyBall, LargestFirst, ThereBackAgain, penalized_error, validation_error
from wior.algorithms import Algorithm
from wior.algorithms.algorithm import BatchKinds, Seen, State, one
from wior.orders import Incremental, RandomReshuffling
from wior.problems import Bilevel
from wior.problems.restated import restated

RIDGE, *RIDGE_START = extensions.ridge()
HEAVY_BALL = HeavyBall(0.01, 0.02, 0.03)
# a problem, a method, a start and an order; x has a `PerExample` leaf in each
RUNS = {
    "an order that learns": (runs.problem(), runs.ALGORITHM, *runs.start(), LargestFirst()),
    "an order of permutations": (runs.problem(), runs.ALGORITHM, *runs.start(), ThereBackAgain()),
    "a method": (runs.problem(), HEAVY_BALL, *runs.start(), RandomReshuffling()),
    "a method under an order that learns": (runs.problem(), HEAVY_BALL, *runs.start(), LargestFirst()),
    "a problem": (RIDGE, runs.ALGORITHM, *RIDGE_START, RandomReshuffling()),
}


def same(a, b):
    for one_leaf, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one_leaf, other)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_ones_own_resumes_and_sweeps(name, tmp_path):
    *arguments, order = RUNS[name]
    options = {"order": order, "batch_size": (3, 5), "seed": 3, "record_every": 7}
    whole = wior.solve(*arguments, steps=40, **options)
    for before, after in zip(jax.tree.leaves(arguments[2]), jax.tree.leaves(whole.x), strict=True):
        assert np.abs(after - before).min() > 1e-6
    wior.solve(*arguments, steps=17, checkpoint=tmp_path / "run", **options)
    resumed = wior.solve(*arguments, steps=40, checkpoint=tmp_path / "run", **options)
    same(whole.state, resumed.state)
    rates = [0.004, arguments[1].outer_lr]
    swept = wior.sweep(*arguments, grid={"outer_lr": rates}, seeds=[2, 3], steps=40, order=order, batch_size=(3, 5))
    for found, expected in zip(jax.tree.leaves((swept.x, swept.y)), jax.tree.leaves((whole.x, whole.y)), strict=True):
        np.testing.assert_allclose(found[1, 1], expected, rtol=1e-11)
        assert np.abs(found[0, 1] - expected).max() > 1e-6


@dataclasses.dataclass(frozen=True)
class Followed(Algorithm):
    """A method of one's own that writes down the inner examples of its steps in y."""

    inner_lr: float

    solves = Bilevel
    step_sizes = {"y": "inner_lr"}

    @property
    def batch_kinds(self):
        return BatchKinds((1,), (1,))

    def init(self, problem, x, y):
        return State(x, y)

    def step(self, problem, state, draws):
        examples = draws.inner[0][0]
        g_y = jax.grad(lambda y: problem.inner(state.x, y, problem.inner_batch(examples).data))(state.y)
        place = (draws.step * len(examples)).astype(jnp.int32)
        return State(state.x, jax.lax.dynamic_update_slice(state.y, examples.astype(float), (place,))), Seen(
            (one(state.x),), (one(g_y),)
        )


N = 12


def read_by(order, batch, passes):
    """The inner examples of some passes, one row a pass; the gradient of example i has the length i."""
    inner = lambda x, y, rows: jnp.mean(rows) * jnp.sum(y[:1]) + jnp.sum(x)
    problem = Bilevel(lambda x, y, rows: jnp.sum(x * x) + jnp.sum(y), inner, np.ones(5), np.arange(float(N)))
    found = wior.solve(
        problem, Followed(0.1), jnp.ones(1), jnp.zeros(N * passes), order=order, batch_size=(1, batch),
        steps=N * passes // batch,
    )  # fmt: skip
    return np.asarray(found.y, int).reshape(passes, N)


@pytest.mark.parametrize("batch", [1, 3])
def test_an_order_that_learns(batch):
    read = read_by(LargestFirst(), batch, 4)
    for one_pass in read:
        assert sorted(one_pass) == list(range(N))
    sums = read[:-1].reshape(3, -1, batch).sum(2)
    for before, means, after in zip(read[:-1], sums, read[1:], strict=True):
        expected = before.reshape(-1, batch)[np.argsort(-means, kind="stable")].ravel()
        np.testing.assert_array_equal(after, expected)


def test_an_order_of_permutations():
    read = read_by(ThereBackAgain(), 3, 6)
    for there, back, again in (read[:3], read[3:]):
        assert sorted(there) == list(range(N))
        np.testing.assert_array_equal(back, there[::-1])
        np.testing.assert_array_equal(again, there)
    assert not np.array_equal(read[0], read[3])


def test_an_order_without_reorder_in_a_conditional_problem():
    sets = np.ones((5, 4, 3))
    inner = lambda x, y, rows: jnp.mean((rows @ y - 1) ** 2) + jnp.sum((x * y) ** 2)
    problem = wior.ConditionalBilevel(lambda x, y, row: jnp.sum(y * y) + jnp.sum(x * x), inner, np.ones(5), sets)
    with pytest.raises(NotImplementedError, match="LargestFirst has no method `reorder`"):
        wior.solve(
            problem, wior.WiORCBO(0.1, 0.1, 0.1), jnp.ones(3), jnp.ones(3), order=LargestFirst(), batch_size=2, steps=2
        )


def test_a_method():
    """On f = ½ (b y − 1)² + ½ x², g = ½ (y − a x)², against a loop over the data in their own order."""
    a, b = np.array([0.5, 2.0, -1.0]), np.array([1.5, 0.7])
    problem = Bilevel(
        lambda x, y, rows: jnp.mean(0.5 * (rows * y - 1) ** 2) + 0.5 * x**2,
        lambda x, y, rows: jnp.mean(0.5 * (y - rows * x) ** 2),
        b, a,
    )  # fmt: skip
    eta, gamma, rho, beta = 0.1, 0.3, 0.4, 0.6
    method = HeavyBall(eta, gamma, rho, momentum=beta)
    found = wior.solve(problem, method, 0.8, -0.3, order=Incremental(), batch_size=1, steps=9).state
    x, y, u, push = 0.8, -0.3, 0.0, 0.0
    for step in range(9):
        slope, scale = a[step % 3], b[step % 2]
        push = beta * push + x + slope * u
        x, y, u = x - eta * push, y - gamma * (y - slope * x), u - rho * (u - scale * (scale * y - 1))
    np.testing.assert_allclose(found, (x, y, u, push), rtol=1e-12)
    with pytest.raises(ValueError, match=r"momentum must be a positive finite number, got -1\.0"):
        HeavyBall(eta, gamma, rho, momentum=-1.0)


def test_a_problem_class():
    """Ridge is the bilevel problem that it is restated as, and is refused by methods that solve neither."""
    plain = Bilevel(validation_error, penalized_error, RIDGE.validation, RIDGE.training)
    assert isinstance(restated(RIDGE, Bilevel), Bilevel)
    options = {"batch_size": (3, 5), "seed": 3, "steps": 40, "record_every": 7}
    solved = [wior.solve(problem, runs.ALGORITHM, *RIDGE_START, **options) for problem in (RIDGE, plain)]
    same(*(result.state for result in solved))
    with pytest.raises(TypeError, match="WiORMinimax solves Minimax problems; the problem given is Ridge"):
        wior.solve(RIDGE, wior.WiORMinimax(0.1, 0.1), *RIDGE_START, **options)
    exact = [wior.hypergradient(problem, *RIDGE_START).objective for problem in (RIDGE, plain)]
    assert exact[0] == exact[1]
    found = [wior.check(problem, *RIDGE_START, batch_size=(3, 5), show=False) for problem in (RIDGE, plain)]
    assert found[0].heading == found[1].heading == "Bilevel: 24 outer and 40 inner examples, batches of 3 and 5"
    assert found[0].findings == found[1].findings
    assert found[0].inner_curvature == found[1].inner_curvature
    start = {**RIDGE_START[0], "weights": wior.PerExample(jnp.zeros(4))}
    with pytest.raises(ValueError, match=r"x0\['weights'\] is PerExample with shape \(4,\); its first axis must be 40"):
        wior.solve(RIDGE, runs.ALGORITHM, start, RIDGE_START[1], **options)
