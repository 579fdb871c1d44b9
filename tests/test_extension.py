"""What is defined outside of the package runs like what is inside: an order that learns, a problem class, a method."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runs
import wior
from wior.algorithms import Algorithm
from wior.algorithms.algorithm import BatchKinds, Seen, State, one
from wior.orders import AdaptiveOrder, RandomReshuffling, next_line
from wior.problems import Bilevel, Problem
from wior.problems.restated import restated


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


def test_an_order_that_learns_resumes_and_sweeps(tmp_path):
    options = {"order": LargestFirst(), "steps": 40}
    whole = runs.solve(**options)
    runs.solve(**{**options, "steps": 17}, checkpoint=tmp_path / "run")
    resumed = runs.solve(**options, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(whole.x["dense"], resumed.x["dense"])
    x0, y0 = runs.start()
    swept = wior.sweep(
        runs.problem(), runs.ALGORITHM, x0, y0, grid={"outer_lr": [0.01]}, seeds=[3], order=LargestFirst(),
        batch_size=(3, 5), steps=40,
    )  # fmt: skip
    np.testing.assert_allclose(swept.x["dense"][0, 0], whole.x["dense"], rtol=1e-12)


def test_an_order_without_reorder_in_a_conditional_problem():
    sets = np.ones((5, 4, 3))
    inner = lambda x, y, rows: jnp.mean((rows @ y - 1) ** 2) + jnp.sum((x * y) ** 2)
    problem = wior.ConditionalBilevel(lambda x, y, row: jnp.sum(y * y) + jnp.sum(x * x), inner, np.ones(5), sets)
    with pytest.raises(NotImplementedError, match="LargestFirst has no method `reorder`"):
        wior.solve(
            problem, wior.WiORCBO(0.1, 0.1, 0.1), jnp.ones(3), jnp.ones(3), order=LargestFirst(), batch_size=2, steps=2
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Ridge(Problem):
    """A problem class of one's own: the strength exp(x) of a ridge regression, restated as a bilevel problem."""

    training: object
    validation: object

    name = "ridge"
    special_case_of = Bilevel
    _losses = ()
    _data = ("training", "validation")

    def sizes(self):
        return {"outer": len(self.validation[1]), "inner": len(self.training[1])}

    def check(self, x, y, batches=None):
        self.restated().check(x, y, batches)

    def restated(self):
        return Bilevel(_validation_error, _penalized_error, self.validation, self.training)


def _validation_error(x, y, rows):
    return jnp.mean((rows[0] @ y - rows[1]) ** 2)


def _penalized_error(x, y, rows):
    return _validation_error(x, y, rows) + jnp.exp(x) * jnp.sum(y * y)


def test_a_problem_class():
    rng = np.random.default_rng(0)
    rows = lambda n: (rng.normal(size=(n, 3)), rng.normal(size=n))
    training, validation = rows(20), rows(12)
    own, plain = Ridge(training, validation), Bilevel(_validation_error, _penalized_error, validation, training)
    assert isinstance(restated(own, Bilevel), Bilevel)
    options = {"batch_size": 4, "steps": 30}
    arguments = wior.WiORBO(0.1, 0.1, 0.1), jnp.zeros(()), jnp.zeros(3)
    np.testing.assert_array_equal(wior.solve(own, *arguments, **options).x, wior.solve(plain, *arguments, **options).x)
    with pytest.raises(TypeError, match="WiORMinimax solves Minimax problems; the problem given is Ridge"):
        wior.solve(own, wior.WiORMinimax(0.1, 0.1), *arguments[1:], **options)
