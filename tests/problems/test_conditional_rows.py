"""Conditional problems in which x has a row for each outer example: a loop by hand, every method, every order."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import wior
from methods import CLASSES, made
from problems import COUNTS, N_SETS, M, flat, rows, start
from streamed import assert_same_run, streamed
from twins import draw, stepped
from wior import oracle
from wior.orders import BY_NAME
from wior.running import visits

ETA, GAMMA, RHO = 0.07, 0.2, 0.15


def outer(x, y, batch):
    """The row of the example moves its target, as a batch of one."""
    error = batch["for_y"] @ flat(y) - jnp.sin(batch["for_x"] @ flat(x["shared"])) - batch["target"] - x["own"]["shift"]
    return jnp.mean(jnp.sqrt(1 + error**2)) + 0.1 * flat(x["shared"]) @ flat(x["shared"])


def inner(x, y, batch):
    """And weighs its inner problem."""
    from_x, from_y = batch["for_x"] @ flat(x["shared"]), batch["for_y"] @ flat(y)
    pull = batch["for_y"][:, :2] @ x["own"]["pull"][0]
    return jnp.mean(jax.nn.softplus(from_y + jnp.tanh(from_x)) + pull * from_y) + 0.5 * flat(y) @ flat(y)


def outer_of_y(y, batch):
    return problems.outer_of_y(y, batch)


def inner_map(x, batch):
    from_x = jnp.tanh(batch["for_x"] @ flat(x["shared"]))[:, None] * batch["for_y"] * (1 + x["own"]["shift"])
    return problems.like_y(jnp.mean(from_x, 0) + x["own"]["pull"][0].sum())


def point():
    rng = np.random.default_rng(7)
    own = {"shift": jnp.asarray(rng.normal(size=M)), "pull": jnp.asarray(0.3 * rng.normal(size=(M, 2)))}
    x, y = start()
    return {"shared": x, "own": jax.tree.map(wior.PerExample, own)}, y


def problem(kind, counts=COUNTS):
    losses = (outer, inner) if kind is wior.ConditionalBilevel else (outer_of_y, inner_map)
    return kind(*losses, rows(3, M), rows(4, M, N_SETS), counts)


TAKERS = [kind for kind in CLASSES if kind.solves in (wior.ConditionalBilevel, wior.ConditionalCompositional)]
OPTIONS = {"batch_size": (2, 3), "steps": 9, "record_every": 9, "seed": 1}


def dense(posed):
    """The same problem with tables in x, of which each example takes its row by its number in the data."""
    numbers = np.arange(M)
    outer_data = posed.outer_data | {"number": numbers}
    inner_data = posed.inner_data | {"number": np.repeat(numbers[:, None], N_SETS, 1)}
    at = lambda x, b: x | {"own": jax.tree.map(lambda table: table[b["number"][:1]], x["own"])}
    g = lambda x, *others: posed.inner(at(x, others[-1]), *others)
    f = posed.outer
    if isinstance(posed, wior.ConditionalBilevel):
        f = lambda x, y, b: posed.outer(at(x, b), y, b)
    return type(posed)(f, g, outer_data, inner_data, posed.counts)


@pytest.mark.parametrize("counts", [COUNTS, None], ids=["ragged", "equal"])
@pytest.mark.parametrize("kind", [wior.ConditionalBilevel, wior.ConditionalCompositional])
@pytest.mark.parametrize("method", TAKERS, ids=lambda kind: kind.__name__)
def test_own_rows_move_as_those_of_a_dense_table(method, kind, counts):
    if not issubclass(kind, method.solves) and method.solves is wior.ConditionalCompositional:
        pytest.skip("solves compositional problems alone")
    posed, (x, y) = problem(kind, counts), point()
    table = x | {"own": jax.tree.map(lambda leaf: leaf.rows, x["own"], is_leaf=lambda leaf: hasattr(leaf, "rows"))}
    one = wior.solve(posed, made(method), x, y, **OPTIONS)
    other = wior.solve(dense(posed), made(method), table, y, **OPTIONS)
    np.testing.assert_allclose(flat(one.x), flat(other.x), rtol=1e-10, atol=1e-13)
    moved = np.abs(np.asarray(one.x["own"]["shift"].rows) - np.asarray(x["own"]["shift"].rows))
    assert (moved > 1e-8).all()
    for name in ("outer_gradients", "inner_gradients", "jacobian_products", "hessian_products", "backward_passes"):
        np.testing.assert_array_equal(one.history[name], other.history[name])


def test_a_step_is_a_loop_over_the_visits_by_hand():
    """WiOR-CBO with the derivatives of jax and nothing else, where a batch holds an example twice."""
    posed, (x, y), visited = problem(wior.ConditionalBilevel), point(), [4, 0, 4]
    lengths = np.asarray(COUNTS)[visited]
    rng = np.random.default_rng(0)
    passes = [[rng.permutation(length) for _ in range(2)] for length in lengths]
    whole = np.zeros((3, 2, N_SETS), np.int32)
    for i, own in enumerate(passes):
        for s, one in enumerate(own):
            whole[i, s, : len(one)] = one
    laid = visits.in_batches(jnp.asarray(whole), jnp.asarray(lengths), 3, True)
    method = wior.WiORCBO(ETA, GAMMA, RHO, inner_epochs=2)
    found = stepped(posed, method, method.init(posed, x, y), draw([visited], visits=laid))
    directions = []
    for example, own in zip(visited, passes, strict=True):
        seen = {"shared": x["shared"], "own": jax.tree.map(lambda leaf, i=example: leaf[i : i + 1], table(x))}
        xi = jax.tree.map(lambda leaf, i=example: leaf[i : i + 1], posed.outer_data)
        inner_set = jax.tree.map(lambda leaf, i=example: leaf[i], posed.inner_data)
        read = np.concatenate(own)
        at, u = y, jax.tree.map(jnp.zeros_like, y)
        for first in range(0, len(read), 3):
            zeta = jax.tree.map(lambda leaf, rows=read[first : first + 3]: leaf[rows], inner_set)
            g_y, product = jax.vjp(lambda y, zeta=zeta, seen=seen: jax.grad(inner, 1)(seen, y, zeta), at)
            f_y, g_yy_u = jax.grad(outer, 1)(seen, at, xi), product(u)[0]
            at = jax.tree.map(lambda y, g: y - GAMMA * g, at, g_y)
            u = jax.tree.map(lambda u, g, f: u - RHO * (g - f), u, g_yy_u, f_y)
        full = jax.tree.map(lambda leaf, n=len(own[0]): leaf[:n], inner_set)
        cross = jax.vjp(lambda seen, at=at, full=full: jax.grad(inner, 1)(seen, at, full), seen)[1](u)[0]
        directions.append(jax.tree.map(jnp.subtract, jax.grad(outer, 0)(seen, at, xi), cross))
    expected = {"shared": x["shared"], "own": table(x)}
    for example, d in zip(visited, directions, strict=True):
        expected["shared"] = jax.tree.map(lambda x, d: x - ETA * d / 3, expected["shared"], d["shared"])
        expected["own"] = jax.tree.map(
            lambda rows, d, i=example: rows.at[i].add(-ETA * d[0] / 3), expected["own"], d["own"]
        )
    np.testing.assert_allclose(flat(found.x), flat(expected), rtol=1e-11, atol=1e-13)


def table(x):
    return jax.tree.map(lambda leaf: leaf.rows, x["own"], is_leaf=lambda leaf: isinstance(leaf, wior.PerExample))


@pytest.mark.parametrize("order", BY_NAME)
@pytest.mark.parametrize("method", [kind for kind in TAKERS if kind.__name__ in ("WiORCBO", "WiORCComp")])
def test_every_order_streamed_and_resumed(method, order, tmp_path):
    posed, (x, y) = problem(method.solves), point()
    solve = lambda problem, **more: wior.solve(
        problem, made(method), x, y, **OPTIONS | {"order": order, "record_every": 3} | more
    )
    whole = solve(posed)
    assert_same_run(whole, solve(streamed(posed)))
    solve(posed, checkpoint=tmp_path / "run", steps=3)
    np.testing.assert_array_equal(flat(solve(posed, checkpoint=tmp_path / "run").x), flat(whole.x))


@pytest.mark.parametrize("method", TAKERS, ids=lambda kind: kind.__name__)
def test_a_sweep_is_its_runs(method):
    posed, (x, y) = problem(method.solves), point()
    options = {name: value for name, value in OPTIONS.items() if name != "seed"}
    together = wior.sweep(posed, made(method), x, y, grid={"outer_lr": [0.01, 0.05]}, seeds=[1], **options)
    alone = wior.solve(posed, made(method), x, y, **OPTIONS)
    swept = jax.tree.map(lambda leaf: leaf[1, 0], together.x)
    np.testing.assert_allclose(flat(swept), flat(alone.x), rtol=1e-9, atol=1e-12)


def test_the_hypergradient_is_that_of_a_dense_table():
    for kind in (wior.ConditionalBilevel, wior.ConditionalCompositional):
        posed, (x, y) = problem(kind), point()
        one = wior.hypergradient(posed, x, y)
        other = wior.hypergradient(dense(posed), x | {"own": table(x)}, y)
        np.testing.assert_allclose(flat(one.gradient), flat(other.gradient), rtol=1e-8, atol=1e-12)
        assert isinstance(one.gradient["own"]["shift"], wior.PerExample)


def test_the_other_instruments_take_own_rows():
    posed, (x, y) = problem(wior.ConditionalBilevel), point()
    measured = wior.order_error(posed, "random-reshuffling", x, y, (2, 3), passes=12)
    assert np.isfinite(measured.largest["hypergradient"]).all()
    for kind in (wior.ConditionalBilevel, wior.ConditionalCompositional):
        report = wior.check(problem(kind), x, y, batch_size=(2, 3), show=False)
        assert not [finding for finding in report.findings if finding.severity == "error"]
        assert "outer_lr" in report.step_sizes


def test_a_representation_of_own_rows_is_at_each_example():
    x, _ = point()
    xi = problem(wior.ConditionalBilevel).outer_batch(jnp.array([3, 1]))
    represented, back = oracle.represent_batch(problem(wior.ConditionalBilevel), x, xi, rows(4, 2, N_SETS))
    np.testing.assert_array_equal(represented.own["own"]["shift"], np.asarray(x["own"]["shift"].rows)[[3, 1], None])
    each = {
        "shared": jax.tree.map(lambda leaf: jnp.stack([leaf, 3 * leaf]), x["shared"]),
        "own": represented.own["own"],
    }
    direction = back(each, jax.tree.map(jnp.zeros_like, each))
    np.testing.assert_allclose(flat(direction["shared"]), 2 * flat(x["shared"]))
    np.testing.assert_allclose(direction["own"]["shift"], np.asarray(x["own"]["shift"].rows)[[3, 1]] / 2)


MESH = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np, wior
from methods import CLASSES, made
from test_conditional_rows import OPTIONS, TAKERS, flat, point, problem
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
x, y = point()
for method in TAKERS:
    for layout in (mesh, wior.Layout(mesh, rows="batch")):
        run = lambda **more: wior.solve(problem(method.solves), made(method), x, y, **OPTIONS | more)
        np.testing.assert_allclose(flat(run().x), flat(run(mesh=layout).x), rtol=1e-11, atol=1e-12)
        print("equal")
"""


