"""The review page in a browser: what helps to judge a row."""

import numpy as np
import pytest

from browser import Keys
from page_checks import contrasts, overflow
from review_pages import a_review, block, fresh, numbers, with_pictures, written

TEXT = "a text of many words, " * 200 + "with a needle at its end"
STUBS = "return [...document.querySelectorAll('#row-body .all-fields dd')].map(e => e.textContent)"
BADGES = "return [...document.querySelectorAll('.card')].map(c => c.querySelector('.near').textContent)"


def with_texts(rows=12, **changes):
    """The row of the lowest score has the needle."""
    texts = {
        "scores": np.arange(rows) / rows,
        "threshold": 1.0,
        "columns": ("width", "text"),
        "records": lambda places: [[str(place), TEXT if place == 0 else f"short {place}"] for place in places],
    }
    return a_review(rows, **{**texts, **changes})


def with_neighbors(rows=12, **changes):
    """Every row has its two neighbors as similar rows, and the first of each pair is a near-duplicate."""
    places = np.arange(rows)
    similar = np.stack([places ^ 1, (places + 2) % rows], 1)
    similarity = np.tile([0.98, 0.6], (rows, 1))
    similarity[places >= 6, 0] = 0.9799
    given = np.where(places < 4, 0, places % 4)
    return with_texts(rows, given=given, similar=similar, similarity=similarity, **changes)


def test_long_texts_are_whole_in_the_row_view_and_cut_in_cards(page, tmp_path):
    page.open(written(tmp_path, with_texts()))
    shown = page.run("return document.querySelector('.card .field.long dd').textContent")
    assert shown == TEXT[:299] + "…"
    page.keys(Keys.ENTER)
    assert page.run(STUBS) == ["0", TEXT]
    assert page.run("const e = document.getElementById('row-body'); return e.scrollWidth <= e.clientWidth")


def test_the_search_reaches_the_end_of_long_texts(page, tmp_path):
    review = with_texts()
    page.open(written(tmp_path, review))
    page.search("NEEDLE at")
    assert page.shown() == [review.ids[0]]
    assert page.run("return [...document.querySelectorAll('.card mark')].map(e => e.textContent)") == ["needle at"]
    shown = page.run("return document.querySelector('.card .field.long dd').textContent")
    assert shown == "…" + TEXT[TEXT.index("needle") - 60 :]
    page.keys(Keys.ESCAPE)
    page.run("document.querySelector('.card .id').click()")
    assert page.run("return document.querySelectorAll('#row-body mark').length") == 1
    page.keys(Keys.ESCAPE)
    page.search("")
    assert page.run("return document.querySelectorAll('#rows mark').length") == 0


def test_the_longest_field_is_shown_and_a_hidden_one_is_named_where_the_search_finds_it(page, tmp_path):
    columns = [*(f"n{i}" for i in range(20)), "long a", "long b", "long c", "longest"]
    row = [*(f"{i}" for i in range(20)), "a" * 50, "b" * 60, "c" * 70, "z" * 4000]
    review = a_review(6, threshold=1.0, columns=columns, records=lambda places: [row] * len(places))
    page.open(written(tmp_path, review))
    names = page.run("return [...document.querySelector('.card').querySelectorAll('dt')].map(e => e.textContent)")
    assert names[:3] == ["long b", "long c", "longest"]
    more = "return document.querySelector('.card .more').textContent"
    assert page.run(more) == "5 more fields"
    page.search("aaa")
    assert page.run(more) == "5 more fields · found in long a"
    one = a_review(3, columns=columns[:17], records=lambda places: [row[:17]] * len(places), threshold=1.0)
    page.open(written(tmp_path, one))
    assert page.run(more) == "1 more field"


LONG_NAMES = ("Entertainment and the arts", "Science & Technology", "Local politics of towns", "Sports")
CUT_LABELS = """
return [...document.querySelectorAll(".card .label")].filter(
  e => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 2
).map(e => e.textContent)
"""


@pytest.mark.parametrize("width", [1400, 800, 390])
@pytest.mark.parametrize("make", [a_review, with_pictures], ids=["table", "pictures"])
def test_class_names_are_whole(page, tmp_path, make, width):
    page.open(written(tmp_path, make(40, classes=LONG_NAMES)), width=width)
    assert page.run("return document.querySelectorAll('.card .label').length") >= 4
    assert page.run(CUT_LABELS) == []
    assert page.run("return document.querySelector('.card .given .label').title") in LONG_NAMES


def test_the_first_row_is_on_the_first_screen_of_a_phone(page, tmp_path, driver):
    review = a_review(40, estimate="between 8 and 12 of 40 labels are wrong")
    page.open(written(tmp_path, review), width=390, height=844)
    box = page.run("const b = document.querySelector('.card').getBoundingClientRect(); return [b.top, b.bottom]")
    assert box[0] < 300
    assert box[1] < 844
    seen = lambda name: page.find(name).is_displayed()
    assert [seen(name) for name in ("estimate", "search", "threshold", "given-filter", "fix-all")] == [
        True,
        True,
        *[False] * 3,
    ]
    page.click("filters-toggle")
    assert [seen(name) for name in ("given-filter", "fix-all")] == [True, True]
    assert page.find("filters-toggle").get_attribute("aria-expanded") == "true"
    page.choose("state-filter", "none")
    assert page.text("filters-toggle") == "Filters (1)"
    page.click("overview-toggle")
    assert seen("threshold")
    page.click("overview-close")
    assert not seen("threshold")
    assert driver.switch_to.active_element.get_attribute("id") == "overview-toggle"
    assert overflow(page) <= 0


