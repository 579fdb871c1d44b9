"""Each of the paper's methods against its formula, written out in a naive twin."""

import functools
import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import wior
from twins import (
    BILEVEL,
    BRIEFLY,
    COMPOSITIONAL,
    CONDITIONAL,
    CONDITIONAL_COMP,
    FORMS,
    MINIMAX,
    RATES,
    VISITED,
    XI,
    ZETA,
    U,
    X,
    Y,
    bilevel_twin,
    close,
    compositional_twin,
    draw,
    in_both_forms,
    in_form,
    laid_out,
    lengths,
    mean,
    minimax_twin,
    projected,
    random_passes,
    same,
    stepped,
)
from wior.algorithms.wior_bo import State
from wior.baselines import WiRBO
from wior.orders import Incremental
from wior.tasks import quadratic


@in_both_forms
def test_a_step_of_wior_bo_is_the_formula(form):
    problem, (like_x, like_y) = in_form(form, BILEVEL.problem), FORMS[form]
    state = State(like_x(X), like_y(Y), like_y(U))
    found = stepped(problem, wior.WiORBO(*RATES), state, draw([XI], [ZETA]))
    expected = bilevel_twin(BILEVEL.problem, (X, Y, U), [XI] * 2, [ZETA] * 3, RATES)
    same(found, State(like_x(expected[0]), like_y(expected[1]), like_y(expected[2])))


@in_both_forms
def test_a_step_of_wir_bo_is_the_formula(form):
    problem, (like_x, like_y) = in_form(form, BILEVEL.problem), FORMS[form]
    state = State(like_x(X), like_y(Y), like_y(U))
    outer, inner = [[3, 0], [6, 2]], [[7, 1, 10], [0, 4, 4], [9, 8, 2]]
    found = stepped(problem, WiRBO(*RATES), state, draw(outer, inner))
    close(found, np.concatenate(bilevel_twin(BILEVEL.problem, (X, Y, U), outer, inner, RATES)))


@in_both_forms
def test_a_step_of_wior_minimax_is_the_formula(form):
    problem, (like_x, like_y) = in_form(form, MINIMAX.problem), FORMS[form]
    algorithm = wior.WiORMinimax(*RATES[:2])
    found = stepped(problem, algorithm, algorithm.init(problem, like_x(X), like_y(Y)), draw([XI]))
    close(found, np.concatenate(minimax_twin(MINIMAX.problem, X, Y, XI, RATES)))


@in_both_forms
def test_a_step_of_wior_comp_is_the_formula(form):
    problem, (like_x, like_y) = in_form(form, COMPOSITIONAL.problem), FORMS[form]
    state = State(like_x(X), like_y(Y), like_y(U))
    found = stepped(problem, wior.WiORComp(*RATES), state, draw([XI], [ZETA]))
    close(found, np.concatenate(compositional_twin(COMPOSITIONAL.problem, (X, Y, U), XI, ZETA, RATES)))


@pytest.mark.parametrize("radius", [0.3, 100.0])
@pytest.mark.parametrize("starts_epoch", [False, True])
def test_u_is_projected_when_an_epoch_starts_and_only_then(starts_epoch, radius):
    assert 0.3 < np.linalg.norm(U) < 100
    u = projected(U, radius) if starts_epoch else U
    state = State(X, Y, U)

    drawn = draw([XI], [ZETA], starts_epoch=starts_epoch)
    found = stepped(BILEVEL.problem, wior.WiORBO(*RATES, radius=radius), state, drawn)
    close(found, np.concatenate(bilevel_twin(BILEVEL.problem, (X, Y, u), [XI] * 2, [ZETA] * 3, RATES)))

    found = stepped(COMPOSITIONAL.problem, wior.WiORComp(*RATES, radius=radius), state, drawn)
    close(found, np.concatenate(compositional_twin(COMPOSITIONAL.problem, (X, Y, u), XI, ZETA, RATES)))

    outer, inner = [[3, 0], [6, 2]], [[7, 1, 10], [0, 4, 4], [9, 8, 2]]
    drawn = draw(outer, inner, starts_epoch=starts_epoch)
    found = stepped(BILEVEL.problem, WiRBO(*RATES, radius=radius), state, drawn)
    close(found, np.concatenate(bilevel_twin(BILEVEL.problem, (X, Y, u), outer, inner, RATES)))


