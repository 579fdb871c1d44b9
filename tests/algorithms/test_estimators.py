"""The estimators, on trees and on rows: their recursions, and what they must never touch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import wior
from problems import flat
from wior import baselines, oracle
from wior.algorithms.algorithm import Reserve
from wior.algorithms.parts import estimators
from wior.orders import Independent, RandomReshuffling
from wior.problems.per_example import PerExample

RNG = np.random.default_rng(0)
N = 7


def direction(rows=3):
    """A direction of x = {"w": ..., "rows": PerExample}, at a batch of rows."""
    return {"w": (jnp.asarray(RNG.normal(size=2)),), "rows": jnp.asarray(RNG.normal(size=(rows, 2)))}


X = {"w": (jnp.zeros(2),), "rows": PerExample(jnp.zeros((N, 2)))}
INDEX = jnp.array([5, 0, 3])


def test_a_moving_average_is_one_over_the_visits_of_a_row():
    average = jax.tree.map(lambda leaf: leaf + 1.0, estimators.no_average(X))
    new = direction()
    moved, along = estimators.moving_average(average, new, 0.3, INDEX)
    np.testing.assert_allclose(moved["w"][0], 0.7 + 0.3 * new["w"][0])
    np.testing.assert_allclose(moved["rows"].rows[INDEX], 0.7 + 0.3 * new["rows"])
    np.testing.assert_array_equal(np.delete(moved["rows"].rows, INDEX, 0), 1.0)
    np.testing.assert_array_equal(along["rows"], moved["rows"].rows[INDEX])
    np.testing.assert_array_equal(along["w"][0], moved["w"][0])


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_storm_corrects_what_is_shared_and_hands_rows_on(weight):
    estimate = {"w": (jnp.array([2.0, -1.0]),), "rows": None}
    new, old = direction(), direction()
    found = estimators.storm(estimate, new, old, weight)
    np.testing.assert_allclose(found["w"][0], new["w"][0] + (1 - weight) * (estimate["w"][0] - old["w"][0]))
    np.testing.assert_array_equal(found["rows"], new["rows"])
    assert estimators.remembered(estimate, found)["rows"] is None
    if weight == 0:
        spider = estimators.spider(estimate, new, old)
        np.testing.assert_allclose(flat(spider), flat(found), rtol=1e-15)


def test_an_estimate_begins_at_zero_without_rows():
    assert estimators.no_estimate(X)["rows"] is None
    assert not flat(estimators.no_estimate(X)).any()


@pytest.mark.parametrize("fresh", [True, False])
def test_page_takes_one_side_and_counts_it(fresh):
    estimate = {"w": (jnp.array([2.0, -1.0]),), "rows": None}
    new, old, large = direction(), direction(), {"w": (jnp.array([9.0, 9.0]),), "rows": None}

    def counted(value, passes):
        oracle.count(passes, 10 * passes, "outer_gradients")
        return value

    with oracle.counting() as tally:
        found = estimators.page(jnp.asarray(fresh), estimate, lambda: counted(large, 5), new, lambda: counted(old, 1))
    expected = large["w"][0] if fresh else estimate["w"][0] + new["w"][0] - old["w"][0]
    np.testing.assert_allclose(found["w"][0], expected)
    np.testing.assert_array_equal(found["rows"], new["rows"])
    assert int(tally.everything()["backward_passes"]) == (5 if fresh else 1)
    assert int(tally.everything()["outer_gradients"]) == (50 if fresh else 10)


def test_saga_is_its_definition_once_every_batch_was_met():
    table, stored = estimators.empty_table(X, 3), {}
    for slot in (1, 0, 2, 1, 1, 0, 2):
        new = direction()
        table, found = estimators.saga(table, jnp.int32(slot), new)
        expected = new["w"][0]
        if slot in stored:  # a batch that was never met has a plain direction
            expected = expected - stored[slot] + np.mean(list(stored.values()), 0)
        np.testing.assert_allclose(found["w"][0], expected, rtol=1e-12)
        np.testing.assert_array_equal(found["rows"], new["rows"])
        stored[slot] = np.asarray(new["w"][0])
    np.testing.assert_allclose(table.entries["w"][0], [stored[i] for i in range(3)])
    np.testing.assert_allclose(table.total["w"][0], np.sum(list(stored.values()), 0), rtol=1e-12)
    assert table.entries["rows"] is None


@pytest.mark.parametrize("size", [3, 8, 20, 23])
def test_a_large_batch_in_pieces_is_the_batch(size):
    data, index = jnp.asarray(RNG.normal(size=(40, 2))), jnp.asarray(RNG.permutation(40)[:size])

    def mean(index):
        oracle.count(1, len(index), "inner_gradients")
        return {"mean": data[index].mean(0), "none": None}

    with oracle.counting() as tally:
        found = estimators.over_large_batch(mean, index, rows=8)
    np.testing.assert_allclose(found["mean"], data[index].mean(0), rtol=1e-12)
    assert int(tally.everything()["inner_gradients"]) == size
    assert int(tally.everything()["backward_passes"]) == -(-size // 8)


# Where large batches come from.


def test_large_batches_are_passes_of_the_order():
    reserve = Reserve(jax.random.key(3), RandomReshuffling(), 12)
    taken = np.concatenate([reserve.take(jnp.uint32(number), 4) for number in range(6)])
    np.testing.assert_array_equal(np.sort(taken.reshape(2, 12), 1), np.tile(np.arange(12), (2, 1)))
    assert (taken[:12] != taken[12:]).any()
    np.testing.assert_array_equal(reserve.take(jnp.uint32(5), None), np.arange(12))
    np.testing.assert_array_equal(reserve.take(jnp.uint32(5), 30), np.arange(12))
    drawn = Reserve(jax.random.key(3), Independent(), 12).take(jnp.uint32(0), 11)
    assert len(set(drawn.tolist())) < 11


# Batches of several kinds: from one stream, or from one each.


def kinds_of(algorithm, steps=6, batch=(2, 3), order=RandomReshuffling()):
    """The examples that steps of an algorithm were given, by level and kind: (steps, batches, batch)."""
    problem, _, x, y, _ = problems.bilevel()
    found = []

    class Watched(type(algorithm)):
        def step(self, problem, state, draws):
            jax.debug.callback(lambda *d: found.append(d), draws.outer, draws.inner, ordered=True)
            return super().step(problem, state, draws)

    names = [field.name for field in dataclasses.fields(algorithm)]
    watched = Watched(**{name: getattr(algorithm, name) for name in names})
    wior.solve(problem, watched, x, y, order=order, batch_size=batch, steps=steps)
    jax.effects_barrier()
    assert len(found) == steps
    return jax.tree.map(lambda *each: np.stack(each), *found)


@pytest.mark.parametrize("separate", [False, True])
def test_kinds_come_from_one_stream_or_from_one_each(separate):
    """Nine inner examples in batches of three: 2 + 1 + 1 batches a step from one stream, or each kind in passes of its
    own.
    """
    algorithm = baselines.StocBiO(0.05, 0.1, 0.1, inner_steps=2, neumann_terms=2, separate_streams=separate)
    (outer,), inner = kinds_of(algorithm)
    assert [kind.shape for kind in inner] == [(6, 2, 3), (6, 1, 3), (6, 1, 3)]
    np.testing.assert_array_equal(np.sort(outer.reshape(-1, 6), 1), np.tile(np.arange(6), (2, 1)))
    streams = [kind.reshape(-1) for kind in inner] if separate else [np.concatenate(inner, 1).reshape(-1)]
    for stream in streams:
        whole = len(stream) // 9 * 9
        np.testing.assert_array_equal(np.sort(stream[:whole].reshape(-1, 9), 1), np.tile(np.arange(9), (whole // 9, 1)))
    if separate:
        assert (inner[1] != inner[2]).any()


def test_a_kind_of_which_a_step_takes_none_has_no_stream():
    algorithm = baselines.StocBiO(0.05, 0.1, 0.1, inner_steps=2, neumann_terms=1, separate_streams=True)
    _, inner = kinds_of(algorithm)
    assert [kind.shape[1] for kind in inner] == [2, 0, 1]


def test_fixed_batches_are_the_same_examples_in_every_pass():
    algorithm = baselines.SABA(0.05, 0.1, 0.1)
    (outer,), (inner,) = kinds_of(algorithm)
    assert outer.shape == inner.shape == (6, 1, 1)  # the numbers of batches
    np.testing.assert_array_equal(np.sort(inner.reshape(2, 3), 1), np.tile(np.arange(3), (2, 1)))


def test_fixed_batches_must_divide_the_data():
    problem, _, x, y, _ = problems.bilevel()
    with pytest.raises(
        ValueError, match=r"batch_size \(inner\) must divide the 9 inner examples .* got 4; for example 1, 3"
    ):
        wior.solve(problem, baselines.SABA(0.05, 0.1, 0.1), x, y, batch_size=(2, 4), steps=1)
