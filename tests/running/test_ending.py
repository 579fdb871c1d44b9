"""Signals that end a program: each acts like Ctrl-C, and none is lost."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import runs
import wior
from wior.running.interruption import SIGNALS, as_ctrl_c, comes_from_interruption

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="Windows has neither the signals nor the timer"
)
LONG = 20.0  # seconds, never reached


@pytest.fixture(autouse=True)
def handlers_are_restored():
    before = {number: signal.getsignal(number) for number in [*SIGNALS, signal.SIGALRM]}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    for number, handler in before.items():
        assert number == signal.SIGINT or signal.getsignal(number) == handler
        signal.signal(number, handler)


def wait():
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("number", SIGNALS)
def test_each_signal_raises_and_gives_its_exit_code(number):
    with as_ctrl_c() as ending:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert ending.code == 128 + number
    assert ending.number == number


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with as_ctrl_c() as ending:
        signal.raise_signal(signal.SIGHUP)
    assert ending.number is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_a_program_in_the_background_ignores_ctrl_c_and_ends_by_sigterm():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with as_ctrl_c() as ending:
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert ending.number == signal.SIGTERM
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted(work):
    with as_ctrl_c() as ending, pytest.raises(KeyboardInterrupt):
        work()
    return ending


def test_an_interruption_that_disappears_is_raised_again():
    def swallow():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        wait()

    assert interrupted(swallow).number == signal.SIGTERM


def test_an_import_is_finished_first(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\ntotal = sum(range(10**5))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def work():
        import slow_to_import

        assert slow_to_import.total
        wait()

    interrupted(work)
    assert sys.modules.pop("slow_to_import").total == 4999950000


def test_callbacks_of_the_garbage_collector_print_nothing(capfd):
    def _xla_gc_callback(phase, about):
        signal.raise_signal(signal.SIGINT)

    def work():
        gc.callbacks.append(_xla_gc_callback)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(_xla_gc_callback)
        wait()

    interrupted(work)
    assert capfd.readouterr().err == ""


def test_what_cleans_up_is_not_disturbed():
    cleaned = []

    def work():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.3)  # the timer goes off as well
            cleaned.append(True)

    assert interrupted(work).number == signal.SIGTERM
    assert cleaned


def test_a_run_hands_over_what_it_reached_whichever_signal_comes():
    def press(step, latest):
        if step >= 20:
            signal.raise_signal(signal.SIGTERM)

    with as_ctrl_c() as ending, pytest.raises(wior.Interrupted) as raised:
        runs.solve(progress=press)
    assert ending.code == 143
    assert 20 <= raised.value.result.steps < 60


def test_ctrl_c_in_a_run_that_ends_by_an_error_is_not_forgotten():
    """The caller may go on after a run that diverged."""

    def diverges(x, y):
        signal.raise_signal(signal.SIGINT)
        raise ValueError("as expected")

    with pytest.raises(KeyboardInterrupt) as raised:
        runs.solve(progress=lambda step, latest: diverges(None, None))
    assert isinstance(raised.value.__context__, ValueError)
    assert comes_from_interruption(raised.value)
    assert not comes_from_interruption(raised.value.__context__)


COMMAND = "import sys; sys.argv[0] = 'wior'; from wior_command import main; main()"


def begun(place, process):
    """Waits until the work has a folder."""
    end = time.monotonic() + 120
    while not os.listdir(place) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert len(os.listdir(place)) == 1


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("working", [False, True])
def test_the_command_ends_with_one_line_and_leaves_nothing(tmp_path, number, working):
    place = tmp_path / "here"
    place.mkdir()
    # a signal in the first hundredths of a second, before any of our code, ends Python in its own way
    command = COMMAND.replace("main()", f"open({str(tmp_path / 'up')!r}, 'w').close(); main()")
    arguments = [sys.executable, "-c", command, "clean", "--no-progress"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": str(Path(wior.__file__).parents[1])}
    with subprocess.Popen(arguments, cwd=place, env=environment, **pipes) as process:
        try:
            while not (tmp_path / "up").exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(0.2)
            if working:
                begun(place, process)
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (128 + number, "", "wior: interrupted\n")
    assert os.listdir(place) == []
