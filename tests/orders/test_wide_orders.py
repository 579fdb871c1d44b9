"""Orders on the host, for any n: those of compiled programs up to 2³¹ examples, and a network of 64 bits above.

The statistics of that network, against true shuffles, are in `test_bijection.py`.
"""

import functools
import math
import subprocess
import sys
import time
import tracemalloc
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from wior.instruments.order_error import _errors
from wior.orders import FlipFlop, Herding, Incremental, Independent, RandomReshuffling, ShuffleOnce, bijection, wide

LEAST_P = 1e-4
KEY = jax.random.key(7, impl="threefry2x32")
PERMUTING = [Incremental(), ShuffleOnce(), RandomReshuffling(), FlipFlop()]
ALL = [*PERMUTING, Independent()]
# around the powers of two where words end, primes, a square, the last
HUGE = [2**31, 2**31 + 1, 2**32 - 1, 2**32 + 1, 2**32 - 5, 10**12, 10**12 + 39, 10**15 + 37, 2**62, 2**63 - 1]
every = functools.partial(pytest.mark.parametrize, "order", ids=lambda order: type(order).__name__)


# --- up to 2³¹: what a compiled program draws


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def on_device(order, first_pass, offset, length, n):
    return order.run(KEY, first_pass, offset, length, n)


