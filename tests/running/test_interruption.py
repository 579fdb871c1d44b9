"""What ends a run early loses nothing: Ctrl-C, errors of callbacks, divergence, saves that fail."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runs
import wior
from wior.algorithms.algorithm import static
from wior.saving import checkpoint as saving


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """A shell starts what it runs in the background with Ctrl-C ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def same_run(a, b):
    for one, other in zip(jax.tree.leaves((a.x, a.y, a.state)), jax.tree.leaves((b.x, b.y, b.state)), strict=True):
        np.testing.assert_array_equal(one, other)
    for name in set(a.history) - {"seconds"}:
        np.testing.assert_array_equal(a.history[name], b.history[name], err_msg=name)


def press_at(step, times=1):
    """A callback that presses Ctrl-C at a step."""

    def report(now, latest):
        if now >= step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return report


def test_ctrl_c_hands_over_the_result_so_far():
    with pytest.raises(wior.Interrupted, match=r"interrupted after step \d+ of 60; .*Nothing was saved") as raised:
        runs.solve(progress=press_at(20))
    result = raised.value.result
    assert result.stopped_by == "interrupt"
    assert 20 <= result.steps < 60
    same = runs.solve(steps=result.steps)
    np.testing.assert_array_equal(result.x["dense"], same.x["dense"])
    np.testing.assert_array_equal(result.state.u["slope"], same.state.u["slope"])
    records = len(result.history["step"])
    np.testing.assert_array_equal(result.history["size"], same.history["size"][:records])
    assert isinstance(raised.value, KeyboardInterrupt)  # what was written for it before still catches it
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_saves_and_the_run_ends_as_if_nothing_had_happened(tmp_path):
    with pytest.raises(wior.Interrupted, match="The same call resumes from the checkpoint in"):
        runs.solve(progress=press_at(11), checkpoint=tmp_path / "run")
    same_run(runs.solve(), runs.solve(checkpoint=tmp_path / "run"))


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt) as raised:
        runs.solve(progress=press_at(11, times=2), checkpoint=tmp_path / "run")
    assert not isinstance(raised.value, wior.Interrupted)
    assert not [path for path in (tmp_path / "run").glob("*") if path.name.isdigit()]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    same_run(runs.solve(), runs.solve(checkpoint=tmp_path / "run"))


def test_ctrl_c_while_a_block_runs():
    def slow(x, y):  # called on the host at every record, so that the run lasts
        return {"size": float(np.sum(np.asarray(y["slope"])))}

    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(wior.Interrupted) as raised:
            runs.solve(metrics=slow, steps=2**30, record_every=2**12, seconds=30)
    finally:
        timer.cancel()
    result = raised.value.result
    assert result.steps > 0
    assert np.isfinite(result.x["dense"]).all()


def test_a_handler_of_the_callers_own_stays():
    pressed = []
    previous = signal.signal(signal.SIGINT, lambda *about: pressed.append(about))
    try:
        result = runs.solve(progress=press_at(20))
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, previous)
    assert pressed
    assert result.stopped_by == "steps"


def test_runs_in_other_threads_get_no_signals():
    done = []
    thread = threading.Thread(target=lambda: done.append(runs.solve().stopped_by))
    thread.start()
    thread.join()
    assert done == ["steps"]


def test_ctrl_c_inside_a_run_inside_of_metrics():
    def metrics(x, y):
        runs.solve(steps=5, metrics=None, record_every=5, progress=press_at(5))
        return {"size": float(np.sum(np.asarray(y["slope"])))}

    with pytest.raises(wior.Interrupted):
        runs.solve(metrics=metrics, progress=False)


def test_an_error_of_a_callback_has_the_result_and_is_saved(tmp_path):
    def report(step, latest):
        if step >= 11:
            raise LookupError("my own")

    with pytest.raises(LookupError, match="my own") as raised:
        runs.solve(progress=report, checkpoint=tmp_path / "run")
    assert raised.value.result.steps >= 11
    assert raised.value.result.stopped_by == "error"
    assert "step" in raised.value.__notes__[0]
    assert [path for path in (tmp_path / "run").glob("*") if path.name.isdigit()]
    same_run(runs.solve(), runs.solve(checkpoint=tmp_path / "run"))


def test_metrics_that_fail_once(tmp_path):
    calls = []

    def metrics(x, y):
        calls.append(0)
        if len(calls) == 6:  # a trace and the names, then the records at 0, 7, 14, 21
            raise LookupError("the disk is away")
        return {"size": float(np.sum(np.asarray(y["slope"]) ** 2)), "first": float(x["dense"][0])}

    with pytest.raises(LookupError) as raised:
        runs.solve(metrics=metrics, checkpoint=tmp_path / "run")
    assert raised.value.result.steps == 21
    np.testing.assert_array_equal(raised.value.result.history["step"], [0, 7, 14])
    resumed = runs.solve(metrics=metrics, checkpoint=tmp_path / "run")
    same_run(runs.solve(metrics=metrics), resumed)  # the record that failed is there


