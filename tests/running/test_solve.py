"""The driver: history, limits, errors, and that one program serves every length."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import runs
import wior
from wior.orders import BY_NAME, Herding, Incremental, Independent, RandomReshuffling, ShuffleOnce
from wior.running import block
from wior.running.plan import make_plan


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_history_has_the_promised_entries_and_exact_counts():
    result = runs.solve()
    history = result.history
    assert list(history) == [
        "step", "outer_passes", "inner_passes", "seconds", "outer_gradients", "inner_gradients", "jacobian_products",
        "hessian_products", "backward_passes", "first", "size",
    ]  # fmt: skip
    steps = np.array([0, 7, 14, 21, 28, 35, 42, 49, 56, 60])
    np.testing.assert_array_equal(history["step"], steps)
    np.testing.assert_array_equal(history["outer_gradients"], 3 * steps)
    for name in ("inner_gradients", "jacobian_products", "hessian_products"):
        np.testing.assert_array_equal(history[name], 5 * steps)
    np.testing.assert_array_equal(history["backward_passes"], 3 * steps)
    np.testing.assert_allclose(history["outer_passes"], 3 * steps / runs.M)
    np.testing.assert_allclose(history["inner_passes"], 5 * steps / runs.N)
    assert np.all(np.diff(history["seconds"]) > 0)
    assert history["first"][-1] == result.x["dense"][0]
    assert result.stopped_by == "steps"
    assert result.compile_seconds > 0


def test_an_epoch_is_the_least_common_multiple_of_the_two_passes():
    # batches of 3 over 13 end with a pass every 13 steps, batches of 5 over 17 every 17
    result = runs.solve(steps=None, epochs=2, record_every=1000)
    assert result.steps_per_epoch == 13 * 17
    assert result.steps == 2 * 13 * 17
    # 64 divides neither 5000 nor 40000, but both passes end together after 625 steps
    data = {name: np.zeros((n, 1), np.float32) for name, n in (("outer", 5000), ("inner", 40000))}
    problem = wior.Bilevel(runs.outer, runs.inner, data["outer"], data["inner"])
    plan = make_plan(problem, runs.ALGORITHM, (RandomReshuffling(),) * 2, (64, 64), 100)
    assert plan.steps_in_epoch == 625


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id=name, marks=[] if name in ("random-reshuffling", "herding") else [pytest.mark.slow])
        for name, order in BY_NAME.items()
    ],
)
def test_the_numbers_do_not_depend_on_where_the_run_is_cut(order):
    whole = runs.solve(order=order, record_every=60)
    cut = runs.solve(order=order, record_every=1)
    assert same(whole.state, cut.state)


def test_levels_may_have_different_orders():
    mixed = runs.solve(order=(ShuffleOnce(), Independent()))
    assert not same(mixed.state, runs.solve(order=ShuffleOnce()).state)
    assert not same(mixed.state, runs.solve(order=Independent()).state)
    assert same(mixed.state, runs.solve(order=(ShuffleOnce(), Independent())).state)


def test_another_step_size_data_or_length_is_the_same_program():
    runs.solve(steps=60)
    compiled = block.one_run._cache_size()
    runs.solve(steps=33, record_every=7)
    runs.solve(algorithm=wior.WiORBO(0.5e-2, 0.01, 0.01, radius=1.0), seed=9)
    runs.solve(problem=runs.problem(seed=5))
    assert block.one_run._cache_size() == compiled


def test_x0_and_y0_survive_the_run():
    x0, y0 = runs.start()
    before = jax.tree.map(np.array, (x0, y0))
    wior.solve(runs.problem(), runs.ALGORITHM, x0, y0, batch_size=4, steps=3)
    assert same(before, (x0, y0))


def test_the_adjoint_is_projected_when_an_epoch_starts_and_only_then():
    """With three examples and batches of one, before steps 0, 3 and 6; u is outside of the ball before the others too."""
    examples, radius, steps = 3, 0.25, 8
    data = {"a": np.random.default_rng(0).normal(size=(examples, 2))}
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean(b["a"] @ y) * 100, lambda x, y, b: 0.5 * jnp.sum((y - x) ** 2), data, data
    )
    algorithm = wior.WiORBO(0.1, 0.1, 0.5, radius=radius)
    result = wior.solve(problem, algorithm, jnp.zeros(2), jnp.zeros(2), order=Incremental(), steps=steps, batch_size=1)
    u = np.zeros(2)
    for step in range(steps):
        if step % examples == 0:
            u = u * min(1, radius / max(np.linalg.norm(u), 1e-300))
        f_y = 100 * data["a"][step % examples]
        u = u - 0.5 * (u - f_y)
        assert np.linalg.norm(u) > 2 * radius
    np.testing.assert_allclose(result.state.u, u, rtol=1e-12)


def test_seconds_end_a_run():
    result = runs.solve(steps=10**9, seconds=0.2, record_every=10**6)
    assert result.stopped_by == "seconds"
    assert 0.2 <= result.history["seconds"][-1] < 5
    assert result.history["step"][-1] == result.steps < 10**9


def test_a_tolerance_ends_a_run_at_a_record():
    whole = runs.solve(steps=200, record_every=5)
    target = float(whole.history["size"][10])
    first = int(np.argmax(whole.history["size"] <= target))
    stopped = runs.solve(steps=200, record_every=5, tolerance=("size", target))
    assert stopped.stopped_by == "tolerance"
    assert stopped.steps == whole.history["step"][first]


def test_metrics_that_go_through_numpy_are_called_as_they_are():
    result = runs.solve(metrics=lambda x, y: {"size": float(np.sum(np.asarray(y["slope"]) ** 2))})
    np.testing.assert_allclose(result.history["size"], runs.solve().history["size"], rtol=1e-12)


def test_progress_shows_steps_and_metrics(capsys):
    runs.solve(progress=True)
    shown = capsys.readouterr().err
    assert "WiORBO, RandomReshuffling" in shown
    assert "60/60" in shown
    assert "size" in shown


def test_the_library_is_silent_by_default(capsys):
    runs.solve()
    assert capsys.readouterr() == ("", "")


def test_schedules_are_functions_of_the_step():
    halving = optax.exponential_decay(0.02, transition_steps=1, decay_rate=0.5)
    constant = runs.solve(steps=1, algorithm=wior.WiORBO(0.01, 0.02, 0.03))
    decayed = runs.solve(steps=1, algorithm=wior.WiORBO(0.01, halving, 0.03))
    np.testing.assert_allclose(decayed.y["slope"], constant.y["slope"], rtol=1e-6)
    # after many halvings y stands still
    late = runs.solve(steps=80, record_every=20, algorithm=wior.WiORBO(0.01, halving, 0.03)).history["size"]
    assert late[-1] == late[-2] != late[0]


@pytest.mark.parametrize("blow_up", ["inner_lr", "adjoint_lr", "outer_lr"])
def test_a_non_finite_state_names_the_step_and_the_variable(blow_up):
    rates = {"outer_lr": 0.01, "inner_lr": 0.01, "adjoint_lr": 0.01} | {blow_up: 1e3}
    algorithm = wior.WiORBO(**rates)
    with pytest.raises(wior.NonFiniteError) as raised:
        runs.solve(algorithm=algorithm, steps=5000, record_every=5000)
    step, variables = raised.value.step, raised.value.variables
    assert f"in step {step}" in str(raised.value)
    before = runs.solve(algorithm=algorithm, steps=step - 1, record_every=5000)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(before.state))
    with pytest.raises(wior.NonFiniteError):
        runs.solve(algorithm=algorithm, steps=step, record_every=5000)
    assert set(variables) <= {"x", "y", "u"}
    assert runs.ALGORITHM.step_sizes[variables[0]] in str(raised.value)


def test_independent_streams_of_the_control_are_five():
    result = runs.solve(algorithm=wior.baselines.WiRBO(0.01, 0.02, 0.03), order=Independent())
    assert result.history["backward_passes"][-1] == 7 * 60
    assert result.history["outer_gradients"][-1] == 2 * 3 * 60
    np.testing.assert_allclose(result.history["inner_passes"][-1], 3 * 5 * 60 / runs.N)


BAD = {
    "batch size zero": ({"batch_size": 0}, ValueError, "batch_size must be a positive integer, got 0"),
    "batch size negative": ({"batch_size": (4, -2)}, ValueError, "batch_size (inner) must be a positive integer, got -2"),
    "batch size not whole": ({"batch_size": 2.5}, TypeError, "batch_size must be a positive integer, got 2.5"),
    "batch size true": ({"batch_size": True}, TypeError, "batch_size must be a positive integer, got True"),
    "batch sizes three": ({"batch_size": (1, 2, 3)}, ValueError, "batch_size must be one value or a pair (outer, inner), got 3 values"),
    "steps and epochs": ({"epochs": 2}, ValueError, "give either steps or epochs, got steps=60 and epochs=2"),
    "neither": ({"steps": None}, ValueError, "give either steps or epochs, got steps=None and epochs=None"),
    "steps zero": ({"steps": 0}, ValueError, "steps must be a positive integer, got 0"),
    "epochs not whole": ({"steps": None, "epochs": 1.5}, TypeError, "epochs must be a positive integer, got 1.5"),
    "record_every zero": ({"record_every": 0}, ValueError, "record_every must be a positive integer, got 0"),
    "order a string": ({"order": "sorted"}, ValueError, "order must be one of 'independent', 'incremental', 'shuffle-once'"),
    "order a number": ({"order": 3}, TypeError, "order must be one of wior.orders"),
    "orders a list": ({"order": [Herding(), Herding()]}, TypeError, "a pair (outer, inner) is a tuple: order=(Herding("),
    "batch sizes a list": ({"batch_size": [3, 5]}, TypeError, "a pair (outer, inner) is a tuple: batch_size=(3, 5)"),
    "order a class": ({"order": Herding}, TypeError, "did you mean Herding()?"),
    "orders three": ({"order": (Herding(),) * 3}, ValueError, "a pair (outer, inner), got 3 values"),
    "seed a float": ({"seed": 0.5}, TypeError, "seed must be an integer, got 0.5"),
    "seconds negative": ({"seconds": -1.0}, ValueError, "seconds must be a positive finite number, got -1.0"),
    "tolerance unknown": ({"tolerance": ("loss", 1.0)}, ValueError, "one of ['first', 'size']; got ('loss', 1.0)"),
    "tolerance nan": ({"tolerance": ("size", float("nan"))}, ValueError, "tolerance must have a finite value"),
    "metrics not a dict": ({"metrics": lambda x, y: 1.0}, TypeError, "metrics must return a dictionary of numbers, such as {'loss': ...}; it returns"),
    "metric an array": ({"metrics": lambda x, y: {"a": y["slope"]}}, ValueError, "metrics['a'] must be one number"),
    "metric taken": ({"metrics": lambda x, y: {"step": 1.0}}, ValueError, "metrics may not use the name 'step'"),
    "metrics no function": ({"metrics": 3}, TypeError, "metrics must be a function, got 3"),
    "problem": ({"problem": "bilevel"}, TypeError, "problem must be one of wior's problems"),
    "algorithm": ({"algorithm": "WiORBO"}, TypeError, "algorithm must be one of wior's algorithms"),
    "algorithm a class": (
        {"algorithm": wior.WiORBO}, TypeError,
        "algorithm is the class WiORBO; give one with its step sizes: WiORBO(outer_lr=0.1, inner_lr=0.1, "
        "adjoint_lr=0.1)",
    ),
    "metrics of one argument": ({"metrics": lambda state: {}}, TypeError, "metrics is called as metrics(x, y)"),
    "wrong class": (
        {"algorithm": wior.WiORMinimax(0.1, 0.1)}, TypeError, "WiORMinimax solves Minimax problems; the problem given is Bilevel",
    ),
    "checkpoint": ({"checkpoint": 3}, TypeError, "checkpoint must be a path or a wior.Checkpoint, got 3"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_arguments_are_named_before_anything_is_compiled(options, kind, message):
    compiled = block.one_run._cache_size()
    with pytest.raises(kind, match=re.escape(message)):
        runs.solve(**options)
    assert block.one_run._cache_size() == compiled


def test_a_minimax_problem_takes_one_order_and_one_batch_size():
    problem = wior.Minimax(lambda x, y, b: jnp.mean(b) * jnp.sum(x * y), np.ones((4, 1)))
    for options in ({"order": (Herding(), Herding())}, {"batch_size": (2, 2)}):
        with pytest.raises(ValueError, match="one data set"):
            wior.solve(problem, wior.WiORMinimax(0.1, 0.1), jnp.ones(2), jnp.ones(2), steps=1, **options)


def test_float32_stays_float32():
    x0, y0 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), runs.start())
    problem = runs.problem()
    result = wior.solve(problem, runs.ALGORITHM, x0, y0, batch_size=4, steps=5)
    assert {leaf.dtype for leaf in jax.tree.leaves(result.state)} == {jnp.dtype("float32")}


def test_a_start_that_takes_its_type_from_a_number_is_no_second_program():
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean(b @ y), lambda x, y, b: jnp.sum((y - x) ** 2), *[np.ones((4, 3))] * 2
    )
    before = block.one_run._cache_size()
    wior.solve(problem, wior.WiORBO(0.1, 0.1, 0.1), jnp.full(3, -1.0), jnp.zeros(3), steps=10, batch_size=2)
    assert block.one_run._cache_size() == before + 1


def test_a_metric_that_is_no_number_is_recorded_as_such():
    history = runs.solve(metrics=lambda x, y: {"first": jnp.nan * x["dense"][0], "size": 1.0}).history
    assert np.isnan(history["first"]).all()


def test_programs_are_given_up_before_there_is_no_room_for_more(monkeypatch):
    first = runs.solve()
    kept = block.one_run._cache_size()
    again = runs.solve()
    assert block.one_run._cache_size() == kept
    monkeypatch.setattr(block, "MOST_MAPS", 0)
    third = runs.solve()
    assert block.one_run._cache_size() == 1
    for result in (again, third):
        np.testing.assert_array_equal(result.y["slope"], first.y["slope"])


def swept(grid, **options):
    x0, y0 = runs.start()
    options = {"batch_size": (3, 5), "steps": 14, "record_every": 7, "metrics": runs.metrics, "seeds": [3, 5]} | options
    return wior.sweep(runs.problem(), options.pop("algorithm", runs.ALGORITHM), x0, y0, grid=grid, **options)


def test_a_sweep_takes_a_list_of_settings():
    settings = [{"outer_lr": 0.01, "inner_lr": 0.02}, {"outer_lr": 0.03, "inner_lr": 0.01}]  # no product
    listed = swept(settings, best_by="size")
    assert listed.settings == settings
    assert listed.best == settings[listed.best_index]
    for i, setting in enumerate(settings):
        product = swept({name: [value] for name, value in setting.items()} | {"adjoint_lr": [0.03, 0.01]})
        for name in ("size", "first"):  # 0.03 is the algorithm's own
            np.testing.assert_allclose(listed.history[name][i], product.history[name][0], rtol=1e-12)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([], "grid, as a list, must be at least one setting"),
        ([{"outer_lr": 0.1}, {"inner_lr": 0.1}], "all of the same names"),
        ([{"outer_lr": 0.1}, {"outer_lr": 0.1, "inner_lr": 0.1}], "all of the same names"),
        ([{"momentum": 0.1}], "grid names 'momentum', which WiORBO does not have"),
        ([{"outer_lr": -0.1}], "outer_lr must be"),
    ],
)
def test_a_list_of_settings_that_cannot_be_run_is_refused(grid, message):
    with pytest.raises(ValueError, match=message):
        swept(grid)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["goal"], meta_fields=["power"])
@dataclasses.dataclass(frozen=True, eq=False)
class Judge:
    """Metrics that hold data."""

    goal: jax.Array
    power: int

    def __call__(self, x, y):
        return {"apart": jnp.sum(jnp.abs(y["slope"] - self.goal) ** self.power), "first": x["dense"][0]}


def test_metrics_may_be_a_tree_of_data():
    goal = jnp.arange(float(runs.D))
    judge = Judge(goal, 3)
    settings = [{"outer_lr": 0.01}, {"outer_lr": 0.03}]
    together = swept(settings, metrics=judge, side_by_side=True)
    in_turn = swept(settings, metrics=judge, side_by_side=False)
    for name in ("apart", "first"):
        assert together.history[name].shape == (2, 2, 3)
        np.testing.assert_allclose(in_turn.history[name], together.history[name], rtol=1e-12)
    expected = np.sum(np.abs(together.y["slope"] - np.asarray(goal)) ** 3, -1)
    np.testing.assert_allclose(together.final("apart"), expected, rtol=1e-12)
    alone = runs.solve(steps=14, metrics=judge)
    np.testing.assert_allclose(alone.history["apart"], together.history["apart"][0, 0], rtol=1e-12)
    other = runs.solve(steps=14, metrics=Judge(goal + 1, 3))  # other data, not those of before
    assert other.history["apart"][0] != alone.history["apart"][0]


def test_progress_may_be_a_function():
    for run in (runs.solve, functools.partial(swept, [{"outer_lr": 0.01}, {"outer_lr": 0.03}])):
        told = []
        run(steps=14, progress=lambda step, latest, told=told: told.append((step, latest)))
        steps = [step for step, _ in told]
        assert steps == sorted(steps)
        assert steps[0] > 0
        assert steps[-1] == 14
        assert len(set(steps)) > 1
        assert all(set(latest) == {"size", "first"} for _, latest in told)
