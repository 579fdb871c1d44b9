"""Every derivative against dense ones, and every count against the paper's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import problems
import wior
from wior import oracle, tree
from wior.algorithms.algorithm import Draws
from wior.baselines import WiRBO
from wior.problems import Batch
from wior.running.visits import in_batches

EXAMPLES = {"outer": np.array([3, 0, 5]), "inner": np.array([7, 1, 1, 4])}  # a batch may hold an example twice


def close(found, expected):
    np.testing.assert_allclose(problems.flat(found), expected, rtol=1e-10, atol=1e-12)


def batch(data, level):
    return Batch(jax.tree.map(lambda rows: rows[EXAMPLES[level]], data), jnp.asarray(EXAMPLES[level]))


def direction(like, seed=8):
    """A tree like y that is not zero: u."""
    vector, unravel = ravel_pytree(like)
    return unravel(jnp.asarray(np.random.default_rng(seed).normal(size=vector.shape)))


@functools.partial(jax.jit, static_argnums=0)
def gradients(loss, x, y, rows):
    """(∇_x, ∇_y) of a loss as vectors."""
    return tuple(map(problems.flat, jax.grad(loss, (0, 1))(x, y, rows)))


@functools.partial(jax.jit, static_argnums=0)
def second_derivatives(loss, x, y, rows):
    """(∇²_xy, ∇²_yy) of a loss as matrices, one row of ∇²_xy for each entry of x: forwards over forwards."""
    (x, tree_x), (y, tree_y) = ravel_pytree(x), ravel_pytree(y)
    flat = lambda x, y: loss(tree_x(x), tree_y(y), rows)
    to_y = jax.jacfwd(flat, 1)
    return jax.jacfwd(to_y, 0)(x, y).T, jax.jacfwd(to_y, 1)(x, y)


@functools.partial(jax.jit, static_argnums=0)
def jacobian(function, x, rows):
    """The derivative of a map with respect to x, one row for each entry of the result."""
    x, tree_x = ravel_pytree(x)
    return jax.jacfwd(lambda x: problems.flat(function(tree_x(x), rows)))(x)


# Problems with one inner data set.


@pytest.fixture(scope="module")
def bilevel():
    """The oracle's derivatives of a bilevel problem, and the dense ones."""
    problem, _, x, y, _ = problems.bilevel()
    xi, zeta, u = batch(problem.outer_data, "outer"), batch(problem.inner_data, "inner"), direction(y)

    @jax.jit
    def derivatives(x, y, u):
        g_y, products = oracle.inner_derivatives(problem, x, y, zeta)
        return {
            "outer_gradients": oracle.outer_gradients(problem, x, y, xi),
            "outer_gradient_x": oracle.outer_gradient_x(problem, x, y, xi),
            "outer_gradient_y": oracle.outer_gradient_y(problem, x, y, xi),
            "inner_gradient": oracle.inner_gradient(problem, x, y, zeta),
            "inner_derivatives": (g_y, products(u)),
            "hessian_product": oracle.hessian_product(problem, x, y, u, zeta),
            "jacobian_product": oracle.jacobian_product(problem, x, y, u, zeta),
        }

    f_x, f_y = gradients(problem.outer, x, y, xi.data)
    _, g_y = gradients(problem.inner, x, y, zeta.data)
    g_xy, g_yy = second_derivatives(problem.inner, x, y, zeta.data)
    v = problems.flat(u)
    expected = {
        "outer_gradients": [f_x, f_y],
        "outer_gradient_x": [f_x],
        "outer_gradient_y": [f_y],
        "inner_gradient": [g_y],
        "inner_derivatives": [g_y, g_xy @ v, g_yy @ v],
        "hessian_product": [g_yy @ v],
        "jacobian_product": [g_xy @ v],
    }
    return derivatives(x, y, u), expected


@pytest.mark.parametrize(
    "name",
    [
        "outer_gradients",
        "outer_gradient_x",
        "outer_gradient_y",
        "inner_gradient",
        "inner_derivatives",
        "hessian_product",
        "jacobian_product",
    ],
)
def test_bilevel_derivatives_are_the_dense_ones(bilevel, name):
    found, expected = bilevel
    close(found[name], np.concatenate(expected[name]))


