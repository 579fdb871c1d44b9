"""The command line as a user meets it, and the folder the demo leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

import wior
from runs import run_main
from wior import cli
from wior.experiments import demo
from wior.saving.folders import CONFIG, SUMMARY, made_by_wior, whole_folder

FILES = {"summary.json", "config.json", "history.jsonl", "report.md", "comparison.png", "comparison.pdf"}
WIOR = Path(sys.executable).with_name("wior")


def wior_command(*arguments, cwd, cache=None):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {
        "COLUMNS": "100",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }  # compiled for haste, not speed
    if cache is not None:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
    command = (
        [WIOR, *arguments] if WIOR.exists() else [sys.executable, "-c", "import wior.cli; wior.cli.main()", *arguments]
    )
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The quick demo twice, the second time over the first one's folder; compiled programs are kept between them."""
    folder = tmp_path_factory.mktemp("demo")
    cache = tmp_path_factory.mktemp("cache")
    first = wior_command("demo", "--quick", "--seeds", "2", cwd=folder, cache=cache)
    made = {path.name: path.read_bytes() for path in (folder / "wior-demo").iterdir()}
    again = wior_command("demo", "--quick", "--seeds", "2", "--json", "--no-progress", cwd=folder, cache=cache)
    return folder, first, made, again


def test_the_demo_prints_its_tables(runs):
    _, first, _, _ = runs
    assert first.returncode == 0, first.stderr
    for text in ("random reshuffling", "shuffle once", "independent", "F1", "AUROC", "seconds", "backward passes", "±"):
        assert text in first.stdout
    assert max(map(len, first.stdout.splitlines())) <= 100
    assert "…" not in first.stdout


def test_the_demo_leaves_one_whole_folder(runs):
    folder, _, made, _ = runs
    assert set(made) == FILES
    assert [path.name for path in folder.iterdir()] == ["wior-demo"]


def test_the_plot_is_a_picture(runs):
    folder, *_ = runs
    path = folder / "wior-demo" / "comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size > 30_000
    picture = matplotlib.image.imread(path)
    assert picture.shape[0] > 600
    assert picture.shape[1] > 1000
    assert picture[..., :3].std() > 0.05


def test_the_summary_has_what_the_tables_show(runs):
    _, _, made, _ = runs
    summary = json.loads(made["summary.json"])
    assert set(summary) == {"made_by", "version", "device", "claims", "task", "methods", "files"}
    assert set(summary["files"]) == FILES
    assert summary["version"] == wior.__version__
    assert summary["task"]["wrong_labels"] == 500
    config = json.loads(made["config.json"])
    assert config["options"]["seeds"] == 2
    steps, batch = config["settings"]["steps"], config["settings"]["batch_size"]
    assert {row["label"] for row in summary["methods"]} == {
        "WiOR-BO, random reshuffling",
        "WiOR-BO, shuffle once",
        "WiR-BO, independent",
    }
    for row in summary["methods"]:
        assert row["setting"] == {"outer_lr": 100, "inner_lr": 0.3, "adjoint_lr": 0.1}
        assert (row["steps"], row["diverged"]) == (steps, False)
        for metric in ("clean_loss", "f1", "auroc", "accuracy"):
            assert set(row[metric]) == {"mean", "std", "seeds"}
            low, high = min(row[metric]["seeds"]), max(row[metric]["seeds"])
            assert low <= row[metric]["mean"] <= high
            assert row[metric]["std"] == pytest.approx((high - low) / 2**0.5)
        assert row["microseconds_a_step"] > 0
        assert row["f1"]["mean"] > summary["task"]["f1_of_keeping_all"]
        streams, passes = (1, 3) if "WiOR-BO" in row["label"] else (2, 7)
        assert row["outer_gradients"] == streams * steps * batch
        for call in ("inner_gradients", "jacobian_products", "hessian_products"):
            assert row[call] == steps * batch
        assert row["backward_passes"] == passes * steps


def test_the_history_ends_at_the_summary(runs):
    _, _, made, _ = runs
    methods = json.loads(made["summary.json"])["methods"]
    rows = [json.loads(line) for line in made["history.jsonl"].decode().splitlines()]
    last = [row for row in rows if row["step"] == methods[0]["steps"]]
    assert len(last) == 6
    found = {(row["label"], row["seed"]): row["f1"] for row in last}
    for row in methods:
        assert [found[row["label"], seed] for seed in (0, 1)] == row["f1"]["seeds"]


def test_the_numbers_are_those_of_the_first_demo(runs):
    """Two seeds and 200 steps, as printed before the demo shared its comparison with the other commands."""
    _, _, made, _ = runs
    found = {row["label"]: row for row in json.loads(made["summary.json"])["methods"]}
    for label, printed in {
        "WiOR-BO, random reshuffling": (0.553, 0.940, 0.988, 0.859),
        "WiOR-BO, shuffle once": (0.560, 0.935, 0.981, 0.852),
        "WiR-BO, independent": (0.575, 0.920, 0.968, 0.835),
    }.items():
        means = [found[label][name]["mean"] for name in ("clean_loss", "f1", "auroc", "accuracy")]
        assert means == pytest.approx(printed, abs=1e-3)


def test_json_goes_alone_to_stdout_and_the_same_seeds_give_the_same_numbers(runs):
    folder, _, made, again = runs
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""
    printed = json.loads(again.stdout)
    assert printed.pop("folder") == "wior-demo"
    assert printed == json.loads((folder / "wior-demo" / "summary.json").read_text())

    def without_time(summary):
        methods = [{k: v for k, v in row.items() if "second" not in k} for row in summary["methods"]]
        return summary | {"methods": methods}

    assert without_time(printed) == without_time(json.loads(made["summary.json"]))


