"""Half and double precision, in the data, in the losses and in x and y, against closed forms and a float32 control.

The quadratic runs in full batches, so that what is left of the distance to the solution is rounding. bfloat16 rounds at
1/256, float16 at 1/2048.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import problems
import wior
from methods import CLASSES, made
from runs import enable_x64
from wior import oracle
from wior.data import digits
from wior.running import block
from wior.running.arguments import Arguments
from wior.running.plan import start_at, stream_keys
from wior.running.setup import prepare, run_key
from wior.tasks import quadratic as quadratics
from wior.tasks.data_cleaning import WeightedLoss, auroc, clean_loss, data_cleaning

FEW_DIGITS = "ignore:.*is lost in it:UserWarning"
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture
def single():
    """jax as users have it, with float32 for its default."""
    with enable_x64(False):
        yield


def cast(values, dtype):
    return jax.tree.map(lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, values)


def computed_in(dtype, loss):
    """The loss on everything rounded to a type; its value, and so its derivatives, come back in the type of x and y."""
    return lambda *args: cast(loss(*cast(args, dtype)), jnp.float32)


def types(values):
    return {leaf.dtype.name for leaf in jax.tree.leaves(values)}


# ---- the quadratic

METHODS = {
    "WiORBO": wior.WiORBO(0.05, 0.4, 0.4),
    "MASOBA": wior.baselines.MASOBA(0.02, 0.4, 0.4, averaging=0.5),
    "MRBO": wior.baselines.MRBO(0.05, 0.4, 0.4, neumann_terms=8, decay=0.0),
}


def quadratic():
    """With its solution (0.79, 1.34)."""
    return quadratics.quadratic(p=2, d=3, m=5, n=7, inner_eigenvalues=(1, 2), outer_eigenvalues=(1, 2), seed=1).problem


def solution(problem):
    """The minimizer of h on the data as they are stored, in float64."""
    rows = (problem.outer_data, problem.inner_data)
    f, g = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).mean(0), rows)
    S = -np.linalg.solve(g.A, g.B)
    y = -np.linalg.solve(g.A, g.a)
    u = np.linalg.solve(g.A, f.C @ y + f.c)
    return -np.linalg.solve(f.E + f.D @ S + (f.D @ S).T + S.T @ f.C @ S, f.D @ y + f.e - g.B.T @ u)


def run(problem, method="WiORBO", dtype=jnp.float32, **options):
    x0, y0 = jnp.ones(2, dtype), jnp.ones(3, dtype)
    options = {"batch_size": (5, 7), "steps": 1000, "record_every": 500} | options
    return wior.solve(problem, METHODS[method], x0, y0, **options)


def distance(result, problem):
    return np.linalg.norm(np.asarray(result.x, np.float64) - solution(problem))


def with_data(problem, dtype):
    """Data in half precision; the losses take a batch of them up to the type of x first, since means of data alone
    would stay in theirs.
    """
    up = lambda loss: lambda x, y, batch: loss(x, y, cast(batch, x.dtype))
    data = cast((problem.outer_data, problem.inner_data), dtype)
    return wior.Bilevel(up(problem.outer), up(problem.inner), *data)


def with_losses(problem, dtype):
    return dataclasses.replace(
        problem, outer=computed_in(dtype, problem.outer), inner=computed_in(dtype, problem.inner)
    )


# MRBO ends where its Neumann series of eight terms puts it
REACHED = {"WiORBO": 1e-5, "MASOBA": 1e-5, "MRBO": 3e-3}


@pytest.mark.parametrize("method", ["WiORBO", slow("MASOBA"), slow("MRBO")])
def test_float32_is_the_control(single, method):
    problem = quadratic()
    result = run(problem, method)
    assert types(result.state) == {"float32"}
    assert distance(result, problem) < REACHED[method]


@pytest.mark.parametrize(
    ("method", "dtype"),
    [("WiORBO", jnp.bfloat16), slow("WiORBO", jnp.float16), ("MASOBA", jnp.bfloat16), slow("MRBO", jnp.bfloat16)],
)
def test_data_in_half_precision_are_solved_as_they_are_stored(single, method, dtype):
    exact = quadratic()
    stored = with_data(exact, dtype)
    result = run(stored, method)
    assert types(result.state) == {"float32"}
    assert distance(result, stored) < REACHED[method]
    rounding = np.linalg.norm(solution(stored) - solution(exact))
    assert 1e-4 < rounding < {jnp.bfloat16: 4e-3, jnp.float16: 1e-3}[dtype]


@pytest.mark.parametrize(
    ("method", "dtype", "within"),
    [
        ("WiORBO", jnp.bfloat16, 3e-2),
        slow("WiORBO", jnp.float16, 1e-3),
        slow("MASOBA", jnp.bfloat16, 3e-2),
        slow("MRBO", jnp.bfloat16, 3e-2),
    ],
)
def test_losses_in_half_precision_reach_the_solution_to_their_rounding(single, method, dtype, within):
    problem = quadratic()
    control, result = run(problem, method), run(with_losses(problem, dtype), method)
    assert types(result.state) == {"float32"}
    assert REACHED[method] < distance(result, problem) < within
    for name in ("step", "outer_passes", "inner_passes", *oracle.CALLS):
        np.testing.assert_array_equal(control.history[name], result.history[name])
        assert control.history[name].dtype == result.history[name].dtype


def test_float64_reaches_its_own_digits():
    problem = quadratic()
    result = run(problem, dtype=jnp.float64, steps=2000)
    assert types(result.state) == {"float64"}
    assert distance(result, problem) < 1e-13


# ---- x and y in half precision


def test_x_and_y_in_half_precision_are_warned_of(single, tmp_path):
    """Steps shrink with the distance to the solution and are lost while it is still far: 0.08 away where float32 ends
    at 1e-6.
    """
    problem = quadratic()
    with pytest.warns(UserWarning, match="is lost in it") as said:
        result = run(problem, dtype=jnp.bfloat16)
    assert [str(one.message)[:72] for one in said] == [
        "x0 is bfloat16: a step below about 1/256 of a value is lost in it; keep ",
        "y0 is bfloat16: a step below about 1/256 of a value is lost in it; keep ",
    ]
    assert said[0].filename == __file__
    assert types(result.state) == {"bfloat16"}
    assert 2e-2 < distance(result, problem) < 2e-1


@pytest.mark.slow
@pytest.mark.filterwarnings(FEW_DIGITS)
def test_float16_loses_eight_times_less(single):
    problem = quadratic()
    assert 2e-3 < distance(run(problem, dtype=jnp.float16), problem) < 2e-2


@pytest.mark.filterwarnings(FEW_DIGITS)
@pytest.mark.parametrize("order", [wior.orders.RandomReshuffling(), slow(wior.orders.Herding())])
def test_half_precision_resumes_bit_for_bit(single, tmp_path, order):
    """Rows of x, y and u in bfloat16 beside a shared part of x in float16."""
    problem, algorithm, x, y, batch_size = problems.bilevel_per_example()
    x0 = {"shared": cast(x["shared"], jnp.float16), "rows": cast(x["rows"], jnp.bfloat16)}
    start = functools.partial(
        wior.solve, problem, algorithm, x0, cast(y, jnp.bfloat16), order=order, batch_size=batch_size, record_every=9
    )
    whole = start(steps=18)
    start(steps=7, checkpoint=tmp_path / "run")
    resumed = start(steps=18, checkpoint=tmp_path / "run")
    assert types(whole.state) == {"float16", "bfloat16"}
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert not np.array_equal(whole.x["rows"].rows, x0["rows"].rows)


def carried(problem, algorithm, x, y, batch_size):
    """The types of what a run carries, before and after a block; nothing is compiled."""
    given = Arguments(wior.orders.RandomReshuffling(), batch_size, steps=4, record_every=4)
    setup = prepare(problem, algorithm, x, y, given)
    keys = stream_keys(setup.plan, run_key(0))
    begin = lambda: block.begin(setup.plan, setup.problem, setup.algorithm, keys, setup.x, setup.y)
    advance = lambda carry: block.one_run(
        setup.plan, setup.problem, setup.algorithm, carry, keys, start_at(setup.plan, 0), np.int32(2)
    )[0]
    before = jax.eval_shape(begin)
    return before, jax.eval_shape(advance, before)


CASE_OF = {
    wior.Bilevel: problems.bilevel_per_example,
    wior.Minimax: problems.minimax_per_example,
    wior.Compositional: problems.compositional_per_example,
    wior.ConditionalBilevel: problems.conditional_bilevel,
    wior.ConditionalCompositional: problems.conditional_compositional,
}


@pytest.mark.filterwarnings(FEW_DIGITS)
@pytest.mark.parametrize(
    "kind",
    [kind if kind.solves is wior.ConditionalCompositional else slow(kind) for kind in CLASSES],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize("which", ["x and y", slow("y"), slow("data")])
def test_every_method_keeps_the_types_it_was_given(single, kind, which):
    case = CASE_OF[kind.solves]()
    problem, x, y = case.problem, case.x0, case.y0
    if which == "data":
        names = ("data",) if kind.solves is wior.Minimax else ("outer_data", "inner_data")
        problem = dataclasses.replace(problem, **{name: cast(getattr(problem, name), jnp.bfloat16) for name in names})
    else:
        x, y = cast(x, jnp.bfloat16) if "x" in which else x, cast(y, jnp.bfloat16)
    batch_size = (2, 3) if kind.fixed_batches else case.batch_size
    before, after = carried(problem, made(kind), x, y, batch_size)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert [leaf.dtype for leaf in jax.tree.leaves(before)] == [leaf.dtype for leaf in jax.tree.leaves(after)]
    assert types(after.state.y) == {"float32" if which == "data" else "bfloat16"}


def test_an_inner_map_in_half_precision(single):
    """y and u are float32 and r is not: u goes back through r in r's type."""
    known = quadratics.quadratic_compositional(p=2, d=3, m=5, n=7, seed=1)
    half = lambda x, batch: known.problem.inner(*cast((x, batch), jnp.bfloat16))
    problem = dataclasses.replace(known.problem, inner=half)
    result = wior.solve(
        problem,
        wior.WiORComp(0.05, 0.4, 0.4),
        jnp.zeros(2),
        jnp.zeros(3),
        batch_size=(5, 7),
        steps=600,
        record_every=600,
    )
    assert types(result.state) == {"float32"}
    assert np.linalg.norm(result.x - known.minimizer()) < 5e-2


