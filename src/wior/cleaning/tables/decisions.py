"""The decisions that the review page exports: of rows by id, with the labels that these had."""

from __future__ import annotations

from typing import NamedTuple

from wior.cleaning.review.guard import unguard
from wior.cleaning.tables.errors import InputError, at, listed, shown
from wior.cleaning.tables.row_file import RowFile

HEADER = ("id", "given", "decision", "label")  # and a note, but not in files of earlier versions
KEEP, FIX, SKIP, AMBIGUOUS = DECISIONS = ("keep", "fix", "skip", "ambiguous")


class Decision(NamedTuple):
    id: str
    given: str
    decision: str
    label: str

    @property
    def right(self) -> str:
        """The label that is right; empty where that is not decided."""
        return {KEEP: self.given, FIX: self.label}.get(self.decision, "")


def has_decisions(file: RowFile) -> bool:
    return file.kind == "table" and tuple(file.names[: len(HEADER)]) == HEADER


def read_decisions(file: RowFile) -> list[Decision]:
    """The decisions in the order of the file; what is wrong with one names its row."""
    if not has_decisions(file):
        raise InputError(f"{file.path} must be decisions with the columns {','.join(HEADER)}, got {listed(file.names)}")
    columns = [texts_of(file, name) for name in HEADER]
    made = [Decision(*cells) for cells in zip(*columns, strict=True)]
    for row, one in enumerate(made, 1):
        if one.decision not in DECISIONS:
            raise InputError(
                f"{at(file.path, row, 'decision')}: {shown(one.decision)} must be one of {', '.join(DECISIONS)}"
            )
        if one.decision == FIX and not one.label.strip():
            raise InputError(f"{at(file.path, row, 'label')}: a fix must have a label, and this one is empty")
    return made


def texts_of(file: RowFile, name: str) -> list[str]:
    """The cells of a column, as they were before the page guarded them from spreadsheets."""
    return [unguard(text) for batch in file.batches([name]) for text in batch[name].texts.to_pylist()]
