"""The data of a page, in blocks: script elements of a kind that no browser runs.

Texts of the data reach the page as JSON in which < > & are escaped, and the page shows them as text alone. Numbers of
every row are base64 arrays, so millions are possible.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from wior.cleaning.review.sheets import LONGEST_SIDE, Images, grid_of, sheets

# beyond these, later rows have no record or no picture; base64 makes 4/3 of the pictures' bytes
RECORD_BYTES = 64 * 2**20
PICTURE_BYTES = 48 * 2**20
LONGEST_TEXT = 100_000  # of a record whose texts are whole
CUT_TEXT = 200  # of the records that come after half of the room is taken
ROWS_AT_ONCE = 4096

Records = Callable[[np.ndarray], Sequence[Sequence[str]]]


def script_json(value: Any) -> str:
    """JSON, in ASCII, that no text in it can end the script element around it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def block(name: str, content: str, kind: str = "application/json") -> str:
    return f'<script type="{kind}" id="{name}">{content}</script>\n'


def array_block(name: str, values: np.ndarray, dtype: Any) -> str:
    return block(name, base64.b64encode(np.asarray(values).astype(dtype).tobytes()).decode(), "text/plain")


def label_type(classes: Sequence[str]) -> np.dtype[Any]:
    """The narrowest numbers that hold all places in the classes."""
    return np.min_scalar_type(max(len(classes) - 1, 0)).newbyteorder("<")


def record_blocks(records: Records | None, places: np.ndarray, fields: int) -> Generator[str, None, int]:
    """The block of the records, as many as there is room for; returns of how many a text is cut.

    Texts are whole while less than half of the room is taken, so that rows of long texts leave room for many others.
    """
    if records is None:
        return 0
    yield '<script type="application/json" id="records">['
    cut = yield from _records(records, places, fields)
    yield "]</script>\n"
    return cut


def _records(records: Records, places: np.ndarray, fields: int) -> Generator[str, None, int]:
    left, cut = RECORD_BYTES, 0
    for start in range(0, len(places), ROWS_AT_ONCE):
        some = places[start : start + ROWS_AT_ONCE]
        found = records(some)
        if len(found) != len(some):
            raise ValueError(f"records must return one record for each of {len(some)} places, got {len(found)}")
        for number, (place, record) in enumerate(zip(some, found, strict=True), start):
            if len(record) != fields or not all(isinstance(text, str) for text in record):
                raise ValueError(
                    f"records must return {fields} texts for each row, got {record!r:.200} for row {place}"
                )
            most = LONGEST_TEXT if left > RECORD_BYTES // 2 else CUT_TEXT
            text = script_json([_cut(field, most) for field in record])
            left -= len(text) + 1
            if left < 0:
                return cut
            cut += any(len(field) > most for field in record)
            yield text if number == 0 else "," + text
    return cut


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def picture_blocks(
    images: Images | None, places: np.ndarray, longest: int = LONGEST_SIDE
) -> Generator[str, None, dict[str, Any] | None]:
    """Sheets of the pictures, as many as there is room for; returns how the pictures lie on them."""
    if images is None or not len(places):
        return None
    grid = grid_of(images, int(places[0]), longest)
    count = 0
    for number, sheet in enumerate(sheets(images, places, grid, PICTURE_BYTES)):
        count += sheet.pictures
        content = base64.b64encode(sheet.content).decode()
        yield block(f"sheet-{number}", f"data:{sheet.kind};base64,{content}", "text/plain")
    return {
        "count": count,
        "width": grid.width,
        "height": grid.height,
        "cell": [*grid.cell],
        "across": grid.across,
        "onSheet": grid.pictures,
    }


def fingerprint(classes: Sequence[str], ids: Sequence[str], given: np.ndarray) -> str:
    """Of the labels as they were given: what a person says of them stays valid when they are scored again."""
    told = hashlib.sha256(json.dumps([list(classes), list(ids)]).encode())
    told.update(np.asarray(given).astype("<u4").tobytes())
    return told.hexdigest()[:32]
