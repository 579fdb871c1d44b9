"""Each algorithm against its formula, written out in a naive twin; and against itself, told another way."""

import dataclasses
import functools
import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import problems
import wior
from problems import flat
from wior.algorithms.algorithm import Draws
from wior.algorithms.wior_bo import State
from wior.baselines import WiRBO
from wior.instruments.methods import classes
from wior.orders import BY_NAME, Herding, Incremental, Independent, RandomReshuffling, ShuffleOnce
from wior.running import blocks, visits
from wior.running.arguments import posed_for
from wior.tasks import quadratic

RATES = (0.07, 0.11, 0.13)  # η, γ, ρ
BRIEFLY = {"steps": 7, "record_every": 7}  # runs of one block, which tests share as far as they can
RNG = np.random.default_rng(0)
X, Y, U = RNG.normal(size=3), RNG.normal(size=5), RNG.normal(size=5)
XI, ZETA = [3, 0, 5], [7, 1, 1, 4]  # a batch may hold an example twice


@jax.jit
def stepped(problem, algorithm, state, draws):
    """One step, compiled once for all problems and algorithms of the same make."""
    return algorithm.step(problem, state, draws)[0]


def draw(outer, inner=(), visits=None, step=0, starts_epoch=False):
    """The draws of one step: for each stream the examples of its batch."""
    batches = lambda streams: tuple(jnp.asarray(stream)[None] for stream in streams)
    return Draws(batches(outer), batches(inner), visits, jnp.uint32(step), jnp.asarray(starts_epoch))


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(flat(found), expected, rtol=tolerance, atol=tolerance)