def test_derivatives_at_per_example_rows():
    """∇²_xy g u at the rows of the batch, one for each place of it, and `None` where f has no such leaf."""
    problem, _, x, y, _ = problems.bilevel_per_example()
    xi, zeta, u = batch(problem.outer_data, "outer"), batch(problem.inner_data, "inner"), direction(y)
    seen = {"shared": x["shared"], "rows": x["rows"].rows[EXAMPLES["inner"]]}
    g_xy, g_yy = second_derivatives(problem.inner, seen, y, zeta.data)

    @jax.jit
    def derivatives(x, y, u):
        _, products = oracle.inner_derivatives(problem, x, y, zeta)
        f_x, _ = oracle.outer_gradients(problem, x, y, xi)
        return f_x, products(u), oracle.jacobian_product(problem, x, y, u, zeta)

    f_x, (g_xy_u, g_yy_u), alone = derivatives(x, y, u)
    assert g_xy_u["rows"].shape == (4,)
    close(g_xy_u, g_xy @ problems.flat(u))
    close(alone, g_xy @ problems.flat(u))
    close(g_yy_u, g_yy @ problems.flat(u))
    assert f_x["rows"] is None
    close(f_x["shared"], gradients(problems.outer, x["shared"], y, xi.data)[0])


def test_minimax_gradients_are_the_dense_ones():
    problem, _, x, y, _ = problems.minimax()
    xi = batch(problem.data, "outer")
    found = jax.jit(functools.partial(oracle.minimax_gradients, problem))(x, y, xi)
    close(found, np.concatenate(gradients(problem.objective, x, y, xi.data)))


def test_map_and_its_pull_back_are_the_dense_ones():
    problem, _, x, y, _ = problems.compositional()
    xi, zeta, u = batch(problem.outer_data, "outer"), batch(problem.inner_data, "inner"), direction(y)

    @jax.jit
    def derivatives(x, y, u):
        r, product = oracle.map_and_pullback(problem, x, zeta)
        return r, product(u), oracle.map_gradient(problem, y, xi)

    r, r_x_u, f_y = derivatives(x, y, u)
    close(r, problems.flat(problem.inner(x, zeta.data)))
    close(r_x_u, jacobian(problem.inner, x, zeta.data).T @ problems.flat(u))
    close(f_y, jacobian(problem.outer, y, xi.data)[0])


# Problems with an inner data set for each outer example. The last rows of a set are padding, filled with other numbers.

WEIGHTS = {"whole": None, "padded": jnp.array([1, 1, 0, 0])}


def one_set(problem, weights):
    """An outer example, its inner rows, and those of them that are no padding."""
    xi = jax.tree.map(lambda leaf: leaf[1:2], problem.outer_data)
    rows = jax.tree.map(lambda leaf: leaf[1], problem.inner_data)
    return xi, rows, jax.tree.map(lambda leaf: leaf if weights is None else leaf[:2], rows)


@functools.cache
def through(loss, represent):
    """A loss of a representation as a loss of x."""
    return loss if represent is None else lambda x, y, rows: loss(represent(x, rows), y, rows)


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("build", [problems.conditional_bilevel, problems.conditional_bilevel_represented])
def test_conditional_derivatives_are_the_dense_ones(build, weights):
    """Also through a representation: the losses are then those of x, written out."""
    problem, _, x, y, _ = build()
    xi, rows, real = one_set(problem, weights)
    u = direction(y)

    @jax.jit
    def derivatives(x, y, u):
        one = lambda parts: jax.tree.map(lambda leaf: leaf[None], parts)
        represented, back = oracle.represent_batch(problem, x, Batch(xi, jnp.zeros(1, jnp.int32)), one(rows))
        point, outer_point = jax.tree.map(lambda leaf: leaf[0], represented).at(x)
        f_point = oracle.conditional_outer_x(problem, outer_point, y, xi)
        g_point = oracle.conditional_cross(problem, point, y, u, rows, weights)
        return (
            back(one(f_point), tree.zeros_like(one(g_point))),
            oracle.conditional_outer_y(problem, outer_point, y, xi, None),
            oracle.conditional_inner(problem, point, y, u, rows, weights),
            tree.neg(back(tree.zeros_like(one(f_point)), one(g_point))),
        )

    outer, inner = through(problem.outer, problem.represent_outer), through(problem.inner, problem.represent)
    g_xy, g_yy = second_derivatives(inner, x, y, real)
    f_x, f_y, (g_y, g_yy_u), g_xy_u = derivatives(x, y, u)
    close((f_x, f_y), np.concatenate(gradients(outer, x, y, xi)))
    close(g_y, gradients(inner, x, y, real)[1])
    close(g_yy_u, g_yy @ problems.flat(u))
    close(g_xy_u, g_xy @ problems.flat(u))


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
def test_conditional_maps_are_the_dense_ones(weights):
    problem, _, x, y, _ = problems.conditional_compositional()
    xi, rows, real = one_set(problem, weights)
    u = direction(y)

    @jax.jit
    def derivatives(x, y, u):
        return (
            oracle.conditional_map(problem, x, rows, weights),
            oracle.conditional_map_pullback(problem, x, u, rows, weights),
            oracle.conditional_map_gradient(problem, y, xi, None),
        )

    r, r_x_u, f_y = derivatives(x, y, u)
    close(r, problems.flat(problem.inner(x, real)))
    close(r_x_u, jacobian(problem.inner, x, real).T @ problems.flat(u))
    close(f_y, jacobian(problem.outer, y, xi)[0])


