"""A small table with wrong labels, and the command line that cleans it."""

import contextlib
import csv
import io
import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from wior import cli
from wior.cleaning import choosing

FILES = {"rows.csv", "cleaned.csv", "summary.json", "config.json", "review.html", "overview.png", "overview.pdf"}
HEADER = ["key", "a", "b", "color", "remark", "label", "checked"]
NAMES = np.array(
    ["=cmd()", "cat", "猫"]
)  # one that a spreadsheet would run, and one that has no letters in the plots' font
ROWS, VERIFIED = 150, 20
QUICK = ("--epochs", "2", "--hidden", "6", "--no-progress")
TABLE = ("table.csv", "--label", "label", "--id", "key")
MARKED = (*TABLE, "--verified-column", "checked", *QUICK)


class Rows(NamedTuple):
    lines: list[list[str]]
    true: np.ndarray  # names
    given: np.ndarray


def rows():
    """Labels of the next class in 30% of the rows that are not verified, and cells that a careless writer would change."""
    X, true = make_blobs([70, 50, 30], 3, random_state=3, cluster_std=1.2)
    rng = np.random.default_rng(0)
    wrong = (rng.random(ROWS) < 0.3) & (np.arange(ROWS) >= VERIFIED)
    given = np.where(wrong, (true + 1) % 3, true)
    lines = [
        [
            f"r{at:03d}",
            f"{X[at, 0]:+.2e}",
            f"{X[at, 1]:.3f}0",
            "red" if X[at, 2] > 0 else "",
            f'said "{at}", or so ',
            NAMES[given[at]],
            "yes" if at < VERIFIED else "",
        ]
        for at in range(ROWS)
    ]
    return Rows(lines, NAMES[true], NAMES[given])


DATA = rows()


def as_bytes(lines, header=HEADER):
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerows([header, *lines])
    return file.getvalue().encode()


def write_table(path, lines=DATA.lines, header=HEADER):
    Path(path).write_bytes(as_bytes(lines, header))


def read_table(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(*arguments):
    """The command line in this process and this folder."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["wior", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return Ran(ended.value.code, out.getvalue(), err.getvalue())


class Cleaned(NamedTuple):
    ran: Ran
    files: dict[str, bytes]
    beside: dict[str, bytes | None]

    @property
    def summary(self):
        return json.loads(self.files["summary.json"])

    @property
    def config(self):
        return json.loads(self.files["config.json"])

    @property
    def rows(self):
        return list(csv.DictReader(io.StringIO(self.files["rows.csv"].decode(), newline="")))

    @property
    def flagged(self):
        return np.array([line["flagged"] == "true" for line in self.rows])


SETTINGS = choosing.SETTINGS[1:3]  # two candidates: the tests have no time for all


def clean(*arguments, out="wior-clean"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "SETTINGS", SETTINGS)
        ran = run("clean", *arguments)
    files = {path.name: path.read_bytes() for path in Path(out).iterdir()} if ran.code == 0 else {}
    return Cleaned(ran, files, {name: content for name, content in contents().items() if not name.startswith(out)})


def contents():
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(Path().rglob("*"))}


def assert_refused(ran, code, part, before):
    """One line, and not a trace of it."""
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("wior: ")
    assert ran.err.count("\n") == 1
    assert part in ran.err
    assert contents() == before


def marked(*options):
    return ("clean", *MARKED, *options)


def failing(error):
    def fit(self, *_):
        raise error

    return fit
