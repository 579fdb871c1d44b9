"""The verifying page as it is written, without a browser."""

import dataclasses
import json
import re

import numpy as np
import pytest

from review_pages import NASTY, a_review, block, numbers, written
from verifications import a_verification, verification_page
from wior.cleaning.review.review import write_review
from wior.cleaning.review.verification import write_verification


def test_the_rows_are_in_the_order_given(tmp_path):
    some = a_verification(5, chances=np.array([0.1, 1, 0.25, 1 / 3, 1e-9]))
    path = verification_page(tmp_path, some)
    assert json.loads(block(path, "ids")) == some.ids
    np.testing.assert_array_equal(numbers(path, "given", "u1"), some.given)
    np.testing.assert_array_equal(numbers(path, "chances", "<f8"), some.chances)
    assert json.loads(block(path, "records")) == some.records(np.arange(5))
    about = json.loads(block(path, "about"))
    assert (about["classes"], about["command"], about["title"]) == (list(some.classes), some.command, "train.csv")


def test_it_is_another_page_than_the_review_of_the_same_policy(tmp_path):
    content = verification_page(tmp_path, a_verification(3)).read_text()
    review = written(tmp_path, a_review(3)).read_text()
    policy = r'http-equiv="Content-Security-Policy" content="([^"]*)"'
    rules = [re.sub(r"'sha256-[^']+'", "HASH", re.findall(policy, text)[0]) for text in (content, review)]
    assert rules[0] == rules[1]
    assert rules[0] == (
        "default-src 'none'; script-src HASH; style-src HASH; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert "$" not in re.sub(r"<script>.*</script>", "", content, flags=re.DOTALL).replace("$=", "")
    assert set(re.findall(r"\w+://[^\s\"'`]*", content)) == set()
    assert not re.findall(
        r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|\beval\(|innerHTML|style=\"|\son\w+=\"", content
    )


def test_texts_cannot_leave_their_block(tmp_path):
    some = a_verification(
        len(NASTY),
        title="</title><script>window.hit = 9</script>",
        facts={text: text for text in NASTY},
        classes=NASTY,
        ids=NASTY,
        columns=NASTY[:2],
        records=lambda places: [[NASTY[place], "\ud800 alone"] for place in places],
        command="</script><b>",
    )
    path = verification_page(tmp_path, some)
    plain = verification_page(tmp_path, a_verification(3)).read_text()
    for mark in ("<script", "</script", "<!--", "<img", "<b>", "\u2028", "\x00"):
        assert path.read_text().count(mark) == plain.count(mark)
    assert json.loads(block(path, "about"))["command"] == "</script><b>"


def test_pictures_keep_up_to_512_pixels(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (3, 40, 1024, 3), np.uint8)
    some = a_verification(3, columns=(), records=None, images=lambda places: pictures[places])
    layout = json.loads(block(verification_page(tmp_path, some), "about"))["pictures"]
    assert (layout["count"], layout["width"], layout["height"]) == (3, 512, 20)


def test_the_fingerprint_is_that_of_the_labels_as_given(tmp_path):
    some = a_verification(4)
    print_of = lambda one: json.loads(block(verification_page(tmp_path, one), "about"))["fingerprint"]
    assert print_of(some) == print_of(dataclasses.replace(some, title="again", chances=some.chances / 2))
    assert print_of(some) != print_of(dataclasses.replace(some, given=some.given[::-1]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"given": np.zeros(5, int)}, r"given must have shape \(6,\).* got \(5,\)"),
        ({"given": np.full(6, 4)}, r"given\[0\] is 4; with 4 classes it must be a place from 0 to 3"),
        ({"chances": np.zeros(6)}, r"chances\[0\] is 0.0; it must be a number above 0 and at most 1"),
        ({"chances": np.full(6, np.nan)}, r"chances\[0\] is nan"),
        ({"chances": np.ones(5)}, r"chances must have shape \(6,\)"),
        ({"ids": ["a"] * 6}, "ids must differ from each other, got 'a' in places 0 and 1"),
        ({"classes": ("a", "a", "b", "c")}, "classes must differ from each other"),
        ({"records": None}, "columns and records must be given together"),
        ({"records": lambda places: [["one"]] * len(places)}, r"2 texts for each row, got \['one'\] for row 0"),
    ],
)
def test_errors_name_what_is_wrong(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write_verification(tmp_path / "verify.html", a_verification(6, **changes))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"likely": np.zeros((40, 2), int)}, "likely and likelihoods must be given together, got only likely"),
        ({"similarity": np.zeros((40, 2))}, "similar and similarity must be given together, got only similarity"),
        (
            {"likely": np.zeros((40, 2), int), "likelihoods": np.zeros((40, 3))},
            r"likely and likelihoods must have one shape \(40, k\), .* got \(40, 2\) and \(40, 3\)",
        ),
        (
            {"likely": np.full((40, 1), 4), "likelihoods": np.zeros((40, 1))},
            r"likely\[0, 0\] is 4; with 4 classes it must be a place from 0 to 3",
        ),
        (
            {"similar": np.full((40, 1), 40), "similarity": np.zeros((40, 1))},
            r"similar\[0, 0\] is 40; with 40 rows it must be a place from 0 to 39",
        ),
        (
            {"similar": np.zeros((40, 1), int), "similarity": np.full((40, 1), 1.01)},
            r"similarity\[0, 0\] is 1.01; it must be a number between 0 and 1",
        ),
    ],
)
def test_errors_of_what_helps_to_judge(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write_review(tmp_path / "page.html", a_review(**changes))
    assert not [*tmp_path.iterdir()]
