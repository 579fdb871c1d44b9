"""The page on which a person reviews labels.

Every row that is not verified counts in the numbers, the histogram and the matrix. What a person looks at, the id, the
record and the picture, is there for the rows of the lowest scores, for verified rows, which stand apart from those to
decide, and for rows that are similar to some of these.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wior.checks import positive_integer
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
from wior.cleaning.review.refusals import (
    require_different,
    require_labels,
    require_marks,
    require_records,
    require_several,
    require_shares,
)
from wior.cleaning.review.sheets import Images

PARTS = Parts(
    title="Label review",
    body="review.html",
    style="review.css",
    scripts=(
        "data.js",
        "decisions.js",
        "charts.js",
        "fields.js",
        "labels.js",
        "likely.js",
        "actions.js",
        "card.js",
        "gallery.js",
        "similar.js",
        "rowview.js",
        "shown.js",
        "deciding.js",
        "keys.js",
        "review.js",
    ),
)
CURVE_POINTS = 1000
VERIFIED_SHOWN = 10_000  # those whose given label is wrong first
SIMILAR_BEYOND = 10_000  # similar rows of higher scores than those that can be decided on, which are there to be seen


@dataclasses.dataclass(frozen=True)
class Curve:
    """A learning curve."""

    name: str
    steps: Sequence[int]
    values: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Review:
    """What the page shows of a table or an image folder with n rows.

    `records` and `images` are given places of rows and return the text of their fields, or their pictures as uint8
    (k, h, w), (k, h, w, 3) or (k, h, w, 4); they are called many times, for some rows each.
    """

    title: str
    facts: Mapping[str, str]
    classes: Sequence[str]
    ids: Sequence[str]
    given: np.ndarray  # (n,) places in classes
    suggested: np.ndarray  # (n,) places in classes; of a verified row its right label
    scores: np.ndarray  # (n,) in [0, 1]; low: the label is probably wrong
    confidence: np.ndarray  # (n,) in [0, 1], of the suggested label
    threshold: float  # rows of lower scores are flagged
    columns: Sequence[str] = ()
    records: Records | None = None
    images: Images | None = None
    curves: Sequence[Curve] = ()
    likely: np.ndarray | None = None  # (n, c) places in classes, the likeliest first
    likelihoods: np.ndarray | None = None  # (n, c) in [0, 1], of these
    similar: np.ndarray | None = None  # (n, s) places of the most similar rows, the most similar first
    similarity: np.ndarray | None = None  # (n, s) in [0, 1]; a near-duplicate from 0.98 on
    estimate: str = ""  # one sentence: how many labels are wrong
    again: str = ""  # the command that uses decisions.csv, the exported decisions
    verified: np.ndarray | None = None  # (n,) of bool: somebody has said what is right


def write_review(path: Path, review: Review, *, detailed: int = 100_000) -> None:
    """Writes the page, all of it or nothing.

    The `detailed` rows of the lowest scores that are not verified can be looked at on it; 64 MB of records and 48 MB of
    pictures at most.
    """
    _validate(review)
    write_page(path, PARTS, _blocks(review, positive_integer("detailed", detailed)))


def _blocks(review: Review, detailed: int) -> Iterator[str]:
    label = label_type(review.classes)
    verified = _verified(review)
    by_score = np.argsort(np.asarray(review.scores), kind="stable")
    to_decide = by_score[~verified[by_score]][:detailed]
    looked_at = np.concatenate([to_decide, by_score[verified[by_score]][:VERIFIED_SHOWN]])
    beyond = _similar_beyond(review, looked_at)
    seen = np.concatenate([looked_at, beyond])
    yield array_block("given", review.given, label)
    yield array_block("suggested", review.suggested, label)
    yield array_block("scores", review.scores, "<f4")
    yield array_block("verified", verified, "u1")
    yield array_block("places", looked_at, "<u4")
    yield array_block("beyond", beyond, "<u4")
    yield array_block("confidence", np.asarray(review.confidence)[looked_at], "<f4")
    if review.likely is not None and review.likelihoods is not None:
        yield array_block("likely", np.asarray(review.likely)[looked_at], label)
        yield array_block("likelihoods", np.asarray(review.likelihoods)[looked_at], "<f4")
    if review.similar is not None and review.similarity is not None:
        yield array_block("similar", np.asarray(review.similar)[looked_at], "<u4")
        yield array_block("similarity", np.asarray(review.similarity)[looked_at], "<f4")
    yield block("ids", script_json([review.ids[place] for place in seen]))
    cut = yield from record_blocks(review.records, seen, len(review.columns))
    pictures = yield from picture_blocks(review.images, seen)
    about = {
        "title": review.title,
        "facts": list(review.facts.items()),
        "classes": list(review.classes),
        "columns": list(review.columns),
        "threshold": float(review.threshold),
        "open": len(to_decide),
        "fingerprint": fingerprint(review.classes, review.ids, review.given),
        "curves": [_thinned(curve) for curve in review.curves],
        "labelBytes": label.itemsize,
        "likely": 0 if review.likely is None else np.shape(review.likely)[1],
        "similar": 0 if review.similar is None else np.shape(review.similar)[1],
        "estimate": review.estimate,
        "again": review.again,
        "cut": cut,
        "pictures": pictures,
    }
    yield block("about", script_json(about))


def _verified(review: Review) -> np.ndarray:
    return np.zeros(len(review.ids), bool) if review.verified is None else np.asarray(review.verified, bool)


def _similar_beyond(review: Review, looked_at: np.ndarray) -> np.ndarray:
    """Places of rows that are similar to those that are looked at and are none of them."""
    if review.similar is None or len(looked_at) == len(review.ids):
        return np.zeros(0, int)
    similar = np.asarray(review.similar)[looked_at].ravel()
    others = similar[~np.isin(similar, looked_at)]
    firsts = np.unique(others, return_index=True)[1]
    return others[np.sort(firsts)][:SIMILAR_BEYOND]


def _thinned(curve: Curve) -> dict[str, Any]:
    """At most about CURVE_POINTS of its points, the last among them; null where a value is not a number."""
    every = max(1, math.ceil(len(curve.steps) / CURVE_POINTS))
    points = [*zip(curve.steps, curve.values, strict=True)]
    points = points[::-1][::every][::-1]
    values = [float(value) if math.isfinite(value) else None for _, value in points]
    return {"name": curve.name, "steps": [int(step) for step, _ in points], "values": values}


def _validate(review: Review) -> None:
    rows, classes = len(review.ids), len(review.classes)
    require_different("classes", review.classes)
    require_different("ids", review.ids)
    for name in ("given", "suggested"):
        require_labels(name, np.asarray(getattr(review, name)), rows, classes)
    for name in ("scores", "confidence"):
        require_shares(name, np.asarray(getattr(review, name)), rows)
    require_marks("verified", _verified(review), rows)
    if not 0 <= review.threshold <= 1:
        raise ValueError(f"threshold must lie between 0 and 1, got {review.threshold!r}")
    require_records(review.columns, review.records)
    require_several(("likely", "likelihoods"), review, classes, "classes")
    require_several(("similar", "similarity"), review, rows, "rows")
    for curve in review.curves:
        if len(curve.steps) != len(curve.values):
            raise ValueError(
                f"curves: {curve.name!r} must have one value for each step, "
                f"got {len(curve.steps)} steps and {len(curve.values)} values"
            )
