"""Texts as vectors: which words and which groups of letters they have, in a few hundred numbers.

TF-IDF of words (one and two together) and of groups of letters within words, then a truncated SVD. The groups of
letters serve every script, those without blanks between words too, and what is misspelled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.utils.extmath import randomized_svd

COMPONENTS = 300
WORDS, LETTERS = 50_000, 50_000  # of each vocabulary
LEARNED_FROM = 10_000  # texts; of more of them a sample
AT_ONCE = 8192  # texts
LONGEST = 10_000  # letters of a text that count
WORD = r"(?u)\b\w+\b"


class TextFeatures:
    """Vectors of length 1 for texts, and of length 0 for those of which nothing is known.

    Parameters
    ----------
    components : the length of the vectors; fewer where the texts have not as many words.
    words : whether words count, beside groups of letters.
    letters : the shortest and the longest group of letters.
    seed : of the SVD and of the sample.

    Examples
    --------
    >>> texts = ["the cat sat", "a cat ran", "stocks fell", "stocks rose again"]
    >>> vectors = TextFeatures(components=2).fit(texts).transform(texts)
    >>> vectors.shape
    (4, 2)
    >>> bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    True
    """

    def __init__(
        self, components: int = COMPONENTS, *, words: bool = True, letters: tuple[int, int] = (2, 5), seed: int = 0
    ):
        self.components, self.words, self.letters, self.seed = components, words, letters, seed
        self.width = 0
        self._blocks: list[_Words | _Letters] = []
        self._svd: np.ndarray | None = None

    def fit(self, texts: Sequence[str]) -> TextFeatures:
        """Learns the vocabulary and the components from texts, or from a sample of many."""
        if len(texts) > LEARNED_FROM:
            chosen = np.sort(np.random.default_rng(self.seed).permutation(len(texts))[:LEARNED_FROM])
            texts = [texts[place] for place in chosen.tolist()]
        short = [text[:LONGEST] for text in texts]
        blocks = [_Words() if self.words else None, _Letters(self.letters)]
        found = [(block, matrix) for block in blocks if block and (matrix := block.fit(short)).shape[1]]
        self._blocks, self.width, self._svd = [block for block, _ in found], 0, None
        if not found:
            return self
        matrix = sp.hstack([matrix for _, matrix in found]).tocsr()
        components = min(self.components, *matrix.shape)
        # more than two power iterations make no better vectors
        _, values, directions = randomized_svd(matrix, components, n_iter=2, random_state=self.seed)
        self._svd = np.ascontiguousarray(directions[values > 1e-5 * values[0]].T, np.float32)
        self.width = self._svd.shape[1]
        return self

    def transform(self, texts: Iterable[str]) -> np.ndarray:
        """(k, width) of float32."""
        parts = [np.zeros((0, self.width), np.float32)]
        rest = iter(texts)
        while block := [text[:LONGEST] for text in itertools.islice(rest, AT_ONCE)]:
            parts.append(self._vectors(block))
        return np.concatenate(parts)

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        if self._svd is None:
            return np.zeros((len(texts), 0), np.float32)
        matrix = sp.hstack([block.transform(texts) for block in self._blocks]).tocsr()
        vectors = np.asarray(matrix @ self._svd, np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


class _Words:
    """TF-IDF of words, and of two that follow each other."""

    def __init__(self) -> None:
        self.counting = CountVectorizer(
            ngram_range=(1, 2), token_pattern=WORD, max_features=WORDS, dtype=np.float32, min_df=1
        )
        self.weighing = TfidfTransformer(sublinear_tf=True)

    def fit(self, texts: Sequence[str]) -> sp.csr_matrix:
        try:
            counts = self.counting.set_params(min_df=_least(texts)).fit_transform(texts)
        except ValueError:  # no words, or none twice
            return sp.csr_matrix((len(texts), 0), dtype=np.float32)
        return self.weighing.fit_transform(counts)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        return self.weighing.transform(self.counting.transform(texts))


class _Letters:
    """TF-IDF of groups of letters within words; each different word is taken apart once."""

    def __init__(self, lengths: tuple[int, int]):
        self.counting = CountVectorizer(analyzer="char_wb", ngram_range=lengths, dtype=np.float32)
        self.weighing = TfidfTransformer(sublinear_tf=True)

    def fit(self, texts: Sequence[str]) -> sp.csr_matrix:
        counts, words = _word_counts(texts)
        try:
            groups = self.counting.fit_transform(words)
        except ValueError:  # nothing but blanks
            return sp.csr_matrix((len(texts), 0), dtype=np.float32)
        found = _sorted(counts @ groups)
        rows = np.bincount(found.indices, minlength=found.shape[1])
        kept = np.flatnonzero(rows >= _least(texts))
        if len(kept) > LETTERS:
            kept = np.sort(kept[np.argsort(-rows[kept], kind="stable")[:LETTERS]])
        names = self.counting.get_feature_names_out()[kept]
        self.counting = CountVectorizer(
            analyzer="char_wb", ngram_range=self.counting.ngram_range, dtype=np.float32, vocabulary=names
        )
        if not len(kept):
            return sp.csr_matrix((len(texts), 0), dtype=np.float32)
        return self.weighing.fit_transform(found[:, kept])

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        counts, words = _word_counts(texts)
        groups = self.counting.transform(words or [""])
        return self.weighing.transform(_sorted(counts @ groups))


def _least(texts: Sequence[str]) -> int:
    """In how many texts a word must be."""
    return 1 if len(texts) < 100 else 2


def _sorted(matrix: sp.spmatrix) -> sp.csr_matrix:
    """In an order that other rows have no part in, so that equal texts have equal vectors, to the bit."""
    rows = matrix.tocsr()
    rows.sort_indices()
    return rows


def _word_counts(texts: Sequence[str]) -> tuple[sp.csr_matrix, list[str]]:
    """How often each text has which word, and the words; (texts, words), at least one of these."""
    numbers: dict[str, int] = {}
    found, ends = [], [0]
    for text in texts:
        found += [numbers.setdefault(word, len(numbers)) for word in text.lower().split()]
        ends.append(len(found))
    shape = (len(texts), max(len(numbers), 1))
    counts = sp.csr_matrix((np.ones(len(found), np.float32), np.array(found, np.int32), np.array(ends)), shape=shape)
    counts.sum_duplicates()
    return counts, list(numbers)
