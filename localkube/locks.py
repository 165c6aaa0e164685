"""A lock whose file is the guarded folder itself: nothing is left behind when the folder goes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_ASK_EVERY_SECONDS = 0.05


@contextlib.contextmanager
def folder_lock(folder: Path, mode: int, wait_seconds: float) -> Iterator[None]:
    """Hold the lock of the folder, made when missing.

    Raises:
        BlockingIOError: another still holds it after `wait_seconds` (which may be infinite).

    """
    deadline = time.monotonic() + wait_seconds
    while True:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _acquire(handle, deadline)
            if _is_still(handle, folder):
                yield
                return
        finally:
            os.close(handle)


def _acquire(handle: int, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_ASK_EVERY_SECONDS)


def _is_still(handle: int, folder: Path) -> bool:
    """Whether the path names the folder we locked; another holder may have removed it between our open and our lock."""
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False
