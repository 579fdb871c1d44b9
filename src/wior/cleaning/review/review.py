"""The page on which a person reviews labels: one HTML file that needs no server, no network and nothing beside it.

Every row counts in the numbers, the histogram and the matrix; they are base64 arrays, so millions are possible. What a
person looks at, the id, the record and the picture, is there for the rows of the lowest scores. Texts of the data reach
the page as JSON in which < > & are escaped, and the page shows them as text alone; its content security policy allows
its own script and style, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.resources
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from wior.checks import positive_integer
from wior.cleaning.review.sheets import Images, grid_of, sheets
from wior.saving.whole import whole

# they share one scope, in this order
SCRIPTS = (
    "csv.js",
    "data.js",
    "pictures.js",
    "decisions.js",
    "charts.js",
    "card.js",
    "gallery.js",
    "rowview.js",
    "shown.js",
    "deciding.js",
    "keys.js",
    "review.js",
)
LONGEST_TEXT = 200
CURVE_POINTS = 1000
# beyond these, rows of higher scores have no record or no picture; base64 makes 4/3 of the pictures' bytes
RECORD_BYTES = 64 * 2**20
PICTURE_BYTES = 48 * 2**20
ROWS_AT_ONCE = 4096

Records = Callable[[np.ndarray], Sequence[Sequence[str]]]


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
    (k, h, w) or (k, h, w, 3); they are called many times, for some rows each.
    """

    title: str
    facts: Mapping[str, str]
    classes: Sequence[str]
    ids: Sequence[str]
    given: np.ndarray  # (n,) places in classes
    suggested: np.ndarray  # (n,) places in classes
    scores: np.ndarray  # (n,) in [0, 1]; low: the label is probably wrong
    confidence: np.ndarray  # (n,) in [0, 1], of the suggested label
    threshold: float  # rows of lower scores are flagged
    columns: Sequence[str] = ()
    records: Records | None = None
    images: Images | None = None
    curves: Sequence[Curve] = ()


def write_review(path: Path, review: Review, *, detailed: int = 100_000) -> None:
    """Writes the page, all of it or nothing.

    The `detailed` rows of the lowest scores can be looked at on it; 64 MB of records and 48 MB of pictures at most.
    """
    _validate(review)
    detailed = positive_integer("detailed", detailed)
    with whole(path) as unfinished, unfinished.open("x", encoding="utf-8", newline="\n") as file:
        _write(file, review, detailed)


