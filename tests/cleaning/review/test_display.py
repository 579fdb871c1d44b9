"""The review page in a browser: what it shows, at any size and to anyone."""

import json
import time

import numpy as np
import pytest

from browser import Keys, read_decisions, rows_text
from page_checks import contrasts, named_roles
from review_pages import CLASSES, NASTY, a_review, some_pictures, with_pictures, written
from wior.cleaning.review import blocks
from wior.cleaning.review.review import Curve


def test_counts_follow_the_threshold(page, tmp_path):
    review = a_review(40)
    scores = review.scores.astype(np.float32)
    page.open(written(tmp_path, review))
    for threshold in (0.5, 0.7, 0.025, 1, 0, 0.3):
        if threshold != 0.5:
            page.choose("threshold-number" if threshold == 0.7 else "threshold", threshold)
        flagged = scores < np.float32(threshold)
        assert page.text("flagged") == str(flagged.sum())
        assert page.text("share").endswith("% of 40 rows")
        assert page.text("shown") == f"{rows_text(flagged.sum())} shown"
        bars = page.run("return [...document.querySelectorAll('.class-bar .number')].map(e => parseInt(e.textContent))")
        assert bars == np.bincount(review.given[flagged], minlength=4).tolist()
        cells = page.run("return [...document.querySelectorAll('.matrix .cell')].map(e => Number(e.textContent))")
        pairs = np.bincount(review.given[flagged] * 4 + review.suggested[flagged], minlength=16)
        assert cells == pairs.tolist()
        line = page.run("return document.querySelector('.threshold-line').getAttribute('x1') / 50")
        assert line == pytest.approx(threshold)
    page.click("threshold-reset")
    assert page.text("flagged") == "20"


def test_filters_search_and_order(page, tmp_path):
    review = a_review(24, threshold=1.0)
    page.open(written(tmp_path, review), height=4000)
    everything = np.argsort(review.scores)
    ids = lambda places: [review.ids[place] for place in places]
    assert page.shown() == ids(everything)
    page.choose("given-filter", 2)
    assert page.shown() == ids(place for place in everything if review.given[place] == 2)
    page.choose("suggested-filter", 1)
    both = [place for place in everything if review.given[place] == 2 and review.suggested[place] == 1]
    assert page.shown() == ids(both)
    page.click("clear")
    assert page.shown() == ids(everything)
    page.run("document.querySelectorAll('.matrix .cell')[9].click()")
    assert page.shown() == ids(both)
    page.run("document.querySelectorAll('.matrix .cell')[9].click()")
    assert page.shown() == ids(everything)
    page.search("NOTE of 1")
    assert page.shown() == ids(place for place in everything if str(place).startswith("1"))
    page.search(review.ids[3])
    assert review.ids[3] in page.shown()
    page.search("")
    page.choose("sort", "confidence")
    assert page.shown() == ids(np.argsort(-review.confidence))
    page.choose("sort", "place")
    assert page.shown() == review.ids
    page.choose("sort", "given")
    assert page.shown() == ids(np.lexsort((review.scores, review.given)))
    page.search("nowhere")
    assert page.text("empty-text") == "No flagged row matches the filters."
    page.click("empty-button")
    assert page.text("shown") == "24 rows shown"


def test_texts_of_the_data_are_shown_and_never_run(page, tmp_path):
    rows = len(NASTY)
    lone = "\ud800 alone"
    review = a_review(
        rows,
        title=NASTY[0],
        facts={NASTY[0]: NASTY[1]},
        classes=NASTY,
        ids=NASTY,
        threshold=1.0,
        columns=NASTY[:3],
        records=lambda places: [[NASTY[place], NASTY[place - 1], lone] for place in places],
        curves=[Curve(NASTY[0], [0, 1], [1.0, 2.0])],
    )
    page.open(written(tmp_path, review), height=9000)
    lowest = np.argsort(review.scores)
    assert page.shown() == [NASTY[place] for place in lowest]
    fields = page.run(
        "return JSON.stringify([...document.querySelectorAll('.card')].map(c => [...c.querySelectorAll('dt')].map((e, "
        "i) => [e.textContent, c.querySelectorAll('dd')[i].textContent])))"
    )
    cut = lambda text: text if len(text) <= 300 else text[:299] + "…"
    for place, found in zip(lowest, json.loads(fields), strict=True):
        values = dict(map(tuple, found))
        assert values[NASTY[0]] == cut(NASTY[place])
        assert values[NASTY[1]] == cut(NASTY[place - 1])
        assert values[NASTY[2]] == lone
    assert page.text("title") == NASTY[0]
    page.run("document.querySelector('.card .id').click()")
    assert (
        page.run("return document.querySelectorAll('img, script:not([type]):not(:last-of-type), .card script').length")
        == 0
    )
    assert page.run("return window.hit") is None
    assert page.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth") <= 0


