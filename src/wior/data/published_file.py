"""A published data file: its names, its checksum, and the check."""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

PART = ".part"  # behind the name of a file that is not yet whole


@dataclass(frozen=True)
class PublishedFile:
    """One file of a data set."""

    subfolder: str  # that it lies in, below a folder of data sets
    names: tuple[str, ...]  # the first is the one it is downloaded under
    checksum: str  # "sha256:..." or "md5:..."
    url: str | None = None
    of_contents: bool = False  # the checksum is of what is inside: the same for every way to compress it

    @property
    def name(self) -> str:
        return self.names[0]

    def candidates(self, folder: Path) -> Iterator[Path]:
        """Where the file may lie in a folder of data sets, or in the data set's own."""
        for place in (folder / self.subfolder, folder):
            for name in self.names:
                yield place / name

    def verify(self, path: Path) -> None:
        """Raises `ValueError` where the file is not the published one."""
        algorithm, expected = self.checksum.split(":")
        status = path.stat()
        found = _digest(path, algorithm, self.of_contents, status.st_size, status.st_mtime_ns)
        if found != expected:
            inside = " of its contents" if self.of_contents else ""
            raise ValueError(
                f"{path} ({status.st_size:,} bytes) is truncated, damaged or another version: its {algorithm}{inside} "
                f"is {found}, that of the published file {expected}"
            )

    def described_checksum(self) -> str:
        algorithm, value = self.checksum.split(":")
        return f"{algorithm}{' once decompressed' if self.of_contents else ''} {value}"


def opened(path: Path) -> BinaryIO:
    """The file, decompressed if its name says that it is compressed."""
    ending = Path(path.name.removesuffix(PART)).suffix
    if ending == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if ending == ".bz2":
        return cast(BinaryIO, bz2.open(path, "rb"))
    return path.open("rb")


def contents(path: Path) -> bytes:
    """All of the file, decompressed; `ValueError` where that is not possible."""
    return b"".join(_blocks(path, decompress=True))


@functools.lru_cache(maxsize=256)
def _digest(path: Path, algorithm: str, of_contents: bool, size: int, modified: int) -> str:
    """Size and time are in the key alone: a file that changed is read again."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for block in _blocks(path, decompress=of_contents):
        digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path, *, decompress: bool) -> Iterator[bytes]:
    with opened(path) if decompress else path.open("rb") as file:
        try:
            while block := file.read(1 << 20):
                yield block
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{path} ({path.stat().st_size:,} bytes) cannot be read to its end, it is truncated or damaged: {error}"
            ) from error
