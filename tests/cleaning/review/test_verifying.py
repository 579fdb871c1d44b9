"""The verifying page in a browser: one row at a time, by keys, by hand and on a phone."""

import csv
import io
import json

import numpy as np
import pytest

from browser import Keys, read_decisions
from page_checks import contrasts, named_roles, overflow
from review_pages import CLASSES, NASTY, block, fresh
from verifications import a_verification, verification_page
from wior.cleaning.review.guard import guard

HEADER = ("id", "given", "verified", "chance")
SEEN = "return document.body.innerText"


def opened(page, tmp_path, verification, **options):
    path = verification_page(tmp_path, verification)
    page.open(path, **options)
    return path


def lines(page):
    return read_decisions(page.decisions())


def test_answers_from_the_keyboard_reach_the_file_and_outlast_a_reload(page, tmp_path, driver):
    some = a_verification(6)  # cat, dog, owl, ant, cat, dog
    opened(page, tmp_path, some)
    assert page.text("row-title") == "Row 1 of 6"
    page.keys("1", "1", "-", ".", "4")
    assert page.text("progress-text") == "5 of 6"
    expected = [
        HEADER,
        (some.ids[0], "cat", "cat", "1"),
        (some.ids[1], "dog", "cat", "0.5"),
        (some.ids[4], "cat", "ant, red", "0.2"),
    ]
    assert lines(page) == expected
    page.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '1', repeat: true, bubbles: true}))")
    page.keys("9", "x")  # no labels
    assert page.text("progress-text") == "5 of 6"
    page.keys(Keys.BACKSPACE)
    assert page.text("row-title") == "Row 5 of 6"
    assert lines(page) == expected[:-1]
    page.keys("3")
    expected[-1] = (some.ids[4], "cat", "=owl", "0.2")
    leaves = "return dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert page.run(leaves) is False
    page.reload()
    assert page.text("row-title") == "Row 6 of 6"
    assert lines(page) == expected
    page.click("export")
    assert page.downloaded("verified.csv").decode() == (
        "id,given,verified,chance\r\n"
        f"{some.ids[0]},cat,cat,1\r\n{some.ids[1]},dog,cat,0.5\r\n{some.ids[4]},cat,'=owl,0.2\r\n"
    )
    assert page.text("command") == "wior clean train.csv --label kind --verified verified.csv"
    page.keys("1")  # behind the dialog nothing is answered
    assert page.text("progress-text") == "5 of 6"
    page.click("exported-close")
    assert page.run(leaves) is True


def test_the_given_label_is_hidden_until_the_answer(page, tmp_path):
    some = a_verification(
        3,
        classes=("meadow", "forest", "city"),
        ids=[f"{name}/{next(fresh)}.png" for name in ("meadow", "forest", "city")],
        columns=("text",),
        records=lambda places: [["a picture of something"]] * len(places),
    )
    opened(page, tmp_path, some)
    page.run("document.getElementById('choices').hidden = true")  # the labels to choose from
    assert not [name for name in some.classes if name in page.run(SEEN)]
    page.keys("2")
    assert page.text("last") == f"{some.ids[0]}forestgiven: meadow, differs"
    assert page.text("told-last") == "Row 1: forest; given: meadow, differs."
    page.keys("2")
    assert page.text("told-last") == "Row 2: forest; given: forest, agrees."
    assert "city" not in page.run(SEEN)
    # who cannot tell, or skips, may still answer
    page.keys("-")
    assert page.text("told-last") == "Row 3: cannot tell."
    page.click("last-undo")
    assert page.text("outcome") == "cannot tell"
    page.keys(".", Keys.ARROW_LEFT)
    assert page.text("outcome") == "skipped"
    assert "city" not in page.run(SEEN)
    # an answer can be looked at again, and changed
    page.keys(Keys.ARROW_LEFT)
    assert page.text("outcome") == f"{some.ids[1]}forestgiven: forest, agrees"
    assert page.run("return document.querySelectorAll('.choice[aria-pressed=true]').length") == 1
    page.keys("3")
    assert [line[2] for line in lines(page)[1:]] == ["forest", "city"]


