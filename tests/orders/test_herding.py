"""Herding: every pass is an exact permutation, sorted exactly as the rule says, and better balanced than chance.

The data of each example is its own number and a fixed vector. A recording algorithm writes down the numbers it reads
and shows the batch's mean vector to the order.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior.algorithms.algorithm import Algorithm, BatchKinds, Seen, static
from wior.orders import Herding, RandomReshuffling
from wior.orders.herding import by_sign
from wior.running import block
from wior.running.plan import make_plan, start_at, stream_keys

WIDTH = 3
KEY = jax.random.key(5, impl="threefry2x32")
# many programs that run once: most of the time would go into making them fast
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
BALANCES = ["pair", "mean"]
both_balances = pytest.mark.parametrize("balance", BALANCES)


class Recorded(NamedTuple):
    x: Any
    y: Any
    outer: jax.Array  # (steps, batches, batch)
    inner: jax.Array


@dataclasses.dataclass(frozen=True)
class Recorder(Algorithm):
    """Moves nothing; writes down the examples of each step."""

    steps: int = static(1)
    outer_batch: int = static(1)
    inner_batch: int = static(1)
    inner_batches: int = static(1)

    solves = wior.Bilevel
    step_sizes = {}

    @property
    def batch_kinds(self):
        return BatchKinds(outer=(1,), inner=(self.inner_batches,))

    def init(self, problem, x, y):
        outer = jnp.full((self.steps, 1, self.outer_batch), -1)
        return Recorded(x, y, outer, jnp.full((self.steps, self.inner_batches, self.inner_batch), -1))

    def step(self, problem, state, draws):
        (outer,), (inner,) = draws.outer, draws.inner
        xi, zeta = problem.outer_batch(outer).data, problem.inner_batch(inner).data
        state = state._replace(
            outer=state.outer.at[draws.step].set(xi["number"]), inner=state.inner.at[draws.step].set(zeta["number"])
        )
        seen = lambda batch: {"vector": jnp.mean(batch["vector"], axis=1), "scaled": jnp.mean(batch["scaled"], axis=1)}
        return state, Seen(outer=(seen(xi),), inner=(seen(zeta),))


def loss(x, y, batch):
    return jnp.sum(x) + jnp.sum(y) + jnp.mean(batch["vector"])


def vectors_of(n, seed, width=WIDTH):
    return np.random.default_rng(seed).normal(size=(n, width)) + 0.5


def data_of(vectors):
    # two leaves, so that what is observed is a tree
    return {"number": np.arange(len(vectors)), "vector": vectors[:, :2], "scaled": vectors[:, 2:]}


def problem_of(outer_vectors, inner_vectors):
    return wior.Bilevel(loss, loss, data_of(outer_vectors), data_of(inner_vectors))


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def runner(problem, algorithm, order, batch_size, **changes):
    """A function from a key to the state after all steps, in one block."""
    plan = make_plan(problem, algorithm, pair(order), batch_size, algorithm.steps)
    plan = dataclasses.replace(plan, **changes)

    def run(key):
        keys = stream_keys(plan, key)
        carry = block.begin(plan, problem, algorithm, keys, jnp.zeros(2), jnp.zeros(1))
        start, count = start_at(plan, 0), jnp.int32(algorithm.steps)
        return block.advance(plan, problem, algorithm, carry, keys, start, count)[0].state

    return run


def record(outer_vectors, inner_vectors, order, batch_size, steps, inner_batches=1):
    """The numbers of the examples as they were read, for each level one (steps, batches, batch)."""
    algorithm = Recorder(steps, *batch_size, inner_batches)
    state = jit(runner(problem_of(outer_vectors, inner_vectors), algorithm, order, batch_size))(KEY)
    return np.asarray(state.outer), np.asarray(state.inner)


def passes_in(drawn, n):
    """The passes that were read to their end, one a row."""
    whole = drawn.size // n
    return drawn.ravel()[: whole * n].reshape(whole, n)


def assert_permutations(passes):
    assert len(passes) >= 2
    np.testing.assert_array_equal(np.sort(passes, axis=1), np.broadcast_to(np.arange(passes.shape[1]), passes.shape))


# --- the rule, written naively


def naive_by_sign(examples, signs):
    plus = [e for e, s in zip(examples, signs, strict=True) if s > 0]
    minus = [e for e, s in zip(examples, signs, strict=True) if s < 0]
    unsigned = [e for e, s in zip(examples, signs, strict=True) if s == 0]
    return plus + unsigned + minus[::-1]


def naive_signs(balance, vectors, mean):
    """The signs of the batches of a line, given their vectors and, for mean balancing, the stale mean."""
    signs, total = [0] * len(vectors), np.zeros(np.shape(vectors)[1:])
    if balance == "mean":
        for t, vector in enumerate(vectors):
            signs[t] = 1 if (vector - mean) @ total < 0 else -1
            total = total + signs[t] * (vector - mean)
    else:
        for t in range(1, len(vectors), 2):
            apart = vectors[t - 1] - vectors[t]
            signs[t - 1] = 1 if apart @ total < 0 else -1
            signs[t] = -signs[t - 1]
            total = total + signs[t - 1] * apart
    return signs


def naive_herding(balance, vectors, first_pass, batch, batches, steps):
    """The examples of each step, as lists, and nothing clever: the line is a list from which steps are taken."""
    n, chunk = len(vectors), batch * batches
    line, tail, taken, mean, drawn = list(first_pass), 0, 0, np.zeros(vectors.shape[1]), []
    for _ in range(steps):
        if len(line) - taken < chunk:
            groups = [line[i : i + batch] for i in range(0, taken, batch)]
            seen = [vectors[group].mean(0) for group in groups]
            signs = np.repeat(naive_signs(balance, np.array(seen), mean), batch).tolist()
            of_pass = (signs + [0] * (len(line) - taken))[tail:]
            mean = np.mean(seen, axis=0)
            line, tail = line[taken:] + naive_by_sign(line[tail:], of_pass), len(line) - taken
            taken = 0
            assert len(line) == tail + n
        drawn.append(line[taken : taken + chunk])
        taken += chunk
    return np.array(drawn).reshape(steps, batches, batch)


@pytest.mark.parametrize("count", [None, 0, 1, 5, 9])
def test_by_sign_is_the_naive_sort(count):
    rng = np.random.default_rng(2)
    for _ in range(20):
        examples, signs = rng.permutation(9), rng.integers(-1, 2, 9)
        found = by_sign(jnp.asarray(examples), jnp.asarray(signs), None if count is None else jnp.int32(count))
        inside = 9 if count is None else count
        np.testing.assert_array_equal(found[:inside], naive_by_sign(examples[:inside], signs[:inside]))
        np.testing.assert_array_equal(found[inside:], examples[inside:])


def test_by_sign_of_equal_signs():
    line = jnp.array([3, 1, 2, 0])
    assert by_sign(line, jnp.ones(4)).tolist() == [3, 1, 2, 0]
    assert by_sign(line, -jnp.ones(4)).tolist() == [0, 2, 1, 3]
    assert by_sign(line, jnp.array([-1, 0, 1, 0])).tolist() == [2, 1, 0, 3]


# outer n, outer batch, inner n, inner batch, inner batches of a step
CASES = {
    "batch of one, and divisible": (7, 1, 12, 3, 1),
    "straddling, and an odd number of batches": (11, 3, 15, 5, 1),
    "all in a batch, and all in three batches": (6, 6, 9, 3, 3),
    "one example, and three batches a step that straddle": (1, 1, 25, 3, 3),
    "first pass by a network, and straddling by one": (300, 7, 13, 12, 1),
}


@pytest.mark.parametrize(
    ("balance", "case"),
    [
        *[pytest.param("pair", case, id=f"pair: {name}") for name, case in CASES.items()],
        *[
            pytest.param("mean", case, id=f"mean: {name}", marks=pytest.mark.slow if number else ())
            for number, (name, case) in enumerate(list(CASES.items())[1:4])
        ],
    ],
)
def test_passes_are_permutations_sorted_as_the_naive_rule_says(balance, case):
    m, outer_batch, n, inner_batch, inner_batches = case
    steps = 4 * max(-(-m // outer_batch), -(-n // (inner_batch * inner_batches)))
    outer_vectors, inner_vectors = vectors_of(m, 0), vectors_of(n, 1)
    outer, inner = record(
        outer_vectors, inner_vectors, Herding(balance), (outer_batch, inner_batch), steps, inner_batches
    )
    for drawn, vectors, batch, batches in (
        (outer, outer_vectors, outer_batch, 1),
        (inner, inner_vectors, inner_batch, inner_batches),
    ):
        passes = passes_in(drawn, len(vectors))
        assert_permutations(passes)
        np.testing.assert_array_equal(drawn, naive_herding(balance, vectors, passes[0], batch, batches, steps))


def test_step_larger_than_the_data_falls_back_to_shuffle_once():
    """Nothing to sort where every step reads all of the data; the inner step is too large only by its three batches."""
    outer, inner = record(vectors_of(4, 0), vectors_of(7, 1), Herding(), (9, 3), 14, inner_batches=3)
    for passes in (passes_in(outer, 4), passes_in(inner, 7)):
        assert_permutations(passes)
        np.testing.assert_array_equal(passes, np.broadcast_to(passes[0], passes.shape))


def test_solve_cuts_a_run_into_blocks_and_reads_the_same_examples():
    problem, algorithm, order = problem_of(vectors_of(11, 0), vectors_of(13, 1)), Recorder(40, 3, 4), Herding("mean")
    options = {"order": order, "batch_size": (3, 4), "steps": 40, "record_every": 7}
    solved = wior.solve(problem, algorithm, jnp.zeros(2), jnp.zeros(1), seed=5, **options).state
    outer, inner = record(vectors_of(11, 0), vectors_of(13, 1), order, (3, 4), 40)
    np.testing.assert_array_equal(solved.outer, outer)
    np.testing.assert_array_equal(solved.inner, inner)


def test_one_level_may_herd_while_the_other_is_reshuffled():
    outer_vectors, inner_vectors = vectors_of(9, 0), vectors_of(14, 1)
    outer, inner = record(outer_vectors, inner_vectors, (RandomReshuffling(), Herding()), (2, 4), 30)
    assert_permutations(passes_in(outer, 9))
    np.testing.assert_array_equal(inner, naive_herding("pair", inner_vectors, passes_in(inner, 14)[0], 4, 1, 30))


def test_many_runs_at_once_in_loops_of_known_length_equal_one_at_a_time():
    keys = jax.random.split(KEY, 3)
    case = problem_of(vectors_of(11, 0), vectors_of(13, 1)), Recorder(30, 3, 4), Herding(), (3, 4)
    together, alone = jit(jax.vmap(runner(*case, unit=2)))(keys), jit(runner(*case, unit=1))
    for i, key in enumerate(keys):
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf, i=i: leaf[i], together), alone(key))


def test_wrong_balance_is_named():
    with pytest.raises(ValueError, match=r"balance must be .* got 'median'"):
        Herding(balance="median")


# --- how well it balances


def longest_prefix(vectors, passes):
    """The largest norm of a partial sum of centered vectors, for each order."""
    return np.linalg.norm(np.cumsum((vectors - vectors.mean(0))[passes], axis=1), axis=2).max(1)


@both_balances
def test_herded_passes_keep_partial_sums_at_a_quarter_of_those_of_chance(balance):
    n, passes = 512, 8
    vectors = vectors_of(n, 1)
    _, inner = record(vectors_of(2, 0), vectors, Herding(balance), (1, 1), n * passes)
    herded = longest_prefix(vectors, passes_in(inner, n))
    shuffled = np.random.default_rng(4).permuted(np.tile(np.arange(n), (200, 1)), axis=1)
    chance = np.mean(longest_prefix(vectors, shuffled))
    assert herded[0] > 0.5 * chance  # the first pass is a shuffle itself
    assert np.max(herded[4:]) <= 0.25 * chance


# --- small inner sets of conditional problems


def naive_reorder(balance, order, vectors, used, count, batch):
    """A visit reads the first `count` entries again and again, `used` in all; its last pass is sorted by its batches'
    signs.
    """
    seen = vectors[: -(-used // batch)]
    signs = np.repeat(naive_signs(balance, seen, np.mean(seen, axis=0)), batch)[used - count : used]
    return [*naive_by_sign(order[:count], signs), *order[count:]]


@both_balances
@pytest.mark.parametrize(("batch", "passes"), [(1, 2), (2, 1), (3, 2), (5, 3)])
def test_reorder_is_the_naive_rule(balance, batch, passes):
    n = 8
    rng = np.random.default_rng(10 * batch + passes)
    batches = -(-passes * n // batch)
    counts = np.arange(1, n + 1)
    orders = np.stack([[*rng.permutation(count), *range(count, n)] for count in counts])
    vectors = rng.normal(size=(n, batches, WIDTH))
    sort = jit(jax.vmap(lambda o, v, used, count: Herding(balance).reorder(o, v, used, count, batch)))
    found = sort(jnp.asarray(orders), jnp.asarray(vectors), jnp.asarray(passes * counts), jnp.asarray(counts))
    for i, count in enumerate(counts):
        expected = naive_reorder(balance, orders[i].tolist(), vectors[i], passes * count, count, batch)
        np.testing.assert_array_equal(found[i], expected, err_msg=f"count {count}")


RAGGED = np.array([1, 7, 4, 2, 5])


def conditional(counts):
    m, n = 5, 7
    rng = np.random.default_rng(3)

    def outer(x, y, batch):
        return jnp.mean((batch @ y - x[0]) ** 2)

    def inner(x, y, batch):
        return jnp.mean((batch @ y - jnp.sum(x)) ** 2) + 0.5 * jnp.sum(y**2)

    return wior.ConditionalBilevel(outer, inner, rng.normal(size=(m, 2)), rng.normal(size=(m, n, 2)), counts)


def naive_visit(problem, x, y, example, order, count, batch, epochs):
    """The vectors [∇_y g, ∇²_yy g u] of the batches of a visit of WiOR-CBO, with the matrices written out."""
    xi, rows = np.asarray(problem.outer_data)[example], np.asarray(problem.inner_data)[example]
    reading, u, seen = np.tile(order[:count], epochs), np.zeros_like(y), []
    for first in range(0, len(reading), batch):
        zeta = rows[reading[first : first + batch]]
        f_y = 2 * xi * (xi @ y - x[0])
        g_y = 2 * zeta.T @ (zeta @ y - np.sum(x)) / len(zeta) + y
        g_yy_u = 2 * zeta.T @ (zeta @ u) / len(zeta) + u
        y, u = y - 0.1 * g_y, u - 0.1 * (g_yy_u - f_y)
        seen.append([*g_y, *g_yy_u])
    return np.array(seen)


def conditional_run(problem, algorithm, orders, batches, y):
    """The carry before the first step, a function that takes one step, and the keys of the streams."""
    plan = make_plan(problem, algorithm, orders, batches, 1)
    keys = jit(lambda: stream_keys(plan, KEY))()
    begun = jit(lambda: block.begin(plan, problem, algorithm, keys, jnp.ones(3), jnp.asarray(y)))()
    one = jit(lambda carry, start: block.advance(plan, problem, algorithm, carry, keys, start, jnp.int32(1))[0])
    return begun, lambda carry, step: one(carry, start_at(plan, step)), keys


def assert_orders_of_inner_sets(table, counts):
    for order, count in zip(np.asarray(table), counts, strict=True):
        np.testing.assert_array_equal(np.sort(order[:count]), np.arange(count))


@pytest.mark.parametrize(
    ("balance", "counts", "batch", "epochs"),
    [("pair", None, 2, 1), ("mean", RAGGED, 3, 2)],
    ids=["pair, full", "mean, ragged, two passes"],
)
def test_inner_sets_are_sorted_after_each_visit_and_stay_permutations(balance, counts, batch, epochs):
    problem, algorithm = conditional(counts), wior.WiORCBO(0.1, 0.1, 0.1, inner_epochs=epochs)
    counts, steps, y = np.full(5, 7) if counts is None else counts, 8, np.array([0.3, -0.2])
    carry, advance, keys = conditional_run(problem, algorithm, (RandomReshuffling(), Herding(balance)), (2, batch), y)
    zero = jnp.uint32(0)
    visited = jit(lambda: RandomReshuffling().run(keys[0], zero, zero, 2 * steps, 5))().reshape(steps, 2)
    changes = 0
    for step in range(steps):
        x, expected = np.asarray(carry.state.x), np.array(carry.visit_orders)
        for example in set(visited[step].tolist()):
            order, count = expected[example].copy(), counts[example]
            seen = naive_visit(problem, x, y, example, order, count, batch, epochs)
            expected[example] = naive_reorder(balance, order, seen, epochs * count, count, batch)
            changes += np.any(expected[example] != order)
        carry = advance(carry, step)
        np.testing.assert_array_equal(carry.visit_orders, expected)
        assert_orders_of_inner_sets(carry.visit_orders, counts)
    assert changes >= 3


def test_both_levels_of_a_conditional_problem_may_herd():
    """The outer line is rebuilt several times; each step sorts the inner sets of two outer examples at most."""
    problem, algorithm = conditional(RAGGED), wior.WiORCBO(0.1, 0.1, 0.1)
    carry, advance, _ = conditional_run(problem, algorithm, (Herding(), Herding()), (2, 2), np.array([0.3, -0.2]))
    changed = np.zeros(5, bool)
    for step in range(12):
        before, carry = carry.visit_orders, advance(carry, step)
        assert_orders_of_inner_sets(carry.visit_orders, RAGGED)
        rows = np.any(np.asarray(carry.visit_orders != before), axis=1)
        assert np.sum(rows) <= 2
        changed |= rows
    assert np.sum(changed) >= 3
