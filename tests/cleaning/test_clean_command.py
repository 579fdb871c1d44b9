"""`wior clean` and `wior apply` as a user meets them: every file of the folder, what is refused, and that nothing half done is left."""

import contextlib
import csv
import io
import json
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib.image
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import make_blobs

import wior
from wior import cli
from wior.cleaning import choosing, command, demo, plots, terminal
from wior.cleaning.choosing import TEMPERATURES, Trial
from wior.cleaning.command import COLUMNS
from wior.cleaning.designs import Setting
from wior.cleaning.label_cleaner import LabelCleaner
from wior.cleaning.review.guard import unguard
from wior.saving.folders import made_by_wior, whole_folder

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    with contextlib.chdir(folder):
        write_table("table.csv")
    return folder


@pytest.fixture(scope="module")
def cleaned(folder):
    """Verified rows marked by a column."""
    with contextlib.chdir(folder):
        return clean(*MARKED)


@pytest.fixture(scope="module")
def known(folder, cleaned):
    """Over the folder of the first: verified rows in a file of their own, three of them with another label in the table; corrected labels."""
    lines = [list(line) for line in DATA.lines]
    for at in range(3):
        lines[at][5] = str(NAMES[(list(NAMES).index(DATA.true[at]) + 1) % 3])
    with contextlib.chdir(folder):
        write_table("table.csv", lines)
        write_table("verified.csv", [line[:6] for line in DATA.lines[:VERIFIED]][::-1], HEADER[:6])
        options = ("--threshold", "0.4", "--seed", "7", "--relabel", "--json")
        return lines, clean(*TABLE, "--verified", "verified.csv", "--ignore", "checked", *QUICK, *options)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table("table.csv")
    return tmp_path


# the folder


def test_the_folder_has_its_files_and_nothing_is_beside_it(cleaned):
    assert cleaned.ran.code == 0, cleaned.ran.err
    assert cleaned.ran.err == ""
    assert set(cleaned.files) == FILES
    assert list(cleaned.beside) == ["table.csv"]
    assert cleaned.beside["table.csv"] == as_bytes(DATA.lines)


def test_every_row_has_its_line(cleaned):
    lines = cleaned.rows
    assert cleaned.files["rows.csv"].decode().splitlines()[0] == "id,given,weight,score,flagged,suggested,confidence"
    assert tuple(lines[0]) == COLUMNS
    assert [line["id"] for line in lines] == [line[0] for line in DATA.lines]
    assert [unguard(line["given"]) for line in lines] == DATA.given.tolist()
    for name in ("weight", "score", "confidence"):
        values = np.array([float(line[name]) for line in lines])
        assert values.min() >= 0
        assert values.max() <= 1
    assert {line["flagged"] for line in lines} == {"true", "false"}
    np.testing.assert_array_equal(cleaned.flagged, [float(line["score"]) < 0.5 for line in lines])
    assert {unguard(line["suggested"]) for line in lines} == set(NAMES)


def test_a_label_that_a_spreadsheet_would_run_is_guarded(cleaned):
    """In the list of rows; in the cleaned copy a cell stays what it is."""
    text = cleaned.files["rows.csv"].decode()
    assert text.count("'=cmd()") > 40
    assert text.count("=cmd()") == text.count("'=cmd()")
    assert "'=cmd()" not in cleaned.files["cleaned.csv"].decode()


def test_wrong_labels_are_found(cleaned):
    assert np.mean(cleaned.flagged == (DATA.true != DATA.given)) > 0.93
    suggested = np.array([unguard(line["suggested"]) for line in cleaned.rows])
    assert np.mean(suggested == DATA.true) > 0.93


def test_verified_rows_are_right(cleaned):
    for line in cleaned.rows[:VERIFIED]:
        assert (line["weight"], line["score"], line["confidence"], line["flagged"]) == ("1", "1", "1", "false")
        assert line["suggested"] == line["given"]


def test_the_cleaned_copy_lacks_the_flagged_rows_and_has_every_other_byte(cleaned):
    kept = [line for line, flagged in zip(DATA.lines, cleaned.flagged, strict=True) if not flagged]
    assert cleaned.files["cleaned.csv"] == as_bytes(kept)


@pytest.mark.slow
def test_the_same_command_gives_the_same_bytes(cleaned, here):
    again = clean(*MARKED)
    assert again.ran == cleaned.ran
    assert again.files == cleaned.files