# Counters: (outer_gradients, inner_gradients, jacobian_products, hessian_products, backward_passes).


def counts(function, *args):
    """The calls that `function` makes, those known when tracing and those that only running shows."""
    known = {}

    def running(*args):
        with oracle.counting() as tally:
            function(*args)
        known.update(tally.known)
        return tally.traced

    found = jax.jit(running)(*args) if jax.eval_shape(running, *args) else {}
    return tuple(known[name] + int(found.get(name, 0)) for name in oracle.CALLS)


BILEVEL_CALLS = {
    "outer_gradients": (lambda p, x, y, u, xi, zeta: oracle.outer_gradients(p, x, y, xi), (3, 0, 0, 0, 1)),
    "outer_gradient_x": (lambda p, x, y, u, xi, zeta: oracle.outer_gradient_x(p, x, y, xi), (3, 0, 0, 0, 1)),
    "outer_gradient_y": (lambda p, x, y, u, xi, zeta: oracle.outer_gradient_y(p, x, y, xi), (3, 0, 0, 0, 1)),
    "inner_gradient": (lambda p, x, y, u, xi, zeta: oracle.inner_gradient(p, x, y, zeta), (0, 4, 0, 0, 1)),
    "derivatives": (lambda p, x, y, u, xi, zeta: oracle.inner_derivatives(p, x, y, zeta), (0, 4, 0, 0, 1)),
    "with products": (
        lambda p, x, y, u, xi, zeta: oracle.inner_derivatives(p, x, y, zeta).products(u),
        (0, 4, 4, 4, 2),
    ),
    "hessian_product": (lambda p, x, y, u, xi, zeta: oracle.hessian_product(p, x, y, u, zeta), (0, 0, 0, 4, 2)),
    "jacobian_product": (lambda p, x, y, u, xi, zeta: oracle.jacobian_product(p, x, y, u, zeta), (0, 0, 4, 0, 2)),
}


@pytest.mark.parametrize("name", BILEVEL_CALLS)
def test_counts_of_bilevel_calls(name):
    problem, _, x, y, _ = problems.bilevel()
    call, expected = BILEVEL_CALLS[name]
    xi, zeta = batch(problem.outer_data, "outer"), batch(problem.inner_data, "inner")
    assert counts(functools.partial(call, problem), x, y, direction(y), xi, zeta) == expected


def test_counts_of_minimax_and_compositional_calls():
    problem, _, x, y, _ = problems.minimax()
    xi = batch(problem.data, "outer")
    assert counts(functools.partial(oracle.minimax_gradients, problem), x, y, xi) == (3, 0, 0, 0, 1)
    problem, _, x, y, _ = problems.compositional()
    xi, zeta = batch(problem.outer_data, "outer"), batch(problem.inner_data, "inner")
    assert counts(functools.partial(oracle.map_gradient, problem), y, xi) == (3, 0, 0, 0, 1)
    assert counts(functools.partial(oracle.map_and_pullback, problem), x, zeta) == (0, 4, 0, 0, 0)
    assert counts(lambda x, u: oracle.map_and_pullback(problem, x, zeta)[1](u), x, y) == (0, 4, 4, 0, 1)


@pytest.mark.parametrize(("weights", "n"), [(None, 4), (jnp.array([1, 1, 0, 0]), 2), (jnp.array([0, 0, 0, 0]), 0)])
def test_counts_of_conditional_calls(weights, n):
    """Rows that are padding are not examples."""
    problem, _, x, y, _ = problems.conditional_bilevel()
    xi, rows, _ = one_set(problem, None)
    call = functools.partial
    assert counts(call(oracle.conditional_outer_x, problem), x, y, xi) == (1, 0, 0, 0, 1)
    assert counts(call(oracle.conditional_outer_y, problem), x, y, xi, None) == (1, 0, 0, 0, 1)
    assert counts(call(oracle.conditional_inner, problem), x, y, y, rows, weights) == (0, n, 0, n, 2)
    assert counts(call(oracle.conditional_cross, problem), x, y, y, rows, weights) == (0, 0, n, 0, 2)
    problem, _, x, y, _ = problems.conditional_compositional()
    assert counts(call(oracle.conditional_map, problem), x, rows, weights) == (0, n, 0, 0, 0)
    assert counts(call(oracle.conditional_map_pullback, problem), x, y, rows, weights) == (0, 0, n, 0, 1)
    assert counts(call(oracle.conditional_map_gradient, problem), y, xi, None) == (1, 0, 0, 0, 1)