def test_a_callback_that_raises_keyboard_interrupt(tmp_path):
    def report(step, latest):
        if step >= 11:
            raise KeyboardInterrupt

    with pytest.raises(wior.Interrupted) as raised:
        runs.solve(progress=report)
    assert raised.value.result.steps >= 11


def test_an_error_that_takes_no_attributes():
    class Closed(Exception):
        def __setattr__(self, name, value):
            if name == "result":
                raise AttributeError(name)
            super().__setattr__(name, value)

    def report(step, latest):
        raise Closed

    with pytest.raises(Closed):
        runs.solve(progress=report)


def test_divergence_hands_over_the_last_finite_state():
    rates = wior.WiORBO(outer_lr=0.01, inner_lr=50.0, adjoint_lr=0.03)
    with pytest.raises(wior.NonFiniteError, match=r"wior\.check\(") as raised:
        runs.solve(algorithm=rates, record_every=1)
    error = raised.value
    assert error.result.steps == error.step - 1
    assert error.result.stopped_by == "divergence"
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(error.result.state))
    np.testing.assert_array_equal(error.result.history["step"], np.arange(error.step))
    same = runs.solve(algorithm=rates, steps=error.step - 1, record_every=1)
    np.testing.assert_array_equal(error.result.y["slope"], same.y["slope"])


def test_a_checkpoint_is_mentioned_only_where_there_is_one(tmp_path):
    rates = wior.WiORBO(outer_lr=0.01, inner_lr=50.0, adjoint_lr=0.03)
    with pytest.raises(wior.NonFiniteError) as raised:
        runs.solve(algorithm=rates, checkpoint=tmp_path / "run")
    assert "can be resumed" not in str(raised.value)
    with pytest.raises(wior.NonFiniteError, match="can be resumed"):
        runs.solve(algorithm=rates, checkpoint=wior.Checkpoint(tmp_path / "other", every_steps=1), record_every=1)


def test_a_sweep_hands_over_what_it_has():
    x0, y0 = runs.start()
    options = {"seeds": 2, "batch_size": 3, "metrics": runs.metrics, "record_every": 10, "steps": 40}
    swept = lambda **more: wior.sweep(runs.problem(), runs.ALGORITHM, x0, y0, **options, **more)
    schedule = lambda step: 0.02
    grid = {"outer_lr": [0.01, schedule, 0.03]}  # two programs: the numbers, and the schedule
    whole = swept(grid=grid)
    seen = []

    def report(step, latest):
        seen.append(step)
        if seen.count(40) and step == 20:  # in the second program
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(wior.Interrupted) as raised:
        swept(grid=grid, progress=report, best_by="size")
    result = raised.value.result
    assert result.settings == whole.settings
    np.testing.assert_array_equal(result.x["dense"][[0, 2]], whole.x["dense"][[0, 2]])
    np.testing.assert_array_equal(result.history["size"][[0, 2]], whole.history["size"][[0, 2]])
    np.testing.assert_array_equal(result.history["size"][1, :, :3], whole.history["size"][1, :, :3])
    assert np.isnan(result.history["size"][1, :, 3:]).all()
    assert result.best is None
    with pytest.raises(wior.Interrupted) as raised:
        swept(grid=grid, progress=press_at(10))
    assert raised.value.result.settings == [whole.settings[0], whole.settings[2]]


@dataclasses.dataclass(frozen=True)
class Own(wior.WiORBO):
    """A method of one's own with a function among its fields."""

    helper: object = static(None, lambda name, value: None)


def test_a_function_among_the_fields_of_a_method(tmp_path):
    helped = lambda scale: Own(0.01, 0.02, 0.03, helper=lambda y: scale * y)
    first = runs.solve(algorithm=helped(1.0), checkpoint=tmp_path / "run", steps=20)
    again = runs.solve(algorithm=helped(1.0), checkpoint=tmp_path / "run", steps=20)
    np.testing.assert_array_equal(first.x["dense"], again.x["dense"])
    with pytest.raises(wior.AnotherRunError, match=r"its algorithm\.helper is another function"):
        runs.solve(algorithm=helped(2.0), checkpoint=tmp_path / "run", steps=20)


def test_what_cannot_be_described_is_said_before_the_first_step(tmp_path):
    steps = []
    with pytest.raises(TypeError, match=r"Own\.helper is <object .*run without checkpoint"):
        runs.solve(
            algorithm=Own(0.01, 0.02, 0.03, helper=object()),
            checkpoint=tmp_path / "run",
            progress=lambda *at: steps.append(at),
        )
    assert not steps


