"""Optimizers of optax in place of step sizes: under every method, against hand-written loops, and where they may not be."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import problems
import wior
from methods import CASE_OF, CLASSES, made
from problems import flat
from runs import enable_x64
from wior.orders import Incremental

ADAM = optax.adam(0.03)
CHAIN = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, momentum=0.9))
STEPS = 7


@pytest.fixture(autouse=True)
def _in_float64():
    with enable_x64(True):
        yield


def case_of(kind):
    problem, _, x, y, batch_size = CASE_OF[kind.solves]()
    return problem, x, y, (2, 3) if kind.fixed_batches else batch_size


def ran(kind, algorithm, problem=None, **options):
    own, x, y, batch_size = case_of(kind)
    options = {"batch_size": batch_size, "steps": STEPS, "record_every": STEPS, "order": Incremental()} | options
    return wior.solve(own if problem is None else problem, algorithm, x, y, **options)


# a loop inside of a step, one that is cut short, visits, padding, two variables of one step size
FIRST = ("WiORBO", "AmIGO", "VRBO", "WiORCBO", "BOME", "RTMLMC")
in_turn = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind.__name__ in FIRST else [pytest.mark.slow]) for kind in CLASSES],
    ids=lambda kind: kind.__name__,
)


@in_turn
def test_plain_steps_of_optax_are_those_of_the_number(kind):
    rates = dict.fromkeys(kind.moved().values(), 0.05)
    # a schedule, as an optimizer, is not subject to the decay that a method gives its numbers
    constant = {name: lambda step, rate=rate: rate for name, rate in rates.items()}
    expected = ran(kind, made(kind, **constant))
    found = ran(kind, made(kind, **{name: optax.sgd(rate) for name, rate in rates.items()}))
    np.testing.assert_allclose(flat((found.x, found.y)), flat((expected.x, expected.y)), rtol=1e-12, atol=1e-13)
    assert found.history["backward_passes"].tolist() == expected.history["backward_passes"].tolist()


@in_turn
def test_an_optimizer_with_a_state_moves_otherwise_and_resumes_to_the_bit(kind, tmp_path):
    algorithm = made(kind, **dict.fromkeys(kind.moved().values(), ADAM))
    whole = ran(kind, algorithm, steps=6)
    assert not np.allclose(flat(whole.x), flat(ran(kind, made(kind), steps=6).x))
    folder = wior.Checkpoint(tmp_path / "run", every_steps=3)
    ran(kind, algorithm, steps=3, checkpoint=folder)
    resumed = ran(kind, algorithm, steps=6, checkpoint=folder)
    for one, other in zip(jax.tree.leaves(resumed.state), jax.tree.leaves(whole.state), strict=True):
        np.testing.assert_array_equal(one, other)


class Loop:
    """A variable and its optimizer, by hand."""

    def __init__(self, optimizer, value):
        self.optimizer, self.value, self.state = optimizer, value, optimizer.init(value)

    def descend(self, slope):
        updates, self.state = self.optimizer.update(slope, self.state, self.value)
        self.value = optax.apply_updates(self.value, updates)


def batch_of(data, step, batch):
    """The rows of a step under the incremental order."""
    n = len(jax.tree.leaves(data)[0])
    index = (np.arange(batch) + batch * step) % n
    return jax.tree.map(lambda leaf: leaf[index], data), index


def test_wior_bo_is_a_hand_written_loop():
    problem, _, x, y, (outer, inner) = problems.bilevel()
    found = wior.solve(
        problem, wior.WiORBO(ADAM, CHAIN, optax.sgd(0.1, nesterov=True, momentum=0.5)), x, y, order=Incremental(),
        batch_size=(outer, inner), steps=STEPS,
    )  # fmt: skip
    own_x, own_y = Loop(ADAM, x), Loop(CHAIN, y)
    own_u = Loop(optax.sgd(0.1, nesterov=True, momentum=0.5), jax.tree.map(jnp.zeros_like, y))
    minus = lambda a, b: jax.tree.map(jnp.subtract, a, b)
    for step in range(STEPS):
        x, y, u = own_x.value, own_y.value, own_u.value
        (xi, _), (zeta, _) = batch_of(problem.outer_data, step, outer), batch_of(problem.inner_data, step, inner)
        f_x, f_y = jax.grad(problem.outer, (0, 1))(x, y, xi)
        g_y, back = jax.vjp(lambda x, y, zeta=zeta: jax.grad(problem.inner, 1)(x, y, zeta), x, y)
        g_xy_u, g_yy_u = back(u)
        own_x.descend(minus(f_x, g_xy_u))
        own_y.descend(g_y)
        own_u.descend(minus(g_yy_u, f_y))
    for name, own in (("x", own_x), ("y", own_y), ("u", own_u)):
        np.testing.assert_allclose(flat(getattr(found.state, name)), flat(own.value), rtol=1e-11, atol=1e-13)
        carried = found.state.carried[f"optimizer of {name}"]
        np.testing.assert_allclose(flat(carried), flat(own.state), rtol=1e-11, atol=1e-13)


def test_wior_minimax_is_a_hand_written_loop():
    problem, _, x, y, batch = problems.minimax()
    batch = batch if isinstance(batch, int) else batch[0]
    found = wior.solve(problem, wior.WiORMinimax(ADAM, CHAIN), x, y, order=Incremental(), batch_size=batch, steps=STEPS)
    own_x, own_y = Loop(ADAM, x), Loop(CHAIN, y)
    for step in range(STEPS):
        xi, _ = batch_of(problem.data, step, batch)
        f_x, f_y = jax.grad(problem.objective, (0, 1))(own_x.value, own_y.value, xi)
        own_x.descend(f_x)
        own_y.descend(jax.tree.map(jnp.negative, f_y))
    np.testing.assert_allclose(flat((found.x, found.y)), flat((own_x.value, own_y.value)), rtol=1e-11, atol=1e-13)


def test_in_a_visit_optimizers_start_anew_and_padding_does_not_move_them():
    problem, _, x, y, _ = problems.conditional_bilevel_ragged()
    order, batch = Incremental(), 3
    method = wior.WiORCBO(ADAM, optax.adam(0.1), optax.sgd(0.1, momentum=0.5), inner_epochs=2)
    found = wior.solve(problem, method, x, y, order=order, batch_size=(2, batch), steps=3)
    own_x = Loop(ADAM, x)
    minus = lambda a, b: jax.tree.map(jnp.subtract, a, b)
    for step in range(3):
        x, directions = own_x.value, []
        _, index = batch_of(problem.outer_data, step, 2)
        for example in index:
            xi = jax.tree.map(lambda leaf, i=example: leaf[i][None], problem.outer_data)
            count = int(problem.counts[example])
            rows = jax.tree.map(lambda leaf, i=example, n=count: leaf[i][:n], problem.inner_data)
            own_y, own_u = Loop(optax.adam(0.1), y), Loop(method.adjoint_lr, jax.tree.map(jnp.zeros_like, y))
            places = np.arange(2 * count)  # of both passes, one after the other
            for first in range(0, 2 * count, batch):
                zeta = jax.tree.map(lambda leaf, i=places[first : first + batch] % count: leaf[i], rows)
                f_y = jax.grad(problem.outer, 1)(x, own_y.value, xi)
                g_y, back = jax.vjp(lambda y, z=zeta, x=x: jax.grad(problem.inner, 1)(x, y, z), own_y.value)
                g_yy_u = back(own_u.value)[0]
                own_y.descend(g_y)
                own_u.descend(minus(g_yy_u, f_y))
            f_x = jax.grad(problem.outer, 0)(x, own_y.value, xi)
            cross = lambda x, y=own_y.value, rows=rows: jax.grad(problem.inner, 1)(x, y, rows)
            directions.append(minus(f_x, jax.vjp(cross, x)[1](own_u.value)[0]))
        own_x.descend(jax.tree.map(lambda *parts: sum(parts) / len(parts), *directions))
    np.testing.assert_allclose(flat(found.x), flat(own_x.value), rtol=1e-10, atol=1e-12)
    assert set(found.state.carried) == {f"optimizer of {name}" for name in ("x", "y", "u")}


def test_rows_have_optimizers_of_their_own_and_a_global_norm_is_of_what_a_step_touches():
    problem, _, x, y, (outer, inner) = problems.bilevel_per_example()
    by_norm = optax.chain(optax.clip_by_global_norm(0.05), optax.adam(0.1))
    found = wior.solve(
        problem, wior.WiORBO(by_norm, 0.1, 0.1), x, y, order=Incremental(), batch_size=(outer, inner), steps=STEPS
    )
    rows, n = x["rows"].rows, len(x["rows"].rows)
    shared, u = x["shared"], jax.tree.map(jnp.zeros_like, y)
    dense = {"shared": shared, "rows": rows}
    state = by_norm.init(dense)
    for step in range(STEPS):
        (xi, _), (zeta, index) = batch_of(problem.outer_data, step, outer), batch_of(problem.inner_data, step, inner)
        at = lambda tree, index=index: jax.tree.map(lambda leaf: leaf[index] if leaf.shape[:1] == (n,) else leaf, tree)
        here = at(dense)
        f_x, f_y = jax.grad(problem.outer, (0, 1))({"shared": dense["shared"], "rows": None}, y, xi)
        g_y, back = jax.vjp(lambda x, y, zeta=zeta: jax.grad(problem.inner, 1)(x, y, zeta), here, y)
        g_xy_u, g_yy_u = back(u)
        slope = {
            "shared": jax.tree.map(jnp.subtract, f_x["shared"], g_xy_u["shared"]),
            "rows": -g_xy_u["rows"],
        }
        again = (index[:, None] == index[None, :]).astype(float)
        slope["rows"] = again @ slope["rows"]
        updates, new = by_norm.update(slope, at(state), here)
        moved = optax.apply_updates(here, updates)
        put = lambda old, new, index=index: old.at[index].set(new) if old.shape[:1] == (n,) else new
        dense, state = jax.tree.map(put, dense, moved), jax.tree.map(put, state, new)
        y = jax.tree.map(lambda value, slope: value - 0.1 * slope, y, g_y)
        u = jax.tree.map(lambda value, h, f: value - 0.1 * (h - f), u, g_yy_u, f_y)
    np.testing.assert_allclose(found.x["rows"].rows, dense["rows"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(flat(found.x["shared"]), flat(dense["shared"]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(flat(found.state.carried), flat(state), rtol=1e-10, atol=1e-12)


def test_every_order_takes_optimizers():
    kind = wior.WiORBO
    for order in ("herding", "flip-flop", "shuffle-once", "independent"):
        one = ran(kind, made(kind, outer_lr=ADAM), order=order, seed=3)
        plain = ran(kind, made(kind, outer_lr=optax.sgd(0.05)), order=order, seed=3)
        assert np.isfinite(flat(one.x)).all()
        assert not np.allclose(flat(one.x), flat(plain.x))


def test_a_sweep_is_its_runs_with_optimizers_in_the_grid():
    problem, x, y, batch_size = case_of(wior.WiORBO)
    rates, others = [ADAM, optax.adam(0.1), 0.05], [0.05, 0.1]
    found = wior.sweep(
        problem, made(wior.WiORBO), x, y, grid={"outer_lr": rates, "inner_lr": others}, seeds=[0, 3],
        batch_size=batch_size, steps=STEPS, record_every=STEPS,
    )  # fmt: skip
    for place, (outer_lr, inner_lr) in enumerate([(one, other) for one in rates for other in others]):
        algorithm = made(wior.WiORBO, outer_lr=outer_lr, inner_lr=inner_lr)
        one = wior.solve(problem, algorithm, x, y, batch_size=batch_size, steps=STEPS, seed=3)
        swept = jax.tree.map(lambda leaf, i=place: leaf[i, 1], (found.x, found.y))
        np.testing.assert_allclose(flat(swept), flat((one.x, one.y)), rtol=1e-10, atol=1e-12)


def test_another_optimizer_is_another_run(tmp_path):
    kind, folder = wior.WiORBO, tmp_path / "run"
    ran(kind, made(kind, outer_lr=optax.adam(0.03)), checkpoint=folder)
    ran(kind, made(kind, outer_lr=optax.adam(0.03)), checkpoint=folder)  # equal, though another object
    with pytest.raises(wior.AnotherRunError, match="outer_lr"):
        ran(kind, made(kind, outer_lr=optax.adam(0.01)), checkpoint=folder)


def test_what_an_optimizer_reads_is_read_anew():
    global rate
    rate = 0.1
    own = optax.GradientTransformation(
        lambda params: (), lambda slope, state, params: (jax.tree.map(lambda leaf: -rate * leaf, slope), state)
    )
    first = ran(wior.WiORBO, made(wior.WiORBO, outer_lr=own))
    rate = 0.01
    second = ran(wior.WiORBO, made(wior.WiORBO, outer_lr=own))
    assert not np.allclose(flat(first.x), flat(second.x))


@pytest.mark.parametrize(
    ("kind", "field"), [(wior.baselines.StocBiO, "neumann_lr"), (wior.baselines.Reverse, "inner_lr")]
)
def test_what_no_variable_descends_by_is_a_number(kind, field):
    able = ", ".join(dict.fromkeys(kind.moved().values()))
    with pytest.raises(TypeError) as error:
        made(kind, **{field: ADAM})
    assert str(error.value) == (
        f"{field} must be a number or a schedule, got an optimizer of optax: {kind.__name__} does not move a variable "
        f"by it in plain steps; {able} may be optimizers"
    )


def test_every_method_says_what_it_moves():
    for kind in CLASSES:
        fields = {field.name for field in dataclasses.fields(kind)}
        assert "x" in kind.moved()
        assert set(kind.moved().values()) <= fields


def test_a_run_continues_from_its_state_with_its_optimizers():
    algorithm = made(wior.WiORBO, outer_lr=ADAM, inner_lr=CHAIN)
    problem, x, y, batch_size = case_of(wior.WiORBO)
    options = {"batch_size": batch_size, "seed": 3, "order": "herding"}
    whole = wior.solve(problem, algorithm, x, y, steps=11, **options)
    first = wior.solve(problem, algorithm, x, y, steps=5, **options)
    second = wior.solve(problem, algorithm, state=first.state, steps=6, batch_size=batch_size, order="herding")
    for one, other in zip(jax.tree.leaves(second.state), jax.tree.leaves(whole.state), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="arrays, and this run one of"):
        wior.solve(problem, made(wior.WiORBO), state=first.state, steps=6, batch_size=batch_size, order="herding")


def test_a_result_with_optimizers_is_saved_and_loaded(tmp_path):
    found = ran(wior.WiORBO, made(wior.WiORBO, outer_lr=ADAM))
    found.save(tmp_path / "result")
    again = wior.load(tmp_path / "result")
    for one, other in zip(jax.tree.leaves(again.state), jax.tree.leaves(found.state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "optimizer" not in repr(found)


def test_an_optimizer_that_wants_more_is_refused_before_anything_is_compiled():
    with pytest.raises(TypeError, match=r"outer_lr is an optimizer of optax that cannot be used: .* raises TypeError"):
        ran(wior.WiORBO, wior.WiORBO(optax.lbfgs(0.1), 0.1, 0.1))
    summed = optax.GradientTransformation(lambda v: (), lambda g, s, v: (jax.tree.map(jnp.sum, g), s))
    with pytest.raises(ValueError, match="the step of inner_lr, an optimizer of optax, must have the structure"):
        ran(wior.WiORBO, wior.WiORBO(0.1, summed, 0.1))
    growing = optax.GradientTransformation(lambda v: jnp.zeros(1), lambda g, s, v: (g, jnp.zeros(len(s) + 1)))
    with pytest.raises(TypeError, match="adjoint_lr is an optimizer of optax whose state changes its structure"):
        ran(wior.WiORBO, wior.WiORBO(0.1, 0.1, growing))


def in_rows(optimizer, rows, steps=5):
    weighted = lambda x, y, batch: jnp.mean(jnp.sum((y - x - batch) ** 2, 1))
    outer = lambda x, y, batch: jnp.mean(jnp.sum((y - batch) ** 2, 1))
    data = np.random.default_rng(0).normal(size=(12, 3))
    problem = wior.Bilevel(outer, weighted, data, data[:8])
    method = wior.WiORBO(optimizer, 0.1, 0.1)
    return wior.solve(
        problem, method, wior.PerExample(rows), jnp.zeros(3), batch_size=4, steps=steps, order="incremental"
    )


@pytest.mark.parametrize("optimizer", [optax.adafactor(0.1), optax.sm3(0.1)], ids=["adafactor", "sm3"])
def test_an_optimizer_without_a_state_for_each_row_is_refused(optimizer):
    with pytest.raises(TypeError, match=r"cannot move `PerExample` rows: of rows shaped \(8, 3\) it keeps"):
        in_rows(optimizer, jnp.zeros((8, 3)))


def test_a_mask_of_leaves_holds_for_rows_too():
    start = jnp.ones((8, 3))
    everything = lambda tree: jax.tree.map(lambda leaf: leaf.ndim == 2, tree)
    found = in_rows(optax.masked(optax.adam(0.1), everything), start)
    np.testing.assert_array_equal(found.x.rows, in_rows(optax.adam(0.1), start).x.rows)
    nothing = lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 2, tree)
    masked = optax.chain(optax.masked(optax.adam(0.1), nothing), optax.sgd(0.1))
    np.testing.assert_array_equal(in_rows(masked, start).x.rows, in_rows(optax.sgd(0.1), start).x.rows)


def test_multi_steps_may_be_given_as_it_is():
    several = optax.MultiSteps(optax.adam(0.1), 3)
    found = ran(wior.WiORBO, wior.WiORBO(several, 0.1, 0.1))
    expected = ran(wior.WiORBO, wior.WiORBO(several.gradient_transformation(), 0.1, 0.1))
    np.testing.assert_array_equal(flat(found.x), flat(expected.x))


def test_a_key_in_the_state_of_an_optimizer_is_saved(tmp_path):
    noisy = optax.chain(optax.add_noise(0.1, 0.55, jax.random.key(3)), optax.sgd(0.1))
    method = wior.WiORBO(noisy, 0.1, 0.1)
    whole = ran(wior.WiORBO, method)
    ran(wior.WiORBO, method, steps=3, checkpoint=tmp_path)
    resumed = ran(wior.WiORBO, method, checkpoint=tmp_path)
    np.testing.assert_array_equal(flat(resumed.x), flat(whole.x))