def test_how_many_agree_is_said_at_the_end_alone(page, tmp_path):
    some = a_verification(6)
    opened(page, tmp_path, some)
    page.keys("1", "1", "3", "-", ".")
    assert "as they were given" not in page.run(SEEN)
    page.keys("2")
    assert page.text("done-title") == "Every row is done."
    assert page.text("done-text") == (
        "4 rows answered, 3 of them as they were given; 1 without an answer that can be told, 1 skipped."
    )
    assert page.run("return document.activeElement.id") == "done-title"
    page.keys("1")
    assert len(lines(page)) == 5
    page.click("done-export")
    page.downloaded("verified.csv")
    page.click("exported-close")
    page.click("undo")
    assert page.text("row-title") == "Row 6 of 6"


def test_rows_that_were_passed_over_come_again(page, tmp_path):
    opened(page, tmp_path, a_verification(4))
    page.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, "1")
    assert page.text("row-title") == "Row 4 of 4"
    page.keys("1")
    assert page.text("row-title") == "Row 1 of 4"
    page.keys(*[Keys.ARROW_RIGHT] * 5)
    assert page.text("done-title") == "2 rows still open"
    page.click("done-back")
    assert page.text("row-title") == "Row 1 of 4"


def test_notes_make_a_column_and_keys_leave_them_alone(page, tmp_path, driver):
    some = a_verification(3)
    opened(page, tmp_path, some)
    page.keys("+", *"1 or 2, =x", Keys.ESCAPE)
    assert len(lines(page)) == 1
    page.keys("2", "1")
    expected = [
        (*HEADER, "note"),
        (some.ids[0], "cat", "dog", "1", "1 or 2, =x"),
        (some.ids[1], "dog", "cat", "0.5", ""),
    ]
    assert lines(page) == expected
    page.reload()
    assert lines(page) == expected
    page.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert page.run("return document.getElementById('note').value") == "1 or 2, =x"


def test_a_label_is_searched_for_or_made(page, tmp_path, driver):
    some = a_verification(4)
    opened(page, tmp_path, some)
    page.keys("/", *"RED", Keys.ENTER)
    page.keys("/", *"lynx", Keys.ENTER)
    assert [line[2] for line in lines(page)[1:]] == ["ant, red", "lynx"]
    # the new label has a key now, and is there after a reload
    page.keys("5")
    page.reload()
    names = page.run("return [...document.querySelectorAll('#choices .name')].map(e => e.textContent)")
    assert names == [*CLASSES, "lynx"]
    assert [line[2] for line in lines(page)[1:]] == ["ant, red", "lynx", "lynx"]


def test_hundreds_of_classes_are_searched(page, tmp_path):
    classes = [f"class {label}" for label in range(300)]
    some = a_verification(4, classes=classes)
    opened(page, tmp_path, some)
    assert page.run("return document.querySelectorAll('#choices .choice').length") == 0
    page.keys("/")
    options = "return [...document.querySelectorAll('#search-options .option')].map(e => e.textContent)"
    assert page.run(options) == classes[:50]
    assert page.run("return document.querySelector('#search-options .remark').textContent") == (
        "and 250 more: type to find them"
    )
    page.keys(*"class 29")
    assert page.run(options) == ["class 29", *(f"class 29{digit}" for digit in range(10))]
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    assert lines(page)[1][2] == "class 291"
    # the box has the focus again, for the next row
    assert page.run("return document.activeElement.id") == "search"
    page.keys(*"class 7", Keys.ENTER, *"none of these", Keys.ENTER)
    assert [line[2] for line in lines(page)[1:]] == ["class 291", "class 7", "none of these"]
    selected = page.run("return document.getElementById('search').getAttribute('aria-activedescendant')")
    assert selected is None


