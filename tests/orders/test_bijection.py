"""The keyed permutation: exactly a permutation, and no statistic tells it from a true shuffle.

Every statistic is applied to numpy's shuffle as well, with the same threshold, so that a test that is wrong fails
there.
"""

import functools
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse, stats

from wior.orders import bijection, wide

LEAST_P = 1e-4
KEY = jax.random.key(20240, impl="threefry2x32")

# how many permutations of each length the statistics see: below EXACT_BELOW, just above, large;
# 295 is the length whose factors, 37 and 8, lie farthest apart
SAMPLES = {7: 40_000, 60: 10_000, 257: 6_000, 295: 6_000, 300: 6_000, 1009: 3_000, 35_000: 100, 1_000_003: 4}
NETWORK = [n for n in SAMPLES if n >= bijection.EXACT_BELOW]
WIDE = [257, 1009, 35_000, 1_000_003]
SOURCES = {"library": list(SAMPLES), "wide": WIDE, "numpy": list(SAMPLES)}
# small programs that run once: most of the time would go into making them fast
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def permutation(key, n):
    if n < bijection.EXACT_BELOW:
        return bijection.shuffled(key, n)
    return bijection.permuted(bijection.keyed(key, n), jnp.arange(n, dtype=jnp.uint32), n)


def wide_words(numbers, n):
    """The words of the 64-bit network under many keys, a column for each round."""
    of = lambda number: jax.random.bits(jax.random.fold_in(KEY, number), (2, bijection.rounds(n)), jnp.uint32)
    high, low = np.moveaxis(np.asarray(jax.jit(jax.vmap(of))(numbers), np.uint64), 1, 0)
    return tuple((high << np.uint64(32) | low).T[:, :, None])


def wide_images(words, positions, n):
    """What the 64-bit network makes of positions under many keys, one a row; outside [0, n) it is applied again."""
    a, b = wide.factors(n)
    image = wide._rounds(words, positions[None], a, b)
    while np.any(image >= n):
        image = np.where(image >= n, wide._rounds(words, image, a, b), image)
    return image.astype(np.int64)


@functools.cache
def permutations(source, n):
    """Many permutations of [0, n), one a row, by the library (in 32 bits or in 64) or by numpy."""
    if source == "wide":
        words = wide_words(jnp.arange(SAMPLES[n], dtype=jnp.uint32), n)
        return wide_images(words, np.arange(n, dtype=np.uint64), n).astype(np.int32)
    if source == "numpy":
        rng = np.random.default_rng(n)
        return rng.permuted(np.tile(np.arange(n, dtype=np.int32), (SAMPLES[n], 1)), axis=1)
    numbers = jnp.arange(SAMPLES[n], dtype=jnp.uint32)
    return np.asarray(jax.jit(jax.vmap(lambda number: permutation(jax.random.fold_in(KEY, number), n)))(numbers))


def is_permutation(values, n):
    return np.array_equal(np.sort(values, axis=-1), np.broadcast_to(np.arange(n), np.shape(values)))


# --- exactly a permutation