def test_many_steps_are_the_formula_in_a_loop():
    """Through `solve`: the data in their own order, u projected at every epoch, step sizes from a schedule."""
    eta, radius, epoch = optax.polynomial_schedule(0.07, 0.01, 2, 10), 0.3, 77  # lcm(7 / gcd(7, 2), 11 / gcd(11, 3))
    algorithm = wior.WiORBO(eta, *RATES[1:], radius=radius)
    options = {"order": Incremental(), "batch_size": (2, 3), "steps": 80, "record_every": 80}
    result = wior.solve(BILEVEL.problem, algorithm, jnp.asarray(X), jnp.asarray(Y), **options)
    assert result.steps_per_epoch == epoch
    x, y, u = X, Y, np.zeros(5)
    for t in range(80):
        u = projected(u, radius) if t % epoch == 0 and t > 0 else u
        xi, zeta = np.arange(2 * t, 2 * t + 2) % 7, np.arange(3 * t, 3 * t + 3) % 11
        rates = (float(eta(t)), *RATES[1:])
        x, y, u = bilevel_twin(BILEVEL.problem, (x, y, u), [xi] * 2, [zeta] * 3, rates)
    close(result.state, np.concatenate([x, y, u]), tolerance=1e-6)  # optax's schedules are computed in float32


CONDITIONALS = {
    (wior.WiORCBO, False): CONDITIONAL,
    (wior.WiORCBO, True): quadratic.quadratic_conditional(m=5, n=4, ragged=True, seed=1),
    (wior.WiORCComp, False): CONDITIONAL_COMP,
    (wior.WiORCComp, True): quadratic.quadratic_conditional_compositional(m=5, n=4, ragged=True, seed=1),
}


def visit_twin(update, y, passes, batch, radius):
    """y and u after all batches of the concatenated passes; u is projected before the first batch that begins in a
    later pass.
    """
    sequence = [(row, number) for number, one in enumerate(passes) for row in one]
    u, last = np.zeros_like(y), 0
    for t in range(0, len(sequence), batch):
        rows, numbers = zip(*sequence[t : t + batch], strict=True)
        if numbers[0] > last:
            u = projected(u, radius)
        y, u, last = *update(y, u, list(rows)), numbers[0]
    return y, u


def conditional_twin(problem, x, y0, passes, batch, radius, rates):
    eta, gamma, rho = rates
    directions = []
    for i, own in zip(VISITED, passes, strict=True):
        C, D, E, c, e = mean(problem.outer_data, [i])
        A, B, a, _ = (np.asarray(leaf)[i] for leaf in problem.inner_data)

        def update(y, u, rows, A=A, B=B, a=a, C=C, D=D, c=c):
            g_y = A[rows].mean(0) @ y + B[rows].mean(0) @ x + a[rows].mean(0)
            g_yy_u, f_y = A[rows].mean(0) @ u, C @ y + D.T @ x + c
            return y - gamma * g_y, u - rho * (g_yy_u - f_y)

        y, u = visit_twin(update, y0, own, batch, radius)
        whole = np.arange(lengths(problem)[i])
        directions.append(D @ y + E @ x + e - B[whole].mean(0).T @ u)
    return x - eta * np.mean(directions, 0)


def conditional_compositional_twin(problem, x, y0, passes, batch, radius, rates):
    eta, gamma, rho = rates
    directions = []
    for i, own in zip(VISITED, passes, strict=True):
        C, c = mean(problem.outer_data, [i])
        R, r = (np.asarray(leaf)[i] for leaf in problem.inner_data)

        def update(y, u, rows, R=R, r=r, C=C, c=c):
            mapped = R[rows].mean(0) @ x + r[rows].mean(0)
            return (1 - gamma) * y + gamma * mapped, (1 - rho) * u + rho * (C @ y + c)

        _, u = visit_twin(update, y0, own, batch, radius)
        directions.append(R[: lengths(problem)[i]].mean(0).T @ u)
    return x - eta * np.mean(directions, 0)


TWINS = {wior.WiORCBO: conditional_twin, wior.WiORCComp: conditional_compositional_twin}