def test_the_summary_says_what_the_rows_say(cleaned):
    summary, lines, flagged = cleaned.summary, cleaned.rows, cleaned.flagged
    assert (summary["made_by"], summary["version"]) == ("wior clean", wior.__version__)
    assert (summary["rows"], summary["verified_rows"], summary["known_rows"]) == (ROWS, VERIFIED, VERIFIED)
    assert summary["classes"] == sorted(NAMES)
    assert summary["flagged"] == flagged.sum()
    assert summary["flagged_share"] == flagged.mean()
    for name, counts in summary["flagged_by_class"].items():
        assert counts == {"rows": (DATA.given == name).sum(), "flagged": (flagged & (DATA.given == name)).sum()}
    changes = {(change["given"], change["suggested"]): change["rows"] for change in summary["commonest_changes"]}
    pairs = [
        (unguard(line["given"]), unguard(line["suggested"])) for line, bad in zip(lines, flagged, strict=True) if bad
    ]
    assert changes == {pair: pairs.count(pair) for pair in set(pairs)}
    assert list(changes.values()) == sorted(changes.values(), reverse=True)
    assert summary["cleaned"] == {"file": "cleaned.csv", "rows": ROWS - flagged.sum(), "relabeled": 0}
    assert set(summary["files"]) == FILES
    assert summary["threshold"] == 0.5
    np.testing.assert_allclose(np.sum(summary["noise"]["table"], 1), 1, atol=1e-5)
    assert summary["trusted_classes"] == []


def test_the_summary_says_how_it_was_chosen(cleaned):
    choice, trials = cleaned.summary["choice"], cleaned.summary["trials"]
    assert choice.items() >= {"weighting": "noise", "steps_at_most": 9, "batch_size": 32, "folds": 5}.items()
    assert choice.items() >= {"model": "mlp", "hidden": [6]}.items()
    first, last = ([one for one in trials if one["steps"] == steps] for steps in (2, 9))
    assert {(one["outer_lr"], one["share"]) for one in first} == {(one.outer_lr, one.share) for one in SETTINGS}
    assert 1 <= len(last) <= 2
    assert len(trials) == 2 + len(last)
    best = min(last, key=lambda one: one["held_out_loss"])
    assert choice["held_out_loss"] == pytest.approx(best["held_out_loss"])
    assert (choice["outer_lr"], choice["start"], choice["steps"]) == (
        best["outer_lr"],
        best["start"],
        best["best_steps"],
    )


def test_the_summary_says_what_became_of_the_columns(cleaned):
    summary = cleaned.summary
    assert {name: entry["kind"] for name, entry in summary["columns"].items()} == {
        "key": "id",
        "a": "number",
        "b": "number",
        "color": "category",
        "remark": "ignored",
        "label": "label",
        "checked": "verified",
    }
    assert any("'remark' is ignored" in note for note in summary["notes"])


def test_the_configuration_is_all_that_is_needed_to_run_it_again(cleaned):
    config = cleaned.config
    assert (config["made_by"], config["relabel"]) == ("wior clean", False)
    assert config.items() >= {"train": "table.csv", "label": "label", "id": "key", "verified_column": "checked"}.items()
    assert config["settings"].items() >= {"random_state": 0, "epochs": 2, "hidden": [6], "threshold": 0.5}.items()
    assert config["settings"]["order"] == "RandomReshuffling()"


def test_the_pictures_and_the_page_are_there(cleaned):
    picture = matplotlib.image.imread(io.BytesIO(cleaned.files["overview.png"]))
    assert picture.shape[0] > 400
    assert picture.shape[1] > 1500
    assert picture[..., :3].std() > 0.05
    assert cleaned.files["overview.pdf"].startswith(b"%PDF-")
    page = cleaned.files["review.html"].decode()
    assert page.lower().startswith("<!doctype html>")
    for text in ("table.csv", "r149", "said", "loss on held-out verified rows"):
        assert text in page


def test_the_terminal_shows_what_to_look_at(cleaned):
    summary = cleaned.summary
    text = " ".join(cleaned.ran.out.split())
    assert f"{summary['flagged']} of 150 labels are probably wrong" in text
    assert "judged with 20 verified rows" in text
    assert f"{ROWS - summary['flagged']} rows, {summary['flagged']} left out" in text
    for name in ("review.html", "rows.csv", "cleaned.csv", "overview.png", "=cmd()", "猫", "Note: column 'remark'"):
        assert name in text
    assert max(map(len, cleaned.ran.out.splitlines())) <= 100


