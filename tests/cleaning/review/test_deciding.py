"""The review page in a browser: more than keep, fix and skip."""

import csv
import io
import json

import numpy as np
import pytest

from browser import Keys, Select, read_decisions
from review_pages import CLASSES, a_review, block, written
from wior.cleaning.review.guard import guard

HEADER = ["id", "given", "decision", "label", "note"]
PRESSED = (
    "return document.querySelectorAll('.card')[arguments[0]]"
    ".querySelectorAll('.likely-label[aria-pressed=true]').length"
)


def in_order(rows=8, **changes):
    """Rows whose scores are in their order; the given label is the first class, the suggested one the second."""
    zeros = np.zeros(rows, int)
    return a_review(rows, scores=np.arange(rows) / rows, threshold=1.0, given=zeros, suggested=zeros + 1, **changes)


def likely(rows=8):
    return {"likely": np.tile([1, 2, 0], (rows, 1)), "likelihoods": np.tile([0.6, 0.25, 0.0512], (rows, 1))}


def lines(page):
    return [line[2:] for line in read_decisions(page.decisions())[1:]]


def test_likely_labels_are_buttons_with_their_probabilities(page, tmp_path):
    review = in_order(**likely())
    page.open(written(tmp_path, review), height=2500)
    texts = page.run(
        "return [...document.querySelector('.card').querySelectorAll('.likely-label')].map(e => e.innerText)"
    )
    assert [text.split("\n")[1:] for text in texts] == [["dog", "60%"], ["=owl", "25%"], ["cat", "5.1%"]]
    names = page.run(
        "return [...document.querySelectorAll('.likely-label')].slice(0, 3).map(e => e.getAttribute('aria-label'))"
    )
    assert names == [
        f"Fix to dog: 60%, row {review.ids[0]}",
        f"Fix to =owl: 25%, row {review.ids[0]}",
        f"Keep cat, the given label: 5.1%, row {review.ids[0]}",
    ]
    click = "document.querySelectorAll('.card')[arguments[0]].querySelectorAll('.likely-label')[arguments[1]].click()"
    page.run(click, 0, 1)
    page.run(click, 1, 2)
    assert lines(page) == [("fix", "=owl", ""), ("keep", "cat", "")]
    assert [page.run(PRESSED, row) for row in (0, 1, 2)] == [1, 1, 0]
    page.run(click, 1, 2)
    assert lines(page) == [("fix", "=owl", "")]


def test_digits_take_likely_labels(page, tmp_path):
    page.open(written(tmp_path, in_order(**likely())))
    page.keys("2", "3", "1", "4")
    assert lines(page) == [("fix", "=owl", ""), ("keep", "cat", ""), ("fix", "dog", "")]
    page.keys(Keys.ENTER, "2")
    assert lines(page)[3] == ("fix", "=owl", "")
    assert page.text("row-place") == "5 of 8"


def test_ambiguous_is_a_decision(page, tmp_path, driver):
    review = in_order()
    page.open(written(tmp_path, review))
    page.keys("a", "s", "k")
    assert lines(page) == [("ambiguous", "", ""), ("skip", "", ""), ("keep", "cat", "")]
    page.choose("state-filter", "ambiguous")
    assert page.shown() == review.ids[:1]
    page.choose("state-filter", "some")
    assert page.shown() == review.ids[:3]
    page.choose("state-filter", "none")
    assert page.shown() == review.ids[3:]
    page.click("clear")
    page.reload()
    assert lines(page)[0] == ("ambiguous", "", "")


def test_a_new_label_is_found_nowhere_and_made(page, tmp_path, driver):
    review = in_order()
    page.open(written(tmp_path, review))
    page.keys("o", *"d", Keys.ENTER)
    page.keys("o", *"do", Keys.ARROW_DOWN, Keys.ENTER)
    page.keys("l")
    Select(driver.switch_to.active_element).select_by_visible_text("Search, or a new label…")
    assert page.run("return document.activeElement.id") == "label-search"
    page.keys(*"dodo", Keys.ENTER)
    expected = [("fix", "dog", ""), ("fix", "do", ""), ("fix", "dodo", "")]
    assert lines(page) == expected
    page.run("document.activeElement.blur()")
    page.keys(Keys.ARROW_DOWN, "l")
    texts = [option.text for option in Select(driver.switch_to.active_element).options]
    assert texts == ["dog", "=owl", "ant, red", "do", "dodo", "Search, or a new label…"]
    page.run("document.activeElement.blur()")
    page.reload()
    assert lines(page) == expected
    # a label of another row is the same one
    page.keys(Keys.END, "o", *"dodo", Keys.ENTER)
    assert lines(page) == [*expected, ("fix", "dodo", "")]


