"""The review page: what is written, without a browser; and what it does, in one."""

import base64
import csv
import dataclasses
import hashlib
import io
import itertools
import json
import re
import shutil
import stat
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from wior.cleaning.review import review as report
from wior.cleaning.review.guard import guard, unguard
from wior.cleaning.review.review import Curve, Review, write_review
from wior.cleaning.review.sheets import grid_of, sheets

CLASSES = ("cat", "dog", "=owl", "ant, red")
NASTY = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 2'>",
    "</script><!--<script>",
    "=cmd|' /C calc'!A0",
    "'quoted'",
    '"twice ""quoted"""',
    "+1",
    "-1e-5",
    "-x",
    "@sum",
    "\tlies behind a tab",
    "\rreturn",
    "two\nlines",
    "carriage\r\nreturn",
    " space ",
    "comma, semicolon;",
    "שלום, עולם",
    "\u202ereversed",
    "\u2028\u2029",
    "nul\x00here",
    "👩\u200d🔬",
    "&lt;b&gt;",
    "W" * 400,
    "",
)
_number = itertools.count()

try:
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.select import Select
except ImportError:
    webdriver = None


def a_review(rows=40, classes=CLASSES, **changes):
    """A table with scores in the order of a permutation; other ids every time, since a browser remembers decisions."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, len(classes), rows)
    review = Review(
        title="train.csv",
        facts={"rows": f"{rows}", "label column": "kind"},
        classes=classes,
        ids=[f"t{next(_number)}-{row}" for row in range(rows)],
        given=labels,
        suggested=(labels + rng.integers(0, len(classes), rows)) % len(classes),
        scores=rng.permutation(rows) / rows,
        confidence=rng.random(rows),
        threshold=0.5,
        columns=("width", "note"),
        records=lambda places: [[f"{place / 8}", f"note of {place}"] for place in places],
        curves=(Curve("loss", range(50), np.exp(-np.arange(50.0))), Curve("nothing", [3], [np.nan])),
    )
    return dataclasses.replace(review, **changes)


def some_pictures(rows, height=11, width=7):
    return np.random.default_rng(1).integers(0, 256, (rows, height, width), np.uint8)


def with_pictures(rows=40, **changes):
    pictures = some_pictures(rows)
    return a_review(rows, columns=(), records=None, images=lambda places: pictures[places], **changes)


def written(tmp_path, review, **options):
    path = tmp_path / f"page-{next(_number)}.html"
    write_review(path, review, **options)
    return path


def block(path, name):
    """The content of one of the page's blocks of data."""
    found = re.findall(rf'<script type="[a-z/]+" id="{name}">(.*?)</script>', path.read_text(), re.DOTALL)
    assert len(found) == 1
    return found[0]


def numbers(path, name, dtype):
    return np.frombuffer(base64.b64decode(block(path, name)), dtype)


# the apostrophe


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text("=+-@\t\r'0123456789.eE \n")))
def test_a_guarded_text_is_never_a_formula_and_is_found_again(text):
    assert unguard(guard(text)) == text
    assert guard(text)[:1] not in set("=+-@\t\r") or float(text) is not None


def test_plain_numbers_need_no_guard():
    for text in ("-1", "+1.5", "-.5e3", "-1.", "12"):
        assert guard(text) == text
    for text in ("-", "+a", "-1-1", "-1\n", "-١", "=1", "@", "'", "\t1", "-1e", "+.", "-0x1"):
        assert guard(text) == "'" + text


# what is written


def test_all_rows_count_and_the_lowest_scores_are_there_in_detail(tmp_path):
    review = a_review(40)
    path = written(tmp_path, review, detailed=7)
    lowest = np.argsort(review.scores)[:7]
    np.testing.assert_array_equal(numbers(path, "given", "u1"), review.given)
    np.testing.assert_array_equal(numbers(path, "suggested", "u1"), review.suggested)
    np.testing.assert_array_equal(numbers(path, "scores", "<f4"), review.scores.astype(np.float32))
    np.testing.assert_array_equal(numbers(path, "places", "<u4"), lowest)
    np.testing.assert_array_equal(numbers(path, "confidence", "<f4"), review.confidence[lowest].astype(np.float32))
    assert json.loads(block(path, "ids")) == [review.ids[place] for place in lowest]
    assert json.loads(block(path, "records")) == review.records(lowest)
    assert not [id for place, id in enumerate(review.ids) if place not in lowest and f'"{id}"' in path.read_text()]


