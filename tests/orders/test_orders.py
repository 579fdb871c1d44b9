"""Orders that are functions of a position: passes are exact permutations, and a stream may be cut and resumed anywhere."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wior import orders
from wior.orders import FlipFlop, Incremental, Independent, RandomReshuffling, ShuffleOnce

LEAST_P = 1e-4
KEY = jax.random.key(7, impl="threefry2x32")
PERMUTING = [Incremental(), ShuffleOnce(), RandomReshuffling(), FlipFlop()]
ALL = [*PERMUTING, Independent()]
SIZES = [60, 300]  # a true shuffle, and a network

# many programs that run once: most of the time would go into making them fast
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
every = functools.partial(pytest.mark.parametrize, "order", ids=lambda order: type(order).__name__)


@functools.partial(jit, static_argnums=(0, 3, 4))
def pieces(order, key, starts, length, n):
    """The stream from each of some positions since the beginning on."""
    return jax.vmap(lambda start: order.run(key, start // n, start % n, length, n))(jnp.asarray(starts, jnp.uint32))


@functools.cache
def stream(order, length, n):
    return np.asarray(pieces(order, KEY, [0], length, n)[0])


def in_batches(order, batch, steps, n, first_step=0):
    """The batches of some steps one after the other, each drawn by itself."""
    starts = (first_step + np.arange(steps)) * batch
    return np.asarray(pieces(order, KEY, starts, batch, n)).ravel()


@functools.cache
def whole_passes(order, count, n):
    """The first `count` passes, each made by itself."""
    numbers = jnp.arange(count, dtype=jnp.uint32)
    return np.asarray(jit(jax.vmap(lambda number: order.one_pass(KEY, number, n)))(numbers))


def assert_whole_passes(values, n):
    """That `values`, from the beginning of a pass on, are permutations of [0, n), the last one perhaps cut short."""
    passes = len(values) // n
    assert passes >= 1
    np.testing.assert_array_equal(
        np.sort(values[: passes * n].reshape(passes, n), axis=1), np.broadcast_to(np.arange(n), (passes, n))
    )
    rest = values[passes * n :]
    assert len(np.unique(rest)) == len(rest)
    assert np.all((rest >= 0) & (rest < n))


# --- passes


STRADDLING = [
    pytest.param(1, 4, id="one example"),
    pytest.param(7, 25, id="several passes in a batch"),
    pytest.param(257, 100, id="network"),
    pytest.param(257, 600, id="network, several passes in a batch"),
]
MORE = [
    pytest.param(7, 2, id="small batches"),
    pytest.param(60, 12, id="divisible"),
    pytest.param(60, 61, id="just more than a pass"),
    pytest.param(255, 64, id="the last true shuffle"),
    pytest.param(256, 64, id="the first network, divisible"),
    pytest.param(1009, 1008, id="network, just less than a pass"),
]


@pytest.mark.parametrize(
    ("order", "n", "batch"),
    [
        pytest.param(order, *case.values, id=f"{type(order).__name__}, {case.id}")
        for order in PERMUTING
        for case in STRADDLING + (MORE if order == RandomReshuffling() else [])
    ],
)
def test_batches_are_made_of_whole_permutations(order, n, batch):
    steps = math.lcm(n, batch) // batch if math.lcm(n, batch) <= 6 * n else -(-4 * n // batch)
    values = in_batches(order, batch, steps, n)
    assert values.dtype == np.int32
    assert_whole_passes(values, n)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    order=st.sampled_from(PERMUTING),
    n=st.one_of(st.integers(1, 12), st.sampled_from([255, 256, 259])),
    batch=st.integers(1, 9),
    scale=st.sampled_from([1, 13, 40]),
    passes_before=st.integers(0, 2**20),
)
def test_any_batches_from_any_pass_on_are_whole_permutations(order, n, batch, scale, passes_before):
    """A step that begins a pass is step k·lcm(n, batch)/batch; from there on the batches are whole permutations."""
    batch *= scale
    first_step = passes_before // math.lcm(n, batch) * math.lcm(n, batch) // batch
    assert_whole_passes(in_batches(order, batch, -(-2 * n // batch) + 1, n, first_step), n)


@every(argvalues=ALL)
@pytest.mark.parametrize(("n", "length"), [(60, 150), (300, 300), (300, 301)])
def test_run_is_a_slice_of_one_long_run(order, n, length):
    """So a run that stops and goes on draws the same examples; pieces up to a pass and longer ones are made
    differently.
    """
    long = stream(order, 6 * n, n)
    starts = np.array([0, 1, n - 1, n, n + n // 2, 2 * n - 1, 2 * n + 1])
    found = np.asarray(pieces(order, KEY, starts, length, n))
    for start, piece in zip(starts, found, strict=True):
        np.testing.assert_array_equal(piece, long[start : start + length], err_msg=f"from {start}")


@every(argvalues=ALL)
@pytest.mark.parametrize("n", SIZES)
def test_one_pass_is_the_pass_inside_a_run(order, n):
    np.testing.assert_array_equal(whole_passes(order, 6, n).ravel(), stream(order, 6 * n, n))


@pytest.mark.parametrize(
    ("order", "n", "length"),
    [(Incremental(), 60, 65), (Independent(), 60, 65), (RandomReshuffling(), 60, 65), (FlipFlop(), 300, 150)],
    ids=str,
)
def test_compiled_for_many_keys_equals_eager_for_one(order, n, length):
    keys = jax.random.split(KEY, 2)
    run = lambda key: order.run(key, jnp.uint32(3), jnp.uint32(n - 4), length, n)
    together = jit(jax.vmap(run))(keys)
    for key, found in zip(keys, together, strict=True):
        np.testing.assert_array_equal(run(key), found)
    assert np.array_equal(*together) == (order == Incremental())


# --- what tells the orders apart


@pytest.mark.parametrize("n", SIZES)
def test_incremental_is_the_order_of_the_data(n):
    np.testing.assert_array_equal(stream(Incremental(), 6 * n, n), np.tile(np.arange(n), 6))


@pytest.mark.parametrize("n", SIZES)
def test_shuffle_once_is_the_same_in_every_pass(n):
    found = whole_passes(ShuffleOnce(), 6, n)
    np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))
    assert not np.array_equal(found[0], np.arange(n))


@pytest.mark.parametrize("n", SIZES)
def test_random_reshuffling_is_fresh_in_every_pass(n):
    found = whole_passes(RandomReshuffling(), 200, n)
    assert len(np.unique(found, axis=0)) == 200
    # two true shuffles agree in one place on average, with variance one
    assert abs(np.mean(np.sum(found[1:] == found[:-1], axis=1)) - 1) < 4 / math.sqrt(199)


@pytest.mark.parametrize("n", SIZES)
def test_flip_flop_comes_back_and_then_starts_afresh(n):
    found = whole_passes(FlipFlop(), 6, n)
    np.testing.assert_array_equal(found[1::2], found[::2, ::-1])
    assert len(np.unique(found[::2], axis=0)) == 3


def test_every_named_order_is_one():
    assert set(orders.BY_NAME) >= {"independent", "incremental", "shuffle-once", "random-reshuffling", "flip-flop"}
    for order in [*ALL, orders.Herding(), orders.Herding(balance="mean")]:
        assert order in orders.BY_NAME.values()


# --- ragged sets


@functools.cache
def ragged_passes(order, n):
    """Four passes over the first `count` of n examples, by count."""
    counts = np.unique(np.clip([1, 2, n // 2, n - 1, n], 1, n))
    one = lambda count, number: order.one_pass(KEY, number, n, count)
    passes = jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(counts, jnp.arange(4, dtype=jnp.uint32))
    return dict(zip(counts.tolist(), np.asarray(passes), strict=True))


@every(argvalues=PERMUTING)
@pytest.mark.parametrize("n", [1, 12, 300])
def test_a_count_makes_a_pass_of_its_first_entries(order, n):
    for count, passes in ragged_passes(order, n).items():
        for values in passes:
            assert_whole_passes(values[:count], count)
        assert np.all((passes >= 0) & (passes < n))


@pytest.mark.parametrize("n", [12, 300])
def test_flip_flop_with_a_count_reverses_that_many(n):
    for count, passes in ragged_passes(FlipFlop(), n).items():
        np.testing.assert_array_equal(passes[1::2, :count], passes[::2, :count][:, ::-1])


def test_independent_draws_respect_the_count():
    count, passes = 5, 20_000
    one = lambda number: Independent().one_pass(KEY, number, 8, jnp.int32(count))
    found = np.asarray(jit(jax.vmap(one))(jnp.arange(passes, dtype=jnp.uint32)))
    assert found.min() >= 0
    assert found.max() < count
    assert stats.chisquare(np.bincount(found.ravel(), minlength=count)).pvalue > LEAST_P


# --- independent draws


@pytest.mark.parametrize("n", [3, 10, 300])
def test_independent_draws_are_uniform(n):
    assert stats.chisquare(np.bincount(stream(Independent(), 100 * n * 50, n), minlength=n)).pvalue > LEAST_P


@pytest.mark.parametrize("lag", [1, 2, 10])  # a neighbor, the one after, the same place of the next pass
def test_successive_draws_are_independent(lag):
    n = 10
    values = stream(Independent(), 200_000, n)
    pairs = values[:-lag] * n + values[lag:]
    # the pairs overlap, so that their margins are fixed
    expected = len(pairs) / n**2
    counts = np.bincount(pairs, minlength=n**2)
    assert stats.chi2.sf(np.sum((counts - expected) ** 2) / expected, n**2 - n) > LEAST_P


def test_a_pass_of_independent_draws_misses_an_eth_of_the_examples():
    n, passes = 1000, 400
    drawn = whole_passes(Independent(), passes, n)
    missed = n - np.array([len(np.unique(row)) for row in drawn])
    once, twice = (1 - 1 / n) ** n, (1 - 2 / n) ** n
    variance = n * once + n * (n - 1) * twice - (n * once) ** 2
    assert abs(n * once - n / math.e) < 0.2
    assert abs(np.mean(missed) - n * once) < 4 * math.sqrt(variance / passes)
    assert 0.7 < np.var(missed) / variance < 1.3


@pytest.mark.parametrize("n", [2**16 - 1, 2**16, 2**16 + 1, 1_000_003, 2**31 - 1])
def test_independent_draws_from_many_are_uniform_in_bins(n):
    bins, number = 1000, 2**20
    values = stream(Independent(), number, n).astype(np.int64)
    assert values.min() >= 0
    assert values.max() < n
    sizes = -(-np.arange(1, bins + 1) * n // bins) - -(-np.arange(bins) * n // bins)
    assert stats.chisquare(np.bincount(values * bins // n, minlength=bins), number * sizes / n).pvalue > LEAST_P
    residues = (n - 1 - np.arange(251)) // 251 + 1
    assert stats.chisquare(np.bincount(values % 251, minlength=251), number * residues / n).pvalue > LEAST_P


def test_no_example_among_many_is_drawn_more_often_than_the_others():
    """128 draws for each example on average: one that comes twice as often stands out by 11 deviations."""
    n, expected = 2**16 + 1, 128
    blocks = pieces(Independent(), KEY, np.arange(expected // 16) * 16 * n, 16 * n, n)
    counts = np.bincount(np.ravel(blocks), minlength=n)
    assert np.max(np.abs(counts - expected)) < 7 * math.sqrt(expected)
    assert 0.97 < np.var(counts) / expected < 1.03
