"""`wior clean` of a table that has labels alone, with the probabilities of a model of the user's own."""

import json
from pathlib import Path

import numpy as np
import pytest

from clean_runs import read_table, run

ROWS, CLASSES = 300, "abc"


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    """The rows whose labels are wrong, of t.csv; p.csv has the probabilities in another order."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, ROWS)
    given = np.where(rng.random(ROWS) < 0.2, (true + 1) % 3, true)
    shares = 0.4 * rng.dirichlet([1, 1, 1], ROWS) + 0.6 * np.eye(3)[true]
    Path("t.csv").write_text("id,y\n" + "".join(f"r{row},{CLASSES[given[row]]}\n" for row in range(ROWS)))
    lines = [f"r{row}," + ",".join(f"{share:.6f}" for share in shares[row]) for row in rng.permutation(ROWS)]
    Path("p.csv").write_text("\n".join(["id,a,b,c", *lines]) + "\n")
    verified = rng.choice(ROWS, 40, replace=False)
    Path("v.csv").write_text("id,y\n" + "".join(f"r{row},{CLASSES[true[row]]}\n" for row in verified))
    return given != true


@pytest.mark.parametrize("more", [(), ("--id", "id"), ("--id", "id", "--verified", "v.csv")])
def test_labels_and_probabilities_are_enough(wrong, more):
    ended = run("clean", "t.csv", "--label", "y", "--probabilities", "p.csv", *more, "--no-progress", "--out", "o")
    assert (ended.code, ended.err) == (0, "")
    flagged = np.array([line[4] == "true" for line in read_table("o/rows.csv")[1:]])
    assert 2 * (flagged & wrong).sum() / (flagged.sum() + wrong.sum()) > 0.95
    names = [line[0] for line in read_table("o/rows.csv")[1:]]
    assert names == [f"r{row}" if more else str(row + 1) for row in range(ROWS)]
    assert json.loads(Path("o/summary.json").read_text())["cleaned"]["file"] == "cleaned.csv"


def test_more_rows_are_drawn(wrong):
    ended = run("verify", "t.csv", "--label", "y", "--probabilities", "p.csv", "--no-progress", "--out", "o")
    assert (ended.code, ended.err) == (0, "")
    assert Path("o/verify.html").exists()


def test_a_bilevel_design_needs_features(wrong):
    known = ("--id", "id", "--verified", "v.csv", "--weighting", "noise", "--no-progress")
    ended = run("clean", "t.csv", "--label", "y", "--probabilities", "p.csv", *known)
    said = "wior: weighting='noise' needs features; probabilities alone are for 'auto'\n"
    assert (ended.code, ended.err) == (1, said)
