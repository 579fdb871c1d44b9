"""`wior compare`, `wior run`, `wior reproduce` and `wior tasks` as a user meets them."""

import contextlib
import dataclasses
import io
import json
import sys

import numpy as np
import pytest

from made_experiment import Made
from runs import run_main
from small_comparisons import STEPS, assert_pictures, assert_tables, small_task
from wior import cli, figures
from wior.data import files
from wior.experiments import comparison, contest, few_shot
from wior.experiments.contest import PAPERS, Contest
from wior.experiments.experiment import Options
from wior.experiments.named_tasks import TASKS, shorter
from wior.experiments.reproduce import EXPERIMENTS
from wior.orders import BY_NAME
from wior.saving import folders


@pytest.fixture(scope="module", autouse=True)
def small_portfolio():
    """The named task is the small one, whose programs all tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "portfolio", TASKS["portfolio"]._replace(make=shorter(lambda options: small_task())))
        yield


COMPARE = ("compare", "portfolio", "--steps", "40", "--seeds", "2", "--orders", "independent,random-reshuffling")


def command(*arguments):
    """The command line in this process, where no test's own capture is at hand."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr(sys, "argv", ["wior", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def comparison_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    return folder / "out", command(*COMPARE, "--no-progress", "--out", str(folder / "out"))


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures take longer than such runs, and are looked at elsewhere."""
    monkeypatch.setattr(contest, "plot", lambda task, outcomes: figures.new_figure(1, 1))


def history(folder):
    """Every record, without the seconds."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def test_compare_prints_a_table_and_leaves_a_folder(comparison_run):
    out, (code, printed, errors) = comparison_run
    assert (code, errors) == (0, "")
    for text in ("WiORComp, independent", "WiORComp, random-reshuffling", "gap", "±", "step sizes", "Report, figures"):
        assert text in printed
    assert max(map(len, printed.splitlines())) <= 100
    assert list(out.parent.iterdir()) == [out]
    summary = json.loads((out / "summary.json").read_text())
    assert {path.name for path in out.iterdir()} == set(summary["files"])
    assert {"comparison.png", "comparison.pdf", "report.md", "history.jsonl"} <= set(summary["files"])
    assert_pictures(out, "comparison")
    assert_tables((out / "report.md").read_text(), columns=7)
    assert len(history(out)) == 2 * 2 * 41
    assert [row["steps"] for row in summary["methods"]] == [40, 40]
    assert all(len(row["grid"]) == 2 for row in summary["methods"])


def test_an_interrupted_comparison_says_how_to_go_on_and_ends_as_if_undisturbed(
    comparison_run, undrawn, monkeypatch, capsys, tmp_path
):
    undisturbed, _ = comparison_run
    out, begun, run = tmp_path / "out", [], comparison._run

    def counted(task, one, *rest):
        begun.append(one.label)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return run(task, one, *rest)

    monkeypatch.setattr(comparison, "_run", counted)
    arguments = (*COMPARE, "--no-progress", "--out", str(out))
    code, printed, errors = run_main(monkeypatch, capsys, *arguments)
    assert (code, printed) == (130, "")
    assert errors == "wior: interrupted; 'wior compare portfolio --resume' with the same options goes on\n"
    assert begun == ["WiORComp, independent", "WiORComp, random-reshuffling"]
    code, printed, errors = run_main(monkeypatch, capsys, *arguments)
    assert (code, printed) == (1, "")
    assert "--resume" in errors
    code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--seeds", "3", "--resume")
    assert (code, printed) == (1, "")
    assert "differs in options" in errors
    code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--resume", "--json")
    assert (code, errors) == (0, "")
    assert begun[2:] == ["WiORComp, random-reshuffling"]
    assert history(out) == history(undisturbed)
    assert list(tmp_path.iterdir()) == [out]
    summary = json.loads(printed)
    assert summary.pop("folder") == str(out)
    assert summary == json.loads((out / "summary.json").read_text())


