"""One life of the engine: the process that is the engine now, and what was registered before it came.

The state volume outlives containers, so a file of a former life must never speak for the new one: a life is tied to its
process by pid and start time. The child that becomes the engine writes it first (executing a program changes neither).
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .layout import read_json, write_atomic
from .processes import start_time


@dataclass(frozen=True, slots=True)
class Life:
    """A life whose process is running."""

    name: str
    known_ids: frozenset[str]
    """Registrations that the cache server held before this life."""


def begin_life(path: Path, known_ids: Iterable[str]) -> None:
    """Write down that this process is the engine from now on."""
    pid = os.getpid()
    life = {"life": uuid.uuid4().hex, "pid": pid, "started": start_time(pid), "ids": sorted(known_ids)}
    write_atomic(path, json.dumps(life))


def current_life(path: Path) -> Life | None:
    """Read the life of the engine; None when the process that wrote it is not running any more."""
    data = read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("life"), str) or not isinstance(data.get("pid"), int):
        return None
    started = start_time(data["pid"])
    if started is None or started != data.get("started"):
        return None
    ids = data.get("ids")
    return Life(data["life"], frozenset(str(item) for item in ids) if isinstance(ids, list) else frozenset())


def gate_content(life: Life) -> dict[str, str]:
    """What the gate's file holds once this life has passed it."""
    return {"life": life.name}


def note(path: Path, life: Life, words: str) -> None:
    """Write down what the gate saw of a life; a full disk is no reason to fail the gate."""
    with contextlib.suppress(OSError):
        write_atomic(path, json.dumps({**gate_content(life), "seen": words}))


def noted(path: Path, registrations: Path) -> str:
    """What the gate saw last of the engine that runs now; empty when it has seen nothing of it."""
    life, data = current_life(registrations), read_json(path)
    if life is None or not isinstance(data, dict) or data.get("life") != life.name:
        return ""
    return str(data.get("seen") or "")


def gate_passed(path: Path, gate: Path) -> bool:
    """Whether the engine that runs now has passed the start-up gate: from then on it may have clients."""
    life = current_life(path)
    return life is not None and read_json(gate) == gate_content(life)
