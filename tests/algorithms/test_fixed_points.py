"""Solutions, with batches that are all the data: steps stay there, and lead there."""

import jax.numpy as jnp
import numpy as np
import pytest

import wior
from twins import BILEVEL, COMPOSITIONAL, CONDITIONAL_COMP, MINIMAX, X, Y, draw, same, stepped
from wior.baselines import WiRBO
from wior.orders import Incremental
from wior.running import visits
from wior.tasks import quadratic

# Solutions, with batches that are all the data.

ALL_OUTER, ALL_INNER = np.arange(7), np.arange(11)
# inner problems with the identity for a Hessian are solved by a step of length 1, and u by the next one
EASY = quadratic.quadratic_conditional(m=5, n=4, inner_eigenvalues=(1.0, 1.0))
SINGLE_LOOP = {
    "WiORBO": (BILEVEL, wior.WiORBO(0.02, 0.4, 0.4), [ALL_OUTER], [ALL_INNER]),
    "WiRBO": (BILEVEL, WiRBO(0.02, 0.4, 0.4), [ALL_OUTER] * 2, [ALL_INNER] * 3),
    "WiORMinimax": (MINIMAX, wior.WiORMinimax(0.02, 0.3), [ALL_OUTER], []),
    "WiORComp": (COMPOSITIONAL, wior.WiORComp(0.05, 0.5, 0.5), [ALL_OUTER], [ALL_INNER]),
}
CONDITIONAL_LOOP = {
    "WiORCBO": (EASY, wior.WiORCBO(0.5, 1.0, 1.0, inner_epochs=2)),
    "WiORCComp": (CONDITIONAL_COMP, wior.WiORCComp(0.5, 1.0, 1.0, inner_epochs=2)),
}


@pytest.mark.parametrize("name", SINGLE_LOOP)
def test_the_solution_is_a_fixed_point(name):
    made, algorithm, outer, inner = SINGLE_LOOP[name]
    x = made.minimizer()
    state = algorithm.init(made.problem, x, made.inner_solution(x))
    if hasattr(state, "u"):
        state = state._replace(u=made.adjoint(x))
    same(stepped(made.problem, algorithm, state, draw(outer, inner)), state, tolerance=1e-10)


@pytest.mark.parametrize("name", CONDITIONAL_LOOP)
def test_the_solution_is_a_fixed_point_of_conditional_steps(name):
    made, algorithm = CONDITIONAL_LOOP[name]
    whole = jnp.broadcast_to(jnp.arange(4), (5, 2, 4))
    drawn = draw([np.arange(5)], visits=visits.in_batches(whole, jnp.full(5, 4), 4, False))
    state = algorithm.init(made.problem, made.minimizer(), jnp.asarray(Y))
    same(stepped(made.problem, algorithm, state, drawn), state, tolerance=1e-10)


@pytest.mark.parametrize("name", [*SINGLE_LOOP, *CONDITIONAL_LOOP])
def test_full_batches_lead_to_the_minimizer(name):
    made, algorithm, *_ = (SINGLE_LOOP | CONDITIONAL_LOOP)[name]
    sizes = tuple(made.problem.sizes().values())
    options = {"order": Incremental(), "batch_size": sizes if len(sizes) == 2 else sizes[0]}
    steps = 200 if name in CONDITIONAL_LOOP else 8000
    start = jnp.asarray(X), jnp.asarray(Y)
    result = wior.solve(made.problem, algorithm, *start, steps=steps, record_every=steps, **options)
    np.testing.assert_allclose(result.x, made.minimizer(), rtol=1e-8, atol=1e-8)
    if name in SINGLE_LOOP:
        np.testing.assert_allclose(result.y, made.inner_solution(result.x), rtol=1e-8, atol=1e-8)