# verified rows in a file, and labels corrected


def test_an_earlier_folder_is_replaced(known):
    _, found = known
    assert found.ran.code == 0, found.ran.err
    assert set(found.files) == FILES
    assert set(found.beside) == {"table.csv", "verified.csv"}
    assert found.config["relabel"] is True


def test_json_goes_alone_to_stdout(known):
    _, found = known
    assert found.ran.err == ""
    assert json.loads(found.ran.out) == found.summary


def test_with_relabel_the_flagged_rows_have_the_suggested_labels(known):
    lines, found = known
    changed = [
        [*row[:5], unguard(line["suggested"]) if flagged else row[5], row[6]]
        for row, line, flagged in zip(lines, found.rows, found.flagged, strict=True)
    ]
    assert changed != lines
    assert found.files["cleaned.csv"] == as_bytes(changed)
    assert found.summary["cleaned"] == {"file": "cleaned.csv", "rows": ROWS, "relabeled": found.flagged.sum()}


def test_verified_rows_that_are_in_the_table_are_not_judged(known):
    lines, found = known
    for at, line in enumerate(found.rows[:VERIFIED]):
        assert unguard(line["given"]) == lines[at][5]
        assert unguard(line["suggested"]) == DATA.true[at]
        assert line["confidence"] == "1"
        assert (line["score"], line["weight"], line["flagged"]) == (
            ("0", "0", "true") if at < 3 else ("1", "1", "false")
        )
    assert found.summary["known_rows"] == VERIFIED
    expected = (
        "20 training rows found among the verified rows and not judged; 3 with another label than the verified one"
    )
    assert expected in found.summary["notes"]


def test_threshold_and_seed_are_used(known, cleaned):
    _, found = known
    scores, others = ([float(line["score"]) for line in one.rows] for one in (found, cleaned))
    np.testing.assert_array_equal(found.flagged, np.array(scores) < 0.4)
    assert scores[VERIFIED:] != others[VERIFIED:]
    assert found.config["settings"].items() >= {"random_state": 7, "threshold": 0.4}.items()
    assert (found.config["verified"], found.config["verified_column"]) == ("verified.csv", None)
    assert found.config["ignore"] == ["checked"]


# what is refused


def assert_refused(ran, code, part, before):
    """One line, and not a trace of it."""
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("wior: ")
    assert ran.err.count("\n") == 1
    assert part in ran.err
    assert contents() == before


def marked(*options):
    return ("clean", *MARKED, *options)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("clean", "none.csv", "--label", "label", "--verified-column", "checked"), "none.csv is not there"),
        (marked("--label", "lable"), "has no column 'lable', which --label names; its columns are 'key', 'a'"),
        (marked("--id", "color"), "color"),
        (marked("--ignore", "a,c"), "has no column 'c', which --ignore names"),
        (("clean", *TABLE), "give one of --verified, a file of verified rows, or --verified-column"),
        (marked("--verified", "table.csv"), "give either --verified"),
        (("clean", *TABLE, "--verified", "none.csv"), "none.csv is not there"),
        (("clean", *TABLE, "--verified-column", "color", *QUICK), "'red' must be true, yes, 1 or x"),
        (("clean", "few.csv", *MARKED[1:]), "X_verified must have at least 4 rows, got 3"),
        (("clean", "one.csv", *MARKED[1:]), "y_verified must have at least two classes, got one class only: 'cat'"),
        (marked("--threshold", "1.5"), "threshold must lie between 0 and 1, got 1.5"),
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
        (("apply", "none.csv", "table.csv"), "none.csv cannot be read: No such file or directory"),
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


def failing(error):
    def fit(self, *_):
        raise error

    return fit


def test_what_goes_wrong_in_writing_leaves_the_earlier_folder(here, monkeypatch, cleaned):
    for name, content in cleaned.files.items():
        (here / "wior-clean").mkdir(exist_ok=True)
        (here / "wior-clean" / name).write_bytes(content)
    before = contents()
    monkeypatch.setattr(LabelCleaner, "fit", failing(RuntimeError("first line\nsecond line")))
    assert_refused(run(*marked()), 1, "first line second line", before)


def test_a_traceback_is_shown_on_request_only(here, monkeypatch):
    monkeypatch.setattr(LabelCleaner, "fit", failing(RuntimeError("it")))
    monkeypatch.setattr(sys, "argv", ["wior", *marked("--debug")])
    before = contents()
    with pytest.raises(RuntimeError, match="it"):
        cli.main()
    assert contents() == before