def scanned(body, length):
    """`body` in every iteration of a scan over numbers, which stand for the data a count may depend on."""
    return lambda numbers: oracle.scan(lambda carry, n: (carry, body(n)), 0.0, numbers[:length])


def test_scan_counts_its_body_once_for_each_iteration():
    def body(n):
        oracle.count(2, 3, "hessian_products")
        oracle.count(1, n, "inner_gradients")

    assert counts(scanned(body, 4), jnp.array([5, 0, 2, 1, 9])) == (0, 8, 0, 12, 12)


def test_vmap_counts_examples_for_each_row_and_one_pass_for_all():
    def body(n):
        oracle.count(2, 3, "hessian_products")
        oracle.count(1, n, "inner_gradients")
        return n

    assert counts(oracle.vmap(body), jnp.array([5, 0, 2, 1])) == (0, 8, 0, 12, 3)


def test_scans_and_vmaps_may_be_nested():
    def body(n):
        oracle.count(1, 2, "outer_gradients")
        oracle.count(1, n, "jacobian_products")
        return n

    numbers = jnp.array([[1, 2, 3], [4, 5, 6]])
    assert counts(oracle.vmap(scanned(body, 3)), numbers) == (12, 0, 21, 0, 6)
    assert counts(lambda rows: oracle.scan(lambda c, row: (c, oracle.vmap(body)(row)), 0, rows), numbers) == (
        (12, 0, 21, 0, 4)
    )


def test_nothing_is_counted_outside_a_tally_and_each_tally_is_its_own():
    oracle.count(1, 1, "outer_gradients")
    with oracle.counting() as outside:
        oracle.count(1, 2, "outer_gradients")
        with oracle.counting() as inside:
            oracle.count(1, 3, "outer_gradients")
    assert (outside.known["outer_gradients"], inside.known["outer_gradients"]) == (2, 3)


# Whole steps, with batches of 3 outer and 4 inner examples.


def draws(algorithm, visits=None, outer=3, inner=4):
    return Draws(
        outer=tuple(jnp.zeros((1, outer), jnp.int32) for _ in algorithm.batch_kinds.outer),
        inner=tuple(jnp.zeros((1, inner), jnp.int32) for _ in algorithm.batch_kinds.inner),
        visits=visits,
        step=jnp.uint32(0),
        starts_epoch=jnp.asarray(True),
    )


STEPS = {
    "WiORBO": (problems.bilevel, wior.WiORBO(0.1, 0.1, 0.1), (3, 4, 4, 4, 3)),
    "WiRBO": (problems.bilevel, WiRBO(0.1, 0.1, 0.1), (6, 4, 4, 4, 7)),
    "WiORMinimax": (problems.minimax, wior.WiORMinimax(0.1, 0.1), (3, 0, 0, 0, 1)),
    "WiORComp": (problems.compositional, wior.WiORComp(0.1, 0.1, 0.1), (3, 4, 4, 0, 2)),
}


@pytest.mark.parametrize("name", STEPS)
def test_counts_of_a_step_are_the_papers(name):
    build, algorithm, expected = STEPS[name]
    problem, _, x, y, _ = build()
    step = functools.partial(algorithm.step, problem)
    assert counts(step, algorithm.init(problem, x, y), draws(algorithm)) == expected


@pytest.mark.parametrize(
    ("name", "traced"),
    [
        ("WiORBO", {"outer": 1, "inner": 1}),
        ("WiRBO", {"outer": 2, "inner": 3}),
        ("WiORMinimax", {"objective": 1}),
        ("WiORComp", {"outer": 1, "inner": 1}),
    ],
)
def test_losses_are_traced_as_often_as_they_are_evaluated(name, traced):
    """Evidence that does not rest on the counters: the losses count their own calls while a step is traced."""
    build, algorithm, _ = STEPS[name]
    problem, _, x, y, _ = build()
    called = dict.fromkeys(problem._losses, 0)

    def counted(loss):
        original = getattr(problem, loss)

        def call(*args):
            called[loss] += 1
            return original(*args)

        return call

    watched = type(problem)(*map(counted, problem._losses), *(getattr(problem, data) for data in problem._data))
    jax.eval_shape(functools.partial(algorithm.step, watched), algorithm.init(watched, x, y), draws(algorithm))
    assert called == traced