def test_the_estimate_stands_above_the_rows(page, tmp_path):
    page.open(written(tmp_path, a_review(estimate="between 8 and 12 of 40 labels are <wrong>")))
    assert page.text("estimate") == "between 8 and 12 of 40 labels are <wrong>"
    assert page.find("estimate").is_displayed()
    page.open(written(tmp_path, a_review()))
    assert not page.find("estimate").is_displayed()


def test_similar_rows_are_listed_with_their_labels_and_opened(page, tmp_path):
    review = with_neighbors()
    page.open(written(tmp_path, review), height=3000)
    page.keys(Keys.ARROW_DOWN, Keys.ENTER)
    told = page.run(
        "return [...document.querySelectorAll('.similar-told')].map(e => e.innerText.split(/\\n/).join(' '))"
    )
    assert len(told) == 2
    assert told[0].startswith("given cat 98% similar near-duplicate 0 · a text of many words")
    assert told[1].startswith("given cat 60% similar 3 · short 3")
    page.run("document.querySelectorAll('.similar-row summary')[0].click()")
    page.until("document.querySelector('.similar-row .all-fields')")
    assert page.run("return [...document.querySelectorAll('.similar-row[open] dd')].map(e => e.textContent)") == [
        "0",
        TEXT,
    ]
    assert review.ids[0] in page.run("return document.querySelector('.similar-row .remark').textContent")
    page.run("document.querySelector('.similar-row [data-go]').click()")
    assert page.text("row-title") == review.ids[0]
    page.keys("k")
    page.keys(Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert page.text("row-title") == review.ids[1]
    assert "decided: keep" in page.run("return document.querySelector('.similar-told').textContent")


def test_near_duplicates_are_marked_and_can_be_shown_alone(page, tmp_path):
    review = with_neighbors()
    page.open(written(tmp_path, review), height=3500)
    assert page.run(BADGES) == ["≈ 1"] * 6 + [""] * 6
    title = "return document.querySelectorAll('.card')[arguments[0]].querySelector('.near').title"
    assert page.run(title, 0) == "1 near-duplicate, given the same label"
    assert page.run(title, 4) == "1 near-duplicate, given another label: dog"
    page.click("near-filter")
    page.after_frames("")
    assert page.shown() == review.ids[:6]
    page.click("clear")
    page.after_frames("")
    assert page.shown() == review.ids


def test_similar_rows_of_higher_scores_are_there_to_be_seen(page, tmp_path):
    review = with_neighbors()
    path = written(tmp_path, review, detailed=3)
    np.testing.assert_array_equal(numbers(path, "places", "<u4"), [0, 1, 2])
    np.testing.assert_array_equal(numbers(path, "beyond", "<u4"), [3, 4])
    page.open(path, height=2000)
    assert page.text("shown").startswith("3 rows shown")
    page.search("short 3")
    assert page.shown() == []
    page.search("")
    page.keys(Keys.ARROW_DOWN, Keys.ENTER)
    page.run("document.querySelectorAll('.similar-row summary')[1].click()")
    page.until("document.querySelector('.similar-row .all-fields')")
    assert page.run("return [...document.querySelectorAll('.similar-row[open] dd')].map(e => e.textContent)") == [
        "3",
        "short 3",
    ]
    assert page.run("return document.querySelectorAll('.similar-row [data-go]').length") == 0


def test_without_the_new_arrays_nothing_of_them_is_shown(page, tmp_path):
    path = written(tmp_path, a_review())
    page.open(path)
    assert page.run("return document.querySelectorAll('.likely-label, .near:not(:empty), .similar').length") == 0
    assert not page.find("near-box").is_displayed()
    assert block(path, "ids").count("t") >= 40


def test_what_is_cut_for_want_of_room_is_said(page, tmp_path, monkeypatch):
    monkeypatch.setattr("wior.cleaning.review.blocks.RECORD_BYTES", 9000)
    review = with_texts(records=lambda places: [[str(place), "y" * 900] for place in places])
    page.open(written(tmp_path, review))
    assert "in 7 records a text ends with … and is not whole here" in page.text("limits")
    page.keys(Keys.ENTER)
    said = "return document.getElementById('row-body').textContent.includes('more than this page has room for')"
    assert not page.run(said)
    page.keys(*[Keys.ARROW_RIGHT] * 6)
    assert page.run(said)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_likely_labels_and_similar_rows_stand_out(page, tmp_path, scheme):
    rows = 12
    likely = np.tile([0, 1, 2], (rows, 1))
    review = with_neighbors(likely=likely, likelihoods=np.tile([0.5, 0.3, 0.2], (rows, 1)), estimate=f"e{next(fresh)}")
    page.open(written(tmp_path, review), scheme=scheme)
    page.keys("1", "2", "a")
    page.search("short")
    page.run("document.querySelector('.card .id').click()")
    found = contrasts(page)
    assert len(found) > 100
    assert found[0][0] >= 4.5, found[:5]
