"""Reviews of made-up tables, their pages, and what stands in the blocks of a page."""

import base64
import dataclasses
import itertools
import re

import numpy as np

from wior.cleaning.review.review import Curve, Review, write_review

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
fresh = itertools.count()


def a_review(rows=40, classes=CLASSES, **changes):
    """A table with scores in the order of a permutation; other ids every time, since a browser remembers decisions."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, len(classes), rows)
    review = Review(
        title="train.csv",
        facts={"rows": f"{rows}", "label column": "kind"},
        classes=classes,
        ids=[f"t{next(fresh)}-{row}" for row in range(rows)],
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
    path = tmp_path / f"page-{next(fresh)}.html"
    write_review(path, review, **options)
    return path


def block(path, name):
    """The content of one of the page's blocks of data."""
    found = re.findall(rf'<script type="[a-z/]+" id="{name}">(.*?)</script>', path.read_text(), re.DOTALL)
    assert len(found) == 1
    return found[0]


def numbers(path, name, dtype):
    return np.frombuffer(base64.b64decode(block(path, name)), dtype)
