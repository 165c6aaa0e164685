"""The control group that holds all pods of one node, in whichever hierarchies the machine has (v1, hybrid or v2)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from localkube.errors import LocalKubeError

_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")


def hierarchies(mountinfo: str) -> dict[Path, bool]:
    """Mount point of every cgroup hierarchy; True for version 2."""
    found = {}
    for line in mountinfo.splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        if kind in {"cgroup", "cgroup2"}:
            found[Path(fields[4])] = kind == "cgroup2"
    return found


def create(name: str) -> None:
    """Make the group in every hierarchy; the kubelet demands that its ``cgroupRoot`` exists."""
    for mount, unified in _mounted().items():
        group = mount / name
        if unified:
            for controller in _V2_CONTROLLERS:  # one by one: a machine lacks some of them
                with contextlib.suppress(OSError):
                    (mount / "cgroup.subtree_control").write_text(f"+{controller}")
        group.mkdir(exist_ok=True)
        if not unified:
            for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then nothing can run in it
                if (group / setting).exists():
                    (group / setting).write_text((mount / setting).read_text())


def kill(name: str, patience_s: float = 20.0) -> None:
    """Kill everything in the group and wait until it is empty."""
    deadline = time.monotonic() + patience_s
    while pids := _members(name):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise LocalKubeError(
                f"Processes {', '.join(map(str, sorted(pids)))} of pods do not end after SIGKILL.",
                "They wait in the kernel; run `down` again when they are gone.",
            )
        time.sleep(0.05)


def remove(name: str, patience_s: float = 10.0) -> None:
    """Remove the emptied group from every hierarchy."""
    deadline = time.monotonic() + patience_s
    while groups := [mount / name for mount in _mounted() if (mount / name).is_dir()]:
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):  # the kernel empties a group a moment after its last process ended
                    Path(folder).rmdir()
        if time.monotonic() > deadline:
            raise LocalKubeError(
                f"Control groups {', '.join(map(str, groups))} cannot be removed.", "Run `down` again."
            )
        time.sleep(0.02)


def _members(name: str) -> set[int]:
    pids: set[int] = set()
    for mount in _mounted():
        for folder, _, _ in os.walk(mount / name):
            with contextlib.suppress(OSError):
                pids |= {int(line) for line in (Path(folder) / "cgroup.procs").read_text().split()}
    return pids - {0}


def _mounted() -> dict[Path, bool]:
    return hierarchies(Path("/proc/self/mountinfo").read_text())
