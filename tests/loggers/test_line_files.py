"""JSON Lines and CSV: each record once, whatever ends and resumes, and a full disk loses nothing."""

import csv
import errno
import json
import os
import re

import jax.numpy as jnp
import numpy as np
import pytest

import runs
import wior
from wior.loggers import Csv, JsonLines, line_file

LOGGERS = {"jsonl": JsonLines, "csv": Csv}


def rows(path):
    """The records of a file, as dictionaries of numbers."""
    text = path.read_text()
    assert text.endswith("\n")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(text.splitlines())]


def assert_same_records(path, history):
    found = rows(path)
    for name, values in history.items():
        if name != "seconds":
            assert [row[name] for row in found] == values.tolist(), name


@pytest.fixture(params=sorted(LOGGERS))
def log(request, tmp_path):
    return LOGGERS[request.param](tmp_path / "logs" / f"log.{request.param}")


def test_the_file_has_the_history(log):
    result = runs.solve(loggers=[log])
    assert_same_records(log.path, result.history)
    assert [row["seconds"] for row in rows(log.path)] == result.history["seconds"].tolist()


def test_each_record_is_there_as_soon_as_it_is_made(log):
    lengths = []
    runs.solve(loggers=[log], callback=lambda record: lengths.append(len(rows(log.path))))
    assert lengths == list(range(1, 11))


def test_what_is_not_finite(tmp_path):
    metrics = lambda x, y: {"a": jnp.nan * x["dense"][0], "b": jnp.inf, "c": -jnp.inf}
    logs = [JsonLines(tmp_path / "log.jsonl"), Csv(tmp_path / "log.csv")]
    runs.solve(metrics=metrics, loggers=logs)
    assert [rows(logs[0].path)[0][name] for name in "abc"] == [None] * 3
    np.testing.assert_array_equal([rows(logs[1].path)[0][name] for name in "abc"], [np.nan, np.inf, -np.inf])


def test_a_run_that_resumes_repeats_no_record(log, tmp_path):
    """It was killed after its last save: the file is ahead of the checkpoint, and its last line is not finished."""
    options = {"checkpoint": tmp_path / "run", "loggers": [log]}
    runs.solve(steps=28, **options)
    with log.path.open("ab") as file:
        ahead = (
            [b'{"step": 35, "size": 3}\n', b'{"step": 4'] if log.path.suffix == ".jsonl" else [b"35,3,3,3\n", b"42,"]
        )
        file.write(b"".join(ahead))
    whole = runs.solve(**options)
    assert_same_records(log.path, whole.history)
    before = log.path.read_bytes()
    runs.solve(**options)  # has nothing left to do
    assert log.path.read_bytes() == before


def test_a_file_that_is_lost_is_written_again(log, tmp_path):
    options = {"checkpoint": tmp_path / "run", "loggers": [log]}
    runs.solve(steps=28, **options)
    log.path.unlink()
    whole = runs.solve(**options)
    assert_same_records(log.path, whole.history)


def test_a_run_by_state_continues_the_file(log):
    first = runs.solve(steps=28, loggers=[log])
    options = {"batch_size": (3, 5), "record_every": 7, "metrics": runs.metrics, "loggers": [log]}
    wior.solve(runs.problem(), runs.ALGORITHM, state=first.state, steps=32, **options)
    assert_same_records(log.path, runs.solve().history)


def test_a_run_that_begins_anew_keeps_the_earlier_file_beside_it(log):
    runs.solve(steps=28, loggers=[log])
    before = log.path.read_bytes()
    second = runs.solve(seed=5, loggers=[log])
    assert_same_records(log.path, second.history)
    assert log.path.with_name(log.path.name + ".old").read_bytes() == before
    assert len(list(log.path.parent.iterdir())) == 2


def test_a_full_disk_is_a_warning_and_what_was_not_written_follows(log, monkeypatch):
    """The third record is written in part, the fourth not at all; then there is space again."""
    calls = []

    def write(file, text):
        calls.append(text)
        if len(calls) == 3:
            return os.write(file, text[:10])
        if len(calls) in (4, 5):
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(file, text)

    seen = []
    monkeypatch.setattr(line_file, "_system_write", write)
    said = r"failed at step 14 \(OSError: \[Errno 28\] No space left on device: '.*'\); the run continues, and this is said once"
    with pytest.warns(UserWarning, match=said) as warned:
        result = runs.solve(loggers=[log], callback=lambda record: seen.append(len(rows(log.path))))
    assert len(warned) == 1
    assert seen == [1, 2, 2, 2, 5, 6, 7, 8, 9, 10]
    assert_same_records(log.path, result.history)


