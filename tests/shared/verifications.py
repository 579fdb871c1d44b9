"""Verifications of made-up tables, and their pages."""

import dataclasses

import numpy as np

from review_pages import CLASSES, fresh
from wior.cleaning.review.verification import Verification, write_verification


def a_verification(rows=6, classes=CLASSES, **changes):
    """Other ids every time, since a browser remembers answers."""
    verification = Verification(
        title="train.csv",
        facts={"rows": f"{rows}", "label column": "kind"},
        classes=classes,
        ids=[f"v{next(fresh)}-{row}" for row in range(rows)],
        given=np.arange(rows) % len(classes),
        chances=1 / np.arange(1, rows + 1),
        columns=("width", "note"),
        records=lambda places: [[f"{place / 8}", f"note of {place}"] for place in places],
        command="wior clean train.csv --label kind --verified verified.csv",
    )
    return dataclasses.replace(verification, **changes)


def verification_page(tmp_path, verification):
    path = tmp_path / f"verify-{next(fresh)}.html"
    write_verification(path, verification)
    return path
