"""Two processes over loopback are one run; what each does is in `on_two_hosts.py`."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import on_eight_devices
import on_two_hosts
import runs
from wior.devices import hosts

SCRIPT = Path(on_two_hosts.__file__)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def two_processes(what, folder, seconds=120):
    """Exit codes, what each process said, and its errors."""
    port = str(free_port())
    begun = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(process), port, what, str(folder)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for process in range(2)
    ]  # fmt: skip
    try:
        printed = [process.communicate(timeout=seconds) for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.wait()
    said = [[json.loads(line) for line in out.splitlines() if line.startswith("{")] for out, _ in printed]
    return [process.returncode for process in begun], said, [err for _, err in printed]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    codes, said, errors = two_processes("whole_run,by_the_clock,disagreements", tmp_path_factory.mktemp("hosts"))
    assert codes == [0, 0], errors
    return said


def test_two_processes_are_one_run(both):
    alone = on_eight_devices.alone()
    for run, *_ in both:
        for found, want in zip(run["x"], jax.tree.leaves(alone.x), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-11)
        np.testing.assert_allclose(run["u"][0], alone.state.u["w"], rtol=1e-11)
        np.testing.assert_allclose(run["size"], alone.history["size"], rtol=1e-11)
        assert run["x"] == run["again"]  # what was saved after 14 steps and went on, to the last bit
        assert run["parts"] == run["again"]  # two runs, the second by the state of the first
        assert run["steps"] == 14
        assert run["shares"] == [[20], [20]]  # 80 rows on 4 devices
    assert [run.pop("told") for run, *_ in both] == [6, 3]  # a callback in both, a logger in the first
    assert both[0][0] == both[1][0]


def test_one_clock_for_all(both):
    assert both[0][1] == both[1][1]
    assert both[0][1]["stopped_by"] == "seconds"
    assert both[0][0]["seconds"] == both[1][0]["seconds"]


@pytest.mark.parametrize("part", ["seed", "algorithm", "data", "shapes of x0", "length and records"])
def test_processes_that_disagree_end_before_a_step(both, part):
    for said in both:
        (found,) = [one[part] for one in said if part in one]
        assert f"the processes of this run disagree: process 1 has another {part} than process 0" in found


def test_one_of_two_is_killed(tmp_path):
    begun = time.monotonic()
    codes, said, errors = two_processes("killed", tmp_path)
    assert time.monotonic() - begun < 90  # starting and compiling included
    assert codes == [1, -signal.SIGKILL]
    assert said[0][-1]["step"] >= 14
    assert "of this run has ended or cannot be reached" in errors[0]
    assert "a run with a checkpoint resumes from its last save" in errors[0]
    codes, said, errors = two_processes("after_the_kill", tmp_path)
    assert codes == [0, 0], errors
    for (run,) in said:
        assert run["x"] == run["whole"]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "who"), [("frozen", 1), ("frozen_first", 0), ("failing", 1)])
def test_one_of_two_does_not_go_on(what, who, tmp_path):
    port = str(free_port())
    begin = lambda process: [sys.executable, str(SCRIPT), str(process), port, what, str(tmp_path)]
    other = subprocess.Popen(begin(who), stderr=subprocess.DEVNULL)
    try:
        done = subprocess.run(begin(1 - who), capture_output=True, text=True, timeout=120, check=False)
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 1
    assert re.search(f"(another process|process {who}) of this run has ended or cannot be reached", done.stderr)


def command(arguments, environment):
    main = "from wior.cli import main; main()"
    environment = os.environ | environment | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return subprocess.Popen(
        [sys.executable, "-c", main, *arguments], env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def slurm(job, process):
    place = {"SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    return place | {"SLURM_JOB_ID": str(job), "SLURM_PROCID": str(process), "SLURM_LOCALID": str(process)}


def open_mpi(job, process):
    names = {"SIZE": 2, "RANK": process, "LOCAL_RANK": process}
    place = {"OMPI_MCA_orte_hnp_uri": f"{job * 2**12}.0;tcp://127.0.0.1:34911"}
    return place | {f"OMPI_COMM_WORLD_{name}": str(number) for name, number in names.items()}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [slurm, open_mpi], ids=lambda launcher: launcher.__name__)
def test_the_command_line_under_a_launcher(launcher, tmp_path):
    """Processes find each other by what the launcher tells them; the first alone prints and writes."""
    run = ["run", "portfolio", "--quick", "--steps=40", "--batch-size=8", "--outer-lr=0.01,0.03", "--inner-lr=0.1"]
    run += ["--json", "--no-progress"]
    job = 1 + free_port() % 4000  # jax takes its port from the number of the job
    together = [*run, "--distributed", f"--out={tmp_path / 'both'}"]
    begun = [command(together, launcher(job, process)) for process in range(2)]
    alone = command([*run, f"--out={tmp_path / 'alone'}"], {})
    (first, said), (second, _), (want, _) = (process.communicate(timeout=300) for process in (*begun, alone))
    assert [process.returncode for process in (*begun, alone)] == [0, 0, 0], said
    assert second == ""
    found, want = (json.loads(text)["methods"][0] for text in (first, want))
    assert found["setting"] == want["setting"]
    np.testing.assert_allclose(found["gap"]["mean"], want["gap"]["mean"], rtol=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == {"both", "alone"}


@pytest.mark.slow
def test_the_command_line_where_processes_disagree(tmp_path):
    run = [
        "run",
        "portfolio",
        "--quick",
        "--batch-size=8",
        "--distributed",
        "--processes=2",
        f"--out={tmp_path / 'out'}",
    ]
    run.append(f"--coordinator=localhost:{free_port()}")
    begun = [command([*run, f"--process-id={process}", f"--steps={40 + process}"], {}) for process in range(2)]
    for process in begun:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "wior: the processes of this run disagree: process 1 has another steps than process 0" in said
    assert not list(tmp_path.iterdir())


def test_processes_without_company(monkeypatch, capsys):
    code, _, said = runs.run_main(monkeypatch, capsys, "run", "portfolio", "--processes", "2")
    assert code == 2
    assert "--coordinator, --processes and --process-id are for --distributed" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("localhost:1", 2, None), "coordinator, processes and process_id go together; process_id is missing"),
        ((None, 2, None), "coordinator and process_id are missing"),
        (("localhost:1", 2, 2), "process_id must be one of 0 … 1, got 2"),
    ],
)
def test_bad_numbers_of_processes(arguments, words):
    with pytest.raises(ValueError, match=words):
        hosts.join(*arguments)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("column unavailable"),
        ValueError("the gloo of this row is unavailable: 3"),
        jax.errors.JaxRuntimeError("INVALID_ARGUMENT: a shape"),
    ],
    ids=str,
)
def test_errors_that_are_not_of_a_connection_pass_through(error):
    with pytest.raises(type(error)) as raised, hosts.clear_lost_process(many=True):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("UNAVAILABLE: Connection reset by peer"),
        ValueError("INTERNAL: Gloo all-reduce failed: Connection closed by peer"),
        jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: Gloo context initialization failed"),
    ],
    ids=str,
)
def test_errors_of_a_connection_are_a_lost_process(error):
    with (
        pytest.raises(hosts.LostProcessError, match="another process of this run has ended"),
        hosts.clear_lost_process(many=True),
    ):
        raise error


def test_a_value_error_with_the_words_of_the_runtime_inside():
    error = ValueError("the array cannot be fetched: UNAVAILABLE: Connection reset by peer")
    error.__cause__ = jax.errors.JaxRuntimeError("UNAVAILABLE: Connection reset by peer")
    with pytest.raises(hosts.LostProcessError), hosts.clear_lost_process(many=True):
        raise error