def test_an_earlier_export_is_imported(page, tmp_path):
    some = a_verification(5)
    opened(page, tmp_path, some)
    rows = [
        [some.ids[1], "dog", "cat", "0.5", "sure"],
        [some.ids[3], "ant, red", "-lynx", "0.25", ""],
        [some.ids[0], "dog", "cat", "1", ""],
        ["elsewhere", "dog", "cat", "1", ""],
        [some.ids[2], "=owl", " ", "1", ""],
    ]
    content = io.StringIO(newline="")
    csv.writer(content).writerows([[*HEADER, "note"], *([guard(text) for text in line] for line in rows)])
    file = tmp_path / "verified.csv"
    file.write_text(content.getvalue(), newline="")
    said = page.load(file)
    assert said == (
        "Imported 2 answers; left out: 1 about a row whose given label is another one here, "
        "1 about a row that is not on this page, 1 without a verified label"
    )
    assert lines(page)[1:] == [tuple(line) for line in rows[:2]]
    assert page.text("row-title") == "Row 1 of 5"
    page.click("undo")
    assert lines(page) == [HEADER]
    file.write_text("id,given,decision,label\n1,a,keep,a\n")
    assert page.load(file) == (
        "verified.csv cannot be imported: its first line must be id,given,verified,chance, and is "
        "id,given,decision,label"
    )


def test_nasty_texts_survive(page, tmp_path):
    ids = [f"{text}{next(fresh)}" for text in NASTY]
    some = a_verification(
        len(NASTY),
        title=NASTY[0],
        facts={NASTY[0]: NASTY[1]},
        classes=NASTY,
        ids=ids,
        columns=NASTY[:2],
        records=lambda places: [[NASTY[place], NASTY[place - 1]] for place in places],
        command=NASTY[2],
    )
    opened(page, tmp_path, some)
    keys = "1234567890abcdefghijklmnopqrstuvwxyz"
    for row in range(len(NASTY)):
        shown = page.run("return [...document.querySelectorAll('#record dd')].map(e => e.textContent)")
        assert shown == [NASTY[row], NASTY[row - 1]]
        page.keys(keys[(row + 1) % len(NASTY)])
    expected = [(ids[row], NASTY[row], NASTY[(row + 1) % len(NASTY)]) for row in range(len(NASTY))]
    assert [line[:3] for line in lines(page)[1:]] == expected
    assert page.run("return window.hit") is None
    assert page.run("return document.querySelectorAll('img, script:not([type]):not(:last-of-type)').length") == 0
    assert overflow(page) <= 0


def test_chances_are_written_as_they_were_given(page, tmp_path):
    chances = np.array([1.0, 0.1, 1 / 3, 0.00012345678901234567])
    opened(page, tmp_path, a_verification(4, chances=chances))
    page.keys(*"1111")
    assert [float(line[3]) for line in lines(page)[1:]] == chances.tolist()