def same(found, expected, tolerance=1e-12):
    """Two trees leaf by leaf."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    close(found, flat(expected), tolerance)


def mean(rows, index):
    """The mean coefficients of some examples, in numpy."""
    return [np.asarray(leaf)[np.asarray(index)].mean(0) for leaf in rows]


def projected(u, radius):
    return u * min(1.0, radius / np.linalg.norm(u))


# The quadratic problems, on vectors as they are and on nested trees.


def tree_x(vector):
    return {"first": vector[:2], "rest": [vector[2]]}


def tree_y(vector):
    return {"matrix": jnp.reshape(vector[:4], (2, 2))}, vector[4:]


FORMS = {"vectors": (lambda x: jnp.asarray(x), lambda y: jnp.asarray(y)), "trees": (tree_x, tree_y)}
in_both_forms = pytest.mark.parametrize("form", FORMS)


def loss_of_trees(x, y, rows, loss):
    return loss(flat(x), flat(y), rows)


def loss_of_tree(y, rows, loss):
    return loss(flat(y), rows)


def map_of_tree(x, rows, function):
    return tree_y(function(flat(x), rows))


WRAPPERS = {
    wior.Bilevel: (loss_of_trees, loss_of_trees),
    wior.Minimax: (loss_of_trees,),
    wior.Compositional: (loss_of_tree, map_of_tree),
    wior.ConditionalBilevel: (loss_of_trees, loss_of_trees),
    wior.ConditionalCompositional: (loss_of_tree, map_of_tree),
}


def in_form(form, problem):
    """The problem with its losses on vectors or on trees."""
    if form == "vectors":
        return problem
    keyword = {map_of_tree: "function"}
    losses = (
        functools.partial(wrapper, **{keyword.get(wrapper, "loss"): getattr(problem, name)})
        for wrapper, name in zip(WRAPPERS[type(problem)], problem._losses, strict=False)
    )
    return type(problem)(*losses, *(getattr(problem, name) for name in problem._data))


BILEVEL = quadratic.quadratic()
MINIMAX = quadratic.quadratic_minimax()
COMPOSITIONAL = quadratic.quadratic_compositional()


def bilevel_twin(problem, state, outer, inner, rates):
    """A step with a batch for each of ∇_y f, ∇_x f, ∇_y g, ∇²_yy g u, ∇²_xy g u."""
    (x, y, u), (eta, gamma, rho) = state, rates
    C, D, _, c, _ = mean(problem.outer_data, outer[0])
    f_y = C @ y + D.T @ x + c
    _, D, E, _, e = mean(problem.outer_data, outer[1])
    f_x = D @ y + E @ x + e
    A, B, a, _ = mean(problem.inner_data, inner[0])
    g_y = A @ y + B @ x + a
    g_yy_u = mean(problem.inner_data, inner[1])[0] @ u
    g_xy_u = mean(problem.inner_data, inner[2])[1].T @ u
    return x - eta * (f_x - g_xy_u), y - gamma * g_y, u - rho * (g_yy_u - f_y)


def compositional_twin(problem, state, xi, zeta, rates):
    (x, y, u), (eta, gamma, rho) = state, rates
    C, c = mean(problem.outer_data, xi)
    R, r = mean(problem.inner_data, zeta)
    return x - eta * R.T @ u, (1 - gamma) * y + gamma * (R @ x + r), (1 - rho) * u + rho * (C @ y + c)


def minimax_twin(problem, x, y, xi, rates):
    C, D, E, c, e = mean(problem.data, xi)
    return x - rates[0] * (D @ y + E @ x + e), y + rates[1] * (C @ y + D.T @ x + c)


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


# Conditional problems: a plain loop over the visits of each outer example.

CONDITIONAL = quadratic.quadratic_conditional(m=5, n=4)
CONDITIONAL_COMP = quadratic.quadratic_conditional_compositional(m=5, n=4)
CONDITIONALS = {
    (wior.WiORCBO, False): CONDITIONAL,
    (wior.WiORCBO, True): quadratic.quadratic_conditional(m=5, n=4, ragged=True, seed=1),
    (wior.WiORCComp, False): CONDITIONAL_COMP,
    (wior.WiORCComp, True): quadratic.quadratic_conditional_compositional(m=5, n=4, ragged=True, seed=1),
}
VISITED = [4, 0, 2]


def lengths(problem):
    n = problem.sizes()["inner"]
    return np.full(problem.sizes()["outer"], n) if problem.counts is None else np.asarray(problem.counts)


def random_passes(problem, inner_epochs, seed=5):
    """For each outer example of the batch, as many permutations of its own inner set."""
    rng = np.random.default_rng(seed)
    return [[rng.permutation(lengths(problem)[i]) for _ in range(inner_epochs)] for i in VISITED]


def laid_out(problem, passes, batch):
    """The same passes as a step takes them: padded, and in batches."""
    whole = np.zeros((len(passes), len(passes[0]), problem.sizes()["inner"]), np.int32)
    for i, own in enumerate(passes):
        for s, one in enumerate(own):
            whole[i, s, : len(one)] = one
    counts = jnp.asarray(lengths(problem)[VISITED])
    return visits.in_batches(jnp.asarray(whole), counts, batch, problem.counts is not None)


def visit_twin(update, y, passes, batch, radius):
    """y and u after all batches of the concatenated passes; u is projected before the first batch that begins in a later pass."""
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


# One class of problems as a special case of another.


def entries(x, y):
    return {str(i): value for i, value in enumerate(flat((x, y)))}


def trajectory(problem, algorithm, case, order, steps):
    """Every entry of x and y, again and again on the way: (records, entries)."""
    options = BRIEFLY | {"steps": steps, "order": order, "batch_size": case.batch_size, "seed": 4}
    result = wior.solve(problem, algorithm, case.x0, case.y0, metrics=entries, **options)
    found = np.stack([result.history[name] for name in entries(case.x0, case.y0)], 1)
    assert np.abs(np.diff(found, axis=0)).max(1).min() > 1e-6
    return found


@pytest.mark.parametrize("order", [Incremental(), RandomReshuffling(), Independent()], ids=repr)
def test_wior_comp_is_wior_bo_on_the_bilevel_form(order):
    case = problems.compositional()
    found = trajectory(case.problem, wior.WiORComp(*RATES), case, order, steps=70)
    expected = trajectory(case.problem.restated(), wior.WiORBO(*RATES), case, order, steps=70)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "order",
    [RandomReshuffling(), *(pytest.param(order, marks=pytest.mark.slow) for order in (Incremental(), Independent()))],
    ids=repr,
)
def test_wior_ccomp_is_wior_cbo_on_the_bilevel_form(order):
    case = problems.conditional_compositional_ragged()
    found = trajectory(case.problem, wior.WiORCComp(*RATES, inner_epochs=2), case, order, steps=21)
    bilevel = case.problem.restated()
    expected = trajectory(bilevel, wior.WiORCBO(*RATES, inner_epochs=2), case, order, steps=21)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_wior_minimax_is_wior_bo_on_the_bilevel_form_without_u():
    """With the same batch at both levels, and u = 0, which it is at a solution: ∇_y f vanishes there."""
    problem, _, x, y, _ = problems.minimax()
    algorithm, bilevel = wior.WiORMinimax(*RATES[:2]), wior.WiORBO(*RATES)
    for xi in ([3, 0, 5], [1, 1, 2]):
        state = stepped(problem, algorithm, algorithm.init(problem, x, y), draw([xi]))
        other = stepped(problem.restated(), bilevel, bilevel.init(problem, x, y), draw([xi], [xi]))
        same((state.x, state.y), (other.x, other.y))
        x, y = state.x, state.y


@pytest.mark.parametrize("build", [problems.minimax, problems.compositional])
def test_bilevel_methods_take_minimax_and_compositional_problems(build):
    problem, _, x, y, batch_size = build()
    options = BRIEFLY | {"order": Incremental(), "batch_size": batch_size}
    restated = wior.solve(problem, wior.WiORBO(*RATES), x, y, **options)
    bilevel = wior.solve(problem.restated(), wior.WiORBO(*RATES), x, y, **options)
    same(restated.state, bilevel.state, tolerance=0)


# Ragged sets, padding, representations.


@pytest.mark.parametrize(
    "build", [problems.conditional_bilevel_ragged, problems.conditional_compositional_ragged], ids=["bilevel", "comp"]
)
def test_ragged_sets_are_problems_solved_alone(build):
    """A step on several outer examples is the mean of steps on problems that hold one of them, without padding."""
    problem, algorithm, x, y, (_, batch) = build()
    passes = random_passes(problem, algorithm.inner_epochs)
    drawn = draw([VISITED], visits=laid_out(problem, passes, batch))
    together = stepped(problem, algorithm, algorithm.init(problem, x, y), drawn)
    alone = []
    for i, own in zip(VISITED, passes, strict=True):
        cut = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1, : problems.COUNTS[i]], problem.inner_data)
        single = type(problem)(
            problem.outer, problem.inner, jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], problem.outer_data), cut
        )
        visit = visits.in_batches(jnp.asarray(np.stack(own)[None]), jnp.asarray([len(own[0])]), batch, False)
        alone.append(flat(stepped(single, algorithm, algorithm.init(single, x, y), draw([[0]], visits=visit)).x))
    close(together.x, np.mean(alone, 0))


@pytest.mark.parametrize(
    "build",
    [
        problems.conditional_bilevel_ragged,
        problems.conditional_bilevel_represented,
        problems.conditional_compositional_ragged,
    ],
    ids=["bilevel", "represented", "comp"],
)
def test_what_padding_holds_changes_nothing(build):
    problem, algorithm, x, y, (_, batch) = build()
    padding = np.arange(problems.N_SETS) >= problems.COUNTS[:, None]

    def filled(leaf, value):
        return jnp.where(padding.reshape(padding.shape + (1,) * (leaf.ndim - 2)), value, leaf)

    drawn = draw([VISITED], visits=laid_out(problem, random_passes(problem, algorithm.inner_epochs), batch))
    found = []
    for value in (0.0, jnp.nan, jnp.inf):
        poisoned = jax.tree.map(functools.partial(filled, value=value), problem.inner_data)
        leaves = [problem.outer_data, poisoned, problem.counts]
        other = jax.tree.unflatten(jax.tree.structure(problem), jax.tree.leaves(leaves))
        found.append(flat(stepped(other, algorithm, algorithm.init(other, x, y), drawn)))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert np.isfinite(found[0]).all()


def test_a_representation_changes_nothing():
    problem, algorithm, x, y, (_, batch) = problems.conditional_bilevel_represented()

    def through(loss):
        return lambda x, y, rows: loss(problems.represent(x, rows), y, rows)

    plain = wior.ConditionalBilevel(
        through(problem.outer), through(problem.inner), problem.outer_data, problem.inner_data, problem.counts
    )
    drawn = draw([VISITED], visits=laid_out(problem, random_passes(problem, algorithm.inner_epochs), batch))
    state = algorithm.init(problem, x, y)
    same(stepped(problem, algorithm, state, drawn), stepped(plain, algorithm, state, drawn))
    for one in ("represent", "represent_outer"):  # either level alone
        losses = {"represent": (through(problem.outer), problem.inner), "represent_outer": (problem.outer, plain.inner)}
        half = wior.ConditionalBilevel(
            *losses[one], problem.outer_data, problem.inner_data, problem.counts, **{one: problems.represent}
        )
        same(stepped(half, algorithm, state, drawn), stepped(plain, algorithm, state, drawn))


# PerExample leaves.


def gathered(x, index):
    return x | {"rows": x["rows"][index]}


def dense(build):
    """The same problem with a plain vector of weights, of which the loss takes those of its batch by itself."""
    problem, algorithm, x, y, batch_size = build()
    numbered = lambda data: data | {"index": np.arange(len(data["target"]))}
    if isinstance(problem, wior.Minimax):
        posed = wior.Minimax(
            lambda x, y, b: problems.objective_with_rows(gathered(x, b["index"]), y, b), numbered(problem.data)
        )
    elif isinstance(problem, wior.Compositional):
        inner = lambda x, b: problems.inner_map_with_rows(gathered(x, b["index"]), b)
        posed = wior.Compositional(problem.outer, inner, problem.outer_data, numbered(problem.inner_data))
    else:
        inner = lambda x, y, b: problems.inner_with_rows(gathered(x, b["index"]), y, b)
        posed = wior.Bilevel(problem.outer, inner, problem.outer_data, numbered(problem.inner_data))
    return problems.Case(posed, algorithm, x | {"rows": x["rows"].rows}, y, batch_size)


@pytest.mark.parametrize(
    ("build", "algorithm"),
    [
        (problems.bilevel_per_example, wior.WiORBO(*RATES)),
        (problems.bilevel_per_example, WiRBO(*RATES)),
        (problems.minimax_per_example, wior.WiORMinimax(*RATES[:2])),
        (problems.compositional_per_example, wior.WiORComp(*RATES)),
    ],
    ids=["WiORBO", "WiRBO", "WiORMinimax", "WiORComp"],
)
def test_per_example_rows_are_entries_of_a_dense_vector(build, algorithm):
    """Also where a batch holds an example twice: its row then moves by both contributions."""
    case, plain = build(), dense(build)
    states = [algorithm.init(one.problem, one.x0, one.y0) for one in (case, plain)]
    rng = np.random.default_rng(7)
    for _ in range(4):
        twice = lambda n: rng.permutation(n)[[0, 1, 2, 1, 0]]
        outer = [twice(problems.M) for _ in algorithm.streams.outer]
        inner = [twice(problems.N) for _ in algorithm.streams.inner]
        states = [
            stepped(one.problem, algorithm, state, draw(outer, inner))
            for one, state in zip((case, plain), states, strict=True)
        ]
    close(states[0].x, flat(states[1].x), tolerance=1e-13)
    close(states[0].y, flat(states[1].y), tolerance=1e-13)
    assert np.abs(states[0].x["rows"].rows - case.x0["rows"].rows).max() > 1e-4


def test_per_example_rows_are_entries_of_a_dense_vector_in_a_run():
    case, plain = problems.bilevel_per_example(), dense(problems.bilevel_per_example)
    options = BRIEFLY | {"order": Independent(), "batch_size": (2, 7), "seed": 3}
    rows = wior.solve(case.problem, case.algorithm, case.x0, case.y0, **options)
    vector = wior.solve(plain.problem, plain.algorithm, plain.x0, plain.y0, **options)
    close(rows.state, flat(vector.state), tolerance=1e-13)


def test_all_of_x_may_be_per_example():
    """Then f depends on x only through y, and receives None for all of it."""
    x, y = wior.PerExample(jnp.linspace(-1, 1, problems.N)), jnp.ones(problems.D)
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean((b["for_y"] @ y - b["target"]) ** 2),
        lambda x, y, b: jnp.mean(jax.nn.sigmoid(x) * (b["for_y"] @ y - b["target"]) ** 2) + 0.1 * y @ y,
        problems.rows(3, problems.M),
        problems.rows(4, problems.N),
    )
    result = wior.solve(problem, wior.WiORBO(*RATES), x, y, order=Incremental(), batch_size=(2, 4), steps=3)
    moved = np.asarray(result.x.rows) != np.asarray(x.rows)
    np.testing.assert_array_equal(np.flatnonzero(moved), [0, 1, 2, 4, 5, 6, 7, 8])  # u = 0 in the first step


def test_none_in_a_tree_is_no_leaf():
    """As jax has it, and as networks without a bias have it."""
    problem, algorithm, x, y, batch_size = problems.bilevel()
    options = BRIEFLY | {"order": Incremental(), "batch_size": batch_size}
    plain = wior.solve(problem, algorithm, x, y, **options)
    with_none = wior.solve(problem, algorithm, x | {"none": None}, (*y, None), **options)
    close(with_none.state, flat(plain.state), tolerance=0)


# Compiled, eager, and many at once.


def test_a_start_that_is_a_number_is_compiled_once():
    """jax gives a Python number a weaker type than the array that a step returns."""
    problem = wior.Bilevel(lambda x, y, b: jnp.mean(b) * x * y, lambda x, y, b: (y - x) ** 2, np.ones(1), np.ones(1))
    before = blocks.block._cache_size()
    wior.solve(problem, wior.WiORBO(*RATES), 0.5, 0.5, order=Incremental(), batch_size=1, **BRIEFLY)
    assert blocks.block._cache_size() == before + 1


@pytest.mark.parametrize(
    ("name", "steps"),
    [("bilevel", 2), pytest.param("conditional compositional, ragged", 1, marks=pytest.mark.slow)],
)
def test_compiled_is_eager(name, steps):
    problem, algorithm, x, y, batch_size = problems.CASES[name]()
    options = BRIEFLY | {"order": Incremental(), "batch_size": batch_size, "steps": steps}
    compiled = wior.solve(problem, algorithm, x, y, **options)
    with jax.disable_jit():
        eager = wior.solve(problem, algorithm, x, y, **options)
    same(compiled.state, eager.state)


def test_the_loops_of_an_accelerator_change_nothing(monkeypatch):
    """There, steps are taken in units of known length, and both sides of a branch are computed."""
    problem, _, x, y, batch_size = problems.bilevel()
    options = {"order": (Herding(), Incremental()), "batch_size": batch_size, "steps": 150, "record_every": 150}
    algorithm = wior.WiORBO(*RATES, radius=0.1)
    here = wior.solve(problem, algorithm, x, y, **options)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    there = wior.solve(problem, algorithm, x, y, **options)
    same(there.state, here.state, tolerance=1e-10)


@pytest.mark.parametrize(
    ("order", "side_by_side"), [(RandomReshuffling(), True), (ShuffleOnce(), False)], ids=["in step", "one by one"]
)
def test_runs_at_once_are_runs_one_at_a_time(order, side_by_side, monkeypatch):
    monkeypatch.setattr(importlib.import_module("wior.running.sweep"), "in_step", lambda y: side_by_side)
    problem, algorithm, x, y, batch_size = problems.bilevel()
    options = BRIEFLY | {"order": order, "batch_size": batch_size}
    seeds, rates = [0, 3], [0.02, 0.05]
    together = wior.sweep(problem, algorithm, x, y, grid={"outer_lr": rates}, seeds=seeds, **options)
    for i, rate in enumerate(rates):
        for j, seed in enumerate(seeds):
            one = wior.solve(problem, wior.WiORBO(rate, 0.1, 0.1), x, y, seed=seed, **options)
            run = jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], (together.x, together.y))
            same(run, (one.x, one.y), tolerance=1e-10)


# The table: every algorithm × every order × every class of problem that it takes.

CLASSES = {
    name: problems.CASES[name]()
    for name in (
        "bilevel",
        "minimax",
        "compositional",
        "conditional bilevel, ragged",
        "conditional compositional, ragged",
    )
}
TAUGHT = {"inner_steps": 2, "adjoint_steps": 2, "neumann_terms": 3, "period": 3, "inner_epochs": 2, "levels": 1}


def exported():
    """Every algorithm that the library has, with step sizes for these problems and short inner loops."""
    rates = {"outer_lr": RATES[0], "inner_lr": RATES[1], "adjoint_lr": RATES[2], "neumann_lr": 0.1, "penalized_lr": 0.1}
    for kind in classes():
        names = [field.name for field in dataclasses.fields(kind)]
        yield kind(**{name: value for name, value in (rates | TAUGHT).items() if name in names})


ALGORITHMS = list(exported())
BY_DEFAULT = ("independent", "random-reshuffling", "herding")
BASELINES_BY_DEFAULT = ("herding",)  # which takes the longest way through a block
# one baseline for each part that several share, and those that share none
FIRST = (
    "StocBiO", "MRBO", "SRBA", "F2SA", "Reverse", "SABA", "SPABA", "VRBO", "DLSGD", "SCGD", "AGDA"
)  # fmt: skip


def takes(algorithm, problem):
    try:
        posed_for(problem, algorithm)
    except TypeError:
        return False
    return True


def row(algorithm, order, case):
    """One run of the table. Other losses in the same programs, and further orders, wait for `make slow`."""
    restated = not isinstance(CLASSES[case].problem, algorithm.solves)
    baseline = type(algorithm).__module__.startswith("wior.baselines")
    waits = restated or order not in (BASELINES_BY_DEFAULT if baseline else BY_DEFAULT)
    waits |= baseline and type(algorithm).__name__ not in FIRST
    name = f"{type(algorithm).__name__}-{order}-{case}"
    return pytest.param(algorithm, order, case, id=name, marks=[pytest.mark.slow] if waits else [])


TABLE = [
    row(algorithm, order, case)
    for algorithm in ALGORITHMS
    for case in CLASSES
    if takes(algorithm, CLASSES[case].problem)
    for order in BY_NAME
]


def test_the_table_is_complete():
    """20 bilevel methods on three classes, 3 conditional ones on two, 3 compositional, 3 minimax and 2 more on their own."""
    assert len(TABLE) == (20 * 3 + 3 * 2 + 3 + 3 + 2) * len(BY_NAME)
    assert {type(case.problem) for case in CLASSES.values()} == set(WRAPPERS)
    assert {*BY_DEFAULT, *BASELINES_BY_DEFAULT} <= set(BY_NAME)


@pytest.mark.parametrize(("algorithm", "order", "case"), TABLE)
def test_every_algorithm_runs_in_every_order_on_every_problem_it_takes(algorithm, order, case):
    problem, _, x, y, batch_size = CLASSES[case]
    if algorithm.fixed_batches:  # which must divide the data
        batch_size = (2, 3) if isinstance(batch_size, tuple) else 3
    programs = blocks.block._cache_size()
    result = wior.solve(problem, algorithm, x, y, order=BY_NAME[order], batch_size=batch_size, **BRIEFLY)
    again = wior.solve(problem, algorithm, x, y, order=BY_NAME[order], batch_size=batch_size, **BRIEFLY | {"steps": 12})
    assert again.steps == 12
    assert (
        blocks.block._cache_size() - programs <= 1
    )  # a remainder, a second block and a second run are the same program
    assert np.isfinite(flat((result.x, result.y))).all()
    for before, after in zip(jax.tree.leaves(x), jax.tree.leaves(result.x), strict=True):
        assert np.abs(after - before).min() > 1e-6


@pytest.mark.parametrize("name", sorted(set(problems.CASES) - set(CLASSES)))
def test_every_test_problem_runs(name):
    problem, algorithm, x, y, batch_size = problems.CASES[name]()
    result = wior.solve(problem, algorithm, x, y, order=Incremental(), batch_size=batch_size, **BRIEFLY)
    assert np.isfinite(flat(result.state)).all()
    assert np.abs(flat(result.x) - flat(x)).min() > 1e-6


# Sweeps choose.


def gap(x, y):
    return {"gap": BILEVEL.objective(x) - BILEVEL.objective(BILEVEL.minimizer()), "finite": jnp.mean(jnp.isfinite(x))}


@functools.cache
def swept(rates=(0.001, 1e4, 0.02), **options):
    """Three step sizes: one too small, one with which every run diverges, a good one."""
    algorithm = wior.WiORBO(0.1, 0.4, 0.4)
    options = {"seeds": 2, "order": Incremental(), "batch_size": (7, 11), "steps": 300, "record_every": 300} | options
    grid = {"outer_lr": rates}
    return wior.sweep(BILEVEL.problem, algorithm, jnp.asarray(X), jnp.asarray(Y), grid=grid, metrics=gap, **options)


def test_a_sweep_names_the_best_setting():
    result = swept(best_by="gap")
    assert (result.best, result.best_index, result.best_by) == ({"outer_lr": 0.02}, 2, "gap")
    final = result.final("gap")
    assert final.shape == (3, 2)
    assert (final[2] < final[0]).all()
    assert not np.isfinite(final[1]).any()


def test_the_largest_may_be_the_best_and_a_diverging_run_is_not():
    assert swept(best_by="gap", largest=True).best == {"outer_lr": 0.001}


def test_a_setting_that_diverges_is_not_the_best_where_the_metric_does_not_show_it():
    assert swept(best_by="finite").best != {"outer_lr": 1e4}


def test_a_sweep_without_a_finite_run_says_so():
    with pytest.raises(ValueError, match="every setting of the grid diverged: 'gap' is not finite"):
        swept(rates=(1e4, 1e5), best_by="gap")


def swept_over_inner_epochs(inner_epochs):
    problem, algorithm, x, y, batch_size = problems.conditional_compositional()
    options = BRIEFLY | {"order": Incremental(), "batch_size": batch_size}
    grid = {"inner_epochs": inner_epochs, "outer_lr": [0.05, 0.1]}
    one = lambda **setting: wior.solve(
        problem, wior.WiORCComp(inner_lr=0.1, adjoint_lr=0.1, **setting), x, y, **options
    )
    return wior.sweep(problem, algorithm, x, y, grid=grid, seeds=1, **options), one


def test_a_sweep_may_run_over_what_changes_the_program():
    result, one = swept_over_inner_epochs([2, 1])
    assert result.settings == [{"inner_epochs": s, "outer_lr": rate} for s in (2, 1) for rate in (0.05, 0.1)]
    for i in (1, 2):
        alone = one(**result.settings[i])
        same(jax.tree.map(lambda leaf, i=i: leaf[i, 0], result.x), alone.x, tolerance=1e-10)
        np.testing.assert_array_equal(result.history["inner_gradients"][i, 0], alone.history["inner_gradients"])


def test_a_sweep_over_inner_epochs_counts_their_passes():
    """The algorithm given makes two passes over each inner set, and every setting of the grid one."""
    result, _ = swept_over_inner_epochs([1])
    np.testing.assert_allclose(result.history["inner_passes"], result.history["outer_passes"])