def test_a_save_that_fails_is_reported(here, monkeypatch):
    def fit(*arguments, **options):
        warnings.warn("no verified row of 'c': these labels are taken as they are", stacklevel=2)  # is among the notes
        warnings.warn("checkpoint folder 'saved' cannot be written at step 5: no space left", stacklevel=2)
        raise RuntimeError("enough")

    monkeypatch.setattr(LabelCleaner, "fit", fit)
    with pytest.warns(UserWarning, match="cannot be written at step 5") as warned:
        assert run(*marked("--checkpoint", "saved")).code == 1
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [((), "interrupted"), (("--checkpoint", "saved"), "interrupted; the same command with --resume goes on")],
)
def test_an_interruption_is_said_and_leaves_no_folder(here, monkeypatch, options, message):
    monkeypatch.setattr(LabelCleaner, "fit", failing(KeyboardInterrupt()))
    before = contents()
    assert_refused(run(*marked(*options)), 130, f"wior: {message}\n", before)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_was(here, monkeypatch, cleaned):
    learn, begun = choosing.learn, []

    def interrupted(*arguments):
        begun.append(arguments)
        if len(begun) == 12:
            raise KeyboardInterrupt
        return learn(*arguments)

    monkeypatch.setattr(choosing, "SETTINGS", SETTINGS)
    monkeypatch.setattr(choosing, "learn", interrupted)
    assert run(*marked("--checkpoint", "saved")).code == 130
    assert {path.name for path in here.iterdir()} == {"table.csv", "saved"}
    before = contents()
    refused = run(*marked("--checkpoint", "saved"))
    assert_refused(refused, 1, "saved is not empty; go on with the run in it by --resume", before)
    other = run(*marked("--checkpoint", "saved", "--resume", "--seed", "3"))
    assert other.code == 1
    assert "belongs to another run" in other.err
    assert other.err.count("\n") == 1
    ran = run(*marked("--checkpoint", "saved", "--resume"))
    assert ran.code == 0, ran.err
    assert (here / "wior-clean" / "rows.csv").read_bytes() == cleaned.files["rows.csv"]


# decisions


def decisions(lines):
    """As the page exports them: the first flagged row is kept, the second left open, the others fixed."""
    bad = [line for line in lines if line["flagged"] == "true"]
    made = [("keep", ""), ("skip", ""), *(("fix", line["suggested"]) for line in bad[2:])]
    rows = [(line["id"], line["given"], *one) for line, one in zip(bad, made, strict=True)]
    return bad, [("id", "given", "decision", "label"), *rows]


def test_decisions_are_applied_to_the_table(here, cleaned):
    bad, made = decisions(cleaned.rows)
    assert any(row[3] == "'=cmd()" for row in made)
    with Path("decisions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(made)
    ran = run("apply", "decisions.csv", "table.csv")
    assert ran == Ran(0, f"{len(bad) - 2} labels corrected, 1 kept, 1 left open: table.corrected.csv\n", "")
    fixed = {line["id"]: unguard(line["suggested"]) for line in bad[2:]}
    expected = [[*line[:5], fixed.get(line[0], line[5]), line[6]] for line in DATA.lines]
    assert read_table("table.corrected.csv") == [HEADER, *expected]
    assert read_table("table.csv")[1:] == DATA.lines
    before = contents()
    assert_refused(run("apply", "decisions.csv", "table.csv"), 1, "table.corrected.csv is there already", before)
    ran = run("apply", "decisions.csv", "table.csv", "--out", "new.csv", "--label", "label", "--id", "key", "--json")
    assert ran.err == ""
    assert json.loads(ran.out) == {"out": "new.csv", "fixed": len(bad) - 2, "kept": 1, "skipped": 1}
    assert read_table("new.csv") == [HEADER, *expected]


# the pieces


class Fitted(NamedTuple):
    """What the summary asks of a cleaner."""

    trials_: list
    choice_: dict


A, B = Setting("noise", "counted", 1.0, 0.1, 1.0), Setting("noise", "trusting", 2.0, 0.1, 0.0)


def trial(setting, fold, *losses, end=10):
    steps = np.linspace(0, end, len(losses)).astype(int)
    return Trial(setting, fold, steps, np.outer(losses, np.ones(len(TEMPERATURES))))


def diverged(setting, fold, end):
    return Trial(setting, fold, np.full(1, end), np.full((1, len(TEMPERATURES)), np.inf))


def test_candidates_that_diverged_are_listed_without_a_loss():
    heat = [trial(A, 0, 3, 2, end=4), trial(A, 1, 3, 4, end=4), trial(B, 0, 1, 1, end=4), diverged(B, 1, 4)]
    last = [trial(A, 0, 3, 2, 1), trial(A, 1, 3, 4, 1)]
    found = command.trials(Fitted(heat + last, {}))
    assert [(one["start"], one["steps"], one["best_steps"], one["held_out_loss"]) for one in found] == [
        ("counted", 4, 0, 3.0),
        ("trusting", 4, None, None),
        ("counted", 10, 10, 1.0),
    ]
    json.dumps(found, allow_nan=False)


def test_learning_curves_are_those_that_ran_to_the_end_on_every_fold():
    heat = [trial(B, fold, 1, 1, end=4) for fold in (0, 1)]
    last = [trial(A, 0, 3, 2, 1), trial(A, 1, 3, 4, 1), trial(B, 0, 3, 2, 1), diverged(B, 1, 10)]
    (found,) = command.learning_curves(Fitted(heat + last, {"steps_at_most": 10}))
    assert found.name == "loss on held-out verified rows (noise, counted start, η 1, γ 0.1, λ 1)"
    assert (found.steps, found.values) == ([0, 5, 10], [3.0, 3.0, 1.0])


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("cat", "cat"),
        ("$x_1$ and $", r"\$x_1\$ and \$"),
        ("Katze: schön, Größe", "Katze: schön,…"),
        ("猫", "?"),
        ("a\tb\x1b[31m\n", "a?b?[31m?"),
        ("", ""),
    ],
)
def test_names_in_plots_are_drawn_as_they_stand(name, drawn):
    assert plots.plain(name) == drawn


