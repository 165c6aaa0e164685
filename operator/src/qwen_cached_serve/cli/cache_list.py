"""`qcs cache list`: namespaces that a store holds, beside those that the cluster's resources use. Deletes nothing."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.options import aligned
from qwen_cached_serve.cli.statuses import fetch
from qwen_cached_serve.cli.top_output import size
from qwen_cached_serve.core.stores import Found, Listed, listing, names_in, users
from qwen_cached_serve.inpod.namespaces import MARKER
from qwen_cached_serve.kube.connection import Origin


def listed(origin: Origin, path: str | None, names: str | None) -> list[Listed]:
    """Compare a store with all resources of the cluster; without a store, list what is in use.

    Raises:
        CliError: a folder or file that cannot be read, no cluster, no permission to list resources of all namespaces.

    """
    if path and names:
        raise CliError("--path and --names: give one of them")
    found = in_folder(path) if path else [Found(name) for name in _mentioned(names)] if names else []
    return listing(found, users(fetch(origin, None, None)))


def in_folder(path: str) -> list[Found]:
    """Return the namespaces of a file-system tier that is mounted here.

    Raises:
        CliError: the folder cannot be read.

    """
    try:
        with os.scandir(path) as entries:
            folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise CliError(f"--path {path}: cannot be read: {error.strerror}") from error
    return [_folder(folder) for folder in sorted(folders) if names_in(folder.name) == [folder.name]]


def table(rows: Sequence[Listed], *, store: bool) -> Iterator[str]:
    """Return a line for each namespace; `store`: a store was looked at, so what is missing there is told."""
    header = ("NAMESPACE", "STATE", "SIZE", "CHANGED", "ENGINE", "USED BY")
    return aligned([header, *(_cells(row, store=store) for row in rows)])


def as_json(row: Listed) -> dict[str, Any]:
    """Return a namespace as JSON data; `changed` in seconds since 1970."""
    return {
        "namespace": row.name,
        "used": row.used,
        "found": row.found is not None,
        "sizeBytes": row.found.size_bytes if row.found else None,
        "changed": row.found.changed if row.found else None,
        "engine": _engine(row),
        "users": [{"resource": user.name, "pods": user.pods} for user in row.users],
    }


def _mentioned(names: str) -> list[str]:
    try:
        return names_in(sys.stdin.read() if names == "-" else Path(names).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise CliError(f"--names {names}: cannot be read: {error.strerror}") from error


def _folder(folder: Path) -> Found:
    total, newest = 0, None
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                stat = os.lstat(os.path.join(place, name))  # noqa: PTH118 - a store has very many files
            except OSError:
                continue  # evicted meanwhile
            total += stat.st_size
            newest = max(newest or 0.0, stat.st_mtime)
    return Found(folder.name, _summary(folder / MARKER), total, newest)


def _summary(marker: Path) -> str:
    try:
        data = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(data.get("summary", "")) if isinstance(data, dict) else ""


def _engine(row: Listed) -> str:
    told = [user.summary for user in row.users if user.summary]
    return told[0] if told else row.found.summary if row.found else ""


def _cells(row: Listed, *, store: bool) -> tuple[str, ...]:
    state = "in use" if row.used else "unused here"
    if store and row.found is None:
        state = "in use, not in this store"
    found = row.found or Found(row.name)
    changed = "-" if found.changed is None else f"{dt.datetime.fromtimestamp(found.changed, dt.UTC):%Y-%m-%d %H:%MZ}"
    used_by = ", ".join(f"{user.name} ({user.pods})" for user in row.users)
    shown_size = "-" if found.size_bytes is None else size(found.size_bytes)
    return (row.name, state, shown_size, changed, _engine(row) or "-", used_by or "-")