def test_pictures_are_large_and_those_of_their_rows(page, tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (5, 300, 200), np.uint8)
    some = a_verification(5, columns=(), records=None, images=lambda places: pictures[places])
    opened(page, tmp_path, some)
    for row in range(3):
        width, height, shown, pixels = page.until(
            "(() => { const c = document.getElementById('picture-canvas');"
            "const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "return data.some(value => value) && [c.width, c.height, c.getBoundingClientRect().height,"
            "[...data].filter((_, i) => i % 4 === 0)] })()"
        )
        assert (width, height) == (200, 300)
        assert shown > 450
        np.testing.assert_array_equal(np.reshape(pixels, (300, 200)), pictures[row])
        page.keys("1")


def test_a_browser_that_keeps_nothing_is_warned_of(page, tmp_path):
    opened(page, tmp_path, a_verification(3))
    page.run("for (const n of ['getItem', 'setItem']) Storage.prototype[n] = () => { throw new Error('refused') }")
    page.keys("1")
    assert page.until("document.getElementById('message').textContent.startsWith('This browser does not keep')")
    assert len(lines(page)) == 2


@pytest.mark.parametrize("classes", [CLASSES, [f"class {label}" for label in range(30)]], ids=["few", "many"])
def test_thumbs_reach_everything_on_a_phone(page, tmp_path, driver, classes):
    some = a_verification(
        4, classes=classes, columns=("text",), records=lambda places: [["many words " * 300]] * len(places)
    )
    opened(page, tmp_path, some, width=390, height=844)
    assert overflow(page) <= 0
    small = """return [...document.querySelectorAll('#answer button, #answer input, #answer textarea')].filter(e => {
        const b = e.getBoundingClientRect(); return b.height < 44 || b.width < 44 }).map(e => e.id || e.textContent)"""
    assert page.run(small) == []
    box = "const b = document.getElementById('answer').getBoundingClientRect(); return [b.top, b.bottom, innerHeight]"
    top, bottom, height = page.run(box)
    assert top > 0.35 * height
    assert bottom <= height
    for name in ("cannot-tell", "skip"):
        page.click(name)
    driver.find_elements("css selector", "#choices .choice")[0].click()
    assert page.text("progress-text") == "3 of 4"
    # no box takes the focus by itself, or the keyboard would cover the page
    assert page.run("return document.activeElement.id") == "row-title"
    assert page.run("return document.getElementById('last').getBoundingClientRect().top") < 300
    page.click("last-undo")
    assert page.text("row-title") == "Row 3 of 4"
    page.click("undo")
    assert page.text("progress-text") == "2 of 4"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_and_what_is_used_has_a_name(page, tmp_path, scheme):
    pictures = np.full((6, 9, 9), 90, np.uint8)
    opened(page, tmp_path, a_verification(6, images=lambda places: pictures[places]), scheme=scheme)
    page.keys("2", "2", "-", Keys.ARROW_LEFT)
    page.run("document.getElementById('about-data').open = true")
    found = contrasts(page)
    assert len(found) > 30
    assert found[0][0] >= 4.5, found[:5]
    page.keys("/")
    roles = named_roles(page)
    assert {"button", "combobox", "textbox", "progressbar"} <= roles
    page.keys(Keys.ESCAPE, "?")
    assert page.run("return document.getElementById('help-dialog').open")
    assert contrasts(page)[0][0] >= 4.5
    assert "checkbox" in named_roles(page)
    page.run("document.getElementById('help-dialog').close()")
    assert page.run(
        "return ['header', 'main', 'h1', 'h2', '[role=status]', '[role=group]'].every(s => document.querySelector(s))"
    )


def test_keys_of_one_letter_can_be_turned_off(page, tmp_path):
    opened(page, tmp_path, a_verification(3))
    page.keys("?")
    page.click("keys-on")
    page.keys(Keys.ESCAPE, "1", "-")
    assert page.text("progress-text") == "0 of 3"
    page.run("document.querySelector('.choice').focus()")
    page.keys(Keys.ENTER)
    assert page.text("progress-text") == "1 of 3"
    page.click("help")
    page.click("keys-on")
    page.keys(Keys.ESCAPE)


def test_nothing_to_verify(page, tmp_path):
    path = opened(page, tmp_path, a_verification(0))
    assert page.text("done-text") == "There are no rows to verify."
    page.keys("1", "-", Keys.BACKSPACE, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert lines(page) == [HEADER]
    assert json.loads(block(path, "ids")) == []


def test_labels_that_are_keys_have_their_own(page, tmp_path):
    """The key 1 must not mean the label 0."""
    keys = "return [...document.querySelectorAll('#choices kbd')].map(e => e.textContent)"
    page.open(verification_page(tmp_path, a_verification(6, tuple("0123"))))
    assert page.run(keys) == ["0", "1", "2", "3"]
    page.keys("1", "0", "4", "3")  # 4 is no label
    assert [line[2] for line in read_decisions(page.decisions())[1:]] == ["1", "0", "3"]
    page.keys("/", *"none", Keys.ENTER)
    assert page.run(keys) == ["0", "1", "2", "3", "a"]
    page.keys("a")
    assert [line[2] for line in read_decisions(page.decisions())[1:]] == ["1", "0", "3", "none", "none"]
    for classes, expected in (("ABx", ["a", "b", "x"]), ("aA1", ["1", "2", "3"]), ("ä1", ["1", "2"])):
        page.open(verification_page(tmp_path, a_verification(3, tuple(classes))))
        assert page.run(keys) == expected
