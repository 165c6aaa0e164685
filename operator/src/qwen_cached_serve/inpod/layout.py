"""Where the pod's files lie, and how they are read and written.

`QCS_CODE_DIR`, `QCS_STATE_DIR`, `QCS_SHM_DIR` and `QCS_TERMINATION_LOG` move the places, so that the same scripts run
on a host (tests); in pods they are unset.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .facts import (
    CACHE_SERVER_ARGV_FILE,
    CODE_DIR,
    ENGINE_ARGV_FILE,
    KNOWN_REGISTRATIONS_FILE,
    REPORT_FILE,
    SETTINGS_FILE,
    STATE_DIR,
    FactsError,
    ProbeReport,
    ServeSettings,
    load,
)
from .refusal import Refusal

GATE_FILE = "gate-passed.json"
"""Which life of the engine has passed the start-up gate."""
SEEN_FILE = "gate-seen.json"
"""What the start-up gate saw last of a life that has not passed it."""
ALIVE_FILE = "cache-server-alive"
"""Touched while the cache server answers; its age tells how long the server has been gone."""
RENEWAL_FILE = "cache-server-renewal"
"""Made by an engine's start that needs a new cache server, removed by the supervisor that has ended the old one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one pod."""

    code: Path
    state: Path
    shm: Path
    termination_log: Path

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Layout:
        """Read the places from the environment; the pod's own by default."""
        return cls(
            code=Path(environ.get("QCS_CODE_DIR", CODE_DIR)),
            state=Path(environ.get("QCS_STATE_DIR", STATE_DIR)),
            shm=Path(environ.get("QCS_SHM_DIR", "/dev/shm")),  # noqa: S108 - the pod's own memory volume
            termination_log=Path(environ.get("QCS_TERMINATION_LOG", "/dev/termination-log")),
        )

    @property
    def gate(self) -> Path:
        """Which engine life passed the gate."""
        return self.state / GATE_FILE

    @property
    def seen(self) -> Path:
        """What the gate saw last."""
        return self.state / SEEN_FILE

    @property
    def registrations(self) -> Path:
        """The engine's life and the registrations that the cache server held before it."""
        return self.state / KNOWN_REGISTRATIONS_FILE

    @property
    def alive(self) -> Path:
        """Time stamp of the cache server's last answer."""
        return self.state / ALIVE_FILE

    @property
    def renewal(self) -> Path:
        """The request for a new cache server."""
        return self.state / RENEWAL_FILE

    def settings(self) -> ServeSettings:
        """Read `settings.json`.

        Raises:
            Refusal: SettingsInvalid.

        """
        try:
            data = json.loads((self.code / SETTINGS_FILE).read_text(encoding="utf-8"))
            return load(ServeSettings, data)
        except (OSError, ValueError, FactsError) as error:
            raise Refusal(
                "SettingsInvalid",
                f"{self.code / SETTINGS_FILE} cannot be used: {error}",
                "The operator writes this file; its version and that of the scripts must be the same.",
            ) from error

    def report(self) -> ProbeReport:
        """Read the probe's report.

        Raises:
            Refusal: ProbeMissing.

        """
        return load(ProbeReport, self._probed(REPORT_FILE))

    def engine_argv(self) -> list[str]:
        """Read the engine's argument vector."""
        return _strings(self._probed(ENGINE_ARGV_FILE), ENGINE_ARGV_FILE)

    def cache_server_argv(self) -> list[str]:
        """Read the cache server's argument vector; empty when the cache is off."""
        return _strings(self._probed(CACHE_SERVER_ARGV_FILE), CACHE_SERVER_ARGV_FILE)

    def write_termination_message(self, text: str) -> None:
        """Write the container's termination message; nothing can be done where the file is missing (not in a pod)."""
        with contextlib.suppress(OSError):
            self.termination_log.write_text(text, encoding="utf-8")

    def _probed(self, name: str) -> Any:
        path = self.state / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Refusal(
                "ProbeMissing",
                f"{path} cannot be read: {error}",
                "The init container `probe` writes it; the state volume must be shared by all containers.",
            ) from error


def write_atomic(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader sees the old or the new content, and a failure leaves no temporary file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """Content of a JSON file; None when it is not there or not whole."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _strings(data: Any, name: str) -> list[str]:
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise Refusal("ProbeMissing", f"{name} is not a list of arguments")
    return data