def test_many_classes_take_wider_numbers(tmp_path):
    review = a_review(40, classes=[f"c{label}" for label in range(300)])
    path = written(tmp_path, review)
    np.testing.assert_array_equal(numbers(path, "given", "<u2"), review.given)


def test_records_are_asked_for_some_rows_at_a_time_and_long_texts_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "ROWS_AT_ONCE", 16)
    asked = []
    review = a_review(40, records=lambda places: asked.append(len(places)) or [["x" * 201, "y" * 200]] * len(places))
    path = written(tmp_path, review)
    assert asked == [16, 16, 8]
    assert json.loads(block(path, "records")) == [["x" * 199 + "…", "y" * 200]] * 40


def test_records_end_where_there_is_no_more_room(tmp_path, monkeypatch):
    review = a_review(40, records=lambda places: [["12345", "123456"]] * len(places))
    monkeypatch.setattr(report, "RECORD_BYTES", 10 * len('["12345","123456"],') + 3)
    assert len(json.loads(block(written(tmp_path, review), "records"))) == 10


def test_texts_cannot_leave_their_block(tmp_path):
    review = a_review(
        len(NASTY),
        title="</title><script>window.hit = 9</script>",
        facts={text: text for text in NASTY},
        classes=NASTY,
        ids=NASTY,
        columns=NASTY[:2],
        records=lambda places: [[NASTY[place], "\ud800 alone"] for place in places],
        curves=[Curve(NASTY[0], [0], [1.0])],
    )
    path = written(tmp_path, review)
    content = path.read_text()
    plain = written(tmp_path, a_review(3)).read_text()
    for mark in ("<script", "</script", "<!--", "<img", "\u2028", "\x00"):
        assert content.count(mark) == plain.count(mark)
    lowest = np.argsort(review.scores)
    assert json.loads(block(path, "ids")) == [NASTY[place] for place in lowest]
    assert json.loads(block(path, "about"))["classes"] == list(NASTY)
    assert json.loads(block(path, "records"))[0][1] == "\ud800 alone"


