"""Folders of experiments, which are whole and go on."""

import json

import numpy as np
import pytest

from made_experiment import Made
from small_comparisons import assert_pictures
from wior.experiments import cleaning, few_shot, irm
from wior.experiments.claims import as_json
from wior.experiments.contest import METHODS
from wior.experiments.experiment import Options, perform
from wior.experiments.reproduce import EXPERIMENTS
from wior.orders import BY_NAME
from wior.saving import folders
from wior.saving.folders import RunFolder

FILES = {"config.json", "summary.json", "history.jsonl", "report.md", "picture.png", "picture.pdf"}


def made(out, experiment=Made(), options=Options(), **more):
    return perform(experiment, "made up", out, options, **more)


def test_a_run_leaves_one_whole_folder(tmp_path):
    out = tmp_path / "below" / "out"
    summary = made(out)
    assert list(out.parent.iterdir()) == [out]
    assert {path.name for path in out.iterdir()} == FILES == set(summary["files"])
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["claims"] == as_json(Made().claims)
    config = json.loads((out / "config.json").read_text())
    assert config["made_by"] == "wior made up"
    assert config["settings"] == {"number": 1}
    assert_pictures(out, "picture")


def test_the_report_has_the_verdicts(tmp_path):
    made(tmp_path / "out")
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.startswith("# Made up\n")
    assert "- **holds**: It holds.\n  3 > 2." in report
    assert "- **partly**: It may.\n  2 = 2." in report
    assert "A quick version" not in report
    made(tmp_path / "out", Made(claims=()), Options(quick=True))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Verdicts" not in report
    assert "A quick version" in report


def test_an_interrupted_run_goes_on_with_what_is_missing(tmp_path):
    out, begun = tmp_path / "out", []
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(begun=begun, fail_at="b b"))
    assert begun == ["a", "b b"]
    assert not out.exists()
    begun.clear()
    made(out, Made(begun=begun), resume=True)
    assert begun == ["b b", "c/c"]
    made(tmp_path / "undisturbed")
    for name in FILES:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "undisturbed"]


def test_a_run_that_fails_at_the_end_computes_nothing_again(tmp_path):
    out, begun = tmp_path / "out", []
    with pytest.raises(OSError, match="full"):
        made(out, Made(begun=begun, fail_late=True, error=OSError("disk full")))
    made(out, Made(begun=begun), resume=True)
    assert begun == ["a", "b b", "c/c"]
    assert {path.name for path in out.iterdir()} == FILES


def test_an_unfinished_run_is_refused_without_being_asked_to_go_on(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(fail_at="c/c"))
    with pytest.raises(
        FileExistsError, match=r"unfinished run; resume it with --resume, or .* deleting .*\.out-unfinished"
    ):
        made(out)
    begun = []
    made(out, Made(begun=begun), resume=True)
    assert begun == ["c/c"]


@pytest.mark.parametrize(
    ("experiment", "options", "differs"),
    [
        (Made(number=2), Options(), "settings"),
        (Made(), Options(seeds=3), "options"),
        (Made(number=2), Options(quick=True), "options, settings"),
    ],
)
def test_another_run_is_not_taken_for_the_unfinished_one(tmp_path, experiment, options, differs):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(fail_at="c/c"))
    with pytest.raises(ValueError, match=rf"differs in {differs}\)"):
        made(out, experiment, options, resume=True)
    made(out, resume=True)


def test_a_run_may_be_finished_on_another_machine(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(fail_at="c/c"))
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    made(out, resume=True)
    assert json.loads((out / "config.json").read_text())["machine"] != "abacus"


@pytest.mark.parametrize("error", [KeyboardInterrupt, FileNotFoundError("no data")])
def test_a_run_that_computed_nothing_leaves_nothing(tmp_path, error):
    out = tmp_path / "out"
    with pytest.raises(error if isinstance(error, type) else type(error)):
        made(out, Made(fail_at="a", error=error))
    assert list(tmp_path.iterdir()) == []


def killed(out, **config):
    """What is left where the process of a run is killed in its first piece."""
    return RunFolder(out, {"made_by": "wior made up", **config})


def test_what_was_killed_before_its_first_piece_is_in_nobodys_way(tmp_path):
    out = tmp_path / "out"
    folder = killed(out, number=1)
    (folder.work / "checkpoints" / "a" / "metadata").mkdir(parents=True)  # of a run that never saved itself
    for number in (1, 2):
        again = killed(out, number=number)
        assert json.loads((again.work / "config.json").read_text())["number"] == number
        assert not list((again.work / "pieces").iterdir())
    (again.work / "checkpoints" / "a" / "40").mkdir(parents=True)  # one that did
    with pytest.raises(FileExistsError, match="--resume"):
        killed(out, number=2)
    assert RunFolder(out, {"made_by": "wior made up", "number": 2}, resume=True).work == folder.work


