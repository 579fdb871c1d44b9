"""Columns of many different texts: free text, names and codes."""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wior.cleaning.features.text import COMPONENTS, TextFeatures
from wior.cleaning.tables.cells import Cells
from wior.cleaning.tables.columns import Column, Ignored, report_of

WORDS_OF_TEXT = 3  # on average; a name has fewer
WIDE = "\u0e00"  # from here on are scripts in which a word has few letters and, in many, no blanks around it
COMMON, MOST_COMMON = 5, 200  # rows of a value, for a feature of its own; and how many have one
OF_NAMES = 48  # components
MOST_NUMBERS = 150_000_000  # of a column of text in all rows
IDENTIFIER = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{16,}")
DIGITS = re.compile(r"[0-9]+")
FEWEST_IDS = 20


@dataclass(frozen=True, eq=False)
class Text:
    """Free text, as `TextFeatures` has it; a missing one is all zeros."""

    exact: ClassVar[bool] = False
    features: TextFeatures
    missing: int
    why: str

    @property
    def width(self) -> int:
        return self.features.width

    @property
    def report(self) -> Mapping[str, Any]:
        return report_of("text", self.width, self.missing, why=self.why)

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        encoded = cells.trimmed.dictionary_encode()
        out[:] = self.features.transform(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
        out[cells.missing] = 0
        return 0


@dataclass(frozen=True, eq=False)
class Name:
    """Names and codes: a feature for each common value, and their groups of letters, which the rare ones share."""

    exact: ClassVar[bool] = False
    common: tuple[str, ...]
    letters: TextFeatures
    missing: int
    why: str

    @property
    def width(self) -> int:
        return len(self.common) + self.letters.width + bool(self.missing)

    @property
    def report(self) -> Mapping[str, Any]:
        return report_of("name", self.width, self.missing, common_values=len(self.common), why=self.why)

    def fill(self, cells: Cells, out: np.ndarray) -> int:
        out[:] = 0
        common = len(self.common)
        places = pc.fill_null(pc.index_in(cells.trimmed, value_set=pa.array(self.common, pa.string())), -1).to_numpy()
        known = np.flatnonzero(places >= 0)
        out[known, places[known]] = 1
        encoded = cells.trimmed.dictionary_encode()
        vectors = self.letters.transform(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
        vectors[cells.missing] = 0
        out[:, common : common + self.letters.width] = vectors
        if self.missing:
            out[:, -1] = cells.missing
        return 0


def column_of_texts(texts: Sequence[str], rows: int, missing: int, *, few: bool) -> Column | None:
    """What a column becomes that has these texts, or a sample of them; `None` where it is of few values, each one a
    category.
    """
    counts = collections.Counter(texts)
    words = float(np.mean([_words(text) for text in texts])) if texts else 0.0
    free = words >= WORDS_OF_TEXT
    if few and not (free and 2 * len(counts) > len(texts)):
        return None
    if len(counts) == len(texts) >= FEWEST_IDS and _are_ids(texts):
        return Ignored("every value is another one, as ids are; --id names such a column")
    different = f"{len(counts):,} different values" + (" in a sample" if rows > len(texts) + missing else "")
    components = max(16, min(COMPONENTS, MOST_NUMBERS // rows))
    if free:
        features = TextFeatures(components).fit(texts)
        return Text(features, missing, f"text of {words:.0f} words, {different}") if features.width else None
    common = [value for value, count in counts.most_common(MOST_COMMON) if count >= COMMON]
    letters = TextFeatures(min(OF_NAMES, components), words=False, letters=(1, 4)).fit(texts)
    return Name(tuple(sorted(common)), letters, missing, different)


def _words(text: str) -> float:
    """How many words, about."""
    wide = sum(letter >= WIDE for letter in text)
    return max(len(text.split()), wide / 3)


def _are_ids(texts: Sequence[str]) -> bool:
    """Whether they differ in their digits alone, or are long random numbers."""
    skeletons = {DIGITS.sub("0", text) for text in texts}
    return len(skeletons) == 1 or all(IDENTIFIER.fullmatch(text) for text in texts)