@pytest.mark.parametrize("review", [a_review(5), with_pictures(5)], ids=["table", "pictures"])
def test_the_page_loads_nothing_and_its_policy_admits_its_own_script_and_style_alone(tmp_path, review):
    content = written(tmp_path, review).read_text()
    assert set(re.findall(r'\s(?:src|href|srcset|action|data)="([^"]*)"', content)) == {"#rows", "data:,"}
    assert set(re.findall(r"\w+://[^\s\"'`]*", content)) == {"http://www.w3.org/2000/svg"}  # a name, which nobody loads
    assert not re.findall(
        r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|\beval\(|innerHTML|style=\"|\son\w+=\"", content
    )
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', content)[0]
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    hash_of = lambda text: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert allowed == {
        "default-src": "'none'",
        "script-src": hash_of(re.findall(r"<script>(.*?)</script>", content, re.DOTALL)[0]),
        "style-src": hash_of(re.findall(r"<style>(.*?)</style>", content, re.DOTALL)[0]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_a_fault_leaves_what_was_there(tmp_path):
    def fails(places):
        raise OSError("the table is gone")

    path = tmp_path / "page.html"
    path.write_text("before")
    with pytest.raises(OSError, match="the table is gone"):
        write_review(path, a_review(records=fails))
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]
    write_review(path, a_review())
    assert [*tmp_path.iterdir()] == [path]
    other = tmp_path / "other"
    other.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_the_fingerprint_is_that_of_the_labels_as_given(tmp_path):
    review = a_review()
    print_of = lambda review: json.loads(block(written(tmp_path, review), "about"))["fingerprint"]
    assert print_of(review) == print_of(
        dataclasses.replace(review, scores=review.scores / 2, threshold=0.1, title="again")
    )
    changed = review.given.copy()
    changed[3] = (changed[3] + 1) % 4
    assert print_of(review) != print_of(dataclasses.replace(review, given=changed))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"given": np.zeros(39, int)}, r"given must have shape \(40,\).* got \(39,\)"),
        ({"suggested": np.full(40, 4)}, r"suggested\[0\] is 4; with 4 classes it must be a place from 0 to 3"),
        ({"given": -np.ones(40, int)}, r"given\[0\] is -1"),
        ({"given": np.zeros(40)}, "given must hold places in classes as integers, got dtype float64"),
        ({"scores": np.full(40, np.nan)}, r"scores\[0\] is nan; it must be a number between 0 and 1"),
        ({"confidence": np.full(40, 1.5)}, r"confidence\[0\] is 1.5"),
        ({"threshold": 1.5}, "threshold must lie between 0 and 1, got 1.5"),
        ({"threshold": float("nan")}, "threshold must lie between 0 and 1, got nan"),
        ({"ids": ["a"] * 40}, "ids must differ from each other, got 'a' in places 0 and 1"),
        ({"classes": ("a", "b", "c", "b")}, "classes must differ from each other, got 'b' in places 1 and 3"),
        ({"records": None}, "columns and records must be given together"),
        ({"columns": ()}, "columns and records must be given together"),
        ({"records": lambda places: [["one"]] * len(places)}, r"2 texts for each row, got \['one'\] for row"),
        ({"records": lambda places: [[1, 2]] * len(places)}, r"2 texts for each row, got \[1, 2\]"),
        ({"records": lambda places: []}, "one record for each of 40 places, got 0"),
        ({"curves": [Curve("loss", [1], [])]}, "'loss' must have one value for each step, got 1 steps and 0 values"),
        ({"images": lambda places: np.zeros((len(places), 4, 4))}, "uint8 pictures .* got float64"),
        ({"images": lambda places: np.zeros((7, 4, 4), np.uint8)}, "one picture for each of 1 places, got 7"),
    ],
)
def test_errors_name_what_is_wrong(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write_review(tmp_path / "page.html", a_review(**changes))
    assert not [*tmp_path.iterdir()]


# pictures


def read_sheets(content, grid):
    for sheet in content:
        pixels = np.asarray(Image.open(io.BytesIO(sheet.content)))
        for place in range(sheet.pictures):
            y, x = (place // grid.across) * grid.cell[0], (place % grid.across) * grid.cell[1]
            yield pixels[y : y + grid.height, x : x + grid.width]


@pytest.mark.parametrize("rows", [1, 3, 5000])
def test_small_pictures_are_exact(rows):
    pictures = some_pictures(rows)
    places = np.random.default_rng(0).permutation(rows)
    images = lambda some: pictures[some]
    grid = grid_of(images, 0)
    found = [*read_sheets(sheets(images, places, grid, 2**30), grid)]
    np.testing.assert_array_equal(found, pictures[places])


def test_photographs_are_reduced_and_close():
    slopes = np.linspace(0, 200, 288)[None, None, :, None] * np.array([0.2, 0.5, 1])
    photos = (slopes + np.random.default_rng(0).integers(0, 50, (30, 192, 288, 3))).astype(np.uint8)
    images = lambda places: photos[places]
    grid = grid_of(images, 0)
    assert (grid.height, grid.width) == (64, 96)
    content = [*sheets(images, np.arange(30), grid, 2**30)]
    assert {sheet.kind for sheet in content} == {"image/jpeg"}
    means = photos.reshape(30, 64, 3, 96, 3, 3).mean((2, 4))
    assert np.abs(np.stack([*read_sheets(content, grid)]) - means).mean() < 5


def test_pictures_end_where_there_is_no_more_room(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (3000, 28, 28), np.uint8)
    review = a_review(3000, columns=(), records=None, images=lambda places: noise[places])
    monkeypatch.setattr(report, "PICTURE_BYTES", 500_000)
    layout = json.loads(block(written(tmp_path, review), "about"))["pictures"]
    assert layout["count"] == 2 * layout["onSheet"] == 512


def test_pictures_of_two_shapes_are_refused():
    images = lambda places: np.zeros((len(places), 96 + len(places) % 2, 96), np.uint8)
    with pytest.raises(ValueError, match=r"one shape, got \(97, 96\) and \(96, 96\)"):
        [*sheets(images, np.arange(27), grid_of(images, 0), 2**30)]


# in the browser


class Page:
    def __init__(self, driver):
        self.driver = driver
        self.run = driver.execute_script

    def open(self, path, width=1280, height=900, scheme="light"):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(path.as_uri())

    def find(self, name):
        return self.driver.find_element("id", name)

    def text(self, name):
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def click(self, name):
        self.find(name).click()

    def answer(self, question, answer):
        self.click(question)
        self.click(answer)
        self.after_frames("")

    def keys(self, *keys):
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def busy(self):
        """Milliseconds of processor time that the page has taken, which other processes do not lengthen."""
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def after_frames(self, script, *values):
        """Runs the script, waits for two frames, and says for how many milliseconds the page was busy."""
        before = self.busy()
        self.driver.execute_async_script(
            f"const done = arguments[arguments.length - 1]; {script};"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()))",
            *values,
        )
        return self.busy() - before

    def choose(self, name, value):
        script = "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        script += "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true}))"
        return self.after_frames(script, name, str(value))

    def search(self, words):
        self.choose("search", words)
        time.sleep(0.2)

    def shown(self):
        """Ids of the cards in the document, which are all where rows are few and the window is high."""
        return self.run("return [...document.querySelectorAll('.card .id')].map(e => e.textContent)")

    def decisions(self):
        return self.run("return review.csv()")


