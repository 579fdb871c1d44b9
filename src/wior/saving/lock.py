"""A folder, or a file in it, held by one process at a time, by a lock that ends with the process, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from types import TracebackType

NAME = ".lock"
NOT_SUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class InUse(ValueError):
    """Another process, or another run of this one, holds the folder."""


class FolderLock:
    """Holds `folder` until released, or of several things in it the one that `name` is the lock of.

    Where another holds it, `InUse` is raised, or with `wait` this process waits. Where the file system has no locks it
    holds nothing; on Windows only a lock that waits holds anything.
    """

    def __init__(self, folder: Path, name: str = NAME, *, wait: bool = False):
        self._file: int | None = None
        # the file stays when the lock is released: one who removes it may remove another's
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            held = _acquired(file, wait)
        except BlockingIOError as error:
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise InUse(f"is in use by another run{holder and f' (process {holder})'}") from error
        except BaseException:
            os.close(file)
            raise
        if not held:
            os.close(file)
            return
        self._file = file
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # the number is for people; a full disk has no room for it
                os.ftruncate(file, 0)
                os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _acquired(file: int, wait: bool) -> bool:
    """Whether the lock is held now; not where there are no locks. `BlockingIOError` where another holds it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            if wait:
                msvcrt.locking(file, msvcrt.LK_LOCK, 1)
            return wait
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if wait or error.errno in NOT_SUPPORTED:  # some network drives have no locks
            return False
        raise
    return True
