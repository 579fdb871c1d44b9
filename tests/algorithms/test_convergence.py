"""Where every baseline ends on the closed-form quadratics: at the minimizer, or exactly where its bias puts it.

Batches are all the data unless a method is meant to take the noise out by itself: SABA, SRBA and SPABA reach the
minimizer from small batches with a constant step. The biased ones are compared with the point at which their own
direction vanishes, in closed form, and that point with the minimizer: at the rate their theory states.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import baselines
from wior.orders import Incremental, RandomReshuffling
from wior.tasks import quadratic

# h curved enough for a biased direction to lead to a point as well
BILEVEL = quadratic.quadratic(m=8, n=12, outer_eigenvalues=(6.0, 8.0))
F, G = BILEVEL.f, BILEVEL.g
MINIMAX = quadratic.quadratic_minimax()
COMPOSITIONAL = quadratic.quadratic_compositional()
# with the identity for a Hessian the first step of EpochSGD is the last one that it needs
CONDITIONAL = quadratic.quadratic_conditional(m=5, n=4, inner_eigenvalues=(1.0, 1.0), outer_eigenvalues=(6.0, 8.0))
CONDITIONAL_COMPOSITIONAL = quadratic.quadratic_conditional_compositional(m=5, n=4, ragged=True)
RNG = np.random.default_rng(0)
X, Y = jnp.asarray(RNG.normal(size=3)), jnp.asarray(RNG.normal(size=5))
IN_FULL = {"order": Incremental(), "batch_size": (8, 12)}
TAU = 0.4  # below 1/L = 1/2


def end(made, algorithm, steps, **options):
    result = wior.solve(made.problem, algorithm, X, Y, steps=steps, record_every=steps, **options)
    return result.x, result.y


def root(affine):
    """Where an affine function of x vanishes."""
    zero = jnp.zeros(3)
    return -jnp.linalg.solve(jax.jacobian(affine)(zero), affine(zero))


def away(x):
    return float(jnp.linalg.norm(x - BILEVEL.minimizer()))


UNBIASED = {
    "AIDCG": (BILEVEL, baselines.AIDCG(0.05, 0.4, inner_steps=3, adjoint_steps=5), 2000),
    "AmIGO": (BILEVEL, baselines.AmIGO(0.05, 0.4, 0.4, inner_steps=3, adjoint_steps=3), 2000),
    "SOBA": (BILEVEL, baselines.SOBA(0.02, 0.4, 0.4, decay=0), 8000),
    "MASOBA": (BILEVEL, baselines.MASOBA(0.02, 0.4, 0.4, averaging=0.3), 8000),
    "FSLA": (BILEVEL, baselines.FSLA(0.02, 0.4, 0.4, momentum=0.3, decay=0), 8000),
    "SABA": (BILEVEL, baselines.SABA(0.02, 0.2, 0.2), 16000),
    "SRBA": (BILEVEL, baselines.SRBA(0.02, 0.2, 0.2, period=4), 16000),
    "SPABA": (BILEVEL, baselines.SPABA(0.02, 0.2, 0.2, probability=0.3), 16000),
    "SCGD": (COMPOSITIONAL, baselines.SCGD(0.05, 0.5, outer_decay=0, inner_decay=0), 8000),
    "NASA": (COMPOSITIONAL, baselines.NASA(0.05, 0.5, averaging=0.5), 8000),
    "SGDA": (MINIMAX, baselines.SGDA(0.02, 0.3), 8000),
    "AGDA": (MINIMAX, baselines.AGDA(0.02, 0.3), 8000),
    "BSGD": (CONDITIONAL_COMPOSITIONAL, baselines.BSGD(0.2), 1000),
}
SMALL_BATCHES = {name: {"order": RandomReshuffling(), "batch_size": (2, 3)} for name in ("SABA", "SRBA", "SPABA")}


@pytest.mark.parametrize("name", UNBIASED)
def test_it_ends_at_the_minimizer(name):
    made, algorithm, steps = UNBIASED[name]
    sizes = tuple(made.problem.sizes().values())
    in_full = {"order": Incremental(), "batch_size": sizes if len(sizes) == 2 else sizes[0]}
    if name == "BSGD":  # a batch that is a whole inner set, whatever its length: the sets have 2 to 4 rows
        in_full["batch_size"] = (5, 12)
    x, y = end(made, algorithm, steps, **SMALL_BATCHES.get(name, in_full))
    np.testing.assert_allclose(x, made.minimizer(), rtol=1e-8, atol=1e-8)
    if name != "BSGD":
        np.testing.assert_allclose(y, made.inner_solution(x), rtol=1e-8, atol=1e-8)


def test_without_variance_reduction_small_batches_do_not_end_there():
    x, _ = end(BILEVEL, baselines.SOBA(0.02, 0.2, 0.2, decay=0), 16000, **SMALL_BATCHES["SABA"])
    assert away(x) > 1e-4


# Truncated series: with T terms of length τ the adjoint is [I − (I − τA)^T] u.


def truncated(terms, tau):
    """The x at which ∇_x f − B'[I − (I − τA)^terms] u vanishes."""
    left_out = jnp.linalg.matrix_power(jnp.eye(5) - tau * G.A, terms)

    def direction(x):
        u = BILEVEL.adjoint(x)
        return F.E @ x + F.D @ BILEVEL.inner_solution(x) + F.e - G.B.T @ (u - left_out @ u)

    return root(direction)