def rows_text(number):
    return f"{number} row" if number == 1 else f"{number} rows"


def read_decisions(text):
    lines = [*csv.reader(io.StringIO(text, newline=""))]
    return [tuple(map(unguard, line)) for line in lines]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    if webdriver is None:
        pytest.skip("selenium is not installed")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    service = shutil.which("chromedriver")
    if not browser or not service:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=service))
    try:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.downloads = tmp_path_factory.mktemp("downloads")
        driver.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(driver.downloads)}
        )
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def page(driver):
    driver.get_log("browser")
    yield Page(driver)
    assert not [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]


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


def test_decisions_from_the_keyboard_reach_the_file_and_outlast_a_reload(page, tmp_path, driver):
    review = a_review(40, suggested=(a_review(40).given + 1) % 4)
    place = np.argsort(review.scores)
    name = lambda label: CLASSES[label]
    row = lambda i, decision, label: (review.ids[place[i]], name(review.given[place[i]]), decision, label)
    path = written(tmp_path, review)
    page.open(path)
    page.keys("k", "f", "s", Keys.ARROW_DOWN, "f", "k", "u")
    expected = [
        ("id", "given", "decision", "label"),
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
        c for i, c in enumerate(CLASSES) if i != review.given[place[5]]
    ]
    Select(choice).select_by_value(str(other))
    page.keys(Keys.ESCAPE, Keys.ARROW_UP, "c")
    expected = [*expected[:-1], row(5, "fix", name(other))]
    assert read_decisions(page.decisions()) == expected
    # nothing is lost unless it was exported
    leaves = "return dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert page.run(leaves) is False
    driver.refresh()
    assert read_decisions(page.decisions()) == expected
    assert page.run(leaves) is False
    page.click("export")
    assert page.run(leaves) is True
    file = driver.downloads / "train-decisions.csv"
    limit = time.monotonic() + 10
    while not file.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    assert file.read_bytes() == page.decisions().encode()
    driver.refresh()
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
        (review.ids[row], CLASSES[review.given[row]], "fix", CLASSES[review.suggested[row]])
        for row in np.flatnonzero(among & (review.given != review.suggested))
    }
    assert wanted
    skipped = (review.ids[first], CLASSES[review.given[first]], "skip", "")
    assert set(read_decisions(page.decisions())[1:]) == {*wanted, skipped}
    page.choose("state-filter", "none")
    page.answer("keep-all", "confirm-yes")
    kept = {
        (review.ids[row], CLASSES[review.given[row]], "keep", CLASSES[review.given[row]])
        for row in np.flatnonzero(among & (review.given == review.suggested))
    }
    assert set(read_decisions(page.decisions())[1:]) == {*wanted, *kept, skipped}
    assert page.text("empty-text") in ("No flagged row matches the filters.", "Every flagged row is decided.")
    page.click("undo")
    page.click("undo")
    assert read_decisions(page.decisions())[1:] == [skipped]