def test_version_and_help(monkeypatch, capsys):
    assert run_main(monkeypatch, capsys, "--version") == (0, f"wior {wior.__version__}\n", "")
    for arguments in (["--help"], []):
        code, out, err = run_main(monkeypatch, capsys, *arguments)
        assert (code, err) == (0, "")
        assert "demo" in out
    code, out, _ = run_main(monkeypatch, capsys, "demo", "--help")
    assert code == 0
    for option in ("--rate", "--seeds", "--out", "--noise", "--quick", "--json", "--no-progress", "--debug"):
        assert option in out


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["demo", "--rate", "1.5"], 2, "1.5 is not between 0 and 1"),
        (["demo", "--rate", "nan"], 2, "nan is not between 0 and 1"),
        (["demo", "--rate", "half"], 2, "--rate"),
        (["demo", "--noise", "flip"], 2, "--noise"),
        (["demo", "--seeds", "0"], 2, "--seeds"),
        (["demo", "--sedes", "3"], 2, "--sedes"),
        (["dmeo"], 2, "dmeo"),
        (["demo", "--rate", "0.0001"], 1, "got 0.0001"),
        (["demo", "--out", "a-file"], 1, "is a file"),
        (["demo", "--out", "theirs"], 1, "left as it is"),
        (["demo", "--out", "."], 1, "current folder"),
        (["demo", "--out", "a-file/below"], 1, "cannot be made"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, tmp_path, arguments, code, part):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("mine")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("mine")
    found, out, err = run_main(monkeypatch, capsys, *arguments)
    assert (found, out) == (code, "")
    assert err.startswith("wior: ")
    assert err.count("\n") == 1
    assert part in err
    assert {path.name for path in tmp_path.iterdir()} == {"a-file", "theirs"}
    assert (tmp_path / "theirs" / "thesis.tex").read_text() == "mine"


def test_a_traceback_is_shown_on_request_only(monkeypatch, capsys):
    def fail(*_, **__):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(demo.Demo, "task", fail)
    assert run_main(monkeypatch, capsys, "demo") == (1, "", "wior: first line second line\n")
    monkeypatch.setattr(sys, "argv", ["wior", "demo", "--debug"])
    with pytest.raises(RuntimeError, match="first line"):
        cli.main()


# the folder


def fill(folder, text):
    (folder / CONFIG).write_text(json.dumps({"made_by": "wior demo"}))
    (folder / SUMMARY).write_text(json.dumps({"made_by": "wior demo", "text": text, "files": [SUMMARY, "old.txt"]}))


def write(out, text, then=lambda: None):
    with whole_folder(out, made_by_wior) as folder:
        fill(folder, text)
        then()


def test_a_folder_appears_whole(tmp_path):
    out = tmp_path / "new" / "out"
    with whole_folder(out, made_by_wior) as folder:
        assert not out.exists()
        fill(folder, "one")
    assert json.loads((out / SUMMARY).read_text())["text"] == "one"
    assert list(out.parent.iterdir()) == [out]
    assert out.stat().st_mode == out.parent.stat().st_mode


def test_an_earlier_demo_is_replaced(tmp_path):
    out = tmp_path / "out"
    for text in ("one", "two"):
        with whole_folder(out, made_by_wior) as folder:
            fill(folder, text)
            if text == "one":
                (folder / "old.txt").write_text("old")
    assert json.loads((out / SUMMARY).read_text())["text"] == "two"
    assert {path.name for path in out.iterdir()} == {CONFIG, SUMMARY}
    assert list(tmp_path.iterdir()) == [out]


def test_the_folder_of_the_first_demo_is_replaced(tmp_path):
    """It had no configuration."""
    (tmp_path / "out").mkdir()
    for name, text in {"summary.json": '{"made_by": "wior demo"}', "curves.csv": "", "comparison.png": ""}.items():
        (tmp_path / "out" / name).write_text(text)
    write(tmp_path / "out", "new")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {CONFIG, SUMMARY}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_demo_leaves_what_was_there(tmp_path, error):
    out = tmp_path / "out"

    def fail():
        raise error

    for existed in (False, True):
        with pytest.raises(error):
            write(out, "half", then=fail)
        assert list(tmp_path.iterdir()) == [out] * existed
        write(out, "whole")
    assert json.loads((out / SUMMARY).read_text())["text"] == "whole"


@pytest.mark.parametrize(
    "content",
    [
        {"notes.txt": "mine"},
        {"summary.json": "{}"},
        {"summary.json": "not json"},
        {"summary.json": '{"made_by": "another program"}'},
        {"summary.json": '{"made_by": "wior demo"}', "notes.txt": "mine"},
        {"config.json": '{"made_by": "wior demo"}', "summary.json": '{"files": []}', "notes.txt": "mine"},
        {"curves.csv": "mine"},
    ],
)
def test_a_folder_that_is_not_ours_is_refused(tmp_path, content):
    out = tmp_path / "out"
    out.mkdir()
    for name, text in content.items():
        (out / name).write_text(text)
    with pytest.raises(FileExistsError, match="left as it is"), whole_folder(out, made_by_wior):
        pytest.fail("the work began")
    assert {path.name: path.read_text() for path in out.iterdir()} == content


def test_a_folder_filled_by_another_during_the_run_is_refused(tmp_path):
    out = tmp_path / "out"

    def other_program():
        out.mkdir()
        (out / "notes.txt").write_text("mine")

    with pytest.raises(FileExistsError, match="left as it is"):
        write(out, "one", then=other_program)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "notes.txt").read_text() == "mine"


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", "one")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {CONFIG, SUMMARY}
