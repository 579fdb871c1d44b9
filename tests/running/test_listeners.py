"""A callback that is told the records of a run and may end it."""

import re

import numpy as np
import pytest

import runs
import wior


def test_a_callback_is_told_every_record_as_plain_numbers():
    told = []
    result = runs.solve(callback=told.append)
    assert [list(record) for record in told] == [list(result.history)] * len(result.history["step"])
    for name, values in result.history.items():
        assert [record[name] for record in told] == values.tolist()
        assert {type(record[name]) for record in told} <= {int, float}


@pytest.mark.parametrize("answer", [True, np.True_, np.array(True)])
def test_true_ends_the_run(answer):
    result = runs.solve(callback=lambda record: answer if record["step"] >= 20 else None)
    assert (result.steps, result.stopped_by) == (21, "callback")
    assert result.history["step"].tolist() == [0, 7, 14, 21]


def test_false_and_nothing_do_not():
    assert runs.solve(callback=lambda record: False).steps == 60
    assert runs.solve(callback=lambda record: None).stopped_by == "steps"


def test_a_condition_is_named_before_the_callback():
    result = runs.solve(callback=lambda record: True, stop=wior.stop.AtLeast("step", 0))
    assert (result.steps, result.stopped_by) == (0, "AtLeast('step', 0)")


def test_a_run_that_a_callback_ended_ends_there_again(tmp_path):
    told = []

    def callback(record):
        told.append(record["step"])
        return record["step"] == 14

    first = runs.solve(callback=callback, checkpoint=tmp_path / "run")
    assert (first.steps, first.stopped_by, told) == (14, "callback", [0, 7, 14])
    again = runs.solve(callback=callback, checkpoint=tmp_path / "run")
    assert (again.steps, again.stopped_by, told) == (14, "callback", [0, 7, 14, 14])
    longer = runs.solve(checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(longer.history["size"], runs.solve().history["size"])


def test_an_error_in_a_callback_has_the_result():
    def callback(record):
        if record["step"] == 14:
            raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own") as caught:
        runs.solve(callback=callback)
    assert caught.value.result.steps == 14
    assert caught.value.result.history["step"].tolist() == [0, 7, 14]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"callback": lambda record: 3},
            TypeError,
            "callback must return True to end the run, or False or nothing; it returned 3",
        ),
        ({"callback": lambda record: "stop"}, TypeError, "it returned 'stop'"),
        ({"callback": 3}, TypeError, "callback must be a function, got 3"),
        ({"callback": lambda: None}, TypeError, "callback is called as callback(record)"),
        (
            {"loggers": "log.csv"},
            TypeError,
            "loggers must be a list, such as [wior.loggers.JsonLines('log.jsonl')]; got 'log.csv'",
        ),
        (
            {"loggers": ["log.csv"]},
            TypeError,
            "loggers must be of wior.loggers, such as wior.loggers.JsonLines('log.jsonl'); got 'log.csv'",
        ),
    ],
)
def test_bad_callbacks_and_loggers(options, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        runs.solve(**options)


def test_a_run_that_nobody_listens_to_is_the_same():
    silent, told = runs.solve(), runs.solve(callback=lambda record: None, stop=wior.stop.AtMost("size", -1.0))
    for name in silent.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(silent.history[name], told.history[name])