def test_plots_of_many_classes_without_anything_flagged(tmp_path):
    plots.save(tmp_path, np.ones(40), 0.5, [], np.eye(21), [f"class {number}" for number in range(21)])
    assert {path.name for path in tmp_path.iterdir()} == {"overview.png", "overview.pdf"}


@pytest.mark.parametrize(
    ("label", "shown"),
    [("cat", "cat"), ("a\n b", "a b"), (" ", "' '"), ("[bold]x", "[bold]x"), ("\x1b[31mred", "?[31mred"), ("x" * 40, "x" * 29 + "…")],
)  # fmt: skip
def test_labels_in_the_terminal_are_one_line_and_no_orders_to_it(label, shown):
    assert terminal.short(label).plain == shown


@pytest.mark.parametrize(
    ("kept", "relabeled", "text"),
    [(10, 0, "10 rows"), (7, 0, "7 rows, 3 left out"), (10, 3, "10 rows, 3 relabeled"), (9, 2, "9 rows, 2 relabeled, 1 left out")],
)  # fmt: skip
def test_the_terminal_says_what_became_of_the_rows(kept, relabeled, text):
    summary = {"rows": 10, "cleaned": {"file": "cleaned.csv", "rows": kept, "relabeled": relabeled}}
    table = terminal.files(summary, Path("out"))
    assert list(table.columns[1].cells)[2] == text


# other formats


@pytest.mark.slow
@pytest.mark.parametrize("relabel", [False, True])
def test_a_folder_of_images(here, relabel):
    rng = np.random.default_rng(0)
    for part, count in (("train", 40), ("verified", 8)):
        for at in range(count):
            dark = at % 2
            wrong = part == "train" and at < 6
            place = Path(part, "night" if dark != wrong else "day", f"{at}.png")
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(120 * (1 - dark), 120 + 120 * (1 - dark), (6, 6)).astype(np.uint8)).save(place)
    ran = run("clean", "train", "--verified", "verified", "--epochs", "20", "--hidden", "6", *["--relabel"] * relabel)
    assert ran.code == 0, ran.err
    lines = list(csv.DictReader((here / "wior-clean" / "rows.csv").read_text().splitlines()))
    wrong = {line["id"] for line in lines if line["flagged"] == "true"}
    assert {name.partition("/")[2] for name in wrong} == {f"{at}.png" for at in range(6)}
    found = {str(path.relative_to("wior-clean/cleaned")) for path in Path("wior-clean/cleaned").rglob("*.png")}
    expected = {line["id"] for line in lines} - wrong
    if relabel:
        expected |= {f"{line['suggested']}/{line['id'].partition('/')[2]}" for line in lines if line["id"] in wrong}
    assert found == expected


# the demonstration


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
