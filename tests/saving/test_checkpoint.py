"""Stopped and started again, a run ends with the same numbers, and never with another run's; `test_faults.py` kills it."""

import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runs
import wior
from wior.orders import BY_NAME, Herding, RandomReshuffling

TIMED = ("seconds",)


def same_run(a, b):
    for x, y in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        np.testing.assert_array_equal(x, y)
    assert list(a.history) == list(b.history)
    for name in a.history:
        if name not in TIMED:
            np.testing.assert_array_equal(a.history[name], b.history[name], err_msg=name)


@pytest.mark.parametrize("order", BY_NAME.values(), ids=BY_NAME)
def test_resume_inside_a_pass_is_bit_identical(order, tmp_path):
    whole = runs.solve(order=order)
    # 23 steps of 3 and of 5 end inside a pass at both levels
    runs.solve(order=order, steps=23, checkpoint=tmp_path / "run")
    resumed = runs.solve(order=order, checkpoint=tmp_path / "run")
    for x, y in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(x, y)


@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stop=st.integers(1, 59), order=st.sampled_from([RandomReshuffling(), Herding(), Herding(balance="mean")]))
def test_resume_at_any_step(tmp_path, stop, order):
    folder = tmp_path / f"{stop}-{order}"
    shutil.rmtree(folder, ignore_errors=True)
    every = wior.Checkpoint(folder, every_steps=stop, keep=1000)
    whole = runs.solve(order=order, checkpoint=every)
    # what is left after the first save is lost
    for step in folder.iterdir():
        if step.name.isdigit() and int(step.name) > stop:
            shutil.rmtree(step)
    same_run(runs.solve(order=order, checkpoint=every), whole)