def test_exported_decisions_are_imported_again(page, tmp_path):
    review = a_review(len(NASTY), classes=NASTY, ids=[f"{text}{next(_number)}" for text in NASTY], threshold=1.0)
    labels = np.random.default_rng(3).integers(0, len(NASTY), len(NASTY))
    lines = [[review.ids[row], NASTY[review.given[row]], "fix", NASTY[labels[row]]] for row in range(len(NASTY))]
    lines[1][2:] = ["keep", NASTY[review.given[1]]]
    lines[2][2:] = ["skip", ""]
    content = io.StringIO(newline="")
    bad = [
        ["elsewhere", "x", "keep", "x"],
        [review.ids[4], "not its label", "keep", "x"],
        [review.ids[5], NASTY[review.given[5]], "fix", "no class"],
    ]
    csv.writer(content).writerows(
        [["id", "given", "decision", "label"], *([guard(text) for text in line] for line in [*lines, *bad])]
    )
    file = tmp_path / "decisions.csv"
    file.write_text(content.getvalue(), newline="", encoding="utf-8-sig")
    page.open(written(tmp_path, review))
    page.find("import-file").send_keys(str(file))
    page.after_frames("")
    assert set(read_decisions(page.decisions())[1:]) == set(map(tuple, lines))
    said = page.text("message")
    assert said.startswith(f"Imported {len(NASTY)} decisions; left out: ")
    assert said.count("1 about a row") == 2
    assert "1 with a label that is no class" in said
    again = tmp_path / "again.csv"
    again.write_text(page.decisions(), newline="")
    page.click("undo")
    assert len(read_decisions(page.decisions())) == 1
    page.find("import-file").send_keys(str(again))
    page.after_frames("")
    assert set(read_decisions(page.decisions())[1:]) == set(map(tuple, lines))
    file.write_text("a,b\n1,2\n")
    page.find("import-file").send_keys(str(file))
    page.after_frames("")
    assert (
        page.text("message")
        == "decisions.csv cannot be imported: its first line must be id,given,decision,label, and is a,b"
    )