def test_a_disk_that_stays_full_loses_no_run(log, monkeypatch):
    def full(file, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(line_file, "_system_write", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        result = runs.solve(loggers=[log])
    np.testing.assert_array_equal(result.history["size"], runs.solve().history["size"])
    assert log.path.read_bytes() == (
        b"" if log.path.suffix == ".jsonl" else b",".join(name.encode() for name in result.history) + b"\n"
    )


def test_other_columns_or_no_record_are_refused(tmp_path):
    first = runs.solve(steps=28)
    more = {"state": first.state, "batch_size": (3, 5), "steps": 7}
    table, lines = Csv(tmp_path / "log.csv"), JsonLines(tmp_path / "log.jsonl")
    table.path.write_text("step,other\n0,1\n")
    lines.path.write_text("some text\n")
    for log, message in (
        (table, f"{str(table.path)!r} has other columns than this run ('step,other'); give another path for the log"),
        (lines, f"{str(lines.path)!r} has a line that is no record ('some text'); give another path for the log"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            wior.solve(runs.problem(), runs.ALGORITHM, loggers=[log], **more)
    with pytest.raises(TypeError, match="path must be the path of a file, got 3 of type int"):
        Csv(3)
    with pytest.raises(IsADirectoryError, match="path must be the path of a file"):
        JsonLines(tmp_path)


def test_an_odd_name_of_a_metric(tmp_path):
    log = Csv(tmp_path / "log.csv")
    result = runs.solve(metrics=lambda x, y: {'a, "b"': x["dense"][0]}, loggers=[log])
    assert [row['a, "b"'] for row in rows(log.path)] == result.history['a, "b"'].tolist()


class Broken(wior.loggers.Logger):
    def __init__(self):
        self.told = []

    def record(self, record):
        raise ConnectionError("the service is away\nand more")

    def end(self, stopped_by):
        self.told.append(stopped_by)


def test_a_logger_that_fails_is_one_warning_and_the_others_are_told(tmp_path):
    broken, log = Broken(), JsonLines(tmp_path / "log.jsonl")
    message = "^the logger Broken failed at step 0 \\(ConnectionError: the service is away\\); the run continues, and this is said once$"
    with pytest.warns(UserWarning, match=message) as warned:
        result = runs.solve(loggers=[broken, log])
    assert len(warned) == 1
    assert broken.told == ["steps"]
    assert_same_records(log.path, result.history)


def test_loggers_hear_how_a_run_ends(tmp_path):
    class Ends(Broken):
        def record(self, record):
            pass

    log = Ends()
    runs.solve(loggers=[log], callback=lambda record: True)

    def wrong(record):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        runs.solve(loggers=[log], callback=wrong)
    with pytest.raises(wior.NonFiniteError):
        runs.solve(loggers=[log], steps=400, algorithm=wior.WiORBO(1e9, 1e9, 1e9))
    assert log.told == ["callback", "error", "divergence"]


def test_what_was_kept_is_not_lost_by_the_runs_after_it(log):
    log.path.parent.mkdir()
    log.path.write_text("mine")
    for _ in range(3):
        runs.solve(loggers=[log])
    kept = sorted(path.name for path in log.path.parent.iterdir())
    name = log.path.name
    assert kept == [name, f"{name}.old", f"{name}.old2", f"{name}.old3"]
    assert log.path.with_name(f"{name}.old").read_text() == "mine"


def test_two_writers_of_one_file_are_refused(log, tmp_path):
    same_file = type(log)(tmp_path / "logs" / ".." / "logs" / log.path.name)
    for second in (log, same_file):
        with pytest.raises(ValueError, match=re.escape(f"loggers has {log!r} twice, which would write every record")):
            runs.solve(loggers=[log, second])
    assert repr(log) == f"{type(log).__name__}({str(log.path)!r})"
