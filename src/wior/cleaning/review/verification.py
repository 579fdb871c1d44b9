"""The page on which a person verifies labels: one row at a time, with the given label hidden until it is answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from wior.cleaning.review.blocks import (
    Records,
    array_block,
    block,
    fingerprint,
    label_type,
    picture_blocks,
    record_blocks,
    script_json,
)
from wior.cleaning.review.page import Parts, write_page
from wior.cleaning.review.refusals import require_chances, require_different, require_labels, require_records
from wior.cleaning.review.sheets import Images

PARTS = Parts(
    title="Verify labels",
    body="verify.html",
    style="verify.css",
    scripts=("answers.js", "question.js", "choices.js", "answering.js", "verifykeys.js", "verify.js"),
)
LONGEST_SIDE = 512  # of a picture


@dataclasses.dataclass(frozen=True)
class Verification:
    """The k rows whose labels a person is asked for.

    `records` and `images` are given places from 0 to k - 1 and return the text of their fields, or their pictures as
    uint8 (k, h, w), (k, h, w, 3) or (k, h, w, 4). No column may hold the given label: a person who sees it is swayed.
    """

    title: str
    facts: Mapping[str, str]
    classes: Sequence[str]
    ids: Sequence[str]  # (k,) in the order to be shown
    given: np.ndarray  # (k,) places in classes
    chances: np.ndarray  # (k,) in (0, 1], with which each row was drawn
    columns: Sequence[str] = ()
    records: Records | None = None
    images: Images | None = None
    command: str = ""  # that uses the exported answers
    export: str = "verified.csv"  # their file


def write_verification(path: Path, verification: Verification) -> None:
    """Writes the page, all of it or nothing."""
    _validate(verification)
    write_page(path, PARTS, _blocks(verification))


def _blocks(verification: Verification) -> Iterator[str]:
    label = label_type(verification.classes)
    places = np.arange(len(verification.ids))
    yield array_block("given", verification.given, label)
    yield array_block("chances", verification.chances, "<f8")
    yield block("ids", script_json(list(verification.ids)))
    cut = yield from record_blocks(verification.records, places, len(verification.columns))
    pictures = yield from picture_blocks(verification.images, places, LONGEST_SIDE)
    about = {
        "title": verification.title,
        "facts": list(verification.facts.items()),
        "classes": list(verification.classes),
        "columns": list(verification.columns),
        "fingerprint": fingerprint(verification.classes, verification.ids, verification.given),
        "labelBytes": label.itemsize,
        "command": verification.command,
        "export": verification.export,
        "cut": cut,
        "pictures": pictures,
    }
    yield block("about", script_json(about))


def _validate(verification: Verification) -> None:
    rows = len(verification.ids)
    require_different("classes", verification.classes)
    require_different("ids", verification.ids)
    require_labels("given", np.asarray(verification.given), rows, len(verification.classes))
    require_chances("chances", np.asarray(verification.chances, float), rows)
    require_records(verification.columns, verification.records)
