"""The review page in a browser: decisions, and the files they are exported to."""

import csv
import io
import time

import numpy as np

from browser import Keys, Select, read_decisions
from review_pages import CLASSES, NASTY, a_review, fresh, written
from wior.cleaning.review.guard import guard, unguard

HEADER = ("id", "given", "decision", "label", "note")


def test_decisions_from_the_keyboard_reach_the_file_and_outlast_a_reload(page, tmp_path, driver):
    review = a_review(40, suggested=(a_review(40).given + 1) % 4)
    place = np.argsort(review.scores)
    name = lambda label: CLASSES[label]
    row = lambda i, decision, label: (review.ids[place[i]], name(review.given[place[i]]), decision, label, "")
    path = written(tmp_path, review)
    page.open(path)
    page.keys("k", "f", "s", Keys.ARROW_DOWN, "f", "k", "u")
    expected = [
        HEADER,
        row(0, "keep", name(review.given[place[0]])),
        row(1, "fix", name(review.suggested[place[1]])),
        row(2, "skip", ""),
        row(4, "fix", name(review.suggested[place[4]])),
    ]
    assert read_decisions(page.decisions()) == expected
    assert page.text("progress-text") == "4 of 20 decided"
    page.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'k', repeat: true, bubbles: true}))")
    assert page.text("progress-text") == "4 of 20 decided"
    # another label than the suggested one, and a decision taken back
    page.keys("l")
    other = (review.given[place[5]] + 2) % 4
    choice = driver.switch_to.active_element
    assert [option.text for option in Select(choice).options] == [
        *(c for i, c in enumerate(CLASSES) if i != review.given[place[5]]),
        "Search, or a new label…",
    ]
    Select(choice).select_by_value(str(other))
    page.keys(Keys.ESCAPE, Keys.ARROW_UP, "c")
    expected = [*expected[:-1], row(5, "fix", name(other))]
    assert read_decisions(page.decisions()) == expected
    # nothing is lost unless it was exported
    leaves = "return dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert page.run(leaves) is False
    page.reload()
    assert read_decisions(page.decisions()) == expected
    assert page.run(leaves) is False
    page.click("export")
    assert page.run(leaves) is True
    assert page.downloaded("train-decisions.csv") == page.decisions().encode()
    page.reload()
    assert page.run(leaves) is True


def test_a_browser_that_keeps_nothing_is_warned_of(page, tmp_path, driver):
    path = written(tmp_path, a_review(40))
    refuse = "for (const name of ['getItem', 'setItem']) Storage.prototype[name] = () => { throw new Error('refused') }"
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": refuse})
    try:
        page.open(path)
        assert page.text("limits").startswith("This browser does not keep decisions for this page")
        page.keys("k")
        assert page.text("progress-text") == "1 of 20 decided"
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    page.open(path)
    assert page.text("limits") == ""
    page.run(refuse)
    page.keys("k")
    time.sleep(0.4)
    assert page.text("message").startswith("This browser does not keep decisions for this page")


def test_the_view_of_one_row_decides_too(page, tmp_path, driver):
    review = a_review(40)
    place = np.argsort(review.scores)
    page.open(written(tmp_path, review))
    page.keys(Keys.ENTER)
    assert page.text("row-title") == review.ids[place[0]]
    assert (
        page.run("return [...document.querySelectorAll('.all-fields dd')].map(e => e.textContent)")
        == review.records(place[:1])[0]
    )
    page.keys("k", Keys.ARROW_RIGHT, "s")
    assert page.text("row-title") == review.ids[place[3]]
    assert page.text("row-place") == "4 of 20"
    page.keys(Keys.ESCAPE)
    page.after_frames("")  # the dialog says that it was closed in a task of its own
    assert not page.run("return document.getElementById('row-view').open")
    assert driver.switch_to.active_element.get_attribute("aria-posinset") == "4"
    assert [line[2] for line in read_decisions(page.decisions())[1:]] == ["keep", "skip"]


def test_nobody_decides_about_a_row_out_of_sight(page, tmp_path):
    page.open(written(tmp_path, a_review(400, threshold=1.0)))
    page.after_frames("scrollTo(0, 9000)")
    page.keys("k")
    assert read_decisions(page.decisions())[1:] == []
    page.keys("k")
    assert len(read_decisions(page.decisions())) == 2