@pytest.mark.parametrize(
    ("order", "n", "length"),
    [(order, *case) for order in ALL for case in ((60, 150), (2**31 - 1, 1000))]
    + [(RandomReshuffling(), *case) for case in ((1, 5), (300, 700), (10**9 + 7, 1000))],
    ids=str,
)
def test_examples_are_those_of_the_device(order, n, length):
    for first_pass, offset in ((0, 0), (0, n - 1), (3, n // 2), (2**32 - 1, n - 1), (2**33 + 2, n // 3)):
        found = order.examples(KEY, first_pass * n + offset, length, n)
        assert found.dtype == np.int64
        word = jnp.uint32(first_pass % 2**32)
        np.testing.assert_array_equal(found, on_device(order, word, jnp.uint32(offset), length, n))


@pytest.mark.parametrize(("order", "n"), [(RandomReshuffling(), 60), (Independent(), 300)], ids=str)
def test_a_long_request_is_made_of_pieces(order, n, monkeypatch):
    whole = order.examples(KEY, 5, 500, n)
    monkeypatch.setattr("wior.orders.order.AT_ONCE", 200)
    np.testing.assert_array_equal(order.examples(KEY, 5, 500, n), whole)


BITS = {  # of the positions from 30 before the end of pass 4 on
    ShuffleOnce(): {1000003: 2572670029},
    RandomReshuffling(): {60: 177556648, 300: 2150533406, 65536: 12318111, 10**9: 3018197399},
    FlipFlop(): {60: 4006976206},
    Independent(): {60: 502435555, 1000003: 1003672976},
}


@every(argvalues=list(BITS))
def test_the_bits_are_those_of_earlier_versions(order):
    """Checkpoints go on, and published numbers come out again."""
    for n, expected in BITS[order].items():
        found = order.examples(KEY, 5 * n - 30, 200, n)
        assert zlib.crc32(found.astype("<i4").tobytes()) == expected, n


# --- above


def sampled(n, count, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.integers(0, n, count, dtype=np.uint64), np.array([0, 1, n - 2, n - 1], np.uint64)])


@pytest.mark.parametrize("n", [*range(1, 40), 256, 257, 295, 509, 1009, 1936, 2039, 65_537, 999_983])
def test_every_length_is_permuted_exactly(n):
    network = wide.keyed(jax.random.fold_in(KEY, n), n)
    examples = wide.permuted(network, np.arange(n))
    np.testing.assert_array_equal(np.sort(examples), np.arange(n))
    np.testing.assert_array_equal(wide.inverted(network, examples), np.arange(n))


@pytest.mark.parametrize("n", [5, 257, 1009])
def test_walks_are_those_of_applying_the_network_again(n):
    """Many keys, so that walks are long, and some never come back."""
    a, b = wide.factors(n)
    assert a * b > n
    for number in range(40):
        network = wide.keyed(jax.random.fold_in(KEY, number), n)
        image = wide._rounds(network.words, np.arange(n, dtype=np.uint64), a, b)
        while np.any(image >= n):
            image = np.where(image >= n, wide._rounds(network.words, image, a, b), image)
        np.testing.assert_array_equal(wide.permuted(network, np.arange(n)), image)
        np.testing.assert_array_equal(wide.inverted(network, image), np.arange(n))


@pytest.mark.parametrize("n", [10**9, *HUGE])
def test_sampled_positions_are_inverted_exactly(n):
    network = wide.keyed(KEY, n)
    positions = sampled(n, 2**15)
    examples = wide.permuted(network, positions)
    assert examples.dtype == np.int64
    assert examples.min() >= 0
    assert examples.max() < n
    np.testing.assert_array_equal(wide.inverted(network, examples), positions.astype(np.int64))
    backwards = wide.inverted(network, positions)
    np.testing.assert_array_equal(wide.permuted(network, backwards), positions.astype(np.int64))


def test_examples_whose_walk_leaves_are_inverted():
    """A random sample of a huge length never meets them: the positions that the network sends outside [0, n)."""
    n = 2**63 - 1
    a, b = wide.factors(n)
    network = wide.keyed(KEY, n)
    outside = np.arange(n, a * b, dtype=np.uint64)
    assert outside.size > 100
    positions = wide._rounds_back(network.words, outside, a, b)
    positions = positions[positions < n]
    examples = wide.permuted(network, positions)
    assert np.all((examples >= 0) & (examples < n))
    assert len(np.unique(examples)) == len(examples)
    np.testing.assert_array_equal(wide.inverted(network, examples), positions.astype(np.int64))


def test_factors_of_any_length_are_close_and_found_at_once():
    rng = np.random.default_rng(0)
    for most, bound in ((2**20, 30), (10**9, 60), (10**12, 120), (10**15, 600), (2**63, 4000)):
        for n in [*rng.integers(1, most, 40, dtype=np.uint64).tolist(), most - 1]:
            a, b = wide.factors(n)
            assert n <= a * b <= n + bound, n
            assert b <= a < 2**32, n
            assert a <= 4 * b or n < bijection.EXACT_BELOW, n
    begun = time.perf_counter()
    wide.factors.__wrapped__(10**12 + 39)
    assert time.perf_counter() - begun < 0.1


@every(argvalues=PERMUTING)
@pytest.mark.parametrize("n", [1, 2, 3, 17, 60, 256, 1009])
def test_passes_of_the_host_are_permutations(order, n, monkeypatch):
    """All of them, seen by having the host make small ones its own way."""
    monkeypatch.setattr(bijection, "LARGEST", 0)
    found = order.examples(KEY, 0, 5 * n, n).reshape(5, n)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.broadcast_to(np.arange(n), (5, n)))
    np.testing.assert_array_equal(order.examples(KEY, n // 2, 3 * n, n), found.ravel()[n // 2 :][: 3 * n])


@every(argvalues=ALL)
@pytest.mark.parametrize("n", [2**31, 10**12, 2**63 - 1])
def test_any_piece_is_a_slice_of_a_long_one(order, n):
    start = 4 * n - 20_000
    long = order.examples(KEY, start, 40_000, n)
    for offset, length in ((0, 1), (3, 20_000), (19_999, 2), (20_001, 7), (30_000, 10_000)):
        np.testing.assert_array_equal(
            order.examples(KEY, start + offset, length, n), long[offset : offset + length], err_msg=f"from {offset}"
        )
    assert np.all((long >= 0) & (long < n))
    np.testing.assert_array_equal(order.examples(KEY, start + 2**32 * n, 40_000, n), long)


@pytest.mark.parametrize("n", [2**31 + 1, 10**12])
def test_what_tells_the_orders_apart(n):
    at = lambda order, number, offset: order.examples(KEY, number * n + offset, 1000, n)
    np.testing.assert_array_equal(at(Incremental(), 3, n - 10), np.arange(n - 10, n + 990) % n)
    once, reshuffled, flipped = ShuffleOnce(), RandomReshuffling(), FlipFlop()
    np.testing.assert_array_equal(at(once, 0, 5), at(once, 9, 5))
    np.testing.assert_array_equal(at(once, 9, 5), at(reshuffled, 0, 5))
    np.testing.assert_array_equal(at(flipped, 7, 5), at(flipped, 6, n - 1005)[::-1])
    np.testing.assert_array_equal(at(flipped, 6, 5), at(reshuffled, 3, 5))
    passes = [at(reshuffled, number, 5) for number in range(5)]
    assert len(np.unique(passes)) > 4990
    own = wide.keyed(jax.random.fold_in(KEY, 4), n)
    np.testing.assert_array_equal(wide.inverted(own, passes[4]), np.arange(5, 1005))


@pytest.mark.parametrize("n", [10**12, 2**61 + 2**62, 2**63 - 1])
def test_independent_draws_are_uniform(n):
    """Of the second length a quarter, of the third nearly a half of all words would favor small numbers."""
    bins, number = 1000, 2**19
    values = Independent().examples(KEY, n - 1000, number, n)
    edges = [-(-i * n // bins) for i in range(bins + 1)]
    counts = np.bincount(np.searchsorted(edges[1:-1], values, side="right"), minlength=bins)
    assert stats.chisquare(counts, np.diff(np.array(edges, np.uint64)) * (number / n)).pvalue > LEAST_P
    assert stats.chisquare(np.bincount(values % 251, minlength=251)).pvalue > LEAST_P
    neighbors = np.bincount(values[:-1:2] % 16 * 16 + values[1::2] % 16, minlength=256)
    assert stats.chisquare(neighbors).pvalue > LEAST_P


# --- the order error


def vectors(examples, n):
    """A trend, a slow and a fast wave, the parity: what an order that keeps some of the data's order would not average."""
    share = examples / n
    waves = [np.cos(2 * np.pi * 5 * share), np.cos(2 * np.pi * (examples % 64) / 64)]
    return np.stack([2 * share - 1, *waves, 1.0 - 2 * (examples % 2)], axis=-1)


@pytest.mark.parametrize(("n", "keys"), [(4096, 120), (10_007, 60), (65_536, 16)])
def test_order_error_is_that_of_a_true_permutation(n, keys):
    """In the mean by the formula for k of n drawn without replacement, and in its largest value against numpy's
    shuffles.
    """
    data = vectors(np.arange(n), n)
    data -= data.mean(0)
    intervals = np.unique(np.geomspace(1, n // 2, 8).astype(int))
    expected = np.mean(np.sum(data**2, 1)) / intervals * (n - intervals) / (n - 1)
    rng = np.random.default_rng(n)
    found = {}
    for source in ("wide", "numpy"):
        made = [
            wide.permuted(wide.keyed(jax.random.fold_in(KEY, number), n), np.arange(n))
            if source == "wide"
            else rng.permutation(n)
            for number in range(keys)
        ]
        largest, mean = np.moveaxis([_errors(data[order], np.zeros(4), intervals) for order in made], 1, 0)
        found[source] = largest
        several = intervals > 1  # over single examples every permutation has the same mean
        noise = np.std(mean[:, several], axis=0, ddof=1) / math.sqrt(keys)
        assert np.max(np.abs(np.mean(mean[:, several], 0) - expected[several]) / noise) < 4.5, source
    for own, true in zip(found["wide"].T[1:], found["numpy"].T[1:], strict=True):
        assert stats.ks_2samp(own, true).pvalue > LEAST_P


@pytest.mark.parametrize("source", ["wide", "numpy"])
@pytest.mark.parametrize("n", [10**9, 10**12])
def test_order_error_of_stretches_of_huge_passes(source, n):
    """Averages over k consecutive examples, from places all over the pass."""
    k, keys = 512, 300
    rng = np.random.default_rng(n)
    measured = []
    for number in range(keys):
        start = int(rng.integers(0, n - k))
        if source == "wide":
            examples = wide.permuted(wide.keyed(jax.random.fold_in(KEY, number), n), np.arange(start, start + k))
        else:
            examples = rng.integers(0, n, k)
        measured.append(np.mean(vectors(examples, n), 0))
    variances = np.array([1 / 3, 1 / 2, 1 / 2, 1])
    errors = np.array(measured) ** 2 * k / variances  # squares of nearly normal numbers
    assert np.all(np.abs(np.mean(errors, 0) - 1) < 4.5 * math.sqrt(2 / keys)), np.mean(errors, 0)


# --- cost


@pytest.mark.parametrize("n", [10**9, 10**12])
def test_a_million_examples_take_less_than_a_second_and_no_memory(n):
    order, count = RandomReshuffling(), 10**6
    order.examples(KEY, 0, count, n)
    seconds = []
    for number in range(3):
        begun = time.perf_counter()
        order.examples(KEY, number * count, count, n)
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 1
    tracemalloc.start()
    order.examples(KEY, n - count // 2, count, n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 8 * count  # the result, its pieces and the positions


def test_users_have_no_long_integers_and_see_the_same():
    """These tests run with 64-bit integers in jax; users do not."""
    program = (
        "import jax, zlib; from wior.orders import RandomReshuffling as R, Independent as I;"
        "assert not jax.config.jax_enable_x64;"
        "key = jax.random.key(7, impl='threefry2x32');"
        "print(*(zlib.crc32(o.examples(key, 9 * n - 50, 100, n)) for o in (R(), I()) for n in (300, 10**12)))"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True, text=True)
    expected = [
        zlib.crc32(order.examples(KEY, 9 * n - 50, 100, n))
        for order in (RandomReshuffling(), Independent())
        for n in (300, 10**12)
    ]
    assert found.stdout.split() == [str(value) for value in expected]


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"position": -1}, ValueError, "position must be an integer, zero or more, got -1"),
        ({"position": 0.5}, ValueError, r"position must be an integer, zero or more, got 0\.5"),
        ({"length": 0}, ValueError, "length must be a positive integer, got 0"),
        ({"n": 0}, ValueError, "n must be a positive integer, got 0"),
        ({"n": 2**63}, ValueError, "n must be at most 9223372036854775807, got 9223372036854775808"),
        ({"order": Herding()}, TypeError, "Herding sorts each pass by the derivatives"),
    ],
)
def test_bad_input(arguments, kind, message):
    arguments = {"order": RandomReshuffling(), "position": 0, "length": 1, "n": 300} | arguments
    order = arguments.pop("order")
    with pytest.raises(kind, match=message):
        order.examples(KEY, **arguments)
