"""Dates and times."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from user_tables import column, table
from wior.cleaning.tables import Asked, read


def wave(days, period):
    angle = 2 * np.pi * np.asarray(days, float) / period
    return np.stack([np.sin(angle), np.cos(angle)], 1)


def close(found, expected):
    assert np.abs(np.array(found) - expected).max() < 1e-4


@pytest.mark.parametrize(
    "cells",
    [
        ("2024-01-02", "2024-01-12", "2024-01-31"),
        ("2024/1/2", "2024/1/12", "2024/1/31"),
        ("02.01.2024", "12.01.2024", "31.01.2024"),
        ("1/2/2024", "1/12/24", "1/31/2024"),
        ("02-Jan-2024", "12 January 2024", "31-jan-24"),
        ("2024-01-02T00:00:00Z", "2024-01-12 02:00+02:00", "2024-01-30 19:00 -0500"),
    ],
)
def test_ways_to_write_a_date(folder, cells):
    found, said = column(*cells)
    days = np.array([19724, 19734, 19753])
    close(found, np.hstack([days[:, None] - 19724, wave(days, 7)]))
    assert said["kind"] == "date"


@pytest.mark.parametrize(
    ("cells", "order", "days"),
    [
        (("1.2.2024", "3.4.2024"), "day before month", 62),
        (("1/2/2024", "3/4/2024"), "month before day", 62),
        (("1/2/2024", "13/2/2024"), "day before month", 12),
        (("1.2.2024", "1.13.2024"), "month before day", 11),
    ],
)
def test_which_number_is_the_day_is_said(folder, cells, order, days):
    found, said = column(*cells)
    assert said["why"] == f"dates, read as {order}"
    assert found[1][0] == days


def test_times_and_long_spans(folder):
    found, said = column("10:30", "9:15 pm", "12:00 AM")
    close(found, wave([10.5 / 24, 21.25 / 24, 0], 1))
    assert said == {"kind": "date", "why": "times of the day"}
    found, said = column("2019-06-01 12:00", "2024-06-01 13:30", "")
    days = [18048.5, 19875.5625]
    close(np.array(found)[:2, 0], [0, days[1] - days[0]])
    close(np.array(found)[:2, 1], [2019, 2024])
    close(np.array(found)[:2, 2:4], wave(days, 365.2425))
    close(np.array(found)[:2, 4:6], wave(days, 7))
    close(np.array(found)[:2, 6:8], wave(days, 1))
    assert np.array(found)[:, 8].tolist() == [0, 0, 1]
    assert found[2][:8] == [pytest.approx(sum(days) / 2 - days[0]), pytest.approx(2021), *[0] * 6]
    assert said == {"kind": "date", "missing": 1, "why": "dates and times"}


def test_a_constant_date_and_one_that_is_none(folder):
    assert column("2024-01-01", "2024-01-01")[1] == {"kind": "ignored", "why": "constant"}
    assert column("2024-01-01", "soon")[1]["kind"] == "category"


def test_types_of_dates(folder):
    moments = [datetime.datetime(2024, 1, 1, 6), datetime.datetime(2024, 1, 2, 18), None]
    path = table(
        "train.parquet",
        when=pa.array(moments, pa.timestamp("ns", "Europe/Rome")),
        day=pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 9), datetime.date(2024, 1, 2)]),
        clock=pa.array([datetime.time(6), datetime.time(18), datetime.time(12)]),
        long=pa.array([1, 2, 86400], pa.duration("s")),
        label=["x", "y", "x"],
    )
    job = read(Asked(path, "label"))
    assert {name: fate["width"] for name, fate in job.fates.items() if name != "label"} == {
        "when": 6,
        "day": 3,
        "clock": 2,
        "long": 1,
    }
    close(job.features[:2, :1], [[0], [1.5]])
    close(job.features[:, 9:11], wave([0.25, 0.75, 0.5], 1))
    assert job.features[:, 11].tolist() == [1, 2, 86400]
    assert job.records(np.array([1]))[0][1] == "2024-01-09"


def test_verified_rows_are_found_by_their_exact_moment(folder):
    lines = "".join(f"2024-01-01 00:00:{second:02},{'xy'[second % 2]}\n" for second in range(9))
    Path("train.csv").write_text("when,label\n2019-01-01,x\n" + lines)
    Path("verified.csv").write_text("when,label\n2024-01-01 00:00:03,x\n")
    job = read(Asked(Path("train.csv"), "label", verified=Path("verified.csv")))
    assert np.flatnonzero(job.right >= 0).tolist() == [4]
