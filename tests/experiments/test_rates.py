"""Rates as slopes: how the error at the end of a long run shrinks with the step size, order by order.

On a strongly convex h with constant step sizes the iterates settle around the minimizer. How far away, in the mean
square of ∇h over seeds at the end of an epoch, goes as a power of the step size that the order decides: the first for
independent draws (their variance), the second for one permutation used for ever (its bias), the third for a fresh
permutation each pass.

The third power needs examples whose second derivatives agree. Where they do not, a pass has the mean drift
−½η² Σ_j H_j ∇_j, with H_j and ∇_j the Hessian and the gradient of example j, whatever the permutation, and random
reshuffling has a bias of its own, of the second power as well; it is the smaller one, and the last test measures that.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior.orders import FlipFlop, Herding, Independent, RandomReshuffling, ShuffleOnce
from wior.tasks.quadratic import quadratic, with_shared_hessians

HALVINGS = 0.04 * 0.5 ** np.arange(6)
SEEDS = 64


def task_with(same_hessians):
    task = quadratic(p=3, d=4, m=6, n=8, noise=1.0, seed=1)
    return with_shared_hessians(task) if same_hessians else task


def final_errors(order, same_hessians=True):
    """The mean over seeds of ‖∇h(x)‖² at the end of a run of equal length in η·steps, for each step size."""
    task = task_with(same_hessians)
    metrics = lambda x, y: {"squared": jnp.sum(task.hypergradient(x) ** 2)}
    errors = []
    for eta in HALVINGS:
        algorithm = wior.WiORBO(outer_lr=float(eta), inner_lr=float(2 * eta), adjoint_lr=float(2 * eta))
        epochs = int(np.ceil(40 / eta / 24))
        result = wior.sweep(
            task.problem, algorithm, jnp.zeros(3), jnp.zeros(4), grid={}, seeds=SEEDS, order=order, batch_size=1,
            epochs=epochs, record_every=10**6, metrics=metrics,
        )  # fmt: skip
        assert result.steps_per_epoch == 24
        errors.append(result.final("squared").mean())
    return np.array(errors)


def slope(errors):
    return np.polyfit(np.log(HALVINGS), np.log(errors), 1)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "power"),
    [(Independent(), 1), (ShuffleOnce(), 2), (RandomReshuffling(), 3)],
    ids=["independent", "once", "reshuffled"],
)
def test_the_final_error_goes_as_a_power_of_the_step_size(order, power):
    errors = final_errors(order)
    assert abs(slope(errors) - power) < 0.25, (slope(errors), errors)


@pytest.mark.slow
def test_reshuffling_keeps_a_bias_where_hessians_differ_and_it_is_a_small_one():
    once, reshuffled = (final_errors(order, same_hessians=False) for order in (ShuffleOnce(), RandomReshuffling()))
    assert abs(slope(once) - 2) < 0.25
    assert 2 < slope(reshuffled) < 3
    assert reshuffled[-1] < once[-1] / 10


@pytest.mark.slow
@pytest.mark.parametrize("order", [FlipFlop(), Herding(balance="mean")], ids=repr)
def test_flip_flop_and_mean_balancing_go_past_the_third_power(order):
    assert slope(final_errors(order)) > 3.5


@pytest.mark.slow
def test_pair_balancing_settles_in_an_order_better_than_a_random_one():
    # its passes stop changing, so the power is that of one permutation, with a smaller constant
    assert np.all(final_errors(Herding()) < final_errors(ShuffleOnce()) / 4)