def test_a_save_that_fails_in_any_way_costs_no_result(tmp_path, monkeypatch):
    def broken(self, saved):
        raise TypeError("Object of type function is not JSON serializable")

    monkeypatch.setattr(saving.Store, "_write", broken)
    with pytest.warns(
        UserWarning, match=r"cannot be written at step 60: Object of type function .* its result is complete"
    ):
        result = runs.solve(checkpoint=tmp_path / "run")
    monkeypatch.undo()
    same_run(runs.solve(), result)


SCRIPT = """
    import signal, sys
    import jax.numpy as jnp, numpy as np, wior
    signal.signal(signal.SIGINT, signal.default_int_handler)
    A = np.random.default_rng(0).normal(size=(64, 3))
    f = lambda x, y, b: jnp.mean((b @ y - 1) ** 2) + 0.1 * jnp.sum(x * x)
    g = lambda x, y, b: jnp.mean((b @ y + x[0]) ** 2) + 0.1 * jnp.sum(y * y)
    say = lambda step, latest: print("at", step, flush=True)
    try:
        wior.solve(wior.Bilevel(f, g, A, A), wior.WiORBO(1e-3, 1e-3, 1e-3), jnp.ones(1), jnp.ones(3), batch_size=4,
                   steps=10**9, record_every=10**6, progress=say, checkpoint=sys.argv[1])
    except wior.Interrupted as stop:
        print("reached", stop.result.steps, stop, flush=True)
"""


def test_a_process_that_receives_ctrl_c_saves_itself(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "saved")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout.readline().startswith("at ")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=60)[0].splitlines()[-1]
    assert process.returncode == 0
    reached = int(printed.split()[1])
    assert "resumes from the checkpoint" in printed
    assert [int(path.name) for path in (tmp_path / "saved").glob("*") if path.name.isdigit()] == [reached]


def test_metrics_that_cannot_be_compiled_are_called():
    x0, y0 = runs.start()
    own = {
        "masked": lambda x, y: {"mean": jnp.mean(y["slope"][y["slope"] > 0])},
        "listed": lambda x, y: {"mean": [1.0, 2.0][int(y["slope"][0] > 0)]},
        "branched": lambda x, y: {"mean": 1.0 if y["slope"][0] > 0 else 2.0},
        "numpy": lambda x, y: {"mean": np.median(y["slope"])},
    }
    for name, metrics in own.items():
        found = runs.solve(metrics=metrics, steps=14).history["mean"]
        assert found.shape == (3,), name
        assert found[0] == pytest.approx(float(metrics(x0, y0)["mean"])), name


def test_metrics_that_fail_raise_their_own_error():
    with pytest.raises(KeyError, match="missing"):
        runs.solve(metrics=lambda x, y: {"size": y["missing"]})


def test_metrics_that_fail_at_the_last_step(tmp_path):
    calls = []

    def metrics(x, y):
        calls.append(0)
        if len(calls) == 6:  # a trace and the names, then the records at 0, 4, 8 and 10
            raise LookupError("the disk is away")
        return {"size": float(np.sum(np.asarray(y["slope"]) ** 2)), "first": float(x["dense"][0])}

    options = {"metrics": metrics, "steps": 10, "record_every": 4}
    with pytest.raises(LookupError):
        runs.solve(**options, checkpoint=tmp_path / "run")
    resumed = runs.solve(**options, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(resumed.history["step"], [0, 4, 8, 10])


def test_an_error_inside_the_first_block(tmp_path):
    def host(value):
        raise LookupError("the host is away")

    def inner(x, y, batch):
        shift = y["shift"][0]
        scale = jax.pure_callback(host, jax.ShapeDtypeStruct((), shift.dtype), jax.lax.stop_gradient(shift))
        return runs.inner(x, y, batch) + scale * shift

    problem = runs.problem()
    own = wior.Bilevel(runs.outer, inner, problem.outer_data, problem.inner_data)
    with pytest.raises(Exception, match="the host is away") as raised:
        runs.solve(problem=own, checkpoint=tmp_path / "run")
    assert raised.value.result.steps == 0


def test_a_changed_derivative_is_another_run(tmp_path):
    held = {"scale": 1.0}
    bent = jax.custom_jvp(jnp.tanh)
    bent.defjvps(lambda tangent, value, y: held["scale"] * tangent)
    inner = lambda x, y, batch: runs.inner(x, y, batch) + jnp.sum(bent(y["slope"]))
    problem = runs.problem()
    own = wior.Bilevel(runs.outer, inner, problem.outer_data, problem.inner_data)
    runs.solve(problem=own, checkpoint=tmp_path / "run", steps=10)
    runs.solve(problem=own, checkpoint=tmp_path / "run", steps=10)
    held["scale"] = 2.0
    with pytest.raises(wior.AnotherRunError, match=r"its losses\.inner is another function"):
        runs.solve(problem=own, checkpoint=tmp_path / "run", steps=10)
