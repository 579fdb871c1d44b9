"""From nothing to a cleaned table: rows to verify, their answers as verified rows, and more of them."""

import contextlib
import csv
import errno
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import make_blobs

from clean_runs import FILES, Ran, assert_refused, contents, run
from review_pages import block, numbers
from wior.cleaning import output, sampling
from wior.cleaning.label_cleaner import USELESS
from wior.tasks.data_cleaning import corrupt

ROWS, ASKED = 400, 60
NAMES = np.array(["ape", "bee", "cow"])
PAGE = Path("out", "verify.html")
CSV = ("clean", "train.csv", "--label", "kind", "--fast", "--no-progress", "--out", "out")


def blobs():
    X, true = make_blobs([200, 120, 80], 4, cluster_std=2.0, random_state=1)
    return X, true, corrupt(true, 0.25, 3, "pairs", 1).labels


X, TRUE, GIVEN = blobs()
WRONG = GIVEN != TRUE
IDS = [f"r{row:03d}" for row in range(ROWS)]


def write_csv(name, header, lines):
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])


def read_csv(*path):
    with Path(*path).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def write_train(given=GIVEN, features=X):
    columns = zip(range(ROWS), features.tolist(), given, strict=True)
    write_csv("train.csv", ["a", "b", "c", "d", "kind"], [[*map(repr, row), NAMES[label]] for _, row, label in columns])


def asked(page=PAGE):
    """Ids and chances of the rows on a page to verify."""
    return json.loads(block(page, "ids")), numbers(page, "chances", "<f8")


def answer(name, right, page=PAGE, given=None):
    """As the page exports it; `right` has the label of each id."""
    ids, chances = asked(page)
    about = json.loads(block(page, "about"))
    shown = [about["classes"][code] for code in numbers(page, "given", "u1")]
    lines = [
        (id_, label if given is None else given, right[id_], repr(float(chance)))
        for id_, label, chance in zip(ids, shown, chances, strict=True)
    ]
    write_csv(name, ["id", "given", "verified", "chance"], lines)
    return lines


BY_NUMBER = {str(row + 1): NAMES[label] for row, label in enumerate(TRUE)}


