"""`wior clean` without a table: the demonstration."""

import json

import pytest

from clean_runs import FILES, assert_refused, contents, run
from wior.cleaning import demo
from wior.saving.folders import made_by_wior, whole_folder


def test_an_interrupted_demonstration_leaves_what_was_there(here, monkeypatch):
    """After the learning, while it is held against the truth."""

    def interrupted(*_):
        raise KeyboardInterrupt

    def without_learning(request, complete):
        with whole_folder(request.out, made_by_wior) as folder:
            (folder / "config.json").write_text("{}")
            complete(folder, {"files": ["config.json", "summary.json"]}, None)

    monkeypatch.setattr(demo, "clean", without_learning)
    monkeypatch.setattr(demo, "against_the_truth", interrupted)
    before = contents()
    assert_refused(run("clean", "--no-progress"), 130, "interrupted", before)


@pytest.mark.slow
def test_the_demonstration(here):
    first = run("clean", "--no-progress", "--epochs", "20")
    assert first.code == 0, first.err
    for text in ("Against the truth", "precision", "AUROC", "What a model gains", "the right labels alone"):
        assert text in first.out
    again = run("clean", "--no-progress", "--epochs", "20", "--json")
    assert again.code == 0, again.err
    summary = json.loads(again.out)
    assert {path.name for path in here.iterdir()} == {"table.csv", "wior-clean"}
    found = {path.name for path in (here / "wior-clean").iterdir()}
    assert found == FILES - {"cleaned.csv"} | {"cleaned.npz", "train.npz", "verified.npz"}
    assert set(summary["files"]) == found
    truth = summary["demo"]
    assert truth["rows"] == 1297
    assert truth["wrong"] == round(0.4 * 1297)
    assert truth["auroc"] > 0.98
    assert truth["f1"] > 0.95
    assert truth["right_after_relabeling"] > 0.95
    accuracy = truth["test_accuracy"]
    assert accuracy["what is kept"] > accuracy["all rows as they are"] + 0.1
    config = json.loads((here / "wior-clean" / "config.json").read_text())
    assert (config["train"], config["verified"]) == ("train.npz", "verified.npz")
    # its own data can be cleaned again, but not over themselves
    before = contents()
    paths = ("wior-clean/train.npz", "--verified", "wior-clean/verified.npz")
    assert_refused(run("clean", *paths), 1, "lies in the output folder wior-clean, which is replaced", before)
