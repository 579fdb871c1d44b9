"""What is shown of long work, on a terminal, in a file, and where nobody asked."""

import itertools

import pytest

from wior.running import progress


@pytest.fixture
def clock(monkeypatch):
    """Ten seconds pass between two looks at the clock."""
    times = itertools.count(0.0, 10.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_is_shown_unasked(capfd, monkeypatch, terminal):
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with (
        progress.bar(False, "a", 3) as at,
        progress.pieces(False, "b", 3) as begin,
        progress.counter(False, "c") as counted,
    ):
        at(1, {"loss": 1.0})
        begin("one", 5)(2, {})
        counted(1, None)
    assert capfd.readouterr() == ("", "")


def test_a_function_of_the_callers_is_told_instead(capfd):
    told = []
    with progress.bar(lambda *at: told.append(at), "a", 3) as at:
        at(2, {"loss": 1.0})
    assert told == [(2, {"loss": 1.0})]
    assert capfd.readouterr() == ("", "")


def test_a_file_gets_a_line_now_and_then(capsys, clock):
    with progress.pieces(True, "learning", 4) as begin:  # at second 0
        at = begin("a [b]", 10)
        for step in range(1, 6):
            at(step, {"loss": step / 4, "f1": 0.5, "third": 1.0})
        begin("last", 10)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [  # after 30 and after 60 seconds
        "learning 1/4: a [b]  loss 0.5  f1 0.5: 5% in 0:00:30, 0:09:30 left",
        "learning 1/4: a [b]  loss 1.25  f1 0.5: 12% in 0:01:00, 0:07:00 left",
    ]


def test_short_work_is_told_of_at_its_end_where_a_bar_would_stay(capsys):
    with progress.bar(True, "WiORBO", 60) as at:
        for step in (20, 40, 60):
            at(step, {"size": 0.25})
    with progress.pieces(True, "learning", 4) as begin:
        begin("a", 1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["WiORBO  size 0.25: 60/60 in 0:00:00, 0:00:00 left"]


def test_downloads_are_counted_in_megabytes_and_may_have_no_end(capsys, clock):
    with progress.counter(True, "train.gz", in_bytes=True) as at:
        for done in (1_000_000, 2_000_000, 3_500_000):
            at(done, None)
        for done in (4_000_000, 5_000_000, 6_000_000):
            at(done, 12_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "train.gz: 3.5 MB in 0:00:30",
        "train.gz: 6.0 MB/12.0 MB in 0:01:00, 0:01:00 left",
    ]


def test_a_terminal_gets_a_bar_on_stderr(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.bar(True, "WiORBO", 60) as at:
        at(60, {"size": 0.25})
    with progress.pieces(True, "learning", 4) as begin:
        begin("a [b]", 10)(5, {})
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("60/60", "WiORBO", "size 0.25", "━", "learning 1/4: a [b]", "12%"):
        assert text in err