def test_the_policy_stops_a_script_that_got_in(page, tmp_path, driver):
    page.open(written(tmp_path, a_review(3)))
    page.run("const s = document.createElement('script'); s.textContent = 'window.hit = 1'; document.body.append(s)")
    page.run("const i = new Image(); i.src = 'https://example.invalid/x.png'; document.body.append(i)")
    page.after_frames("")
    assert page.run("return window.hit") is None
    assert all("Content Security Policy" in line["message"] for line in driver.get_log("browser"))


def test_pictures_are_those_of_their_rows(page, tmp_path):
    rows = 3000
    pictures = some_pictures(rows)
    review = with_pictures(rows, threshold=1.0)
    page.open(written(tmp_path, review))
    read = """const cards = [...document.querySelectorAll('.card')];
        return cards.map(card => { const c = card.querySelector('canvas');
          return [card.querySelector('.id').textContent, c.getAttribute('aria-label'), c.width, c.height,
                 [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 0)] })"""
    for script in ("", "scrollTo(0, 1e9)", "scrollTo(0, 30000)"):
        page.after_frames(script)
        time.sleep(0.2)
        found = page.run(read)
        assert 10 < len(found) < 100
        for id, label, width, height, pixels in found:
            row = review.ids.index(id)
            given, suggested = CLASSES[review.given[row]], CLASSES[review.suggested[row]]
            assert label == f"row {id}, given {given}, suggested {suggested}"
            np.testing.assert_array_equal(np.reshape(pixels, (height, width)), pictures[row])


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    rows, fields = 100_000, 10
    texts = np.random.default_rng(0).integers(0, 10**5, (rows, fields)).astype(str).tolist()
    near = (np.arange(rows)[:, None] + np.arange(1, 6)) % rows
    review = a_review(
        rows,
        threshold=1.0,
        columns=[f"field {i}" for i in range(fields)],
        records=lambda places: [texts[p] for p in places],
        likely=np.tile(np.arange(4), (rows, 1)),
        likelihoods=np.full((rows, 4), 0.25),
        similar=near,
        similarity=np.tile([0.99, 0.9, 0.8, 0.7, 0.6], (rows, 1)),
    )
    return written(tmp_path_factory.mktemp("large"), review), review


@pytest.mark.parametrize("width", [1280, 360])
def test_a_hundred_thousand_rows_stay_smooth(page, large, width):
    path, review = large
    page.open(path, width=width)
    cards = lambda: page.run("return document.querySelectorAll('.card').length")
    assert page.text("shown") == "100,000 rows shown"
    assert 0 < cards() < 40
    for threshold in (0.2, 0.9, 1):
        assert page.choose("threshold", threshold) < 200
        assert page.text("flagged") == f"{round(threshold * len(review.ids)):,}"
    for y in (5_000, 700_000, 9_000_000):
        assert page.after_frames("scrollTo(0, arguments[0])", y) < 200
        assert 0 < cards() < 40
        inside = (
            "return [...document.querySelectorAll('.card')].map(c => c.getBoundingClientRect())"
            ".filter(b => b.bottom > 0 && b.top < innerHeight).length"
        )
        assert page.run(inside) >= 2
    assert page.run("return document.getElementById('rows').offsetHeight") <= 10_000_000  # what browsers lay out
    assert page.after_frames("document.getElementById('near-filter').click()") < 400
    assert page.text("shown") == "100,000 rows shown"
    page.keys(Keys.END)
    place = np.argmax(review.scores)
    last = page.run(
        "const c = [...document.querySelectorAll('.card')].at(-1), b = c.getBoundingClientRect(); return "
        "[c.querySelector('.id').textContent, b.top >= 0, b.bottom <= innerHeight, c === document.activeElement]"
    )
    assert last == [review.ids[place], True, True, True]
    page.keys("k")
    assert len(read_decisions(page.decisions())) == 2
    page.keys(Keys.HOME, "u")