def test_both_twins_of_the_guard_agree(page, tmp_path):
    page.open(written(tmp_path, a_review(3)))
    starts = ["", *"=+-@\t\r'\n ", "++", "''", "=-"]
    ends = ["", "1", "1.5", ".5", ".", "1e5", "1e", "1\n", "a", "1-1", "١", "1 ", "0x1", "Infinity", "NaN", "'", "𝟙"]
    texts = [*NASTY, *(start + end for start in starts for end in ends)]
    assert page.run("return arguments[0].map(review.guard)", texts) == [guard(text) for text in texts]
    assert page.run("return arguments[0].map(review.unguard)", texts) == [unguard(text) for text in texts]


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
        "return JSON.stringify([...document.querySelectorAll('.card')].map(c => [...c.querySelectorAll('dt')].map((e, i) => [e.textContent, c.querySelectorAll('dd')[i].textContent])))"
    )
    cut = lambda text: text if len(text) <= 200 else text[:199] + "…"
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
    review = a_review(
        rows,
        threshold=1.0,
        columns=[f"field {i}" for i in range(fields)],
        records=lambda places: [texts[p] for p in places],
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
        inside = "return [...document.querySelectorAll('.card')].filter(c => c.getBoundingClientRect().bottom > 0 && c.getBoundingClientRect().top < innerHeight).length"
        assert page.run(inside) >= 2
    assert page.run("return document.getElementById('rows').offsetHeight") <= 10_000_000  # what browsers lay out
    page.keys(Keys.END)
    place = np.argmax(review.scores)
    last = page.run(
        "const c = [...document.querySelectorAll('.card')].at(-1), b = c.getBoundingClientRect(); return [c.querySelector('.id').textContent, b.top >= 0, b.bottom <= innerHeight, c === document.activeElement]"
    )
    assert last == [review.ids[place], True, True, True]
    page.keys("k")
    assert len(read_decisions(page.decisions())) == 2
    page.keys(Keys.HOME, "u")


def test_what_is_left_out_is_said(page, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PICTURE_BYTES", 300_000)
    noise = np.random.default_rng(0).integers(0, 256, (600, 28, 28), np.uint8)
    review = a_review(600, columns=(), records=None, images=lambda places: noise[places], threshold=1.0)
    page.open(written(tmp_path, review, detailed=500))
    assert page.text("limits") == (
        "The 500 rows of the lowest scores can be looked at here. The other 100 count in the numbers, the histogram and the matrix."
        "There is room for 256 pictures, those of the lowest scores; other rows show their id and labels."
    )
    assert page.text("flagged") == "600"
    assert page.text("shown") == "500 rows shown; 100 flagged rows of higher scores only count"
    lacking = "const c = [...document.querySelectorAll('.card')]; return c.filter(e => e.matches('.without-picture')).length / c.length"
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


CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = text => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data] };
const light = ([r, g, b]) => { const l = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * l(r) + 0.7152 * l(g) + 0.0722 * l(b) };
const ground = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c } return [255, 255, 255, 255] };
const found = [];
for (const e of document.querySelectorAll("body *")) {
  const own = e.matches("input, select") || [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (!own || e.matches("script, noscript, option, :disabled") || !e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground(e))];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + "." + e.className + "#" + e.id + " " + e.textContent.slice(0, 20)]);
}
return found.sort((a, b) => a[0] - b[0]);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(page, tmp_path, scheme):
    page.open(written(tmp_path, a_review(400, threshold=0.9)), scheme=scheme)
    page.keys("k", "f", "s")
    assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    page.click("help")
    found = page.run(CONTRAST)
    assert len(found) > 150
    assert found[0][0] >= 4.5, found[:5]


NAMED = {
    "button",
    "slider",
    "spinbutton",
    "searchbox",
    "textbox",
    "combobox",
    "checkbox",
    "img",
    "image",
    "progressbar",
    "article",
    "feed",
    "canvas",
}


@pytest.mark.parametrize("make", [a_review, with_pictures], ids=["table", "pictures"])
def test_everything_that_is_used_has_a_name(page, tmp_path, driver, make):
    page.open(written(tmp_path, make(40)))
    seen = set()
    for dialog in (None, "help-dialog", "row-view"):
        if dialog:
            page.run("document.querySelectorAll('dialog').forEach(d => d.close())")
            page.run(
                "arguments[0] === 'row-view' ? document.querySelector('.card .id').click() : document.getElementById(arguments[0]).showModal()",
                dialog,
            )
        for node in driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
            role = node.get("role", {}).get("value")
            if not node["ignored"] and role in NAMED:
                seen.add(role)
                assert node.get("name", {}).get("value", "").strip(), node
    assert {"button", "slider", "spinbutton", "searchbox", "combobox", "checkbox", "article", "feed", "image"} <= seen
    page.run("document.getElementById('row-view').close()")
    landmarks = page.run(
        "return ['header', 'main', 'aside[aria-label]', 'h1', '[role=search]', '[role=status]'].every(s => document.querySelector(s))"
    )
    assert landmarks


@pytest.mark.parametrize("make", [a_review, with_pictures], ids=["table", "pictures"])
def test_a_narrow_window_scrolls_in_one_direction(page, tmp_path, make):
    review = make(40, title="a-long-name-without-any-space-" * 4, facts={"f" * 90: "v" * 90})
    page.open(written(tmp_path, review), width=360, height=700)
    wide = lambda: page.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth")
    assert wide() <= 0
    page.run("document.querySelectorAll('details').forEach(d => (d.open = true))")
    assert wide() <= 0
    page.run("document.querySelector('.card .id').click()")
    assert page.run(
        "const d = document.getElementById('row-view'), b = d.getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth && d.scrollWidth <= d.clientWidth"
    )


def test_scripts_and_styles_stand_in_the_package():
    folder = Path(report.__file__).parent
    assert {path.name for path in folder.glob("*.js")} == set(report.SCRIPTS)
