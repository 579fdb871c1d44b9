"""`wior clean` and `wior apply` as a user meets them: every file of the folder, what goes on after an interruption."""

import contextlib
import csv
import io
import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from PIL import Image

import wior
from clean_runs import (
    DATA,
    FILES,
    HEADER,
    MARKED,
    NAMES,
    QUICK,
    ROWS,
    SETTINGS,
    TABLE,
    VERIFIED,
    Ran,
    as_bytes,
    assert_refused,
    clean,
    contents,
    failing,
    marked,
    read_table,
    run,
    write_table,
)
from wior.cleaning import choosing
from wior.cleaning.label_cleaner import LabelCleaner
from wior.cleaning.output import COLUMNS
from wior.cleaning.review.guard import unguard


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
    """Over the folder of the first: verified rows in a file of their own, three of them with another label in the
    table; corrected labels.
    """
    lines = [list(line) for line in DATA.lines]
    for at in range(3):
        lines[at][5] = str(NAMES[(list(NAMES).index(DATA.true[at]) + 1) % 3])
    with contextlib.chdir(folder):
        write_table("table.csv", lines)
        write_table("verified.csv", [line[:6] for line in DATA.lines[:VERIFIED]][::-1], HEADER[:6])
        options = ("--threshold", "0.4", "--seed", "7", "--relabel", "--json")
        return lines, clean(*TABLE, "--verified", "verified.csv", "--ignore", "checked", *QUICK, *options)


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
    assert (
        config["settings"].items()
        >= {"random_state": 0, "epochs": 2, "hidden": [6], "threshold": None, "effort": "usual"}.items()
    )
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
    expected = "20 rows of the table are verified; 3 of them with another label than the given one"
    assert expected in found.summary["notes"]


def test_threshold_and_seed_are_used(known, cleaned):
    _, found = known
    scores, others = ([float(line["score"]) for line in one.rows] for one in (found, cleaned))
    np.testing.assert_array_equal(found.flagged, np.array(scores) < 0.4)
    assert scores[VERIFIED:] != others[VERIFIED:]
    assert found.config["settings"].items() >= {"random_state": 7, "threshold": 0.4}.items()
    assert (found.config["verified"], found.config["verified_column"]) == ("verified.csv", None)
    assert found.config["ignore"] == ["checked"]


def test_what_goes_wrong_in_writing_leaves_the_earlier_folder(here, monkeypatch, cleaned):
    for name, content in cleaned.files.items():
        (here / "wior-clean").mkdir(exist_ok=True)
        (here / "wior-clean" / name).write_bytes(content)
    before = contents()
    monkeypatch.setattr(LabelCleaner, "fit_job", failing(RuntimeError("first line\nsecond line")))
    assert_refused(run(*marked()), 1, "first line second line", before)


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
    assert json.loads(ran.out) == {"out": "new.csv", "fixed": len(bad) - 2, "kept": 1, "skipped": 1, "ambiguous": 0}
    assert read_table("new.csv") == [HEADER, *expected]


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
