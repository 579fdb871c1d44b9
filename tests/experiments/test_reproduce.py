"""The quick versions of the paper's experiments, as a user runs them: each twice, with the same numbers."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.image
import pytest

from real_data import real_data
from wior.experiments.claims import Verdict
from wior.experiments.reproduce import EXPERIMENTS

pytestmark = pytest.mark.slow

WIOR = Path(sys.executable).with_name("wior")
DATA = {"omniglot": "omniglot", "miniimagenet": "tiny_imagenet_fs"}  # the others make theirs, or bring it


def reproduced(figure, out):
    """The quick version in a process of its own, without what conftest.py changes; its exit code, output and seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    command = [WIOR] if WIOR.exists() else [sys.executable, "-c", "import wior.cli; wior.cli.main()"]
    data = ["--data", real_data(DATA[figure])] if figure in DATA else []
    begun = time.perf_counter()
    ended = subprocess.run(
        [*command, "reproduce", figure, "--quick", "--no-progress", "--out", out, *data],
        cwd=out.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return ended, time.perf_counter() - begun


def records(out):
    """Every line of the history, without what a clock told."""
    lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]


@pytest.mark.parametrize("figure", EXPERIMENTS)
def test_the_quick_version_runs_and_gives_the_same_numbers_again(figure, tmp_path):
    found = []
    for name in ("one", "two"):
        out = tmp_path / name
        ended, seconds = reproduced(figure, out)
        print(f"{figure} --quick: {seconds:.0f} s")
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        assert max(map(len, ended.stdout.splitlines())) <= 100
        summary = json.loads((out / "summary.json").read_text())
        assert {path.name for path in out.iterdir()} == set(summary["files"])
        assert summary["claims"]
        report = (out / "report.md").read_text()
        for claim in summary["claims"]:
            assert claim["verdict"] in Verdict.__args__
            assert f"- **{claim['verdict']}**: {claim['text']}" in report
        pictures = [file for file in summary["files"] if file.endswith(".png")]
        assert pictures
        for picture in pictures:
            assert matplotlib.image.imread(out / picture)[..., :3].std() > 0.02
            assert (out / picture).with_suffix(".pdf").read_bytes().startswith(b"%PDF-")
        found.append(records(out))
    assert len(found[0]) > 100
    assert found[0] == found[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