def test_a_conditional_run_under_herding_resumes(tmp_path):
    rng = np.random.default_rng(0)
    problem = wior.ConditionalBilevel(
        lambda x, y, b: jax.numpy.mean((b @ y) ** 2) + jax.numpy.sum(x**2),
        lambda x, y, b: jax.numpy.mean((b @ y - b @ x[:2] - 1) ** 2) + jax.numpy.sum(y**2),
        rng.normal(size=(7, 2)), rng.normal(size=(7, 5, 2)), counts=np.array([5, 3, 1, 2, 5, 4, 5]),
    )  # fmt: skip
    run = lambda **options: wior.solve(
        problem, wior.WiORCBO(0.05, 0.05, 0.05, inner_epochs=2), np.ones(3), np.zeros(2),
        order=Herding(), batch_size=(2, 2), record_every=50, **options,
    )  # fmt: skip
    whole = run(steps=40)
    run(steps=17, checkpoint=tmp_path / "run")
    resumed = run(steps=40, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(whole.x, resumed.x)


def test_a_finished_run_is_not_run_again(tmp_path):
    first = runs.solve(checkpoint=tmp_path / "run")
    again = runs.solve(checkpoint=tmp_path / "run")
    same_run(first, again)
    assert again.history["seconds"][-1] == first.history["seconds"][-1]


def test_a_sweep_resumes(tmp_path):
    x0, y0 = runs.start()
    run = lambda **options: wior.sweep(
        runs.problem(), runs.ALGORITHM, x0, y0, grid={"outer_lr": [0.01, 0.02]}, seeds=2, batch_size=3,
        metrics=runs.metrics, record_every=10, **options,
    )  # fmt: skip
    whole = run(steps=40)
    run(steps=20, checkpoint=tmp_path / "run")
    resumed = run(steps=40, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(whole.x["dense"], resumed.x["dense"])
    np.testing.assert_array_equal(whole.history["size"], resumed.history["size"])
    np.testing.assert_array_equal(whole.history["inner_gradients"], resumed.history["inner_gradients"])


def saved_steps(folder):
    return [int(step.name) for step in folder.glob("*") if step.name.isdigit()]


DIFFERENT = {
    "algorithm": ({"algorithm": wior.baselines.WiRBO(0.01, 0.02, 0.03)}, "algorithm.name is 'WiORBO', here it is 'WiRBO'"),
    "step size": ({"algorithm": wior.WiORBO(0.5, 0.02, 0.03, radius=2.0)}, "algorithm.outer_lr is 0.01, here it is 0.5"),
    "data": ({"problem": runs.problem(seed=8)}, "its data."),
    "order": ({"order": Herding()}, "its orders is"),
    "batch": ({"batch_size": 4}, "its batch_size is"),
    "seed": ({"seed": 4}, "its seed is 3, here it is 4"),
    "loss": (
        {"problem": wior.Bilevel(lambda x, y, b: 2 * runs.outer(x, y, b), runs.inner, runs.problem().outer_data,
                                 runs.problem().inner_data)}, "its losses.outer is",
    ),
    "metrics": ({"metrics": lambda x, y: {"size": 0.0}}, "its metrics.names is ['first', 'size'], here it is ['size']"),
    "what metrics compute": (
        {"metrics": lambda x, y: {name: 2 * value for name, value in runs.metrics(x, y).items()}},
        "its metrics.program is another function",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    runs.solve(checkpoint=folder)
    return folder


@pytest.mark.parametrize(("options", "message"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_folder_of_another_run_is_refused_and_kept(finished, options, message):
    with pytest.raises(ValueError, match="belongs to another run") as raised:
        runs.solve(checkpoint=finished, **options)
    assert message in str(raised.value)
    assert str(finished) in str(raised.value)
    runs.solve(checkpoint=finished)


def test_an_array_inside_a_helper_makes_another_run(tmp_path):
    def helped(array):
        helper = jax.jit(lambda y: jnp.sum(y["slope"] * array))
        data = runs.problem()
        inner = lambda x, y, batch: runs.inner(x, y, batch) + helper(y)
        return wior.Bilevel(runs.outer, inner, data.outer_data, data.inner_data)

    first = runs.solve(problem=helped(np.arange(4.0)), checkpoint=tmp_path / "run", steps=10)
    again = runs.solve(problem=helped(np.arange(4.0)), checkpoint=tmp_path / "run", steps=10)
    np.testing.assert_array_equal(first.x["dense"], again.x["dense"])
    with pytest.raises(wior.AnotherRunError, match=r"its losses\.inner is another function"):
        runs.solve(problem=helped(np.asarray([0.0, 1.0, 2.0, 4.0])), checkpoint=tmp_path / "run", steps=10)


def test_a_checkpoint_past_the_end_is_refused(finished):
    with pytest.raises(ValueError, match=re.escape("is at step 60, past the 20 steps asked for")):
        runs.solve(checkpoint=finished, steps=20)


def damage(folder, step):
    """Cuts every array file of a save short."""
    for path in (folder / str(step)).rglob("*"):
        if path.is_file() and path.stat().st_size > 40:
            path.write_bytes(path.read_bytes()[:20])


def test_a_damaged_save_falls_back_to_the_one_before_and_says_so(tmp_path):
    every = wior.Checkpoint(tmp_path / "run", every_steps=20)
    whole = runs.solve(checkpoint=every)
    damage(tmp_path / "run", 60)
    with pytest.warns(UserWarning, match="resuming from step 40"):
        resumed = runs.solve(checkpoint=every)
    same_run(whole, resumed)


def test_a_damaged_folder_is_an_error_that_names_it(tmp_path):
    runs.solve(checkpoint=tmp_path / "run", steps=5)
    damage(tmp_path / "run", 5)
    with pytest.raises(ValueError, match="is damaged and holds no save that can be read") as raised:
        runs.solve(checkpoint=tmp_path / "run", steps=5)
    assert str(tmp_path / "run") in str(raised.value)


def test_a_file_missing_from_a_save_is_noticed(tmp_path):
    runs.solve(checkpoint=tmp_path / "run", steps=5)
    shutil.rmtree(tmp_path / "run" / "5" / "arrays" / "d")
    with pytest.raises(ValueError, match="is damaged"):
        runs.solve(checkpoint=tmp_path / "run", steps=5)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        ValueError, match=re.escape(f"checkpoint folder {str(tmp_path / 'file' / 'run')!r} cannot be written")
    ):
        runs.solve(checkpoint=tmp_path / "file" / "run")


def test_the_last_finite_checkpoint_stays_usable(tmp_path):
    algorithm = wior.WiORBO(0.01, lambda step: jax.numpy.where(step < 30, 0.02, 1e30), 0.03)
    every = wior.Checkpoint(tmp_path / "run", every_steps=10)
    with pytest.raises(wior.NonFiniteError, match="last finite checkpoint") as raised:
        runs.solve(algorithm=algorithm, checkpoint=every)
    assert raised.value.step >= 31
    saved = max(saved_steps(tmp_path / "run"))
    assert saved >= 30
    resumed = runs.solve(algorithm=algorithm, checkpoint=every, steps=saved)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(resumed.state))


def test_saves_hold_arrays_and_json_only(finished):
    about = json.loads((finished / "60" / "about" / "metadata").read_text())
    assert about["description"]["algorithm"]["name"] == "WiORBO"
    assert about["description"]["algorithm"]["radius"] == 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every_steps": 0}, "every_steps must be"),
        ({"every_seconds": -1.0}, "every_seconds must be"),
        ({"keep": 0}, "keep must be"),
    ],
)
def test_bad_checkpoint_options(options, message):
    with pytest.raises(ValueError, match=message):
        wior.Checkpoint("folder", **options)
