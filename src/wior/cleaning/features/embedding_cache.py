"""Embeddings of pictures that were computed before, in one file in the user's folder of caches."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from wior.data.files import cache_folder

MOST_BYTES = 2**30
SECONDS = 10.0  # that another process may hold the file
ASKED_AT_ONCE = 500
TABLE = "CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, checksum INTEGER, numbers BLOB)"
# a quarter, where the file is full
DROP_OLDEST = (
    "DELETE FROM embeddings WHERE rowid IN "
    "(SELECT rowid FROM embeddings ORDER BY rowid LIMIT (SELECT count(*) / 4 + 1 FROM embeddings))"
)


class EmbeddingCache:
    """Vectors of float16 by what they were made from: the content of a picture and all that made it a vector.

    Where the file cannot be read or written, nothing is found and nothing is kept; a damaged one is begun anew.
    """

    def __init__(self, made_by: str, path: Path | None = None, most_bytes: int = MOST_BYTES):
        self.made_by = made_by.encode()
        self.path = cache_folder() / "embeddings.sqlite" if path is None else path
        self.most_bytes = most_bytes

    def find(self, contents: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Those of the digests `contents` that are known."""
        keys = {self._key(content): content for content in contents}
        names, found = list(keys), {}

        def look(file: sqlite3.Connection) -> None:
            for begin in range(0, len(names), ASKED_AT_ONCE):
                some = names[begin : begin + ASKED_AT_ONCE]
                marks = ",".join("?" * len(some))
                rows = file.execute(f"SELECT key, checksum, numbers FROM embeddings WHERE key IN ({marks})", some)
                for key, checksum, numbers in rows:
                    if zlib.crc32(numbers) == checksum and len(numbers) % 2 == 0:
                        found[keys[key]] = np.frombuffer(numbers, np.float16)

        self._do(look)
        return found

    def keep(self, vectors: Mapping[bytes, np.ndarray]) -> None:
        rows = []
        for content, vector in vectors.items():
            numbers = vector.astype(np.float16).tobytes()
            rows.append((self._key(content), zlib.crc32(numbers), numbers))

        def write(file: sqlite3.Connection) -> None:
            with file:
                file.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)
                if self._used(file) > self.most_bytes:
                    file.execute(DROP_OLDEST)

        self._do(write)

    def _key(self, content: bytes) -> bytes:
        return hashlib.sha256(self.made_by + b"\0" + content).digest()

    def _used(self, file: sqlite3.Connection) -> int:
        pages, free, size = (
            int(file.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _do(self, work: Callable[[sqlite3.Connection], None]) -> None:
        file = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = sqlite3.connect(self.path, timeout=SECONDS)
            file.execute(TABLE)
            work(file)
        except (sqlite3.OperationalError, OSError):
            pass  # it is held for long, the disk is full, or nothing may be written there
        except (sqlite3.DatabaseError, TypeError):  # damaged
            with contextlib.suppress(OSError):
                self.path.unlink()
        finally:
            if file is not None:
                file.close()
