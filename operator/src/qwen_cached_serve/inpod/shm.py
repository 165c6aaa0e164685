"""Remove what a former life of the engine left in the pod's /dev/shm.

In its own pid namespace the engine's worker gets the same pid in every life, so its `lmcache_kv_<pid>_<n>` segment is
in the way of the next one (`FileExistsError`), and Python's `psm_*` segments, 250 MB each, pile up and count against
memory (facts/local-cluster.md §6). What has an owner that lives is left alone, so that this is safe on a shared
/dev/shm too.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import time
from dataclasses import dataclass
from pathlib import Path

from .processes import PROC, start_time

_OWNED = re.compile(r"(?:lmcache_kv|torch)_(\d+)_.*")
"""Names that hold their owner's pid: LMCache's KV segments, torch's file-system sharing."""
_ANONYMOUS = re.compile(r"(?:psm|nccl|cuda\.shm)[_.-].*")
"""Names that do not: Python's shared memory, NCCL, CUDA's interprocess memory. Whoever uses one has it mapped or
open.
"""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""linux/falloc.h"""
_SETTLED_SECONDS = 1.0
"""A segment younger than this may be between its creation and its first mapping."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed."""

    names: tuple[str, ...]
    bytes: int


def remove_leftovers(shm: Path, proc: Path = PROC, now: float | None = None, *, empty: bool = False) -> Removed:
    """Remove segments whose owner is gone.

    `empty`: give their memory back even while another process has them mapped, which must not read them any more.
    LMCache's server keeps the mapping of an engine that it has dropped (0.5.6: for minutes, until Python collects it),
    and the next life finds no room beside it.
    Raises nothing: a segment that cannot be removed is left for the program to complain about.
    """
    names, size = [], 0
    used: frozenset[str] | None = None
    moment = time.time() if now is None else now
    for path in sorted(shm.iterdir()) if shm.is_dir() else []:
        with contextlib.suppress(OSError):
            status = path.lstat()
            if (owned := _OWNED.fullmatch(path.name)) is not None:
                gone = start_time(int(owned[1]), proc) is None
            elif _ANONYMOUS.fullmatch(path.name) is not None:
                used = _used(shm, proc) if used is None else used
                gone = path.name not in used and moment - status.st_ctime >= _SETTLED_SECONDS
            else:
                continue
            if gone:
                if empty:
                    with contextlib.suppress(OSError):
                        _empty(path, status.st_size)
                path.unlink()
                names.append(path.name)
                size += status.st_blocks * 512
    return Removed(tuple(names), size)


def _empty(path: Path, size: int) -> None:
    """Punch a hole over the whole file: unlike a shorter file, that ends no process which touches its mapping."""
    with path.open("r+b") as file:
        ctypes.CDLL(None, use_errno=True).fallocate(
            file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)
        )


def _used(shm: Path, proc: Path) -> frozenset[str]:
    """Names below `shm` that a process we can see has mapped or open."""
    prefix = f"{shm}/"
    used = set()
    for process in proc.iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
                if prefix in line:
                    used.add(line.partition(prefix)[2].removesuffix(" (deleted)"))
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(descriptor.readlink())
                    if target.startswith(prefix):
                        used.add(target.removeprefix(prefix).removesuffix(" (deleted)"))
    return frozenset(used)
