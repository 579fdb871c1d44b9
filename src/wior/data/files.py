"""Where a data file is: in the folder given, in WIOR_DATA, in the user's cache, or at its public home."""

from __future__ import annotations

import http.client
import os
import sys
import urllib.error
from pathlib import Path

from wior.data.download import download
from wior.data.published_file import PublishedFile

VARIABLE = "WIOR_DATA"


def find(*alternatives: PublishedFile, folder: str | Path | None = None, progress: bool = False) -> Path:
    """The first of the `alternatives`, files with the same data, that lies in one of the places; or it is downloaded.

    A damaged file is an error, in the cache it is replaced.
    """
    for place in places(folder):
        for file in alternatives:
            for path in file.candidates(place):
                if path.is_file() and _usable(file, path, replaceable=place == cache_folder()):
                    return path
    names = " or ".join(file.name for file in alternatives)
    data_set = alternatives[0].subfolder
    for file in alternatives:
        if file.url is not None:
            try:
                return download(file, cache_folder() / file.subfolder, progress)
            except (OSError, http.client.HTTPException) as error:
                failure = getattr(error, "reason", "") if isinstance(error, urllib.error.URLError) else ""
                status = f"HTTP {error.code} " if isinstance(error, urllib.error.HTTPError) else ""
                reason = f"it could not be downloaded ({status}{failure or error})"
                raise FileNotFoundError(_what_to_do(names, data_set, reason, alternatives, folder)) from error
    reason = "it has no public address"
    raise FileNotFoundError(_what_to_do(names, data_set, reason, alternatives, folder))


def places(folder: str | Path | None) -> list[Path]:
    """The folders to look in, in this order."""
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise FileNotFoundError(f"folder={str(folder)!r} is not a folder; give the one with the data sets")
    named = (folder, os.environ.get(VARIABLE))
    return [*(Path(name).expanduser() for name in named if name), cache_folder()]


def cache_folder() -> Path:
    """`wior` in the folder that the system has for caches."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wior"


def looked_in(folder: str | Path | None = None) -> str:
    """For messages: the places in which a file was not found."""
    variable = os.environ.get(VARIABLE)
    given = "" if folder is None else f"{folder}, "
    return f"{given}{VARIABLE} ({variable or 'not set'}) and the cache ({cache_folder()})"


def _usable(file: PublishedFile, path: Path, *, replaceable: bool) -> bool:
    try:
        file.verify(path)
    except ValueError as error:
        if replaceable:
            return False
        raise ValueError(f"{error}; replace it{_from_home([file])}") from None
    return True


def _from_home(files: tuple[PublishedFile, ...] | list[PublishedFile]) -> str:
    url = next((file.url for file in files if file.url), None)
    return f" (from {url})" if url else ""


def _what_to_do(
    names: str, data_set: str, reason: str, alternatives: tuple[PublishedFile, ...], folder: str | Path | None
) -> str:
    origins = [
        f"{file.name}{f' from {file.url}' if file.url else ''} ({file.described_checksum()})" for file in alternatives
    ]
    return (
        f"{names} is not in {looked_in(folder)}, and {reason}. Without a network: copy {' or '.join(origins)} "
        f"into {cache_folder() / data_set}, or into DIR/{data_set} of any folder DIR and name DIR in {VARIABLE}, "
        f"with --data DIR or as folder=DIR"
    )