def test_runs_into_one_folder_do_not_mix_their_pieces(tmp_path):
    first = killed(tmp_path / "out", number=1)  # still at its first piece
    second = killed(tmp_path / "out", number=2)
    with pytest.raises(FileExistsError, match=r"another run into .* was begun in the meantime"):
        first.piece("a", lambda: {"values": np.ones(1)})
    with pytest.raises(FileExistsError, match=r"another run into .* was begun in the meantime"):
        first.finish()
    assert second.piece("a", lambda: {"values": np.zeros(1)})["values"] == 0
    with pytest.raises(FileExistsError, match="--resume"):
        killed(tmp_path / "out", number=1)


def test_a_damaged_configuration_is_another_run(tmp_path):
    out = tmp_path / "out"
    folder = killed(out)
    folder.piece("a", lambda: {"values": np.zeros(1)})
    for text in ("", "[1]", "{}"):
        (folder.work / "config.json").write_text(text)
        with pytest.raises(ValueError, match="is another one"):
            RunFolder(out, {"made_by": "wior made up"}, resume=True)


def test_pieces_keep_their_arrays(tmp_path):
    folder = killed(tmp_path / "out")
    arrays = {"scores": np.array([1.0, np.nan]), "step": np.arange(3), "about": np.array(json.dumps({"best": None}))}
    folder.piece("one (of two)", lambda: arrays)
    again = folder.piece("one (of two)", lambda: pytest.fail("computed again"))
    for name, values in arrays.items():
        np.testing.assert_array_equal(again[name], values)
        assert again[name].dtype == values.dtype


def test_an_earlier_run_is_replaced(tmp_path):
    out = tmp_path / "out"
    made(out)
    made(out, Made(number=2))
    assert json.loads((out / "summary.json").read_text())["number"] == 2
    assert list(tmp_path.iterdir()) == [out]


def test_an_earlier_run_stays_where_a_later_one_fails(tmp_path):
    out = tmp_path / "out"
    made(out)
    with pytest.raises(KeyboardInterrupt):
        made(out, Made(number=2, fail_at="b b"))
    assert json.loads((out / "summary.json").read_text())["number"] == 1


@pytest.mark.parametrize(
    "content",
    [
        {"thesis.tex": "mine"},
        {"config.json": "{}"},
        {"config.json": "[]", "summary.json": "[]"},
        {"config.json": '{"made_by": "another program"}', "summary.json": '{"files": []}'},
        {"config.json": '{"made_by": "wior run irm"}', "summary.json": '{"files": ["summary.json"]}', "notes": "mine"},
    ],
)
def test_a_folder_that_is_not_ours_is_left_as_it_is(tmp_path, content):
    out = tmp_path / "out"
    out.mkdir()
    for name, text in content.items():
        (out / name).write_text(text)
    begun = []
    with pytest.raises(FileExistsError, match=f"{out} holds something other than an earlier run and was left as it is"):
        made(out, Made(begun=begun))
    assert begun == []
    assert {path.name: path.read_text() for path in out.iterdir()} == content
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_filled_by_another_during_the_run_loses_nothing(tmp_path):
    out, begun = tmp_path / "out", []

    class Other(Made):
        def run(self, options, piece):
            out.mkdir()
            (out / "notes").write_text("mine")
            return super().run(options, piece)

    with pytest.raises(FileExistsError, match="left as it is"):
        made(out, Other(begun=begun))
    assert (out / "notes").read_text() == "mine"
    (out / "notes").unlink()
    made(out, Made(begun=begun), resume=True)
    assert begun == ["a", "b b", "c/c"]


@pytest.mark.parametrize("key", EXPERIMENTS)
@pytest.mark.parametrize("quick", [False, True])
def test_an_experiment_says_what_it_will_do(key, quick):
    options = Options(quick=quick)
    assert EXPERIMENTS[key].TITLE
    assert EXPERIMENTS[key].FIGURE
    assert EXPERIMENTS[key].count(options) > 0
    settings = EXPERIMENTS[key].settings(options)
    assert json.loads(json.dumps(settings, allow_nan=False))


def test_no_two_pieces_of_an_experiment_are_one_file():
    everywhere = Options()
    pieces = {
        "irm": [f"{regime.name} {one.label}" for regime in irm.regimes(everywhere) for one in irm.ENTRANTS],
        "cleaning": [
            *(one.label for one in cleaning.entrants(everywhere)),
            *(f"{name} {one.label}" for name in cleaning.VARIANTS for one in cleaning.OURS),
        ],
        "omniglot": [f"{panel.name} {one.label}" for panel in few_shot.PANELS for one in few_shot.ENTRANTS],
        "compare": [f"{kind.__name__}, {order}" for kind in METHODS.values() for order in BY_NAME],
    }
    for key, names in pieces.items():
        assert len({folders._as_file_name(name) for name in names}) == len(names), key
        if key in EXPERIMENTS:
            assert EXPERIMENTS[key].count(everywhere) == len(names)
