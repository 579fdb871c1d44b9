"""Embeddings that were computed before are found again, and only those."""

import sqlite3
import subprocess
import sys
import zlib

import numpy as np

from wior.cleaning.features.embedding_cache import EmbeddingCache


def vectors(count, begin=0, width=40):
    """By digests of content."""
    random = np.random.default_rng(begin)
    return {
        bytes([begin]) + number.to_bytes(2): random.normal(size=width).astype(np.float16) for number in range(count)
    }


def test_what_is_kept_is_found(tmp_path):
    path = tmp_path / "new" / "cache.sqlite"
    cache, kept = EmbeddingCache("network 1", path), vectors(7)
    assert cache.find(list(kept)) == {}
    cache.keep(kept)
    found = EmbeddingCache("network 1", path).find([*kept, b"other"])
    assert sorted(found) == sorted(kept)
    for content, vector in kept.items():
        np.testing.assert_array_equal(found[content], vector)
    assert EmbeddingCache("network 2", path).find(list(kept)) == {}
    more = {number.to_bytes(4): np.ones(2) for number in range(1200)}
    cache.keep(more)
    assert len(cache.find(list(more))) == 1200


def test_it_lies_in_the_folder_for_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    EmbeddingCache("network").keep(vectors(1))
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")] == ["wior/embeddings.sqlite"]


def test_a_damaged_file_is_begun_anew(tmp_path):
    path, kept = tmp_path / "cache.sqlite", vectors(300)
    cache = EmbeddingCache("network", path)
    for damage in (b"text " * 1000, None):
        cache.keep(kept)
        content = bytearray(path.read_bytes())
        if damage is None:
            content[4096:] = b"\xff" * len(content[4096:])
        else:
            content[:] = damage
        path.write_bytes(content)
        cache.find(list(kept))
        cache.keep(kept)
        cache.keep(kept)
        assert len(cache.find(list(kept))) == 300


def test_a_damaged_vector_is_not_found(tmp_path):
    path, kept = tmp_path / "cache.sqlite", vectors(3)
    cache = EmbeddingCache("network", path)
    cache.keep(kept)
    first = next(iter(kept))
    with sqlite3.connect(path) as file:
        changed = (kept[first] + 1).astype(np.float16).tobytes()
        file.execute(
            "UPDATE embeddings SET numbers = ? WHERE checksum = ?", (changed, zlib.crc32(kept[first].tobytes()))
        )
    file.close()
    assert sorted(cache.find(list(kept))) == sorted(kept)[1:]


def test_it_stays_within_its_bound(tmp_path):
    path = tmp_path / "cache.sqlite"
    cache = EmbeddingCache("network", path, most_bytes=300_000)
    for begin in range(40):
        cache.keep(vectors(20, begin, 500))
    assert path.stat().st_size < 400_000
    assert cache.find(list(vectors(20, 0))) == {}  # the oldest went
    assert len(cache.find(list(vectors(20, 39)))) == 20


def test_without_a_place_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "cache.sqlite", tmp_path):
        cache = EmbeddingCache("network", path)
        cache.keep(vectors(2))
        assert cache.find(list(vectors(2))) == {}


PROGRAM = """
import sys, numpy as np
from pathlib import Path
from wior.cleaning.features.embedding_cache import EmbeddingCache
cache = EmbeddingCache("network", Path(sys.argv[1]))
for number in range(10):
    cache.keep({f"{sys.argv[2]} {number} {place}".encode(): np.full(50, number) for place in range(5)})
"""


def test_two_processes_keep_at_once(tmp_path):
    path = tmp_path / "cache.sqlite"
    programs = [subprocess.Popen([sys.executable, "-c", PROGRAM, path, name]) for name in "ab"]
    assert [program.wait(120) for program in programs] == [0, 0]
    contents = [f"{name} {number} {place}".encode() for name in "ab" for number in range(10) for place in range(5)]
    assert len(EmbeddingCache("network", path).find(contents)) == 100
