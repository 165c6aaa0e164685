"""A lock whose file is the guarded folder itself: nothing is left behind when the folder goes."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder_lock(folder: Path, mode: int, wait: bool) -> Iterator[None]:
    """Hold the lock of the folder, made when missing. Without ``wait``: BlockingIOError when another holds it."""
    how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, how)
            if _is_still(handle, folder):
                yield
                return
        finally:
            os.close(handle)


def _is_still(handle: int, folder: Path) -> bool:
    """Whether the path names the folder we locked; another holder may have removed it between our open and our lock."""
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False
