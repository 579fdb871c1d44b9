"""Modules as x or y: what moves, what is constant, and that losses, metrics and results have them whole."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import baselines
from wior.problems.modules import parted

ROWS = np.random.default_rng(0).normal(size=(24, 3))
METHOD = wior.WiORBO(0.1, 0.1, 0.1)


def doubled(module):
    return jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, module)


def mlp(seed=0):
    return doubled(eqx.nn.MLP(3, "scalar", 4, 1, activation=jnp.tanh, key=jax.random.key(seed)))


def arrays(module):
    return eqx.filter(module, eqx.is_inexact_array)


def put_together(module):
    """The same losses on arrays alone, as users wrote them before."""
    rest = eqx.filter(module, eqx.is_inexact_array, inverse=True)
    return lambda loss: lambda x, y, batch: loss(x, eqx.combine(y, rest), batch)


def error(x, y, batch):
    return jnp.mean((jax.vmap(y)(batch) - batch[:, 0]) ** 2)


def penalized(x, y, batch):
    return error(x, y, batch) + jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(arrays(y)))


PROBLEM = wior.Bilevel(error, penalized, ROWS, ROWS)


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, arrays(a), arrays(b))


def test_what_moves_and_what_is_constant():
    tree = {"w": jnp.ones(2), "name": "a", "on": True, "f": jnp.tanh, "rate": 0.5, "n": jnp.arange(2), "none": None}
    moving, constants = parted("y0", tree)
    assert [leaf.tolist() for leaf in jax.tree.leaves(moving)] == [[1.0, 1.0]]
    back = constants.back_in(jax.tree.map(lambda leaf: 2 * leaf, moving))
    assert back["w"].tolist() == [2.0, 2.0]
    assert {**back, "w": 0, "n": 0} == {**tree, "w": 0, "n": 0}
    assert back["n"].tolist() == [0, 1]
    again = jax.jit(lambda constants: constants)(constants)
    assert again.back_in(moving)["f"] is jnp.tanh
    assert parted("y0", {"w": np.ones(2), "rate": 0.5})[1] is None


def test_a_tree_without_arrays_is_refused_as_before():
    with pytest.raises(TypeError, match="y0 is a function, "):
        parted("y0", jnp.tanh)
    with pytest.raises(TypeError, match=r"y0\['n'\] has dtype int64"):
        parted("y0", {"w": jnp.ones(2), "n": jnp.arange(2)})


@pytest.mark.parametrize("method", [METHOD, baselines.SABA(0.1, 0.1, 0.1), baselines.AmIGO(0.1, 0.1, 0.1)])
def test_a_module_as_y_is_its_arrays_as_y(method):
    module, combined = mlp(), put_together(mlp())
    by_hand = wior.Bilevel(combined(error), combined(penalized), ROWS, ROWS)
    settings = {"batch_size": 4, "steps": 9, "metrics": lambda x, y: {"x": x}, "record_every": 3}
    expected = wior.solve(by_hand, method, jnp.zeros(()), arrays(module), **settings)
    whole = {**settings, "metrics": lambda x, y: {"error": error(x, y, ROWS)}}
    found = wior.solve(PROBLEM, method, jnp.zeros(()), module, **whole)
    same(found.y, expected.y)
    assert found.y.activation is jnp.tanh
    np.testing.assert_allclose(found.history["error"][-1], error(0, found.y, ROWS), rtol=1e-12)


def test_a_module_as_x_and_rows_beside_it():
    weigh = lambda x, y, b: jnp.mean(jax.nn.sigmoid(x["module"](b.mean(0)) + x["rows"]) * (b @ y - 1) ** 2) + y @ y
    plain = lambda x, y, b: jnp.mean((b @ y - 1) ** 2)
    start = {"module": mlp(), "rows": wior.PerExample(jnp.zeros(24))}
    rest = eqx.filter(mlp(), eqx.is_inexact_array, inverse=True)
    apart = lambda x, y, b: weigh({**x, "module": eqx.combine(x["module"], rest)}, y, b)
    by_hand = {**start, "module": arrays(mlp())}
    found = [
        wior.solve(wior.Bilevel(plain, inner, ROWS, ROWS), METHOD, x0, jnp.zeros(3), batch_size=4, steps=9).x
        for inner, x0 in ((weigh, start), (apart, by_hand))
    ]
    same(*(x["module"] for x in found))
    np.testing.assert_array_equal(*(x["rows"].rows for x in found))


def test_other_classes_take_modules():
    sets = np.random.default_rng(1).normal(size=(24, 5, 3))
    conditional = wior.ConditionalBilevel(
        error, lambda x, y, b: penalized(x[0], y, b) + y.layers[0].bias[:2] @ x, ROWS, sets
    )
    result = wior.solve(conditional, wior.WiORCBO(0.1, 0.1, 0.1), jnp.ones(2), mlp(), batch_size=(4, 5), steps=3)
    same(result.y, mlp())
    features = lambda x, rows: jax.vmap(x)(rows)
    represented = wior.ConditionalBilevel(
        lambda x, y, b: jnp.mean((jax.vmap(x)(b) * y - 1) ** 2),
        lambda seen, y, b: jnp.mean((seen * y - 1) ** 2) + y**2,
        ROWS, sets, represent=features,
    )  # fmt: skip
    run = lambda problem, x: wior.solve(problem, wior.WiORCBO(0.1, 0.1, 0.1), x, jnp.ones(()), batch_size=4, steps=3).x
    moved = run(represented, mlp())
    assert not np.array_equal(moved.layers[0].weight, mlp().layers[0].weight)
    minimax = wior.Minimax(lambda x, y, b: error(0, x, b) + y * jnp.mean(b) - y**2, ROWS)
    game = wior.solve(minimax, wior.WiORMinimax(0.1, 0.1), mlp(), jnp.zeros(()), batch_size=4, steps=3)
    assert game.x.activation is jnp.tanh


def test_sweeps_checkpoints_and_instruments(tmp_path):
    metrics = lambda x, y: {"error": error(x, y, ROWS)}
    more = {"batch_size": 4, "metrics": metrics}
    found = wior.sweep(PROBLEM, METHOD, jnp.zeros(()), mlp(), grid={"outer_lr": [0.1, 0.2]}, seeds=2, steps=9, **more)
    alone = wior.solve(PROBLEM, METHOD, jnp.zeros(()), mlp(), steps=9, **more)
    assert found.y.layers[0].weight.shape == (2, 2, 4, 3)
    np.testing.assert_allclose(found.final("error")[0, 0], alone.history["error"][-1], rtol=1e-12)
    wior.solve(PROBLEM, METHOD, jnp.zeros(()), mlp(), steps=5, checkpoint=tmp_path, **more)
    same(wior.solve(PROBLEM, METHOD, jnp.zeros(()), mlp(), steps=9, checkpoint=tmp_path, **more).y, alone.y)
    report = wior.check(PROBLEM, jnp.zeros(()), mlp(), batch_size=8, show=False)
    assert np.isfinite(report.inner_curvature).all()
    linear = doubled(eqx.nn.Linear(3, "scalar", key=jax.random.key(0)))
    held = {"linear": linear, "link": jnp.tanh}
    ridge = lambda x, y, b: error(x, y["linear"], b) + jnp.exp(x) * jnp.sum(y["linear"].weight ** 2) + y["linear"].bias @ y["linear"].bias  # fmt: skip
    outer = lambda x, y, b: error(x, y["linear"], b)
    gradient = wior.hypergradient(wior.Bilevel(outer, ridge, ROWS, ROWS), jnp.zeros(()), held).gradient
    rest = eqx.filter(linear, eqx.is_inexact_array, inverse=True)
    combined = lambda loss: lambda x, y, b: loss(x, {"linear": eqx.combine(y, rest)}, b)
    by_hand = wior.Bilevel(combined(outer), combined(ridge), ROWS, ROWS)
    np.testing.assert_allclose(gradient, wior.hypergradient(by_hand, jnp.zeros(()), arrays(linear)).gradient, rtol=1e-9)


def test_a_run_with_a_module_continues_from_its_state(tmp_path):
    options = {"batch_size": 8, "order": "herding"}
    whole = wior.solve(PROBLEM, METHOD, jnp.zeros(()), mlp(), steps=7, **options)
    first = wior.solve(PROBLEM, METHOD, jnp.zeros(()), mlp(), steps=3, **options)
    for again in (
        wior.solve(PROBLEM, METHOD, state=first.state, steps=4, **options),
        wior.solve(PROBLEM, METHOD, first.x, first.y, state=first.state, steps=4, **options),
    ):
        same(again.y, whole.y)
        assert again.y.activation is whole.y.activation
    first.save(tmp_path / "run")
    loaded = wior.load(tmp_path / "run")
    same(wior.solve(PROBLEM, METHOD, first.x, first.y, state=loaded.state, steps=4, **options).y, whole.y)
    with pytest.raises(ValueError, match=r"^y0 is not the y of state"):
        wior.solve(PROBLEM, METHOD, first.x, mlp(1), state=first.state, steps=4, **options)
