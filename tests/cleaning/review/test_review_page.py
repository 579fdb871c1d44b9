"""The review page as it is written, without a browser."""

import base64
import dataclasses
import hashlib
import io
import json
import re
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from review_pages import NASTY, a_review, block, numbers, some_pictures, with_pictures, written
from wior.cleaning.review import blocks, verification
from wior.cleaning.review import review as report
from wior.cleaning.review.guard import guard, unguard
from wior.cleaning.review.page import SCRIPTS
from wior.cleaning.review.review import Curve, write_review
from wior.cleaning.review.sheets import grid_of, sheets

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


def test_records_are_asked_for_some_rows_at_a_time_and_texts_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "ROWS_AT_ONCE", 16)
    asked = []
    review = a_review(40, records=lambda places: asked.append(len(places)) or [["x" * 5000, "y" * 200]] * len(places))
    path = written(tmp_path, review)
    assert asked == [16, 16, 8]
    assert json.loads(block(path, "records")) == [["x" * 5000, "y" * 200]] * 40
    assert json.loads(block(path, "about"))["cut"] == 0


def test_long_texts_are_cut_when_half_of_the_room_is_taken(tmp_path, monkeypatch):
    review = a_review(40, records=lambda places: [["x" * 995, ""]] * len(places))
    monkeypatch.setattr(blocks, "RECORD_BYTES", 10_050)
    path = written(tmp_path, review)
    records = json.loads(block(path, "records"))
    # a whole one has 1,003 bytes with its comma, a cut one 213: five reach half of the room, a sixth goes beyond it
    assert records[:6] == [["x" * 995, ""]] * 6
    assert records[6:] == [["x" * 199 + "…", ""]] * ((10_050 - 6 * 1003) // 213)
    assert json.loads(block(path, "about"))["cut"] == len(records) - 6


def test_one_endless_text_leaves_room_for_others(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "LONGEST_TEXT", 1000)
    review = a_review(
        3, scores=np.arange(3) / 3, records=lambda places: [["z" * 2000 if p == 0 else "z", "a"] for p in places]
    )
    records = json.loads(block(written(tmp_path, review), "records"))
    assert records == [["z" * 999 + "…", "a"], ["z", "a"], ["z", "a"]]


def test_records_end_where_there_is_no_more_room(tmp_path, monkeypatch):
    review = a_review(40, records=lambda places: [["12345", "123456"]] * len(places))
    monkeypatch.setattr(blocks, "RECORD_BYTES", 10 * len('["12345","123456"],') + 3)
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


def test_transparent_pictures_lie_on_white():
    color = np.random.default_rng(0).integers(0, 256, (5, 16, 8, 4), np.uint8)
    color[:, :4, :, 3] = 0
    color[:, 4:8, :, 3] = 255
    images = lambda places: color[places]
    (sheet,) = sheets(images, np.arange(5), grid_of(images, 0), 2**30)
    found = np.stack([*read_sheets([sheet], grid_of(images, 0))])
    assert found.shape == (5, 16, 8, 3)
    assert (found[:, :4] == 255).all()
    np.testing.assert_array_equal(found[:, 4:8], color[:, 4:8, :, :3])
    cover = color[..., 3:] / 255
    np.testing.assert_array_equal(found, np.round(color[..., :3] * cover + 255 * (1 - cover)))


def test_what_no_picture_covers_is_white():
    pictures = np.zeros((70, 8, 8), np.uint8)
    grid = grid_of(lambda places: pictures[places], 0)
    (sheet,) = sheets(lambda places: pictures[places], np.arange(70), grid, 2**30)
    pixels = np.asarray(Image.open(io.BytesIO(sheet.content)))
    assert grid.across == 64
    assert pixels.shape == (16, 512)
    assert (pixels[8:, 6 * 8 :] == 255).all()
    assert (pixels[8:, : 6 * 8] == 0).all()


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
    monkeypatch.setattr(blocks, "PICTURE_BYTES", 500_000)
    layout = json.loads(block(written(tmp_path, review), "about"))["pictures"]
    assert layout["count"] == 2 * layout["onSheet"] == 512


def test_pictures_of_two_shapes_are_refused():
    images = lambda places: np.zeros((len(places), 96 + len(places) % 2, 96), np.uint8)
    with pytest.raises(ValueError, match=r"one shape, got \(97, 96\) and \(96, 96\)"):
        [*sheets(images, np.arange(27), grid_of(images, 0), 2**30)]


def test_scripts_and_styles_stand_in_the_package():
    folder = Path(report.__file__).parent
    assert {path.name for path in folder.glob("*.js")} == {
        *SCRIPTS,
        *report.PARTS.scripts,
        *verification.PARTS.scripts,
    }