def test_all_shown_after_a_question_and_back(page, tmp_path):
    review = a_review(40)
    flagged = review.scores < 0.5
    page.open(written(tmp_path, review))
    page.keys("s")
    first = np.argmin(review.scores)
    page.choose("given-filter", int(review.given[first]))
    page.answer("fix-all", "confirm-no")
    assert len(read_decisions(page.decisions())) == 2
    page.answer("fix-all", "confirm-yes")
    among = flagged & (review.given == review.given[first]) & (np.arange(40) != first)
    wanted = {
        (review.ids[row], CLASSES[review.given[row]], "fix", CLASSES[review.suggested[row]], "")
        for row in np.flatnonzero(among & (review.given != review.suggested))
    }
    assert wanted
    skipped = (review.ids[first], CLASSES[review.given[first]], "skip", "", "")
    assert set(read_decisions(page.decisions())[1:]) == {*wanted, skipped}
    page.choose("state-filter", "none")
    page.answer("keep-all", "confirm-yes")
    kept = {
        (review.ids[row], CLASSES[review.given[row]], "keep", CLASSES[review.given[row]], "")
        for row in np.flatnonzero(among & (review.given == review.suggested))
    }
    assert set(read_decisions(page.decisions())[1:]) == {*wanted, *kept, skipped}
    assert page.text("empty-text") in ("No flagged row matches the filters.", "Every flagged row is decided.")
    page.click("undo")
    page.click("undo")
    assert read_decisions(page.decisions())[1:] == [skipped]


def test_exported_decisions_are_imported_again(page, tmp_path):
    review = a_review(len(NASTY), classes=NASTY, ids=[f"{text}{next(fresh)}" for text in NASTY], threshold=1.0)
    labels = np.random.default_rng(3).integers(0, len(NASTY), len(NASTY))
    lines = [[review.ids[row], NASTY[review.given[row]], "fix", NASTY[labels[row]]] for row in range(len(NASTY))]
    lines[1][2:] = ["keep", NASTY[review.given[1]]]
    lines[2][2:] = ["skip", ""]
    content = io.StringIO(newline="")
    bad = [
        ["elsewhere", "x", "keep", "x"],
        [review.ids[4], "not its label", "keep", "x"],
        [review.ids[5], NASTY[review.given[5]], "drop", "x"],
    ]
    csv.writer(content).writerows(
        [["id", "given", "decision", "label"], *([guard(text) for text in line] for line in [*lines, *bad])]
    )
    file = tmp_path / "decisions.csv"
    file.write_text(content.getvalue(), newline="", encoding="utf-8-sig")
    page.open(written(tmp_path, review))
    said = page.load(file)
    expected = {(*line, "") for line in lines}
    assert set(read_decisions(page.decisions())[1:]) == expected
    assert said.startswith(f"Imported {len(NASTY)} decisions; left out: ")
    assert said.count("1 about a row") == 2
    assert "1 with a decision other than keep, fix, skip, ambiguous" in said
    again = tmp_path / "again.csv"
    again.write_text(page.decisions(), newline="")
    page.click("undo")
    assert len(read_decisions(page.decisions())) == 1
    page.load(again)
    assert set(read_decisions(page.decisions())[1:]) == expected
    file.write_text("a,b\n1,2\n")
    assert (
        page.load(file)
        == "decisions.csv cannot be imported: its first line must be id,given,decision,label,note, and is a,b"
    )


def test_both_twins_of_the_guard_agree(page, tmp_path):
    page.open(written(tmp_path, a_review(3)))
    starts = ["", *"=+-@\t\r'\n ", "++", "''", "=-"]
    ends = ["", "1", "1.5", ".5", ".", "1e5", "1e", "1\n", "a", "1-1", "١", "1 ", "0x1", "Infinity", "NaN", "'", "𝟙"]
    texts = [*NASTY, *(start + end for start in starts for end in ends)]
    assert page.run("return arguments[0].map(review.guard)", texts) == [guard(text) for text in texts]
    assert page.run("return arguments[0].map(review.unguard)", texts) == [unguard(text) for text in texts]