def test_walk_that_never_comes_back_ends():
    """With this key 259, one of the three positions outside [0, 257), is mapped to itself: its walk never reaches [0,
    257).

    In a process of its own, since a loop inside a compiled program cannot be interrupted.
    """
    program = (
        "import jax; from wior.orders import RandomReshuffling as R;"
        "found = R().one_pass(jax.random.key(3, impl='threefry2x32'), jax.numpy.uint32(134), 257);"
        "assert sorted(found.tolist()) == list(range(257))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def sampled_lengths():
    rng = np.random.default_rng(0)
    drawn = rng.choice(np.arange(bijection.EXACT_BELOW, 2048), 30, replace=False)
    primes, squares = (257, 509, 1009, 2039), (256, 289, 1024, 1936)
    return sorted({bijection.EXACT_BELOW, bijection.EXACT_BELOW + 1, *primes, *squares, *drawn.tolist()})


def test_network_is_a_permutation_for_lengths_up_to_2048():
    positions = jnp.arange(2048, dtype=jnp.uint32)  # one shape for all lengths, so that little is compiled
    for n in sampled_lengths():
        values = bijection.permuted(bijection.keyed(jax.random.fold_in(KEY, n), n), positions % n, n)
        assert is_permutation(np.asarray(values)[:n], n), n


@pytest.mark.parametrize("n", [10_007, 65_536, 99_991, 999_983])
def test_network_is_a_permutation_for_large_lengths(n):
    assert is_permutation(quick_jit(permutation, static_argnums=1)(KEY, n), n)


@pytest.mark.parametrize(
    ("source", "n"),
    [("library", n) for n in NETWORK]
    + [pytest.param("wide", n, marks=[] if n == 35_000 else [pytest.mark.slow]) for n in WIDE],
)
def test_every_one_of_many_keys_gives_a_permutation(source, n):
    assert is_permutation(permutations(source, n), n)


def test_inverse_of_every_example():
    examples = jnp.arange(2048, dtype=jnp.uint32)
    for n in [1, 2, 60, *sampled_lengths()[::4], 2048]:
        network = bijection.keyed(jax.random.fold_in(KEY, n), n)
        positions = bijection.inverted(network, examples % n, n)
        np.testing.assert_array_equal(bijection.permuted(network, positions, n), examples % n, err_msg=f"{n}")
        assert is_permutation(np.asarray(positions)[:n], n), n


@pytest.mark.parametrize("n", [10**9, 10**9 + 7, 1_600_000_000, 2**31 - 2, 2**31 - 1])
def test_inverse_at_sampled_positions_of_huge_lengths(n):
    rng = np.random.default_rng(n)
    positions = np.concatenate([rng.integers(0, n, 2**16), [0, n - 1]]).astype(np.uint32)
    network = bijection.keyed(KEY, n)
    examples = np.asarray(bijection.permuted(network, positions, n))
    assert examples.min() >= 0
    assert examples.max() < n
    np.testing.assert_array_equal(bijection.inverted(network, examples, n), positions)


@pytest.mark.parametrize("n", [10**9 + 7, bijection.LARGEST])
def test_huge_lengths_give_distinct_examples_in_range(n):
    count = 2**18
    positions = jnp.concatenate([jnp.arange(count), jnp.arange(n - count, n)]).astype(jnp.uint32)
    values = np.asarray(quick_jit(lambda key: bijection.permuted(bijection.keyed(key, n), positions, n))(KEY))
    assert values.dtype == np.int32
    assert values.min() >= 0
    assert values.max() < n
    assert len(np.unique(values)) == 2 * count


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 300])
def test_shuffle_is_a_permutation(n):
    keys = jax.random.split(KEY, 50)
    assert is_permutation(quick_jit(jax.vmap(lambda key: bijection.shuffled(key, n)))(keys), n)


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 300])
def test_shuffle_with_a_count_permutes_that_many(n):
    counts = np.maximum([1, n // 2, n - 1, n], 1)
    found = np.asarray(quick_jit(jax.vmap(lambda count: bijection.shuffled(KEY, n, count)))(counts))
    for count, values in zip(counts, found, strict=True):
        assert is_permutation(values[:count], count)
        assert np.all((values >= 0) & (values < n))


def test_shuffle_with_the_full_count_is_the_shuffle():
    for n in (60, 300):
        plain, counted = quick_jit(
            lambda key, n=n: (bijection.shuffled(key, n), bijection.shuffled(key, n, jnp.int32(n)))
        )(KEY)
        np.testing.assert_array_equal(counted, plain)


def test_jit_and_eager_agree_at_single_positions():
    n = 1009
    whole = quick_jit(permutation, static_argnums=1)(KEY, n)
    network = bijection.keyed(KEY, n)
    for position in (0, 1, 500, n - 1):
        assert bijection.permuted(network, jnp.uint32(position), n) == whole[position]


def test_factors_are_barely_above_and_near_the_root():
    rng = np.random.default_rng(1)
    lengths = [*range(1, 1500), *rng.integers(1500, 1_000_000, 1500).tolist(), 960_535, 10**9 + 7, bijection.LARGEST]
    excess = []
    for n in lengths:
        a, b = bijection.factors(n)
        assert min(a, b) >= 1, n
        assert max(a, b) <= 5 * min(a, b) or n < bijection.EXACT_BELOW, n
        excess.append(a * b - n)
    assert min(excess) >= 0
    assert max(excess) <= 26  # reached at 960 535, and nowhere exceeded up to a million
    assert np.mean(excess) < 2


def test_factors_are_the_best_of_all_candidates():
    """The bits of every permutation depend on them: another pair as good would change published runs."""
    rng = np.random.default_rng(2)
    for n in [*range(1, 700), *rng.integers(700, 10**6, 300).tolist(), 10**9 + 7]:
        root = math.isqrt(n)
        candidates = [(-(-n // b), b) for b in range(max(1, root // 2), 2 * root + 2)]
        best = min(candidates, key=lambda pair: (pair[0] * pair[1] - n, abs(pair[0] - pair[1])))
        assert bijection.factors(n) == best, n


# --- uniform: each statistic is a function from permutations, one a row, to p-values


def chi_square(counts, expected, lost=1):
    return stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), np.size(counts) - lost)


def bins_of(n, most):
    """Which of at most `most` bins each example belongs to, and the sizes of the bins."""
    bins = np.arange(n) * min(n, most) // n
    return bins, np.bincount(bins)


def example_at_a_position(rows):
    number, n = rows.shape
    bins, sizes = bins_of(n, number // 10)
    return [
        chi_square(np.bincount(bins[rows[:, position]], minlength=len(sizes)), number * sizes / n)
        for position in (0, n // 3, n - 1)
    ]


def position_of_an_example(rows):
    number, n = rows.shape
    bins, sizes = bins_of(n, number // 10)
    return [
        chi_square(
            np.bincount(bins[np.argmax(rows == example, axis=1)], minlength=len(sizes)),
            number * sizes / n,
        )
        for example in (0, n // 3, n - 1)
    ]


def placement(rows):
    """All positions against all examples, in bins: a table whose margins are both fixed."""
    number, n = rows.shape
    bins, sizes = bins_of(n, 300)
    table = np.zeros((len(sizes), len(sizes)))
    for row in rows if n > 2000 else [rows]:
        pairs = bins * len(sizes) + bins[row]
        table += np.bincount(pairs.ravel(), minlength=table.size).reshape(table.shape)
    expected = number * np.outer(sizes, sizes) / n
    return [stats.chi2.sf((n - 1) / n * np.sum((table - expected) ** 2 / expected), (len(sizes) - 1) ** 2)]


def adjacent_pairs(rows):
    """Which example follows which, around the circle; exhaustive where there are few."""
    number, n = rows.shape
    if n < 10:
        table = np.zeros((n, n))
        np.add.at(table, (rows[:, 2], rows[:, 3]), 1)
        different = ~np.eye(n, dtype=bool)
        return [chi_square(table[different], number / (n * (n - 1)))]
    bins, sizes = bins_of(n, 12)
    binned = bins[rows]
    pairs = binned * len(sizes) + np.roll(binned, -1, axis=1)
    table = np.bincount(pairs.ravel(), minlength=len(sizes) ** 2).reshape(len(sizes), -1)
    expected = number * sizes[:, None] * (sizes - np.eye(len(sizes))) / (n - 1)
    return [stats.chi2.sf(np.sum((table - expected) ** 2 / expected), (len(sizes) - 1) ** 2)]


def differences(rows):
    """(perm[i + lag] − perm[i]) mod n; at a lag of b the network's two halves start from the same right half."""
    number, n = rows.shape
    rights = {bijection.factors(n)[1], wide.factors(n)[1]}
    found = []
    for lag in sorted({1, 2, *rights, *(2 * right for right in rights)}):
        apart = (np.roll(rows, -lag, axis=1) - rows) % n
        found.append(chi_square(np.bincount(apart.ravel(), minlength=n)[1:], number * n / (n - 1)))
    return found


def mean_and_variance(values, mean, variance, fourth):
    """The p-values of the sample's mean and variance; `fourth` is the fourth cumulant."""
    number = len(values)
    freedom = 2 * number / (2 + fourth / variance**2)
    spread = freedom * np.mean((values - mean) ** 2) / variance
    return [
        2 * stats.norm.sf(abs(np.mean(values) - mean) / math.sqrt(variance / number)),
        2 * min(stats.chi2.sf(spread, freedom), stats.chi2.cdf(spread, freedom)),
    ]


def cycles(rows):
    """The number of cycles is a sum of independent trials with chances 1, 1/2, …, 1/n."""
    number, n = rows.shape
    edges = (rows + n * np.arange(number)[:, None]).ravel()
    graph = sparse.csr_array((np.ones(edges.size, np.int8), edges, np.arange(edges.size + 1)))
    total, labels = sparse.csgraph.connected_components(graph, connection="strong")
    row_of = np.empty(total, np.int64)
    row_of[labels] = np.arange(edges.size) // n
    chance = 1 / np.arange(1, n + 1)
    variance = chance * (1 - chance)
    return mean_and_variance(
        np.bincount(row_of), np.sum(chance), np.sum(variance), np.sum(variance * (1 - 6 * variance))
    )


def ascending_runs(rows):
    """One more than the descents, whose number is distributed as the integer part of a sum of n uniform numbers."""
    _, n = rows.shape
    descents = np.sum(rows[:, 1:] < rows[:, :-1], axis=1)
    return mean_and_variance(descents, (n - 1) / 2, (n + 1) / 12, -(n + 1) / 120)


def inversions(rows):
    """The number of inversions is a sum of independent uniform numbers on {0, …, i − 1}."""
    _, n = rows.shape
    small = rows.astype(np.int16)
    values = sum(np.sum(small[:, lag:] < small[:, :-lag], axis=1) for lag in range(1, n))
    sides = np.arange(1, n + 1)
    return mean_and_variance(values, n * (n - 1) / 4, np.sum(sides**2 - 1) / 12, -np.sum(sides**4 - 1) / 120)


def matches_with_the_next(rows):
    """The number of places at which two permutations of successive numbers agree: nearly a Poisson number of mean 1."""
    return mean_and_variance(np.sum(rows[1:] == rows[:-1], axis=1), 1, 1, 1)


STATISTICS = [
    example_at_a_position,
    position_of_an_example,
    placement,
    adjacent_pairs,
    differences,
    cycles,
    ascending_runs,
    inversions,
    matches_with_the_next,
]
# where a statistic takes long, or has little to say about few permutations
LONGEST = dict.fromkeys([example_at_a_position, position_of_an_example, cycles, matches_with_the_next], 35_000)
LONGEST[inversions] = 300
CASES = [
    pytest.param(n, source, statistic, id=f"{n}-{source}-{statistic.__name__}")
    for source, lengths in SOURCES.items()
    for n in lengths
    for statistic in STATISTICS
    if n <= LONGEST.get(statistic, n)
]


@pytest.mark.parametrize(("n", "source", "statistic"), CASES)
def test_statistic_is_that_of_a_true_shuffle(n, source, statistic):
    found = statistic(permutations(source, n))
    assert min(found) > LEAST_P, f"p-values {found}"


def test_every_permutation_of_five_is_as_likely():
    numbers = jnp.arange(60_000, dtype=jnp.uint32)
    rows = jax.jit(jax.vmap(lambda number: bijection.shuffled(jax.random.fold_in(KEY, number), 5)))(numbers)
    _, counts = np.unique(np.asarray(rows) @ 5 ** np.arange(5), return_counts=True)
    assert len(counts) == 120
    assert chi_square(counts, len(rows) / 120) > LEAST_P


# --- two positions under very many keys, which is cheap where a permutation is a function of a position


def images_under_many_keys(source, n, positions, number=2**16):
    if source == "wide":
        return wide_images(wide_words(jnp.arange(number, dtype=jnp.uint32), n), np.array(positions, np.uint64), n)
    at = jnp.array(positions, jnp.uint32)
    of = lambda number: bijection.permuted(bijection.keyed(jax.random.fold_in(KEY, number), n), at, n)
    return np.asarray(jax.jit(jax.vmap(of))(jnp.arange(number, dtype=jnp.uint32)), np.int64)


def two_neighbors(source, n, position, number=2**16):
    if source == "numpy":
        rng = np.random.default_rng(n)
        first, step = rng.integers(0, n, number), rng.integers(1, n, number)
        return np.stack([first, (first + step) % n], axis=1)
    return images_under_many_keys(source, n, [position, position + 1], number)


def sizes_of_bins(n, bins):
    edges = [-(-i * n // bins) for i in range(bins + 1)]  # in exact integers
    return np.diff(np.array(edges, np.uint64)).astype(float)


def bins_among(values, n, bins):
    """values · bins // n, in exact integers."""
    return np.searchsorted([-(-i * n // bins) for i in range(1, bins)], values, side="right")


SHORT = [(1009, 1000), (35_000, 0), (1_000_003, 77), (2**31 - 1, 2**30)]
LONG = [(2**31 + 1, 2**31 - 1), (10**12, 5 * 10**11), (10**12 + 39, 842_547), (2**63 - 1, 0)]


@pytest.mark.parametrize(
    ("source", "n", "position"),
    [(source, *case) for case in SHORT for source in ("library", "numpy")]
    + [(source, *case) for case in LONG for source in ("wide", "numpy")]
    + [("wide", *SHORT[0])],
)
def test_two_neighbors_are_uniform_over_keys(source, n, position):
    pairs = two_neighbors(source, n, position)
    number, side = len(pairs), 24
    bins = bins_among(pairs, n, side)
    sizes = sizes_of_bins(n, side)
    cells = sizes[:, None] * (sizes - np.eye(side)) / n / (n - 1)
    assert chi_square(np.bincount(bins @ [side, 1], minlength=side**2), number * cells.ravel()) > LEAST_P
    few = 251
    apart = np.where(pairs[:, 1] >= pairs[:, 0], pairs[:, 1] - pairs[:, 0], n - (pairs[:, 0] - pairs[:, 1]))
    lengths = (n - 1 - np.arange(few)) // few + 1.0
    lengths[0] -= 1  # two neighbors are never the same
    assert chi_square(np.bincount(apart % few, minlength=few), number * lengths / (n - 1)) > LEAST_P


@pytest.mark.parametrize(
    ("source", "n"),
    [("library", n) for n in (1_600_000_000, 2**31 - 1)] + [("wide", n) for n, _ in LONG],
)
def test_both_halves_are_uniform_over_keys(source, n):
    """Also in their lowest digits: scaled from too few bits, a shift would miss most of them.

    At 2³¹ − 1 the left half has 2¹⁶ values, and scaled from 15 bits its last bit would never change.
    """
    b = (bijection if source == "library" else wide).factors(n)[1]
    found = images_under_many_keys(source, n, [n // 3])[:, 0]
    for half, size in ((found // b, -(-n // b)), (found % b, b)):
        for digit in (2, 3, 64, 251):
            expected = len(found) * ((size - 1 - np.arange(digit)) // digit + 1) / size
            assert chi_square(np.bincount(half % digit, minlength=digit), expected) > LEAST_P, (size, digit)