def rows_of(folder="out"):
    with Path(folder, "rows.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary(folder="out"):
    return json.loads(Path(folder, "summary.json").read_text())


def f1(lines, wrong):
    flagged = np.array([line["flagged"] == "true" for line in lines])
    return 2 * (flagged & wrong).sum() / (flagged.sum() + wrong.sum())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a run from nothing, and that of a run with its answers."""
    folder = tmp_path_factory.mktemp("verifying")
    with contextlib.chdir(folder):
        write_train()
        first = run(*CSV, "--rows", ASKED)
        assert first.code == 0, first.err
        Path("out").rename("first")
        answer("verified.csv", BY_NUMBER, Path("first", "verify.html"))
        second = run(*CSV, "--verified", "verified.csv")
        assert second.code == 0, second.err
        Path("out").rename("second")
    return folder, first, second


@pytest.fixture
def there(done, monkeypatch):
    monkeypatch.chdir(done[0])
    return done


@pytest.fixture
def train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_train()
    return tmp_path


# from nothing


def test_without_verified_rows_there_is_a_page_to_verify_some(there):
    _, ran, _ = there
    assert {path.name for path in Path("first").iterdir()} == FILES | {"verify.html"}
    text = " ".join(ran.out.split())
    assert "open it first: verify 60 rows, and run the command that it shows" in text
    assert "a first guess: between" in text
    assert "by 0 verified rows" not in text
    made = summary("first")
    assert made["to_verify"] == ASKED
    assert made["estimates"] is None
    assert "no row is verified, so the scores are a model's word alone; verify some rows: verify.html" in made["notes"]
    assert set(made["files"]) == FILES | {"verify.html"}


def test_the_page_has_rows_drawn_with_the_chances_that_are_said(there):
    ids, chances = asked(Path("first", "verify.html"))
    assert len(ids) == len(set(ids)) == ASKED
    scores = np.array([float(line["score"]) for line in rows_of("first")])
    codes = np.array([NAMES.tolist().index(line["given"]) for line in rows_of("first")])
    expected = sampling.chances_of(scores, codes, ASKED)
    np.testing.assert_allclose(chances, expected[[int(id_) - 1 for id_ in ids]], rtol=1e-3)
    assert expected.sum() == pytest.approx(ASKED)
    about = json.loads(block(Path("first", "verify.html"), "about"))
    assert about["command"] == "wior clean train.csv --label kind --verified verified.csv --out out"
    assert about["columns"] == ["a", "b", "c", "d"]  # and not the label


def test_the_answers_say_how_many_labels_are_wrong(there):
    _, _, ran = there
    made = summary("second")
    assert made["estimates"]["wrong"]["low"] <= WRONG.sum() <= made["estimates"]["wrong"]["high"]
    assert made["estimates"]["pairs"] == ASKED
    assert (made["known_rows"], made["verified_rows"], made["to_verify"]) == (ASKED, ASKED, 0)
    low, high = made["estimates"]["wrong"]["low"], made["estimates"]["wrong"]["high"]
    assert made["estimate"] == f"between {low:,.0f} and {high:,.0f} of 400 labels are wrong"
    text = " ".join(ran.out.split())
    assert made["estimate"] in text
    assert "by 60 verified rows, with 95% confidence: of flagged rows are wrong:" in text
    assert {path.name for path in Path("second").iterdir()} == FILES
    assert not [note for note in made["notes"] if "trust the verified rows" in note]


def test_wrong_labels_are_found_with_the_answers(there):
    lines = rows_of("second")
    assert f1(lines, WRONG) >= 0.9
    for line, right in zip(lines, NAMES[TRUE], strict=True):
        assert (line["flagged"] == "true") == (line["suggested"] != line["given"])
        if line["confidence"] == "1":
            assert line["suggested"] == right


def test_verified_corrections_are_applied_in_the_cleaned_copy(there):
    verified = {line[0]: line for line in read_csv("verified.csv")}
    wrong = [number for number, line in verified.items() if number != "id" and line[1] != line[2]]
    assert len(wrong) > 10
    flagged = {str(at) for at, line in enumerate(rows_of("second"), 1) if line["flagged"] == "true"}
    assert flagged >= set(wrong)
    expected = [
        [*line[:4], verified[str(at)][2] if str(at) in wrong else line[4]]
        for at, line in enumerate(read_csv("train.csv")[1:], 1)
        if str(at) in wrong or str(at) not in flagged
    ]
    assert read_csv("second", "cleaned.csv")[1:] == expected
    assert summary("second")["cleaned"] == {
        "file": "cleaned.csv",
        "rows": ROWS - len(flagged) + len(wrong),
        "relabeled": len(wrong),
    }


def test_relabeled_are_flagged_rows_where_another_label_is_likelier(there):
    ran = run(*CSV, "--verified", "verified.csv", "--relabel", "--out", "third", "--json")
    made = json.loads(ran.out)
    lines = rows_of("third")
    moved = [line["flagged"] == "true" and float(line["confidence"]) > float(line["score"]) for line in lines]
    kept = [line["flagged"] == "false" for line in lines]
    expected = [
        line["suggested"] if corrected else line["given"]
        for line, corrected, keep in zip(lines, moved, kept, strict=True)
        if corrected or keep
    ]
    assert [row[4] for row in read_csv("third", "cleaned.csv")][1:] == expected
    assert made["cleaned"]["relabeled"] == sum(moved)
    assert sum(moved) > 60


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_rows(there):
    for name, seed in (("again", 0), ("other", 1)):
        assert run(*CSV, "--rows", ASKED, "--out", name, "--seed", seed).code == 0
    for name in ("rows.csv", "cleaned.csv", "overview.png"):
        assert Path("again", name).read_bytes() == Path("first", name).read_bytes()
    first, again, other = (asked(Path(name, "verify.html"))[0] for name in ("first", "again", "other"))
    assert first == again
    assert set(first) != set(other)


# verify


def test_more_rows_to_verify_are_others(there):
    command = ("verify", "train.csv", "--label", "kind", "--fast", "--no-progress", "--out", "more", "--rows", "40")
    ran = run(*command, "--verified", "verified.csv")
    assert ran == Ran(0, "open more/verify.html in a browser, verify its rows, and run the command that it shows\n", "")
    assert {path.name for path in Path("more").iterdir()} == {"verify.html", "config.json", "summary.json"}
    made = summary("more")
    assert (made["made_by"], made["to_verify"]) == ("wior verify", 40)
    assert json.loads(Path("more", "config.json").read_text())["made_by"] == "wior verify"
    more, first = (set(asked(Path(name, "verify.html"))[0]) for name in ("more", "first"))
    assert len(more) == 40
    assert not more & first
    assert run(*command, "--verified", "verified.csv").code == 0  # an earlier folder is replaced
    assert set(asked(Path("more", "verify.html"))[0]) == more
    # both together
    both = [*answer("more.csv", BY_NUMBER, Path("more", "verify.html"))]
    lines = read_csv("verified.csv")
    write_csv("both.csv", lines[0], [*lines[1:], *both])
    assert run(*CSV, "--verified", "both.csv", "--out", "fourth").code == 0
    found = summary("fourth")
    assert found["estimates"]["pairs"] == ASKED + 40
    assert found["estimates"]["wrong"]["low"] <= WRONG.sum() <= found["estimates"]["wrong"]["high"]


def test_of_few_rows_all_are_asked_for(train):
    assert run(*CSV, "--rows", "1000").code == 0
    ids, chances = asked()
    assert sorted(ids, key=int) == [str(row) for row in range(1, ROWS + 1)]
    np.testing.assert_array_equal(chances, 1)


# decisions of a review


def test_decisions_of_a_review_are_verified_rows_that_estimate_nothing(there):
    lines = [(str(at), *line.values()) for at, line in enumerate(rows_of("first"), 1)]
    worst = sorted(lines, key=lambda line: float(line[4]))[:30]
    made = [
        (line[0], line[2], *(("keep", "") if BY_NUMBER[line[0]] == line[2] else ("fix", BY_NUMBER[line[0]])))
        for line in worst
    ]
    write_csv("decisions.csv", ["id", "given", "decision", "label"], made)
    ran = run(*CSV, "--verified", "decisions.csv", "--out", "fifth", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["known_rows"] == 30
    assert found["estimates"] is None
    assert (
        "the verified rows were looked at because of their scores, so they do not say how many labels are wrong; "
        "'wior verify' chooses others"
    ) in found["notes"]
    assert f1(rows_of("fifth"), WRONG) > 0.85


# other formats


def test_a_folder_of_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    right = {}
    for at in range(80):
        dark, wrong = at % 2, at % 5 == 0
        place = Path("train", "night" if dark != wrong else "day", f"{at}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(100 * (1 - dark), 140 + 100 * (1 - dark), (8, 8)).astype(np.uint8)).save(place)
        right[place.relative_to("train").as_posix()] = "night" if dark else "day"
    command = ("clean", "train", "--fast", "--no-progress", "--out", "out", "--backbone", "pixels")
    first = run(*command, "--rows", "20")
    assert first.code == 0, first.err
    ids, _ = asked()
    assert len(set(ids) & set(right)) == 20
    assert "--backbone pixels" in json.loads(block(PAGE, "about"))["command"]
    answer("verified.csv", right)
    second = run(*command, "--verified", "verified.csv")
    assert second.code == 0, second.err
    lines = rows_of()
    assert {line["id"] for line in lines if line["flagged"] == "true"} == {
        name for name, label in right.items() if label != name.partition("/")[0]
    }
    corrected = {f"{right[name]}/{name.partition('/')[2]}" for name in ids if right[name] != name.partition("/")[0]}
    found = {path.relative_to("out/cleaned").as_posix() for path in Path("out", "cleaned").rglob("*.png")}
    assert found == {line["id"] for line in lines if line["flagged"] == "false"} | corrected
    assert corrected


def test_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("train.npz", X=X.astype(np.float32), y=GIVEN)
    command = ("clean", "train.npz", "--fast", "--no-progress", "--out", "out")
    assert run(*command, "--rows", ASKED).code == 0
    answer("verified.csv", {str(row + 1): str(label) for row, label in enumerate(TRUE)})
    second = run(*command, "--verified", "verified.csv")
    assert second.code == 0, second.err
    assert f1(rows_of(), WRONG) >= 0.9
    cleaned = np.load("out/cleaned.npz")
    assert len(cleaned["y"]) == summary()["cleaned"]["rows"]
    flagged = np.array([line["flagged"] == "true" for line in rows_of()])
    verified = {int(line[0]) - 1 for line in read_csv("verified.csv")[1:]}
    keep = ~flagged | np.isin(np.arange(ROWS), list(verified))
    expected = np.where(np.isin(np.arange(ROWS), list(verified)), TRUE, GIVEN)[keep]
    np.testing.assert_array_equal(cleaned["y"], expected)


# what cannot be


def test_a_table_that_has_changed_since_is_named(there):
    answer("stale.csv", BY_NUMBER, Path("first", "verify.html"), given="emu")
    before = contents()
    ran = run(*CSV, "--verified", "stale.csv")
    assert_refused(ran, 1, "'emu' was given, but row", before)
    assert "the table has changed since" in ran.err


def test_features_that_say_nothing_are_refused(train):
    write_train(features=np.random.default_rng(5).normal(size=X.shape))
    places = np.random.default_rng(6).permutation(ROWS)[:100]
    write_csv(
        "verified.csv",
        ["id", "given", "verified", "chance"],
        [(place + 1, NAMES[GIVEN[place]], NAMES[TRUE[place]], 0.25) for place in places],
    )
    assert_refused(run(*CSV, "--verified", "verified.csv"), 1, f"wior: train.csv: {USELESS}\n", contents())


def test_all_verified_leaves_nothing_to_verify(train):
    write_csv(
        "verified.csv",
        ["id", "given", "verified", "chance"],
        [(place + 1, NAMES[GIVEN[place]], NAMES[TRUE[place]], 1) for place in range(ROWS)],
    )
    for command in (CSV, ("verify", *CSV[1:])):
        before = contents()
        ran = run(*command, "--verified", "verified.csv")
        assert_refused(ran, 1, "train.csv: every row is verified, none is left to be judged", before)


@pytest.mark.parametrize("command", [CSV, ("verify", *CSV[1:])], ids=["clean", "verify"])
@pytest.mark.parametrize("when", ["learning", "drawing"])
def test_an_interruption_leaves_nothing(train, monkeypatch, command, when):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    from wior.cleaning import judging

    if when == "learning":
        monkeypatch.setattr(judging, "of_right", interrupted)
    else:
        monkeypatch.setattr(sampling, "draw", interrupted)
    assert_refused(run(*command), 130, "wior: interrupted\n", contents())


@pytest.mark.parametrize("name", ["write_rows", "write_review", "write_config", "write_json"])
def test_a_full_disk_is_one_line_and_leaves_nothing(train, monkeypatch, name):
    def full(path, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(output, name, full)
    assert_refused(run(*CSV), 1, "No space left on device", contents())


def test_options_that_are_not_used_are_named(train):
    assert run(*CSV, "--epochs", "3", "--inner-lr", "0.1").code == 0
    note = "not used, since only bilevel designs (--weighting) do: --inner-lr, --epochs"
    assert note in summary()["notes"]
    assert run(*CSV).code == 0
    assert not [one for one in summary()["notes"] if one.startswith("not used")]


def test_two_exports_are_read_together(there):
    """The first hundred answers and those that `wior verify` asked for."""
    assert run("verify", *CSV[1:6], "--rows", "20", "--verified", "verified.csv", "--out", "more").code == 0
    page = Path("more", "verify.html")
    about = json.loads(block(page, "about"))
    assert about["export"] == "verified-2.csv"
    assert about["command"] == ("wior clean train.csv --label kind --verified verified.csv --verified verified-2.csv")
    answer("verified-2.csv", BY_NUMBER, page)
    files = ("--verified", "verified.csv", "--verified", "verified-2.csv")
    assert run(*CSV[:-1], "both", *files).code == 0
    assert summary("both")["verified_rows"] == ASKED + 20