def test_notes_are_kept_and_exported(page, tmp_path, driver):
    review = in_order(again="wior clean train.csv --verified decisions.csv")
    page.open(written(tmp_path, review))
    page.keys("w")
    assert page.run("return document.activeElement.id") == "row-note"
    page.keys(*"=k, f?", Keys.ESCAPE, "k", Keys.ARROW_RIGHT, "w", *"open", Keys.ESCAPE)
    assert page.run("return document.activeElement.id") == "row-view"
    page.keys(Keys.ESCAPE)
    assert lines(page) == [("keep", "cat", "=k, f?")]
    assert '"\'=k, f?"' in page.decisions()
    noted = "return [...document.querySelectorAll('.card')].slice(0, 3).map(c => c.querySelector('.noted').textContent)"
    assert page.run(noted) == ["✎", "", "✎"]
    page.click("export")
    assert page.text("exported-text").endswith("; 1 note on undecided rows is not in it")
    page.downloaded("train-decisions.csv")
    page.click("exported-close")
    page.reload()
    assert page.run(noted) == ["✎", "", "✎"]
    assert lines(page) == [("keep", "cat", "=k, f?")]
    page.keys(Keys.ENTER)
    assert page.run("return document.getElementById('row-note').value") == "=k, f?"
    page.keys(Keys.ESCAPE)


def test_decisions_with_notes_and_new_labels_are_imported_and_taken_back(page, tmp_path):
    review = in_order()
    page.open(written(tmp_path, review))
    page.keys("w", *"mine", Keys.ESCAPE, Keys.ESCAPE, "k")
    before = page.decisions()
    made = [
        [review.ids[0], "cat", "ambiguous", "", "theirs"],
        [review.ids[1], "cat", "fix", "wolf", "\ttabbed"],
        [review.ids[2], "cat", "fix", " ", ""],
    ]
    content = io.StringIO(newline="")
    csv.writer(content).writerows([HEADER, *([guard(text) for text in line] for line in made)])
    file = tmp_path / "decisions.csv"
    file.write_text(content.getvalue(), newline="")
    assert page.load(file) == "Imported 2 decisions; left out: 1 with a fix that has no label"
    assert [list(line) for line in read_decisions(page.decisions())] == [HEADER, *made[:2]]
    page.click("undo")
    assert page.decisions() == before
    page.click("undo")
    assert lines(page) == []


@pytest.mark.parametrize(
    ("again", "command"),
    [
        (
            "wior clean my-decisions.csv --label topic --verified decisions.csv --out again",
            "wior clean my-decisions.csv --label topic --verified train-decisions.csv --out again",
        ),
        ("", None),
    ],
)
def test_after_the_export_the_command_to_run_again_is_shown(page, tmp_path, again, command):
    page.open(written(tmp_path, in_order(again=again)))
    page.keys("k")
    page.click("export")
    assert page.downloaded("train-decisions.csv") == page.decisions().encode()
    assert page.run("return document.getElementById('exported').open") == (command is not None)
    assert page.text("message") == "Exported 1 decision to train-decisions.csv"
    if command is None:
        return
    assert page.text("command") == command
    page.click("copy")
    assert page.until("document.getElementById('copied').textContent") in ("Copied.", "Marked: copy it by Ctrl+C.")
    assert page.run("return getSelection().toString()").strip() == command
    page.keys("k")
    assert len(lines(page)) == 1
    page.click("exported-close")


def test_decisions_that_a_browser_kept_of_an_earlier_version_are_read(page, tmp_path, driver):
    """Without notes and new labels."""
    path = written(tmp_path, in_order())
    key = json.loads(block(path, "about"))["fingerprint"]
    keep = "localStorage.setItem(`wior-review:${arguments[0]}`, arguments[1])"
    page.open(written(tmp_path, in_order()))
    page.run(keep, key, '{"exported":true,"decided":[[0,1],[1,2],[2,5]]}')
    page.open(path)
    assert lines(page) == [("keep", "cat", ""), ("skip", "", ""), ("fix", CLASSES[2], "")]