@pytest.mark.parametrize(
    ("form", "ragged", "inner_epochs", "batch", "radius"),
    [
        ("vectors", False, 1, 1, math.inf),
        ("vectors", False, 3, 3, 0.2),  # batches straddle passes
        ("vectors", True, 2, 1, 0.2),
        ("trees", True, 2, 3, 0.2),  # they straddle, and the last one is not full
    ],
)
@pytest.mark.parametrize("algorithm", TWINS)
def test_a_conditional_step_is_the_formula_in_a_loop(algorithm, form, ragged, inner_epochs, batch, radius):
    made = CONDITIONALS[algorithm, ragged]
    problem, (like_x, like_y) = in_form(form, made.problem), FORMS[form]
    assert (len(set(lengths(problem)[VISITED])) > 1) == ragged
    passes = random_passes(problem, inner_epochs)
    method = algorithm(*RATES, inner_epochs=inner_epochs, radius=radius)
    drawn = draw([VISITED], visits=laid_out(problem, passes, batch))
    found = stepped(problem, method, method.init(problem, like_x(X), like_y(Y)), drawn)
    twin = functools.partial(TWINS[algorithm], made.problem, X, Y, passes, batch, rates=RATES)
    close(found.x, twin(radius=radius))
    close(found.y, Y)  # every inner problem starts from the same point again
    if math.isfinite(radius):
        assert np.abs(twin(radius=math.inf) - twin(radius=radius)).max() > 1e-3


# Schedules.

ONE_STEP = {
    "WiORBO": (BILEVEL.problem, wior.WiORBO, draw([XI], [ZETA])),
    "WiRBO": (BILEVEL.problem, WiRBO, draw([XI] * 2, [ZETA] * 3)),
    "WiORMinimax": (MINIMAX.problem, lambda *rates: wior.WiORMinimax(*rates[:2]), draw([XI])),
    "WiORComp": (COMPOSITIONAL.problem, wior.WiORComp, draw([XI], [ZETA])),
    "WiORCBO": (
        CONDITIONAL.problem,
        wior.WiORCBO,
        draw([VISITED], visits=laid_out(CONDITIONAL.problem, random_passes(CONDITIONAL.problem, 1), 1)),
    ),
    "WiORCComp": (
        CONDITIONAL_COMP.problem,
        wior.WiORCComp,
        draw([VISITED], visits=laid_out(CONDITIONAL_COMP.problem, random_passes(CONDITIONAL_COMP.problem, 1), 1)),
    ),
}


def halving(t):
    return 0.4 * 0.5**t


@pytest.mark.parametrize("name", ONE_STEP)
def test_schedules_are_evaluated_at_the_number_of_the_step(name):
    problem, algorithm, drawn = ONE_STEP[name]
    scheduled = algorithm(halving, halving, halving)
    state = scheduled.init(problem, jnp.asarray(X), jnp.asarray(Y))
    if hasattr(state, "u"):
        state = state._replace(u=jnp.asarray(U))
    for t in (0, 3):
        found = stepped(problem, scheduled, state, drawn._replace(step=jnp.uint32(t)))
        same(found, stepped(problem, algorithm(*[halving(t)] * 3), state, drawn))


SCHEDULES = {
    "x": optax.linear_schedule(0.4, 0.1, 10, transition_begin=2),
    "y": optax.exponential_decay(0.4, 10, 0.5, transition_begin=2),
    "u": optax.join_schedules([optax.constant_schedule(0.1), optax.linear_schedule(0.4, 0.1, 10)], [2]),
}


@pytest.fixture(scope="module")
def walked():
    """Where all derivatives are ±1, x, y and u walk by the sums of their step sizes."""
    problem = wior.Bilevel(lambda x, y, b: -x - y, lambda x, y, b: -y, np.ones(1), np.ones(1))
    start = jnp.zeros((), float), jnp.zeros((), float)
    return wior.solve(problem, wior.WiORBO(*SCHEDULES.values()), *start, order=Incremental(), batch_size=1, **BRIEFLY)


@pytest.mark.parametrize("variable", SCHEDULES)
def test_schedules_of_optax_have_the_values_they_have_outside(walked, variable):
    expected = sum(float(SCHEDULES[variable](t)) for t in range(7))
    np.testing.assert_allclose(abs(getattr(walked.state, variable)), expected, rtol=1e-6)
