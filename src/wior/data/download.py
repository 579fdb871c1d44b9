"""Downloads that can be interrupted: what has come waits in `NAME.part`, and only a verified file gets its name."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from wior.data.published_file import PART, PublishedFile
from wior.running.progress import counter
from wior.saving.lock import FolderLock
from wior.saving.whole import put_in_place

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5
BLOCK = 1 << 16


def download(file: PublishedFile, folder: Path, progress: bool = False) -> Path:
    """The file in `folder`, fetched and verified.

    `ValueError` where its home has another file, `OSError` where none came.
    """
    assert file.url is not None
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / file.name, folder / (file.name + PART)
    with FolderLock(folder, f".{file.name}.lock", wait=True):  # where there are no locks the checksum alone protects
        if _verified(file, target) is None:
            return target  # another process was quicker
        for resumed in (part.exists(), False):
            with counter(progress, file.name, in_bytes=True) as at:
                _fetch(file.url, part, at)
            error = _verified(file, part)
            if error is None:
                put_in_place(part, target)
                return target
            part.unlink(missing_ok=True)
            if not resumed:  # otherwise the beginning may be of another file: once more from the start
                break
        raise ValueError(f"{file.url} does not have the published file, nothing was kept: {error}")


def _verified(file: PublishedFile, path: Path) -> str | None:
    """What is wrong with the file, or `None`."""
    if not path.is_file():
        return f"{path} is not there"
    try:
        file.verify(path)
    except ValueError as error:
        return str(error)
    return None


def _fetch(url: str, part: Path, at: Callable[[int, int | None], None]) -> None:
    """Continues where `part` ends, and tries again as long as a dropped connection had brought something."""
    for _ in range(ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        total = _append(url, part, before, at)
        now = part.stat().st_size
        if total is None or now >= total:
            return
        if now <= before:
            break
    raise ConnectionError(
        f"the connection ended after {now:,} of {total:,} bytes; they are kept, and the next try continues"
    )


def _append(url: str, part: Path, start: int, at: Callable[[int, int | None], None]) -> int | None:
    """Writes what the server sends behind the first `start` bytes and returns the size of the whole, if it is told."""
    asked = {"Range": f"bytes={start}-"} if start else {}
    request = urllib.request.Request(url, headers={"User-Agent": "wior", **asked})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return start  # nothing is missing; whether it is the right file, the checksum says
        raise
    with response:
        if response.status == http.client.PARTIAL_CONTENT:
            sent = response.headers.get("Content-Range", "")
            if not sent.startswith(f"bytes {start}-"):
                raise ConnectionError(f"asked for the bytes from {start} on, the server sent {sent!r}")
        else:
            start = 0  # a server that does not know ranges sends all
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.open("ab" if start else "wb") as file:
            while block := _read(response):
                file.write(block)
                at(file.tell(), total)
    return total


def _read(response: http.client.HTTPResponse) -> bytes:
    """The next bytes, none where the connection was dropped: the size tells whether all have come."""
    try:
        return response.read(BLOCK)
    except (OSError, http.client.HTTPException):
        return b""