@pytest.mark.slow
def test_own_rows_on_two_devices():
    folders = [str(one) for one in sys.path if "tests" in str(one)] + [str(__file__).rpartition("/")[0]]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path += {folders!r}\n{MESH}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("equal") == 2 * len(TAKERS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, jax.tree.map(lambda leaf: wior.PerExample(jnp.zeros((M, *leaf.shape))), y)), "y0 has a PerExample leaf; in a conditional problem every visit to an outer example starts y anew from y0"),
        (lambda x, y: (x | {"own": {"shift": wior.PerExample(jnp.zeros(5)), "pull": x["own"]["pull"]}}, y), "x0['own']['shift'] is PerExample with shape (5,); its first axis must be 6, one row for each outer example"),
    ],
    ids=["y", "rows"],
)  # fmt: skip
@pytest.mark.parametrize("method", TAKERS, ids=lambda kind: kind.__name__)
def test_what_cannot_be_is_said(method, change, message):
    with pytest.raises((TypeError, ValueError)) as error:
        wior.solve(problem(method.solves), made(method), *change(*point()), **OPTIONS)
    assert message in str(error.value)


def test_a_representation_beside_own_rows_is_refused():
    for name in ("represent", "represent_outer"):
        posed = wior.ConditionalBilevel(outer, inner, rows(3, M), rows(4, M, N_SETS), **{name: problems.represent})
        with pytest.raises(TypeError, match=f"x0 has a PerExample leaf, and {name} represents the rows of many outer"):
            wior.solve(posed, made(wior.WiORCBO), *point(), **OPTIONS)
