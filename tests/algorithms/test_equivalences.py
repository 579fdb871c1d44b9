"""One method on one problem, told in two ways: restated, ragged, padded, in dense vectors, eager."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import wior
from problems import flat
from twins import BRIEFLY, RATES, VISITED, close, dense, draw, laid_out, random_passes, same, stepped
from wior.baselines import WiRBO
from wior.orders import Herding, Incremental, Independent, RandomReshuffling
from wior.running import blocks, visits

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
