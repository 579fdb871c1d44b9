"""Text files as UTF-8, however they are compressed and encoded; and copies written in the same way.

A file that is neither compressed nor in another encoding is read where it lies; of others there is a copy in the folder
for temporary files as long as they are in use.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import lzma
import os
import re
import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

import pyarrow as pa

from wior.cleaning.tables.errors import InputError, listed
from wior.cleaning.tables.row_file import Stamp

BLOCK = 8 << 20
COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MANY_BYTES = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
NOT_WINDOWS = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException)


def text_suffix(path: Path) -> str:
    """The suffix of the text, in lower case: .csv of train.csv.gz, and of the one file in a .zip."""
    last = path.suffix.lower()
    if last not in COMPRESSED:
        return last
    inner = Path(path.stem).suffix.lower()
    if last == ".zip" and not inner:
        return Path(_only_member(path)).suffix.lower()
    return inner


class TextSource:
    """A text file, read as UTF-8."""

    def __init__(self, path: Path):
        self.path = path
        self.notes: list[str] = []
        self._stamp = Stamp(path)
        self.compression = path.suffix.lower() if path.suffix.lower() in COMPRESSED else ""
        self._member = _only_member(path) if self.compression == ".zip" else ""
        try:
            self.encoding = self._encoding()
            self._own = self._unpacked() if self.compression or self.encoding != "utf-8" else path
        except DAMAGED as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} cannot be read: {_reason(error)}") from error
        if self.encoding != "utf-8":
            self.notes.append(f"{path} is not in UTF-8; it was read as {self.encoding}")

    @property
    def suffix(self) -> str:
        """That a copy has."""
        last = self.path.suffix
        return Path(self.path.stem).suffix + last if self.compression else last

    def opened(self) -> BinaryIO:
        self._stamp.check()
        return self._own.open("rb")

    @contextlib.contextmanager
    def written(self, path: Path) -> Iterator[IO[bytes]]:
        """A new file to write UTF-8 to, which becomes as this one is."""
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(self._compressing(path))
            if self.encoding == "utf-8":
                yield out
                return
            yield _Encoding(out, self.encoding, path)  # type: ignore[misc]

    @contextlib.contextmanager
    def _compressing(self, path: Path) -> Iterator[IO[bytes]]:
        match self.compression:
            case ".gz":
                with path.open("xb") as plain, gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as out:
                    yield out  # type: ignore[misc]
            case ".bz2":
                with bz2.open(path, "xb") as out:
                    yield out
            case ".xz":
                with lzma.open(path, "xb") as out:
                    yield out
            case ".zip":
                with (
                    zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive,
                    archive.open(self._member, "w", force_zip64=True) as out,
                ):
                    yield out
            case ".zst":
                with path.open("xb") as plain, pa.CompressedOutputStream(plain, "zstd") as out:
                    yield out
            case _:
                with path.open("xb") as out:
                    yield out

    @contextlib.contextmanager
    def _raw(self) -> Iterator[IO[bytes]]:
        match self.compression:
            case ".gz":
                with gzip.open(self.path) as file:
                    yield file  # type: ignore[misc]
            case ".bz2":
                with bz2.open(self.path) as file:
                    yield file
            case ".xz":
                with lzma.open(self.path) as file:
                    yield file
            case ".zip":
                with zipfile.ZipFile(self.path) as archive, archive.open(self._member) as file:
                    yield file
            case ".zst":
                with pa.input_stream(str(self.path), compression="zstd") as file:
                    yield file
            case _:
                with self.path.open("rb") as file:
                    yield file

    def _encoding(self) -> str:
        """UTF-8 where nothing speaks for another one; what is wrong with it is said where it is read."""
        decoding = codecs.getincrementaldecoder("utf-8")()
        broken = fits = 0
        windows = True
        with self._raw() as file:
            block = file.read(BLOCK)
            for mark, encoding in BYTE_ORDER_MARKS:
                if block.startswith(mark):
                    return encoding
            if (guess := _without_mark(block[:4096])) is not None:
                return guess
            while block:
                if not block.isascii():
                    try:
                        decoding.decode(block)
                    except UnicodeDecodeError:
                        broken += 1
                        decoding.reset()
                    fits += len(MANY_BYTES.findall(block))
                    windows = windows and not NOT_WINDOWS.search(MANY_BYTES.sub(b"", block))
                    if broken:
                        broken += len(re.findall(rb"[\x80-\xff]", MANY_BYTES.sub(b"", block)))
                block = file.read(BLOCK)
        if broken <= fits:
            return "utf-8"
        return "cp1252" if windows else "latin-1"

    def _unpacked(self) -> Path:
        handle, name = tempfile.mkstemp(prefix="wior-", suffix=".txt")
        weakref.finalize(self, _remove, name)
        with os.fdopen(handle, "wb") as out, self._raw() as file:
            if self.encoding == "utf-8":
                shutil.copyfileobj(file, out, BLOCK)
                return Path(name)
            decoding = codecs.getincrementaldecoder(self.encoding)()
            try:
                while block := file.read(BLOCK):
                    out.write(decoding.decode(block).encode())
                out.write(decoding.decode(b"", final=True).encode())
            except UnicodeError as error:
                raise InputError(f"{self.path} begins as {self.encoding} and cannot be read so: {error}") from error
        return Path(name)


class _Encoding:
    """Takes UTF-8 and writes another encoding."""

    def __init__(self, out: IO[bytes], encoding: str, path: Path):
        self._out, self._encoding, self._path = out, encoding, path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._encoder = codecs.getincrementalencoder(encoding)()

    def write(self, content: bytes) -> int:
        try:
            self._out.write(self._encoder.encode(self._decoder.decode(content)))
        except UnicodeEncodeError as error:
            letter = error.object[error.start]
            raise InputError(
                f"{self._path}: {letter!r}, a letter of a new label, does not exist in {self._encoding}"
            ) from error
        return len(content)


def _without_mark(start: bytes) -> str | None:
    """UTF-16 has zeros in every second place of plain text."""
    if len(start) < 4:
        return None
    even, odd = start[::2].count(0) / len(start[::2]), start[1::2].count(0) / len(start[1::2])
    if odd > 0.4 and even < 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 and odd < 0.1 else None


def _only_member(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member.filename for member in archive.infolist() if not member.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read: {_reason(error)}") from error
    members = [name for name in members if not name.startswith("__MACOSX/")]
    if len(members) != 1:
        raise InputError(f"{path} must hold one file, and holds {listed(members) or 'none'}")
    return members[0]


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error or type(error).__name__).split())


def _remove(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)