# ---- the digits

CLEANER = wior.WiORBO(outer_lr=200.0, inner_lr=0.3, adjoint_lr=0.1)


@functools.cache
def task(dtype):
    rows = digits()
    parts = [(jnp.asarray(part[0]).astype(dtype), part[1]) for part in (rows.train, rows.clean, rows.test)]
    return data_cleaning(*parts, sizes=(64, 32, 10), rate=0.4)


@functools.cache
def cleaned(dtype=jnp.float32, losses=None, rows=None, network=None):
    """400 wrong labels among 1000, with the data, the losses, x or y in other types than float32."""
    own = task(dtype)
    problem, x0, y0 = own.problem, own.x0, own.y0()
    if losses is not None:
        problem = wior.Bilevel(
            computed_in(losses, clean_loss),
            computed_in(losses, WeightedLoss(1e-3)),
            problem.outer_data,
            problem.inner_data,
        )
    x0, y0 = x0 if rows is None else cast(x0, rows), y0 if network is None else cast(y0, network)
    metrics = task(jnp.promote_types(dtype, jnp.float32)).metrics
    return wior.solve(problem, CLEANER, x0, y0, batch_size=100, steps=600, record_every=600, metrics=metrics)


def ends(result):
    return {name: float(result.history[name][-1]) for name in ("clean_loss", "f1", "auroc", "accuracy")}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_digits_in_half_precision_are_the_same_run(single, dtype):
    """Their 17 shades of gray are numbers of either type, and x, y and the losses are float32 all the same."""
    control, half = cleaned(), cleaned(dtype)
    assert types(half.state) == {"float32"}
    assert ends(control)["f1"] > 0.95
    for a, b in zip(jax.tree.leaves(control.state), jax.tree.leaves(half.state), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_losses_in_half_precision_find_the_same_labels(single, dtype):
    control, half = ends(cleaned()), ends(cleaned(losses=dtype))
    assert types(cleaned(losses=dtype).state) == {"float32"}
    assert abs(half["f1"] - control["f1"]) < 0.01
    assert abs(half["auroc"] - control["auroc"]) < 0.005
    assert abs(half["clean_loss"] - control["clean_loss"]) < 0.01


@pytest.mark.slow
def test_digits_in_float64():
    double = cleaned(jnp.float64)
    assert types(double.state) == {"float64"}  # its network starts from other random numbers
    with enable_x64(False):
        control = ends(cleaned())
    assert abs(ends(double)["f1"] - control["f1"]) < 0.02
    assert abs(ends(double)["clean_loss"] - control["clean_loss"]) < 0.02


@pytest.mark.slow
@pytest.mark.filterwarnings(FEW_DIGITS)
@pytest.mark.parametrize(("kept", "lost"), [({"rows": jnp.bfloat16}, 0.005), ({"network": jnp.bfloat16}, 0.02)])
def test_weights_or_networks_in_bfloat16_cost_a_little(single, kept, lost):
    half = cleaned(**kept)
    assert "bfloat16" in types(half.state)
    assert ends(cleaned())["auroc"] - ends(half)["auroc"] < lost


def test_the_area_under_the_curve_of_scores_in_half_precision(single):
    """Scores are compared in their own type and counted in float32."""
    rng = np.random.default_rng(0)
    truth = rng.random(3000) < 0.5
    scores = jnp.asarray(rng.normal(size=truth.size) + truth, jnp.bfloat16)
    found = jax.jit(auroc)(scores, jnp.asarray(truth))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, roc_auc_score(truth, np.asarray(scores, np.float64)), rtol=1e-6)