def _write(file: TextIO, review: Review, detailed: int) -> None:
    style = _resource("review.css")
    script = "(() => {\n'use strict';\n" + "\n".join(map(_resource, SCRIPTS)) + "})();\n"
    policy = (
        f"default-src 'none'; script-src {_hash_source(script)}; style-src {_hash_source(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    before, after = _resource("review.html").split("$data")
    file.write(before.replace("$policy", policy).replace("$style", style))
    file.writelines(_data(review, detailed))
    file.write(after.replace("$script", script))


def _data(review: Review, detailed: int) -> Iterator[str]:
    """Script elements of a kind that no browser runs."""
    label = np.min_scalar_type(max(len(review.classes) - 1, 0)).newbyteorder("<")
    lowest = np.argsort(np.asarray(review.scores), kind="stable")[:detailed]
    yield _array("given", review.given, label)
    yield _array("suggested", review.suggested, label)
    yield _array("scores", review.scores, "<f4")
    yield _array("places", lowest, "<u4")
    yield _array("confidence", np.asarray(review.confidence)[lowest], "<f4")
    yield _block("ids", script_json([review.ids[place] for place in lowest]))
    if review.records is not None:
        yield '<script type="application/json" id="records">['
        yield from _records(review.records, lowest, len(review.columns))
        yield "]</script>\n"
    grid, pictures = None, 0
    if review.images is not None and len(lowest):
        grid = grid_of(review.images, int(lowest[0]))
        for number, sheet in enumerate(sheets(review.images, lowest, grid, PICTURE_BYTES)):
            pictures += sheet.pictures
            content = base64.b64encode(sheet.content).decode()
            yield _block(f"sheet-{number}", f"data:{sheet.kind};base64,{content}", "text/plain")
    about = {
        "title": review.title,
        "facts": list(review.facts.items()),
        "classes": list(review.classes),
        "columns": list(review.columns),
        "threshold": float(review.threshold),
        "fingerprint": _fingerprint(review),
        "curves": [_thinned(curve) for curve in review.curves],
        "labelBytes": label.itemsize,
        "pictures": grid
        and {
            "count": pictures,
            "width": grid.width,
            "height": grid.height,
            "cell": [*grid.cell],
            "across": grid.across,
            "onSheet": grid.pictures,
        },
    }
    yield _block("about", script_json(about))


def script_json(value: Any) -> str:
    """JSON, in ASCII, that no text in it can end the script element around it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _block(name: str, content: str, kind: str = "application/json") -> str:
    return f'<script type="{kind}" id="{name}">{content}</script>\n'


def _array(name: str, values: np.ndarray, dtype: Any) -> str:
    return _block(name, base64.b64encode(np.asarray(values).astype(dtype).tobytes()).decode(), "text/plain")


def _records(records: Records, places: np.ndarray, fields: int) -> Iterator[str]:
    """JSON of the records, with commas between them, as many as there is room for."""
    left = RECORD_BYTES
    for start in range(0, len(places), ROWS_AT_ONCE):
        some = places[start : start + ROWS_AT_ONCE]
        found = records(some)
        if len(found) != len(some):
            raise ValueError(f"records must return one record for each of {len(some)} places, got {len(found)}")
        for place, record in zip(some, found, strict=True):
            if len(record) != fields or not all(isinstance(text, str) for text in record):
                raise ValueError(
                    f"records must return {fields} texts for each row, got {record!r:.200} for row {place}"
                )
            text = script_json([_cut(field) for field in record])
            left -= len(text) + 1
            if left < 0:
                return
            yield text if start == 0 and place == places[0] else "," + text


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _thinned(curve: Curve) -> dict[str, Any]:
    """At most about CURVE_POINTS of its points, the last among them; null where a value is not a number."""
    every = max(1, math.ceil(len(curve.steps) / CURVE_POINTS))
    points = [*zip(curve.steps, curve.values, strict=True)]
    points = points[::-1][::every][::-1]
    values = [float(value) if math.isfinite(value) else None for _, value in points]
    return {"name": curve.name, "steps": [int(step) for step, _ in points], "values": values}


def _fingerprint(review: Review) -> str:
    """Of the labels as they were given: decisions stay valid when the same labels are scored again."""
    told = hashlib.sha256(json.dumps([list(review.classes), list(review.ids)]).encode())
    told.update(np.asarray(review.given).astype("<u4").tobytes())
    return told.hexdigest()[:32]


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _resource(name: str) -> str:
    return importlib.resources.files("wior.cleaning.review").joinpath(name).read_text(encoding="utf-8")


def _validate(review: Review) -> None:
    rows = len(review.ids)
    _different("classes", review.classes)
    _different("ids", review.ids)
    for name in ("given", "suggested"):
        _places(name, np.asarray(getattr(review, name)), rows, len(review.classes))
    for name in ("scores", "confidence"):
        _shares(name, np.asarray(getattr(review, name)), rows)
    if not 0 <= review.threshold <= 1:
        raise ValueError(f"threshold must lie between 0 and 1, got {review.threshold!r}")
    if bool(review.columns) != (review.records is not None):
        raise ValueError(
            f"columns and records must be given together, got columns {list(review.columns)!r:.200} "
            f"and {'no' if review.records is None else 'a function for'} records"
        )
    for curve in review.curves:
        if len(curve.steps) != len(curve.values):
            raise ValueError(
                f"curves: {curve.name!r} must have one value for each step, "
                f"got {len(curve.steps)} steps and {len(curve.values)} values"
            )


def _different(name: str, texts: Sequence[str]) -> None:
    """The exported decisions name rows by their ids and labels by their classes."""
    seen: dict[str, int] = {}
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{place}] must be a text, got {text!r:.200} of type {type(text).__name__}")
        if seen.setdefault(text, place) != place:
            raise ValueError(
                f"{name} must differ from each other, got {text!r:.200} in places {seen[text]} and {place}"
            )


def _places(name: str, values: np.ndarray, rows: int, classes: int) -> None:
    _one_for_each_row(name, values, rows)
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"{name} must hold places in classes as integers, got dtype {values.dtype}")
    wrong = np.flatnonzero((values < 0) | (values >= classes))
    if len(wrong):
        raise ValueError(
            f"{name}[{wrong[0]}] is {values[wrong[0]]}; with {classes} classes it must be a place from 0 to "
            f"{classes - 1}"
        )


def _shares(name: str, values: np.ndarray, rows: int) -> None:
    _one_for_each_row(name, values, rows)
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {values[wrong[0]]}; it must be a number between 0 and 1")


def _one_for_each_row(name: str, values: np.ndarray, rows: int) -> None:
    if values.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},), one value for each of the ids, got {values.shape}")