def test_what_is_left_out_is_said(page, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "PICTURE_BYTES", 300_000)
    noise = np.random.default_rng(0).integers(0, 256, (600, 28, 28), np.uint8)
    review = a_review(600, columns=(), records=None, images=lambda places: noise[places], threshold=1.0)
    page.open(written(tmp_path, review, detailed=500))
    assert page.text("limits") == (
        "The 500 rows of the lowest scores can be looked at here. The other 100 count in the numbers, the histogram "
        "and the matrix."
        "There is room for 256 pictures, those of the lowest scores; other rows show their id and labels."
    )
    assert page.text("flagged") == "600"
    assert page.text("shown") == "500 rows shown; 100 flagged rows of higher scores only count"
    lacking = (
        "const c = [...document.querySelectorAll('.card')];"
        "return c.filter(e => e.matches('.without-picture')).length / c.length"
    )
    assert page.run(lacking) == 0
    page.keys(Keys.END)
    assert page.run(lacking) == 1


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_no_flagged_row(page, tmp_path, rows):
    page.open(written(tmp_path, a_review(rows, threshold=0.0)))
    assert page.text("flagged") == "0"
    assert page.text("progress-text") == "nothing to decide"
    page.keys("k", "f", "n", "u", "l")
    if rows:
        assert page.text("empty-text") == "No row is flagged: no score lies below 0."
        page.click("empty-button")
        assert page.text("shown") == f"{rows_text(min(rows, 20))} shown"
    else:
        assert page.text("empty-text") == "There are no rows in this data."


def test_thousands_of_classes(page, tmp_path):
    classes = [f"class {label}" for label in range(3000)]
    review = a_review(2000, classes=classes, suggested=np.arange(2000) % 7, threshold=1.0)
    page.open(written(tmp_path, review))
    rows, counts = np.unique(np.stack([review.given, review.suggested], 1), axis=0, return_counts=True)
    most = int(counts[rows[:, 0] != rows[:, 1]].max())
    assert page.run("return Number(document.querySelector('.pair .number').textContent)") == most
    page.run("document.querySelector('.pair').click()")
    assert page.text("shown") == f"{rows_text(most)} shown"
    page.click("clear")
    page.choose("given-filter", int(review.given[0]))
    assert page.text("shown").split()[0] == str((review.given == review.given[0]).sum())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(page, tmp_path, scheme):
    page.open(written(tmp_path, a_review(400, threshold=0.9)), scheme=scheme)
    page.keys("k", "f", "s")
    assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    page.click("help")
    found = contrasts(page)
    assert len(found) > 150
    assert found[0][0] >= 4.5, found[:5]


@pytest.mark.parametrize("make", [a_review, with_pictures], ids=["table", "pictures"])
def test_everything_that_is_used_has_a_name(page, tmp_path, make):
    page.open(written(tmp_path, make(40)))
    seen = set()
    for dialog in (None, "help-dialog", "row-view"):
        if dialog:
            page.run("document.querySelectorAll('dialog').forEach(d => d.close())")
            page.run(
                "arguments[0] === 'row-view' ? document.querySelector('.card .id').click() : "
                "document.getElementById(arguments[0]).showModal()",
                dialog,
            )
        seen |= named_roles(page)
    assert {"button", "slider", "spinbutton", "searchbox", "combobox", "checkbox", "article", "feed", "image"} <= seen
    page.run("document.getElementById('row-view').close()")
    landmarks = page.run(
        "return ['header', 'main', 'aside[aria-label]', 'h1', '[role=search]', '[role=status]'].every(s => "
        "document.querySelector(s))"
    )
    assert landmarks


@pytest.mark.parametrize("make", [a_review, with_pictures], ids=["table", "pictures"])
def test_a_narrow_window_scrolls_in_one_direction(page, tmp_path, make):
    review = make(40, title="a-long-name-without-any-space-" * 4, facts={"f" * 90: "v" * 90})
    page.open(written(tmp_path, review), width=360, height=700)
    wide = lambda: page.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth")
    assert wide() <= 0
    page.click("overview-toggle")
    page.click("filters-toggle")
    page.run("document.querySelectorAll('details').forEach(d => (d.open = true))")
    assert wide() <= 0
    page.run("document.querySelector('.card .id').click()")
    assert page.run(
        "const d = document.getElementById('row-view'), b = d.getBoundingClientRect(); return b.left >= 0 && b.right "
        "<= innerWidth && d.scrollWidth <= d.clientWidth"
    )
