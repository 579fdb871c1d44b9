"""Verified rows on the review page: apart from the rows to decide, and counted apart."""

import json

import numpy as np
import pytest

from browser import read_decisions
from page_checks import named_roles, overflow
from review_pages import CLASSES, a_review, block, numbers, written

ROWS, VERIFIED = 40, 8
CAPTIONS = "return [...document.querySelectorAll('.card .suggested .caption')].map(e => e.textContent)"
HEIGHTS = """
const drawn = document.querySelector('.histogram .bars').getAttribute('d');
return drawn.split('z').filter(Boolean).length
"""


def with_verified(rows=ROWS, **changes):
    """Every fifth row is verified; the given label of every tenth is wrong."""
    review = a_review(rows)
    verified = np.arange(rows) % 5 == 0
    wrong = np.arange(rows) % 10 == 0
    scores = np.where(verified, ~wrong, (1 + np.arange(rows)) / (rows + 2)).astype(float)
    suggested = np.where(verified, (review.given + wrong) % len(CLASSES), (review.given + 1) % len(CLASSES))
    return a_review(rows, **{"scores": scores, "suggested": suggested, "verified": verified, **changes})


def test_slots_are_the_rows_to_decide_and_behind_them_the_verified_ones(tmp_path):
    review = with_verified()
    path = written(tmp_path, review, detailed=20)
    assert json.loads(block(path, "about"))["open"] == 20
    to_decide = [row for row in range(ROWS) if row % 5][:20]
    verified = [*range(0, ROWS, 10), *range(5, ROWS, 10)]
    assert numbers(path, "places", "<u4").tolist() == [*to_decide, *verified]
    assert numbers(path, "verified", "u1").tolist() == review.verified.astype(int).tolist()
    assert json.loads(block(path, "ids")) == [review.ids[row] for row in (*to_decide, *verified)]
    with pytest.raises(ValueError, match=r"verified must have shape \(40,\)"):
        written(tmp_path, with_verified(verified=np.zeros(3, bool)))


def test_the_first_row_is_the_most_doubtful_one_that_nobody_verified(page, tmp_path):
    review = with_verified()
    page.open(written(tmp_path, review), height=8000)
    flagged = [row for row in range(ROWS) if row % 5 and review.scores[row] < 0.5]
    assert page.shown() == [review.ids[row] for row in flagged]
    assert page.shown()[0] == review.ids[1]
    assert (page.text("flagged"), page.text("share")) == (
        str(len(flagged)),
        f"{len(flagged) / 32:.0%} of 32 rows that nobody verified",
    )
    assert page.text("progress-text") == f"0 of {len(flagged)} decided"
    # no threshold flags what is verified
    page.choose("threshold-number", "1")
    assert (page.text("flagged"), len(page.shown())) == ("32", 32)
    assert page.run(HEIGHTS) == len(set(np.floor(np.asarray(review.scores)[~review.verified] * 50)))
    titles = page.run("return [...document.querySelectorAll('.class-bar')].map(e => e.title)")
    rows = np.bincount(review.given[~review.verified], minlength=len(CLASSES))
    assert titles == [f"{name}: {n} of {n} rows flagged" for name, n in zip(CLASSES, rows, strict=True)]


def test_verified_rows_are_looked_at_by_themselves(page, tmp_path):
    review = with_verified()
    page.open(written(tmp_path, review), height=8000)
    assert page.text("verified-toggle") == f"{VERIFIED} verified rows"
    page.click("verified-toggle")
    wrong, kept = range(0, ROWS, 10), range(5, ROWS, 10)
    assert page.shown() == [review.ids[row] for row in (*wrong, *kept)]
    assert page.text("shown") == f"{VERIFIED} verified rows shown"
    assert page.run(CAPTIONS) == ["verified"] * VERIFIED
    assert page.find("fix-all").get_property("disabled")
    page.choose("sort", "place")
    assert page.shown() == [review.ids[row] for row in range(0, ROWS, 5)]
    page.choose("threshold-number", "0.1")
    assert len(page.shown()) == VERIFIED
    page.search("nothing of the kind")
    assert page.text("empty-text") == "No verified row matches the filters."
    page.click("empty-button")
    assert page.shown()[0] == review.ids[1]
    assert page.find("verified-toggle").get_attribute("aria-pressed") == "false"
    assert set(page.run(CAPTIONS)) == {"suggested"}


def test_corrections_of_verified_rows_are_exported_with_the_decisions(page, tmp_path):
    """`wior apply` makes them in the table, which they are missing in."""
    review = with_verified()
    page.open(written(tmp_path, review))
    line = lambda row, word, label: (review.ids[row], CLASSES[review.given[row]], word, CLASSES[label], "")
    corrections = [line(row, "fix", review.suggested[row]) for row in range(0, ROWS, 10)]
    assert read_decisions(page.decisions())[1:] == corrections
    assert page.text("export") == "Export CSV (4)"
    page.keys("k")
    assert read_decisions(page.decisions())[1:] == [line(1, "keep", review.given[1]), *corrections]
    page.click("verified-toggle")
    page.keys("k")
    # what is decided here counts
    assert read_decisions(page.decisions())[2] == line(0, "keep", review.given[0])
    page.click("export")
    assert page.downloaded("train-decisions.csv") == page.decisions().encode()
    assert page.text("message").startswith("Exported 2 decisions and 3 corrections of verified rows to")


def test_no_row_is_flagged_but_some_are_verified(page, tmp_path):
    page.open(written(tmp_path, with_verified(threshold=0.0)))
    assert page.text("empty-text") == "No row is flagged: no score lies below 0."
    page.click("verified-toggle")
    assert len(page.shown()) > 0
    page.open(written(tmp_path, with_verified(verified=np.ones(ROWS, bool))))
    assert page.text("empty-text") == "Every row is verified."
    page.open(written(tmp_path, a_review()))
    assert not page.find("verified-toggle").is_displayed()


def test_the_toggle_has_room_on_a_phone(page, tmp_path):
    page.open(written(tmp_path, with_verified()), width=390, height=844)
    assert page.find("verified-toggle").is_displayed()
    assert page.run("return document.querySelector('.card').getBoundingClientRect().top") < 300
    assert overflow(page) <= 0
    assert "searchbox" in named_roles(page)
