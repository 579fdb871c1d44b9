"""`wior clean` where it cannot be done: one line, and nothing is left."""

import sys
import warnings

import pytest

from clean_runs import DATA, MARKED, QUICK, TABLE, assert_refused, contents, failing, marked, run, write_table
from wior import cli
from wior.cleaning.label_cleaner import LabelCleaner


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("clean", "none.csv", "--label", "label", "--verified-column", "checked"), "none.csv is not there"),
        (marked("--label", "lable"), "has no column 'lable', which --label names; its columns are 'key', 'a'"),
        (marked("--id", "color"), "color"),
        (marked("--ignore", "a,c"), "has no column 'c', which --ignore names"),
        (("clean", "same.csv", *TABLE[1:]), "same.csv: all labels are 'cat'; there must be two classes at least"),
        (marked("--verified", "table.csv"), "table.csv: every row is verified, none is left to be judged"),
        (("clean", *TABLE, "--verified", "none.csv"), "none.csv is not there"),
        (("clean", *TABLE, "--verified-column", "color", *QUICK), "'red' must be true, yes, 1 or x"),
        (("clean", "few.csv", *MARKED[1:]), "X_verified must have at least 4 rows, got 3"),
        (("clean", "one.csv", *MARKED[1:]), "y_verified must have at least two classes, got one class only: 'cat'"),
        (marked("--threshold", "1.5"), "threshold must lie between 0 and 1, or be None, got 1.5"),
        (marked("--seed", "-1"), "random_state must lie between 0 and 2**63 - 1, got -1"),
        (marked("--outer-lr", "-1"), "outer_lr must be a positive finite number, got -1.0"),
        (marked("--inner-lr", "nan"), "inner_lr must be a positive finite number, got nan"),
        (marked("--l2", "-1"), "l2 must be a finite number that is not negative, got -1.0"),
        (marked("--resume"), "--resume needs --checkpoint, the folder in which the interrupted run was saved"),
        (marked("--checkpoint", "theirs"), "theirs is not empty; go on with the run in it by --resume, or give another folder"),
        (marked("--checkpoint", "a-file"), "a-file: Not a directory"),
        (marked("--out", "a-file"), "is a file; give a folder for the output"),
        (marked("--out", "theirs"), "holds something other than an earlier run and was left as it is"),
        (marked("--out", "."), "table.csv lies in the output folder ., which is replaced"),
        (marked("--out", "a-file/below"), "cannot be made"),
        (marked("--out", "ours", "--checkpoint", "ours/saved"), "ours/saved lies in the output folder ours, which is replaced"),
        (("clean", "ours/table.csv", *MARKED[1:], "--out", "ours"), "ours/table.csv lies in the output folder ours, which is replaced"),
        (("clean", *TABLE, "--verified", "ours/table.csv", "--out", "ours"), "ours/table.csv lies in the output folder ours"),
        (("clean", ".", "--verified", "theirs"), "the output folder wior-clean lies in ."),
        (("clean", "pictures", "--verified", "theirs", "--out", "pictures/new/out"), "pictures/new/out lies in pictures; give another one by --out"),
        (("clean", "--out", "theirs"), "holds something other than an earlier run"),
        (("apply", "none.csv", "table.csv"), "none.csv is not there"),
        (("apply", "table.csv", "table.csv"), "table.csv must be decisions with the columns id,given,decision,label"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(here, arguments, part):
    (here / "a-file").write_text("mine")
    (here / "theirs").mkdir()
    (here / "theirs" / "thesis.tex").write_text("mine")
    (here / "pictures").mkdir()
    lines = [[*line[:6], "yes" if at < 3 else ""] for at, line in enumerate(DATA.lines)]
    write_table("few.csv", lines)
    write_table("same.csv", [[*line[:5], "cat", line[6]] for line in DATA.lines])
    write_table("one.csv", [[*line[:6], "yes" if line[5] == "cat" else ""] for line in DATA.lines])
    (here / "ours").mkdir()
    (here / "ours" / "config.json").write_text('{"made_by": "wior clean"}')
    (here / "ours" / "summary.json").write_text('{"files": ["table.csv", "summary.json"]}')
    write_table(here / "ours" / "table.csv")
    before = contents()
    assert_refused(run(*arguments), 1, part, before)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (marked("--epochs", "0"), "--epochs"),
        (marked("--epochs", "two"), "--epochs"),
        (marked("--batch-size", "0"), "--batch-size"),
        (marked("--hidden", "wide"), "--hidden must be positive whole numbers with commas between, got 'wide'"),
        (marked("--hidden", "-3"), "--hidden must be positive whole numbers with commas between, got '-3'"),
        (marked("--hidden", "64.5"), "--hidden"),
        (marked("--order", "backwards"), "--order must be one of independent, incremental,"),
        (marked("--weighting", "rows"), "'rows' is not one of 'auto', 'noise', 'function', 'row'"),
        (marked("--model", "tree"), "'tree' is not one of 'auto', 'linear', 'mlp'"),
        (marked("--labels", "label"), "--labels"),
        (marked("another.csv"), "another.csv"),
        (("clean", "--label", "y", "--verified", "v.csv"), "--label, --verified needs a table: wior clean train.csv"),
        (("clean", "--ignore", "a"), "--ignore needs a table"),
        (("apply", "decisions.csv"), "Missing argument 'table'"),
    ],
)
def test_bad_usage_is_one_line_and_code_2(here, arguments, part):
    assert_refused(run(*arguments), 2, part, contents())


def test_folders_made_for_the_output_go_with_it(here):
    before = contents()
    assert_refused(run(*marked("--out", "new/er/out", "--label", "lable")), 1, "lable", before)


@pytest.mark.slow
def test_where_learning_fails_nothing_is_left(here):
    before = contents()
    ran = run(*marked("--inner-lr", "1e30"))
    assert_refused(ran, 1, "the model diverged on the held-out verified rows under every setting", before)


def test_a_traceback_is_shown_on_request_only(here, monkeypatch):
    monkeypatch.setattr(LabelCleaner, "fit_job", failing(RuntimeError("it")))
    monkeypatch.setattr(sys, "argv", ["wior", *marked("--debug")])
    before = contents()
    with pytest.raises(RuntimeError, match="it"):
        cli.main()
    assert contents() == before


def test_a_save_that_fails_is_reported(here, monkeypatch):
    def fit(*arguments, **options):
        warnings.warn("no verified row of 'c': these labels are taken as they are", stacklevel=2)  # is among the notes
        for number in (5, 6):  # each candidate has a folder of its own, on the same disk
            warnings.warn(f"checkpoint folder 'saved/{number}' cannot be written\nat step {number}", stacklevel=2)
        raise RuntimeError("enough")

    monkeypatch.setattr(LabelCleaner, "fit_job", fit)
    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = run(*marked("--checkpoint", "saved"))
    said = "wior: warning: checkpoint folder 'saved/5' cannot be written at step 5\nwior: enough\n"
    assert (ended.code, ended.err) == (1, said)
    assert warnings.showwarning is before


@pytest.mark.parametrize(
    ("options", "message"),
    [((), "interrupted"), (("--checkpoint", "saved"), "interrupted; the same command with --resume continues")],
)
def test_an_interruption_is_said_and_leaves_no_folder(here, monkeypatch, options, message):
    monkeypatch.setattr(LabelCleaner, "fit_job", failing(KeyboardInterrupt()))
    before = contents()
    assert_refused(run(*marked(*options)), 130, f"wior: {message}\n", before)
