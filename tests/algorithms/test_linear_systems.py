"""The solvers of H u = b, and the estimates made with them, come nearer to the exact one at the rates their theory
states.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wior import oracle
from wior.algorithms.parts import contextual, linear_systems
from wior.baselines.reverse import schedule

RNG = np.random.default_rng(0)
EIGENVALUES = np.array([0.5, 0.7, 1.1, 1.6, 2.0])
BASIS = np.linalg.qr(RNG.normal(size=(5, 5)))[0]
H = BASIS @ np.diag(EIGENVALUES) @ BASIS.T
B, START = RNG.normal(size=5), RNG.normal(size=5)
EXACT = np.linalg.solve(H, B)
TAU = 0.45
MANY = (
    RNG.normal(scale=0.05, size=(30, 5, 5)) + H
)  # a matrix for each batch, not symmetric: the order of factors matters


def product(v, matrix):
    oracle.count(2, 4, "hessian_products")
    return matrix @ v


def same_matrix(times):
    return jnp.broadcast_to(H, (times, 5, 5))


def test_a_neumann_sum_is_its_terms():
    u, seen = linear_systems.neumann_sum(product, jnp.asarray(B), TAU, jnp.asarray(MANY[:4]))
    term, total = B, B.copy()
    for j, matrix in enumerate(MANY[:4]):
        np.testing.assert_allclose(seen[j], matrix @ term)
        term = (np.eye(5) - TAU * matrix) @ term
        total += term
    np.testing.assert_allclose(u, TAU * total)


@pytest.mark.parametrize("terms", [1, 2, 5, 20])
def test_a_neumann_sum_misses_what_its_theory_says(terms):
    u, _ = linear_systems.neumann_sum(product, jnp.asarray(B), TAU, same_matrix(terms - 1))
    missing = np.linalg.matrix_power(np.eye(5) - TAU * H, terms) @ EXACT
    np.testing.assert_allclose(EXACT - u, missing, atol=1e-12)


@pytest.mark.parametrize("terms", [1, 2, 5])
def test_a_neumann_product_is_in_the_mean_over_its_lengths_the_sum(terms):
    of_length = lambda p: linear_systems.neumann_product(
        product, jnp.asarray(B), TAU, jnp.asarray(MANY[: terms - 1]), p
    )
    each = [of_length(jnp.int32(p)) for p in range(terms)]
    expected, seen = linear_systems.neumann_sum(product, jnp.asarray(B), TAU, jnp.asarray(MANY[: terms - 1]))
    np.testing.assert_allclose(np.mean([u for u, _ in each], 0), expected)
    for p, (_, shown) in enumerate(each):
        np.testing.assert_allclose(shown[:p], seen[:p])
        assert not shown[p:].any()


def test_random_lengths_are_uniform():
    lengths = jax.vmap(lambda key: linear_systems.random_length(key, 4))(jax.random.split(jax.random.key(1), 40_000))
    counts = np.bincount(lengths, minlength=4)
    assert len(counts) == 4
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000 * 0.75)


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_steps_on_the_quadratic_contract_as_they_should(steps):
    u, _ = linear_systems.quadratic_steps(product, jnp.asarray(B), jnp.asarray(START), TAU, same_matrix(steps))
    left = np.linalg.matrix_power(np.eye(5) - TAU * H, steps) @ (START - EXACT)
    np.testing.assert_allclose(u - EXACT, left, atol=1e-12)


def test_steps_on_the_quadratic_take_a_batch_each():
    u, seen = linear_systems.quadratic_steps(product, jnp.asarray(B), jnp.asarray(START), TAU, jnp.asarray(MANY[:3]))
    expected = START
    for j, matrix in enumerate(MANY[:3]):
        np.testing.assert_allclose(seen[j], matrix @ expected)
        expected = expected - TAU * (matrix @ expected - B)
    np.testing.assert_allclose(u, expected)


@pytest.mark.parametrize("start", [None, START], ids=["zero", "warm"])
def test_conjugate_gradients_are_within_their_bound_and_then_exact(start):
    kappa = EIGENVALUES[-1] / EIGENVALUES[0]
    rate = (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1)
    energy = lambda u: np.sqrt((u - EXACT) @ H @ (u - EXACT))
    first = energy(np.zeros(5) if start is None else start)
    for steps in range(1, 6):
        u = linear_systems.conjugate_gradients(
            lambda v: jnp.asarray(H) @ v, jnp.asarray(B), steps, start=None if start is None else jnp.asarray(start)
        ).v
        assert energy(u) <= 2 * rate**steps * first
    np.testing.assert_allclose(u, EXACT, rtol=1e-10)


@pytest.mark.parametrize("needed", [None, 1e-9])
def test_conjugate_gradients_stay_where_the_curvature_is_not_positive(needed):
    saddle, before = jnp.diag(jnp.array([1.0, 2.0, -1.0, 1.0, 1.0])), np.zeros(5)
    for steps in range(1, 6):
        solved = linear_systems.conjugate_gradients(lambda v: saddle @ v, jnp.asarray(B), steps, needed)
        if not solved.convex:
            np.testing.assert_array_equal(solved.v, before)
        before = np.asarray(solved.v)
    assert not solved.convex
    at_once = linear_systems.conjugate_gradients(lambda v: -v, jnp.asarray(B), 5, needed)
    assert not at_once.convex
    assert not at_once.v.any()


def test_conjugate_gradients_end_when_the_residual_is_small_enough():
    solved = linear_systems.conjugate_gradients(lambda v: jnp.asarray(H) @ v, jnp.asarray(B), 50, 1e-9)
    assert solved.steps == 5
    np.testing.assert_allclose(solved.v, EXACT, rtol=1e-8)
    assert solved.convex


def test_conjugate_gradients_go_on_past_the_solution_without_harm():
    for limit in (5, 30):
        solved = linear_systems.conjugate_gradients(lambda v: 2.0 * v, jnp.asarray(B), limit)
        np.testing.assert_allclose(solved.v, B / 2, rtol=1e-12)
        assert solved.convex


def test_solvers_count_the_products_they_form():
    matrices = jnp.asarray(MANY[:4])
    for solve, number in (
        (lambda: linear_systems.neumann_sum(product, jnp.asarray(B), TAU, matrices), 4),
        (lambda: linear_systems.neumann_product(product, jnp.asarray(B), TAU, matrices, jnp.int32(3)), 3),
        (lambda: linear_systems.quadratic_steps(product, jnp.asarray(B), jnp.asarray(START), TAU, matrices), 4),
        (lambda: linear_systems.conjugate_gradients(lambda v: product(v, H), jnp.asarray(B), 3), 3),
        (lambda: linear_systems.conjugate_gradients(lambda v: product(v, H), jnp.asarray(B), 3, 0.0), 3),
        (lambda: linear_systems.conjugate_gradients(lambda v: product(v, H), jnp.asarray(B), 3, start=jnp.ones(5)), 4),
    ):
        with oracle.counting() as tally:
            solve()
        assert int(tally.everything()["hessian_products"]) == 4 * number
        assert int(tally.everything()["backward_passes"]) == 2 * number


# EpochSGD: with noisy gradients the squared error falls as one over the steps, by half with every level.


def test_the_error_of_epoch_sgd_halves_with_every_level():
    """A quadratic with μ = 1 and noise in every gradient, β = 2/μ. The first epochs are those of the start, not of the
    noise.
    """
    levels, runs, curvatures = 8, 400, jnp.linspace(1.0, 1.2, 5)
    noise = jax.random.normal(jax.random.key(2), (runs, contextual.epoch_steps(levels), 5))

    def run(noise):
        def turn(carry, item):
            j, own = item
            carry, _, _, ends = contextual.epoch_step(carry, j, 2.0, lambda y: curvatures * y + own)
            return carry, (jnp.sum(carry.y**2), ends)

        start = contextual.Epochs(jnp.ones(5), jnp.zeros(5))
        return jax.lax.scan(turn, start, (jnp.arange(len(noise)), noise))[1]

    squared, ends = jax.jit(jax.vmap(run))(noise)
    errors = np.asarray(squared.mean(0))[np.asarray(ends[0])]
    assert len(errors) == levels + 1
    slope = np.polyfit(np.arange(3, levels + 1), np.log2(errors[3:]), 1)[0]
    assert abs(slope + 1) < 0.15


def test_epoch_sgd_is_its_definition():
    gradients = RNG.normal(size=(15, 5))
    carry, ends = contextual.Epochs(jnp.asarray(START), jnp.zeros(5)), []
    for j in range(15):
        carry, _, epoch, end = contextual.epoch_step(carry, jnp.int32(j), 0.3, lambda y, j=j: 0.1 * y + gradients[j])
        if end:
            ends.append((int(epoch), np.asarray(carry.y)))
    y, j = START, 0
    for k in range(4):
        iterates = []
        for _ in range(2**k):
            y = y - 0.3 / 2**k * (0.1 * y + gradients[j])
            iterates.append(y)
            j += 1
        y = np.mean(iterates, 0)
        assert ends[k][0] == k
        np.testing.assert_allclose(ends[k][1], y)


# The schedule by which Reverse goes back with few iterates kept.


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 20, 100])
def test_a_schedule_visits_every_step_backwards_from_its_own_iterate(steps, checkpoints):
    slots = {0: 0}  # the slot and the number of the iterate in it
    expected = steps - 1
    moves = schedule(steps, checkpoints)
    for back, step, load, save in zip(*(np.asarray(column) for column in moves), strict=True):
        assert max(load, save) <= checkpoints
        assert slots[load] == step
        if back:
            assert step == expected
            expected -= 1
        else:
            slots[save] = step + 1
    assert expected == -1


def test_a_schedule_repeats_as_little_as_the_binomial_rule_allows():
    """With S iterates kept, K ≤ (S + r over r) steps need no step more than r times."""
    for steps, checkpoints, repetitions in ((4, 3, 1), (10, 3, 2), (20, 3, 3), (45, 8, 2), (165, 8, 3)):
        moves = schedule(steps, checkpoints)
        forward = np.asarray(moves.step)[~np.asarray(moves.back)]
        assert np.bincount(forward, minlength=steps).max() <= repetitions