def test_a_piece_that_was_interrupted_goes_on_from_its_checkpoint(
    comparison_run, undrawn, monkeypatch, capsys, tmp_path
):
    undisturbed, _ = comparison_run
    out, told, run, interrupt = tmp_path / "out", [], comparison._run, [True]

    def interrupted(*args):
        *rest, _, checkpoint = args

        def report(step, latest):
            told.append(step)
            if interrupt and step >= 20:
                raise KeyboardInterrupt

        return run(*rest, report, dataclasses.replace(checkpoint, every_steps=8))

    monkeypatch.setattr(comparison, "_run", interrupted)
    options = ("--steps", "40", "--seeds", "2", "--no-progress", "--out", str(out))
    arguments = ("compare", "portfolio", "--orders", "random-reshuffling", *options)
    assert run_main(monkeypatch, capsys, *arguments)[0] == 130
    assert [path.name for path in tmp_path.iterdir()] == [".out-unfinished"]
    assert run_main(monkeypatch, capsys, *arguments)[0] == 1
    told.clear()
    interrupt.clear()
    assert run_main(monkeypatch, capsys, *arguments, "--resume")[0] == 0
    assert min(told) > 16
    expected = [line for line in history(undisturbed) if line["label"] == "WiORComp, random-reshuffling"]
    assert history(out) == expected
    assert list(tmp_path.iterdir()) == [out]