def test_a_step_of_wior_bo_costs_three_sevenths_of_one_of_wir_bo():
    """By the compiler's own count of operations, where a pass costs the same whatever it is a derivative of.

    x and y enter below a tower of products with fixed matrices, so that every pass goes through the whole of it, once
    upwards and once downwards. Where WiR-BO does not read a gradient that it passes through, the compiler leaves out
    its last product, and the ratio stays a little below 7/3.
    """
    rng = np.random.default_rng(0)
    data, fixed = (jnp.asarray(rng.normal(size=shape)) for shape in ((64, 64), (8, 64, 64)))

    def tower(x, y, rows):
        z = rows * x[:-1] + y
        for matrix in fixed:
            z = jnp.tanh(z @ matrix)
        return jnp.mean(z) + 0.5 * y @ y

    problem = wior.Bilevel(tower, tower, data, data)

    def operations(algorithm):
        state = algorithm.init(problem, jnp.ones(65), jnp.ones(64))
        step = jax.jit(algorithm.step).lower(problem, state, draws(algorithm, outer=64, inner=64))
        return step.compile().cost_analysis()["flops"]

    ratio = operations(WiRBO(0.1, 0.1, 0.1)) / operations(wior.WiORBO(0.1, 0.1, 0.1))
    assert 2.2 < ratio < 2.35


# Conditional steps: B = 3 outer examples, S = 2 passes over the inner set of each, in batches of 2.

PASSES, OUTER, BATCH = 2, 3, 2


def conditional_counts(build, lengths):
    """The counts of a step on three outer examples whose inner sets have the given lengths, at most four."""
    problem, algorithm, x, y, _ = build()
    ragged = lengths is not None
    if ragged:
        problem = type(problem)(
            problem.outer, problem.inner, problem.outer_data, problem.inner_data, np.resize(lengths, problems.M)
        )
    lengths = jnp.asarray(lengths if ragged else [4, 4, 4])
    visits = in_batches(jnp.zeros((OUTER, PASSES, 4), jnp.int32), lengths, BATCH, ragged)
    drawn = draws(algorithm, visits)._replace(outer=(jnp.arange(OUTER)[None],))
    return counts(functools.partial(algorithm.step, problem), algorithm.init(problem, x, y), drawn)


def test_counts_of_conditional_steps_are_the_papers():
    steps = PASSES * 4 // BATCH
    assert conditional_counts(problems.conditional_bilevel, None) == (
        (OUTER * (steps + 1), OUTER * PASSES * 4, OUTER * 4, OUTER * PASSES * 4, 3 * steps + 3)
    )
    assert conditional_counts(problems.conditional_compositional, None) == (
        (OUTER * steps, OUTER * PASSES * 4, OUTER * 4, 0, steps + 1)
    )


@pytest.mark.parametrize("build", [problems.conditional_bilevel, problems.conditional_compositional])
def test_inner_examples_of_ragged_sets_are_counted_exactly(build):
    _, inner, jacobian, hessian, _ = conditional_counts(build, [4, 1, 3])
    assert (inner, jacobian) == (PASSES * 8, 8)
    assert hessian == (PASSES * 8 if build is problems.conditional_bilevel else 0)


@pytest.mark.parametrize("build", [problems.conditional_bilevel, problems.conditional_compositional])
def test_outer_examples_of_ragged_sets_are_counted_exactly(build):
    """∇_y f is part of every update of u: as many as the visit to that set has batches, and not as the longest has."""
    outer, *_ = conditional_counts(build, [4, 1, 3])
    updates = 4 + 1 + 3  # ⌈2·4 / 2⌉ + ⌈2·1 / 2⌉ + ⌈2·3 / 2⌉
    assert outer == updates + (OUTER if build is problems.conditional_bilevel else 0)


def test_history_holds_the_counts_of_all_steps():
    problem, algorithm, x, y, _ = problems.bilevel()
    result = wior.solve(
        problem, algorithm, x, y, order=wior.orders.Incremental(), batch_size=(2, 4), steps=5, record_every=2
    )
    step = result.history["step"]
    np.testing.assert_array_equal(step, [0, 2, 4, 5])
    for name, each in zip(oracle.CALLS, (2, 4, 4, 4, 3), strict=True):
        np.testing.assert_array_equal(result.history[name], each * step)
    np.testing.assert_allclose(result.history["outer_passes"], 2 * step / problems.M)
    np.testing.assert_allclose(result.history["inner_passes"], 4 * step / problems.N)
