"""TensorBoard with the real package; Weights & Biases and MLflow, which need a service, with fakes of what is used."""

import struct
import sys
import types

import numpy as np
import pytest

import runs
import wior


def test_a_missing_package_is_said_in_one_line(monkeypatch):
    made = {
        "tensorboardX": lambda: wior.loggers.TensorBoard("logs"),
        "wandb": lambda: wior.loggers.WandB("project"),
        "mlflow": lambda: wior.loggers.MLflow(),
    }
    for (package, make), name in zip(made.items(), ("TensorBoard", "WandB", "MLflow"), strict=True):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError) as caught:
            make()
        said = str(caught.value)
        assert said.startswith(f"wior.loggers.{name} needs the package {package} (")
        assert said.endswith("): pip install 'wior[loggers]'")
        assert "\n" not in said


def events(folder):
    """(step, name, value) of the scalars in a folder's event files, and the steps from which earlier ones are void."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    scalars, voids = [], []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[12 + length + 4 :]
            if event.HasField("session_log") and event.session_log.status == event_pb2.SessionLog.START:
                voids.append(event.step)
            scalars += [(event.step, one.tag, one.simple_value) for one in event.summary.value]
    return scalars, voids


def test_tensorboard_has_every_number(tmp_path):
    pytest.importorskip("tensorboardX")
    log = wior.loggers.TensorBoard(tmp_path / "log")
    history = runs.solve(steps=28, loggers=[log], checkpoint=tmp_path / "run").history
    scalars, voids = events(tmp_path / "log")
    assert voids == []
    for name in history.keys() - {"step"}:
        found = [(step, value) for step, tag, value in scalars if tag == name]
        assert [step for step, _ in found] == history["step"].tolist()
        np.testing.assert_allclose([value for _, value in found], history[name], rtol=1e-6)
    runs.solve(loggers=[log], checkpoint=tmp_path / "run")
    scalars, voids = events(tmp_path / "log")
    assert voids == [29]
    assert [step for step, tag, _ in scalars if tag == "size"] == [0, 7, 14, 21, 28, 35, 42, 49, 56, 60]


class FakeRun:
    """What wandb.init gives: it keeps what it is told, and knows its step when it is resumed."""

    def __init__(self, options):
        self.options, self.logged, self.summary, self.ended = options, [], {}, None
        self.step = 0

    def log(self, values, step):
        self.logged.append((step, values))
        self.step = step + 1

    def finish(self, exit_code):
        self.ended = exit_code


def test_weights_and_biases(monkeypatch, tmp_path):
    there = {}

    def init(**options):
        return there.setdefault(options.get("id"), FakeRun(options))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    log = wior.loggers.WandB("bilevel", id="one", resume="allow", config={"a": 1})
    runs.solve(steps=28, loggers=[log], checkpoint=tmp_path / "run")
    history = runs.solve(loggers=[log], checkpoint=tmp_path / "run").history
    (run,) = there.values()
    assert run.options == {"project": "bilevel", "id": "one", "resume": "allow", "config": {"a": 1}}
    assert [step for step, _ in run.logged] == history["step"].tolist()
    assert [values["size"] for _, values in run.logged] == history["size"].tolist()
    assert all("step" not in values for _, values in run.logged)
    assert (run.summary, run.ended) == ({"stopped_by": "steps"}, 0)
    late = wior.loggers.WandB("bilevel", id="two")  # hears of what was made before it
    runs.solve(loggers=[late], checkpoint=tmp_path / "run")
    assert [step for step, _ in there["two"].logged] == history["step"].tolist()


class FakeMLflow:
    """What is used of `mlflow.MlflowClient`, with the names and arguments that it has there."""

    def __init__(self):
        self.experiments, self.runs = {}, {}
        self.entities = types.SimpleNamespace(
            Metric=lambda key, value, timestamp, step: types.SimpleNamespace(
                key=key, value=value, timestamp=timestamp, step=step
            )
        )

    def MlflowClient(self, tracking_uri=None):
        self.uri = tracking_uri
        return self

    def get_experiment_by_name(self, name):
        return self.experiments.get(name)

    def create_experiment(self, name):
        self.experiments[name] = types.SimpleNamespace(experiment_id=str(len(self.experiments)))
        return self.experiments[name].experiment_id

    def create_run(self, experiment_id, run_name=None):
        run_id = f"run-{len(self.runs)}"
        self.runs[run_id] = {
            "name": run_name,
            "experiment": experiment_id,
            "metrics": [],
            "tags": {},
            "status": "RUNNING",
        }
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id))

    def log_batch(self, run_id, metrics):
        self.runs[run_id]["metrics"] += metrics

    def get_metric_history(self, run_id, key):
        return [one for one in self.runs[run_id]["metrics"] if one.key == key]

    def set_tag(self, run_id, key, value):
        self.runs[run_id]["tags"][key] = value

    def update_run(self, run_id, status=None):
        self.runs[run_id]["status"] = status

    def set_terminated(self, run_id, status=None):
        self.runs[run_id]["status"] = status


def test_mlflow(monkeypatch, tmp_path):
    service = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", service)
    log = wior.loggers.MLflow("bilevel", run_name="first", tracking_uri="sqlite:///runs.db")
    runs.solve(steps=28, loggers=[log], checkpoint=tmp_path / "run")
    again = wior.loggers.MLflow("bilevel", run_id=log.run_id)  # of another process
    history = runs.solve(loggers=[again], checkpoint=tmp_path / "run").history
    assert list(service.runs) == ["run-0"]
    run = service.runs["run-0"]
    sizes = [(one.step, one.value) for one in run["metrics"] if one.key == "size"]
    assert sizes == list(zip(history["step"].tolist(), history["size"].tolist(), strict=True))
    assert (run["name"], run["experiment"], run["tags"], run["status"]) == (
        "first",
        "0",
        {"stopped_by": "steps"},
        "FINISHED",
    )
    runs.solve(loggers=[log])  # another run
    assert list(service.runs) == ["run-0", "run-1"]
    with pytest.raises(wior.NonFiniteError):
        runs.solve(loggers=[log], steps=400, algorithm=wior.WiORBO(1e9, 1e9, 1e9))
    assert service.runs["run-2"]["status"] == "FAILED"
