"""Damping: μ I beside the Hessian, in every method with an adjoint, and nowhere else."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import baselines
from wior.algorithms.algorithm import Algorithm

MU = 0.7
H = np.diag([2.0, 0.5, -0.2])  # not convex in the last direction
C, B = np.array([1.0, 2.0, -1.0]), np.array([0.3, -0.4, 0.5])
ONE = np.zeros((4, 1))
X0, Y0 = jnp.asarray(0.2), jnp.zeros(3)


def outer(x, y, batch):
    return B @ y + 0 * jnp.sum(batch)


def inner(x, y, batch):
    return y @ H @ y / 2 - x * C @ y + 0 * jnp.sum(batch)


PROBLEM = wior.Bilevel(outer, inner, ONE, ONE)
SETS = wior.ConditionalBilevel(outer, inner, ONE, np.zeros((4, 2, 1)))
EVERY = {**vars(baselines), "WiORBO": wior.WiORBO, "WiORCBO": wior.WiORCBO}
DAMPED = {
    name: kind
    for name, kind in EVERY.items()
    if isinstance(kind, type)
    and issubclass(kind, Algorithm)
    and "damping" in {f.name for f in dataclasses.fields(kind)}
}


def made(kind, **more):
    """A method that moves u alone: x and y stay almost where they are."""
    rates = {field.name: 1e-9 for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}
    return kind(**{**rates, **more})


def test_every_method_with_an_adjoint_has_it():
    assert set(DAMPED) == {
        "WiORBO", "WiORCBO", "AIDCG", "AmIGO", "BSA", "DLSGD", "FSLA", "MASOBA", "MRBO", "RTMLMC", "SABA", "SOBA",
        "SPABA", "SRBA", "SUSTAIN", "StocBiO", "TTSA", "VRBO", "WiRBO",
    }  # fmt: skip
    adjoint = {"adjoint_lr", "neumann_lr", "adjoint_steps"}
    others = set(EVERY) - set(DAMPED)
    own = lambda name: {field.name for field in dataclasses.fields(EVERY[name])} & adjoint
    left = {name for name in others if dataclasses.is_dataclass(EVERY[name]) and own(name)}
    assert left == {"WiORComp", "WiORCComp"} & set(EVERY)  # whose Hessian is the identity


@pytest.mark.parametrize(
    "name", sorted({"WiORBO", "SABA", "SOBA", "MASOBA", "FSLA", "SRBA", "SPABA", "WiRBO", "AmIGO"})
)
def test_u_solves_the_damped_system(name):
    kind = DAMPED[name]
    names = {field.name for field in dataclasses.fields(kind)}
    constant = {"decay": 0} if "decay" in names else {}
    method = made(kind, adjoint_lr=0.4, damping=MU, **constant)
    u = wior.solve(PROBLEM, method, X0, Y0, batch_size=2, steps=400).state.u
    # SAGA's table has derivatives at earlier u
    np.testing.assert_allclose(u, np.linalg.solve(H + MU * np.eye(3), B), rtol=1e-5 if name == "SABA" else 1e-8)


def test_conjugate_gradients_solve_it():
    method = baselines.AIDCG(1e-9, 1e-9, adjoint_steps=3, damping=MU)
    u = wior.solve(PROBLEM, method, X0, Y0, batch_size=2, steps=3).state.u
    np.testing.assert_allclose(u, np.linalg.solve(H + MU * np.eye(3), B), rtol=1e-6)


@pytest.mark.parametrize("name", ["StocBiO", "MRBO", "VRBO"])
def test_the_neumann_sum_is_that_of_the_damped_matrix(name):
    kind, scale, eta = DAMPED[name], 0.3, 1e-3
    constant = {"decay": 0} if name == "MRBO" else {}
    method = made(kind, outer_lr=eta, neumann_lr=scale, neumann_terms=5, damping=MU, **constant)
    x = wior.solve(PROBLEM, method, X0, Y0, batch_size=2, steps=1).x
    terms = [np.linalg.matrix_power(np.eye(3) - scale * (H + MU * np.eye(3)), q) @ B for q in range(5)]
    np.testing.assert_allclose((X0 - x) / eta, scale * C @ np.sum(terms, 0), rtol=1e-9)


@pytest.mark.parametrize("name", ["BSA", "TTSA", "SUSTAIN"])
def test_the_neumann_product_is_that_of_the_damped_matrix(name):
    kind, scale, eta, terms = DAMPED[name], 0.3, 1e-3, 4
    constant = {"decay": 0} if name in ("BSA", "SUSTAIN") else {"outer_decay": 0}
    method = made(kind, outer_lr=eta, neumann_lr=scale, neumann_terms=terms, damping=MU, **constant)
    x = wior.solve(PROBLEM, method, X0, Y0, batch_size=2, steps=1, seed=3).x
    powers = [
        terms * scale * C @ np.linalg.matrix_power(np.eye(3) - scale * (H + MU * np.eye(3)), p) @ B
        for p in range(terms)
    ]
    assert min(abs((X0 - x) / eta - value) for value in powers) < 1e-9


@pytest.mark.parametrize("name", ["WiORCBO", "DLSGD", "RTMLMC"])
def test_conditional_methods_have_it(name):
    eta = 1e-3
    more = {"adjoint_lr": 0.4, "inner_epochs": 300} if name == "WiORCBO" else {"neumann_lr": 0.3, "neumann_terms": 50}
    runs = [
        wior.solve(
            SETS, made(DAMPED[name], outer_lr=eta, damping=mu, **more), X0, Y0, batch_size=(2, 2), steps=1, seed=1
        ).x
        for mu in (MU, None)
    ]
    shifted = wior.ConditionalBilevel(outer, lambda x, y, b: inner(x, y, b) + MU * y @ y / 2, ONE, np.zeros((4, 2, 1)))
    method = made(DAMPED[name], outer_lr=eta, **more)
    by_hand = wior.solve(shifted, method, X0, Y0, batch_size=(2, 2), steps=1, seed=1).x
    np.testing.assert_allclose(runs[0] - X0, by_hand - X0, rtol=1e-6)  # y hardly moves, so that only u is another one
    assert not np.isclose(runs[1] - X0, by_hand - X0, rtol=1e-3)


def test_y_is_not_damped():
    run = lambda mu: wior.solve(PROBLEM, wior.WiORBO(0.1, 0.1, 0.1, damping=mu), X0, Y0, batch_size=2, steps=3)
    damped, plain = run(MU), run(None)  # u is first moved by its Hessian in the second step, x in the third
    np.testing.assert_array_equal(damped.y, plain.y)
    assert damped.x != plain.x


def test_it_is_a_number_to_sweep():
    found = wior.sweep(
        PROBLEM, wior.WiORBO(1e-3, 1e-9, 0.4), X0, Y0, grid={"damping": [0.5, MU]}, seeds=1, batch_size=2, steps=300
    )
    for x, mu in zip(found.x[:, 0], (0.5, MU), strict=True):
        alone = wior.solve(PROBLEM, wior.WiORBO(1e-3, 1e-9, 0.4, damping=mu), X0, Y0, batch_size=2, steps=300)
        np.testing.assert_allclose(x, alone.x, rtol=1e-10)
    assert found.compile_seconds > 0
    with pytest.raises(ValueError, match="damping must be a finite number that is not negative, got -1; or None"):
        wior.WiORBO(0.1, 0.1, 0.1, damping=-1)
    with pytest.raises(TypeError, match="positional argument"):
        wior.WiORBO(0.1, 0.1, 0.1, 1.0, 0.5)
