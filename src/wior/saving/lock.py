"""A folder held by one process at a time, by a lock that ends with the process, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

NAME = ".lock"
NOT_SUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class InUse(ValueError):
    """Another process, or another run of this one, holds the folder."""


class FolderLock:
    """Holds `folder` until released; where the file system knows no locks, or on Windows, it holds nothing."""

    def __init__(self, folder: Path):
        self._file: int | None = None
        if sys.platform == "win32":
            return
        import fcntl

        # the file stays when the lock is released: one who removes it may remove another's
        file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise InUse(f"is in use by another run{holder and f' (process {holder})'}") from error
        except OSError as error:
            os.close(file)
            if error.errno in NOT_SUPPORTED:
                return
            raise
        self._file = file
        with contextlib.suppress(OSError):  # the number is for people; a full disk has no room for it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