def first_terms(method, terms):
    """The method with as many terms, and where it must end."""
    made = {
        "Reverse": lambda: baselines.Reverse(0.05, TAU, inner_steps=terms),
        "Reverse, few checkpoints": lambda: baselines.Reverse(0.05, TAU, inner_steps=terms, checkpoints=2),
        "StocBiO": lambda: baselines.StocBiO(0.05, 0.4, TAU, inner_steps=3, neumann_terms=terms),
        "MRBO": lambda: baselines.MRBO(0.05, 0.4, TAU, neumann_terms=terms, decay=0),
        "VRBO": lambda: baselines.VRBO(0.05, 0.4, TAU, inner_steps=2, neumann_terms=terms, period=5),
        # of random length: with one term there is nothing to draw
        "BSA": lambda: baselines.BSA(0.05, 0.4, TAU, inner_steps=3, neumann_terms=terms, decay=0),
        "TTSA": lambda: baselines.TTSA(0.05, 0.4, TAU, neumann_terms=terms, outer_decay=0, inner_decay=0),
        "SUSTAIN": lambda: baselines.SUSTAIN(0.05, 0.4, TAU, neumann_terms=terms, decay=0),
    }
    return made[method]()


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("Reverse", 3),
        ("Reverse, few checkpoints", 5),
        ("StocBiO", 4),
        ("MRBO", 4),
        ("VRBO", 3),
        ("BSA", 1),
        ("TTSA", 1),
        ("SUSTAIN", 1),
    ],
)
def test_a_truncated_series_ends_where_its_direction_vanishes(name, terms):
    x, y = end(BILEVEL, first_terms(name, terms), 3000, **IN_FULL)
    np.testing.assert_allclose(x, truncated(terms, TAU), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(y, BILEVEL.inner_solution(x), rtol=1e-7, atol=1e-7)


def test_what_a_truncated_series_leaves_out_falls_by_its_factor():
    """The eigenvalues of A begin at 0.5: with every term the bias comes closer to falling by 1 − 0.5 τ."""
    biases = np.array([away(truncated(terms, TAU)) for terms in (10, 11, 20, 21, 40, 41)])
    ratios = biases[1::2] / biases[::2]
    assert (np.abs(np.diff(np.abs(ratios - (1 - 0.5 * TAU)))) < 0.05).all()
    np.testing.assert_allclose(ratios[-1], 1 - 0.5 * TAU, rtol=1e-3)
    assert biases[0] > 1e-3


@pytest.mark.parametrize("method", [baselines.BSA, baselines.TTSA, baselines.SUSTAIN])
def test_a_random_length_is_in_the_mean_a_truncated_series(method):
    """At the end of the truncated series the outer step is zero on average over the lengths that may be drawn."""
    terms = 3
    x = truncated(terms, TAU)
    algorithm = method(0.05, 0.4, TAU, neumann_terms=terms)
    state = algorithm.init(BILEVEL.problem, x, BILEVEL.inner_solution(x))
    keys = jax.random.split(jax.random.key(0), 64)
    lengths = jax.vmap(lambda key: wior.algorithms.parts.linear_systems.random_length(key, terms))(keys)
    assert set(lengths.tolist()) == {0, 1, 2}

    def moved(key):
        whole = tuple(jnp.tile(jnp.arange(12), (count, 1)) for count in algorithm.batch_kinds.inner)
        draws = draws_of((jnp.arange(8)[None],), whole, key=key)
        return algorithm.step(BILEVEL.problem, state, draws)[0].x - x

    steps = jax.jit(jax.vmap(moved))(keys[np.array([lengths.tolist().index(p) for p in range(terms)])])
    np.testing.assert_allclose(steps.mean(0), 0, atol=1e-12)
    assert np.abs(steps).max() > 1e-3


def estimated(made, algorithm, draws):
    """The hyper-gradient that one step with an outer step size of one moved along."""
    state = algorithm.init(made.problem, X, Y)
    return X - jax.jit(algorithm.step)(made.problem, state, draws)[0].x


def draws_of(outer, inner=(), visits=None, key=None):
    return wior.algorithms.algorithm.Draws(outer, inner, visits, jnp.uint32(0), jnp.asarray(False), key)


def test_reverse_comes_nearer_to_the_hypergradient_with_every_inner_step():
    """From a cold start, by 1 − γμ in the long run: what is left is K (1 − γμ)^K at most."""
    errors = {}
    for steps in (20, 40, 80):
        whole = (jnp.arange(8)[None],), (jnp.tile(jnp.arange(12), (steps, 1)),)
        found = estimated(BILEVEL, baselines.Reverse(1.0, TAU, inner_steps=steps), draws_of(*whole))
        errors[steps] = float(jnp.linalg.norm(found - BILEVEL.hypergradient(X)))
    for steps in (20, 40):
        assert (1 - 0.5 * TAU) ** steps / 2 < errors[2 * steps] / errors[steps] < 4 * (1 - 0.5 * TAU) ** steps


# Penalties: the bias is of the order of one over the penalty.


def penalized(weight):
    """The minimizer of min_y (f + λ g) − λ min_z g, which F²SA approaches at a fixed λ."""

    def direction(x):
        y = -jnp.linalg.solve(F.C + weight * G.A, F.D.T @ x + F.c + weight * (G.B @ x + G.a))
        return F.E @ x + F.D @ y + F.e + weight * G.B.T @ (y - BILEVEL.inner_solution(x))

    return root(direction)


def enveloped(weight, tau):
    """Where all three directions of MEHA vanish at a fixed c."""
    eye = jnp.eye(5)

    def direction(x):
        from_x = G.B @ x + G.a
        # (y, z) of the two inner equations, which are linear in both
        matrix = jnp.block([[F.C / weight + G.A - eye / tau, eye / tau], [-eye / tau, G.A + eye / tau]])
        y, z = jnp.split(jnp.linalg.solve(matrix, -jnp.concatenate([(F.D.T @ x + F.c) / weight + from_x, from_x])), 2)
        return (F.E @ x + F.D @ y + F.e) / weight + G.B.T @ (y - z)

    return root(direction)


def f2sa(weight):
    return baselines.F2SA(
        0.02, 0.4, 0.4 / weight, penalty=weight, penalty_growth=0, outer_decay=0, inner_decay=0, inner_steps=2
    )


def meha(weight):
    return baselines.MEHA(0.02 * weight, 0.3, 0.3, proximity=2.0, penalty=weight, penalty_growth=0)


@pytest.mark.parametrize(
    ("algorithm", "target"),
    [(f2sa(8.0), penalized(8.0)), (meha(8.0), enveloped(8.0, 2.0))],
    ids=["F2SA", "MEHA"],
)
def test_a_penalty_ends_where_its_directions_vanish(algorithm, target):
    x, _ = end(BILEVEL, algorithm, 16000, **IN_FULL)
    np.testing.assert_allclose(x, target, rtol=1e-6, atol=1e-6)
    assert 1e-3 < away(target) < 1


@pytest.mark.parametrize("target", [penalized, functools.partial(enveloped, tau=2.0)], ids=["F2SA", "MEHA"])
def test_the_bias_of_a_penalty_is_one_over_it(target):
    biases = np.array([away(target(weight)) for weight in (64.0, 128.0, 256.0)])
    np.testing.assert_allclose(biases[1:] / biases[:-1], 0.5, rtol=0.05)


@pytest.mark.parametrize("name", ["F2SA", "MEHA"])
def test_a_growing_penalty_comes_nearer_than_the_first_one(name):
    growing = {
        "F2SA": baselines.F2SA(0.02, 0.4, 0.1, penalty=2.0, penalty_growth=1 / 3, outer_decay=1 / 3, inner_decay=0),
        "MEHA": baselines.MEHA(0.05, 0.3, 0.3, proximity=2.0, penalty=2.0, penalty_growth=0.3),
    }[name]
    fixed = {"F2SA": penalized(2.0), "MEHA": enveloped(2.0, 2.0)}[name]
    x, _ = end(BILEVEL, growing, 30000, **IN_FULL)
    assert away(x) < 0.25 * away(fixed)


def test_bome_ends_within_its_step_of_the_minimizer():
    """λ grows as ∇q vanishes, so that a constant step does not settle: it ends at a distance that falls with the step."""
    distances = [
        away(end(BILEVEL, baselines.BOME(lr, 0.4, inner_steps=20), int(40 / lr), **IN_FULL)[0]) for lr in (0.02, 0.005)
    ]
    assert distances[1] < 0.5 * distances[0]
    assert distances[1] < 0.05 * away(X)


# Conditional problems, every inner set read as a whole.


def conditionally_truncated(terms, tau):
    """As `truncated`, each outer example with its own A and B."""

    def direction(x):
        def one(f, g):
            y = -jnp.linalg.solve(g.A, g.B @ x + g.a)
            u = jnp.linalg.solve(g.A, f.C @ y + f.D.T @ x + f.c)
            left_out = jnp.linalg.matrix_power(jnp.eye(5) - tau * g.A, terms)
            return f.E @ x + f.D @ y + f.e - g.B.T @ (u - left_out @ u)

        return jax.vmap(one)(CONDITIONAL.f, CONDITIONAL.g).mean(0)

    return root(direction)


@pytest.mark.parametrize(
    "algorithm",
    [
        baselines.DLSGD(0.05, 0.5, TAU, inner_steps=80, neumann_terms=1),
        baselines.DLSGD(0.05, 1.0, TAU, levels=2, neumann_terms=1),
        baselines.RTMLMC(0.05, 1.0, TAU, levels=3, neumann_terms=1),
    ],
    ids=["DLSGD, steps", "DLSGD, EpochSGD", "RTMLMC"],
)
def test_a_conditional_method_ends_where_its_direction_vanishes(algorithm):
    x, _ = end(CONDITIONAL, algorithm, 400, order=Incremental(), batch_size=(5, 4))
    np.testing.assert_allclose(x, conditionally_truncated(1, TAU), rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_the_squared_error_of_a_conditional_estimate_halves_with_every_level():
    """Noise in the inner gradients alone, drawn independently; RT-MLMC's expectation is that of the deepest level."""
    rows = CONDITIONAL.problem.inner_data
    shared = lambda leaf: jnp.broadcast_to(leaf.mean(1, keepdims=True), leaf.shape)
    inner_data = rows._replace(A=shared(rows.A), B=shared(rows.B), a=rows.a + 3 * (rows.a - shared(rows.a)))
    problem = wior.ConditionalBilevel(
        CONDITIONAL.problem.outer, CONDITIONAL.problem.inner, CONDITIONAL.problem.outer_data, inner_data
    )
    levels, errors = (3, 5, 7), []
    for level in levels:
        algorithm = baselines.DLSGD(1.0, 2.0, 1.0, levels=level, neumann_terms=1)  # β = 2/μ and an exact adjoint

        def error(key, algorithm=algorithm):
            taken = jax.random.randint(key, (5, algorithm.visit_batches, 1), 0, 4)
            visits = wior.algorithms.algorithm.Visits(taken, None, jnp.zeros(taken.shape[:2], bool))
            state = algorithm.init(problem, X, Y)
            moved, _ = algorithm.step(problem, state, draws_of((jnp.arange(5)[None],), visits=visits, key=key))
            return jnp.sum((X - moved.x - CONDITIONAL.hypergradient(X)) ** 2)

        errors.append(float(jnp.mean(jax.jit(jax.vmap(error))(jax.random.split(jax.random.key(level), 400)))))
    slope = np.polyfit(levels, np.log2(errors), 1)[0]
    assert abs(slope + 1) < 0.15