def test_run_is_one_method_under_one_order(comparison_run, undrawn, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    arguments = (
        "run",
        "portfolio",
        "--method",
        "WiORComp",
        "--outer-lr",
        "0.003,0.03",
        "--seeds",
        "2",
        "--steps",
        "40",
    )
    code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--json", "--no-progress")
    assert (code, errors) == (0, "")
    summary = json.loads(printed)
    assert [path.name for path in tmp_path.iterdir()] == ["wior-run-portfolio"] == [summary["folder"]]
    (row,) = summary["methods"]
    assert row["label"] == "WiORComp, random-reshuffling"
    both = json.loads((comparison_run[0] / "summary.json").read_text())["methods"]
    (same,) = (other for other in both if other["label"] == row["label"])
    for name in ("setting", "gap", "grid"):
        assert row[name] == same[name]
    code, printed, _ = run_main(monkeypatch, capsys, *arguments)  # again, over the folder, with its progress on stderr
    assert code == 0
    assert "WiORComp" in printed
    assert "wior-run-portfolio/" in printed


def test_a_contest_takes_the_methods_of_the_problem_and_of_what_it_is_restated_as():
    assert set(PAPERS.values()) == {"wiorbo", "wiorcbo", "wiorcomp", "wiorccomp", "wiorminimax"}
    assert Contest("portfolio").methods == ("wiorcomp",)
    assert Contest("portfolio", methods=("WiORBO", "scgd")).methods == ("wiorbo", "scgd")
    herded = Contest("portfolio", orders=("herding",), steps=7, batch_size=3, outer_lr=(0.5,))
    task = herded.task(Options(quick=True))
    assert (task.steps, task.batch_size, task.grid["outer_lr"]) == (7, 3, (0.5,))
    assert Contest("portfolio").task(Options(quick=True)).steps == STEPS // 10
    (one,) = herded.entrants(task)
    assert (one.label, one.order) == ("WiORComp, herding", BY_NAME["herding"])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("run", "protfolio"), "task must be one of auc, auc-ijcnn1, cleaning"),
        (("compare", "portfolio", "--methods", "wiorcomp,adam"), "got adam"),
        (("run", "portfolio", "--order", "sorted"), "order must be one of"),
        (("compare", "portfolio", "--orders", ","), "got none"),
        (("run", "portfolio", "--outer-lr", "0.1,fast"), "--outer-lr must be numbers with commas between, got '0.1,fast'"),
        (("run", "portfolio", "--inner-lr", "-1"), "--inner-lr must be positive"),
        (("run", "portfolio", "--inner-lr", "nan"), "--inner-lr must be positive"),
        (("run", "portfolio", "--outer-lr", "inf"), "--outer-lr must be positive"),
        (("run", "portfolio", "--steps", "0"), "--steps"),
        (("run", "portfolio", "--batch-size", "few"), "--batch-size"),
        (("compare", "portfolio", "--seeds", "0"), "--seeds"),
        (("run", "portfolio", "--method", "wiorcbo"), "WiORCBO solves ConditionalBilevel problems; portfolio is Compositional"),
        (("run", "irm", "--method", "wiorbo"), "WiORBO solves Bilevel problems; irm is ConditionalBilevel"),
        (("reproduce", "figure1"), "figure1"),
        (("reproduce",), "Missing argument"),
        (("run",), "Missing argument"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line(monkeypatch, capsys, tmp_path, arguments, part):
    monkeypatch.chdir(tmp_path)
    code, printed, errors = run_main(monkeypatch, capsys, *arguments)
    assert (code, printed) == (2, "")
    assert errors.startswith("wior: ")
    assert errors.count("\n") == 1
    assert part in errors
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_panel_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, printed, errors = run_main(monkeypatch, capsys, "reproduce", "omniglot", "--only", "5x1,7x7", "--no-progress")
    assert (code, printed) == (2, "")
    assert "--only must name panels, some of 5x1, 5x5, 20x1, 20x5; got 7x7" in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_data_are_one_line_and_leave_nothing(monkeypatch, capsys, tmp_path):
    for name in ("empty", "cache", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("WIOR_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def no_network(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(files, "download", no_network)
    for arguments in (("run", "ridge-ijcnn1"), ("reproduce", "cleaning"), ("reproduce", "omniglot", "--quick")):
        for _ in range(2):  # the second time nothing is in the way
            code, printed, errors = run_main(monkeypatch, capsys, *arguments, "--no-progress")
            assert (code, printed) == (1, "")
            assert errors.startswith("wior: ")
            assert errors.count("\n") == 1
            assert "no network" in errors
            assert list((tmp_path / "here").iterdir()) == []


def test_strict_wants_every_claim_to_hold(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for claims, expected in ((Made().claims, 3), (Made().claims[:1], 0)):
        monkeypatch.setitem(EXPERIMENTS, "irm", Made(claims=claims))
        for strict, code in (((), 0), (("--strict",), expected)):
            found, printed, errors = run_main(monkeypatch, capsys, "reproduce", "irm", "--no-progress", *strict)
            assert (found, errors) == (code, "")
            assert "holds  It holds." in printed
            assert ("partly  It may." in printed) == (len(claims) > 1)
            assert "wior-reproduce-irm/" in printed


def test_a_folder_of_any_name_is_shown_as_it_is(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "irm", Made())
    code, printed, _ = run_main(monkeypatch, capsys, "reproduce", "irm", "--no-progress", "--out", "runs[red][bold]")
    assert code == 0
    assert "runs[red][bold]/" in printed


def test_a_traceback_of_an_experiment_is_shown_on_request_only(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "irm", Made(fail_at="b b", error=RuntimeError("first line\nsecond line")))
    found = run_main(monkeypatch, capsys, "reproduce", "irm", "--no-progress")
    assert found == (1, "", "wior: first line second line\n")
    monkeypatch.setattr(sys, "argv", ["wior", "reproduce", "irm", "--no-progress", "--debug", "--resume"])
    with pytest.raises(RuntimeError, match="first line"):
        cli.main()


def test_tasks_lists_them_all(monkeypatch, capsys):
    code, printed, errors = run_main(monkeypatch, capsys, "tasks")
    assert (code, errors) == (0, "")
    assert len(TASKS) >= 10
    for name, task in TASKS.items():
        assert f" {name} " in printed
        assert task.problem.__name__ in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_only_is_for_figures_with_panels(monkeypatch, capsys):
    code, _, said = run_main(monkeypatch, capsys, "reproduce", "irm", "--only", "5x1")
    assert code == 2
    assert "--only is for figures with panels" in said


def test_the_pieces_stay_where_the_folder_cannot_get_its_name(tmp_path, monkeypatch):
    folder = folders.RunFolder(tmp_path / "out", {"made_by": "wior test"})
    folder.piece("one", lambda: {"numbers": np.arange(3)})

    def fail(staged, path):
        raise OSError("no")

    monkeypatch.setattr(folders, "put_in_place", fail)
    with pytest.raises(OSError, match="no"):
        folder.finish()
    monkeypatch.undo()
    again = folders.RunFolder(tmp_path / "out", {"made_by": "wior test"}, resume=True)
    np.testing.assert_array_equal(again.piece("one", lambda: pytest.fail("made again"))["numbers"], np.arange(3))


def test_every_named_task_has_its_quick_version_once():
    """Drawings have a quick version of their own, which is not cut again."""
    full, quick = (Contest("few-shot").task(Options(quick=quick)).steps for quick in (False, True))
    assert (full, quick) == (few_shot.GLYPHS.steps, few_shot.GLYPHS.quick["steps"])
    full, quick = (Contest("portfolio").task(Options(quick=quick)).steps for quick in (False, True))
    assert quick == full // 10
