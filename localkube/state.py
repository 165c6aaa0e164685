"""What a cluster remembers on disk: ``cluster.json`` in its folder, readable by its owner only (it holds tokens)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from localkube import modules, paths
from localkube.errors import LocalKubeError
from localkube.locks import folder_lock
from localkube.process import Process

FILE = "cluster.json"


@dataclass(frozen=True)
class Options:
    """What ``up`` is asked for."""

    name: str = "localkube"
    version: str = modules.DEFAULT_VERSION
    """Kubernetes minor version: 1.34, 1.36 or 1.37."""
    node: bool = False
    """A real node (kubelet, containerd, kube-proxy); needs root."""
    simulated_nodes: int = 0
    """Number of KWOK nodes."""
    stages: tuple[str, ...] = ()
    """Further KWOK Stage files; a stage with ``weight`` above 0 wins over the built-in one it competes with."""
    gpus: int = 0
    """``nvidia.com/gpu`` capacity shown on the real node (nothing is behind it)."""
    simulated_gpus: int = 8
    """``nvidia.com/gpu`` capacity of each simulated node."""
    pause_archive: str = ""
    """OCI archive of ``localhost/pause:1``; needed with a real node."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Options:
        """The options as stored by ``asdict`` and JSON."""
        return cls(**(data | {"stages": tuple(data["stages"])}))

    def differences(self, other: Options) -> list[str]:
        """Names of the fields that differ, with both values."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{k} ({mine[k]!r}, not {theirs[k]!r})" for k in mine if mine[k] != theirs[k]]


@dataclass
class Component:
    """One started process."""

    argv: list[str]
    pid: int
    started: int
    path: list[str] = field(default_factory=list)
    """Folders put in front of PATH."""

    @property
    def process(self) -> Process:
        """The process this was when it was started."""
        return Process(self.pid, self.started)


@dataclass
class State:
    """Everything a later command must know about a cluster."""

    folder: Path
    options: Options
    phase: Literal["starting", "up"] = "starting"
    address: str = "127.0.0.1"
    """Where the API server listens."""
    ports: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    slot: int | None = None
    """Number of the cluster's address block (``hostnet``); None without a real node."""
    components: dict[str, Component] = field(default_factory=dict)

    @property
    def logs(self) -> Path:
        """Folder with one ``<component>.log`` each."""
        return self.folder / "logs"

    @property
    def node_name(self) -> str:
        """Name of the real node."""
        return f"{self.options.name}-node"

    def log(self, component: str) -> Path:
        """Log of one component."""
        return self.logs / f"{component}.log"

    def save(self) -> None:
        """Write by rename, so that a killed process leaves the former or the new text."""
        data = asdict(self) | {"folder": str(self.folder)}
        fresh = self.folder / f".{FILE}.new"
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(data, indent=1) + "\n")
        fresh.replace(self.folder / FILE)


def load(folder: Path) -> State | None:
    """The state of the cluster in that folder; None without one (or when ``up`` was killed before it wrote it)."""
    try:
        data = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return None
    except PermissionError:
        raise LocalKubeError(f"The cluster in {folder} belongs to another user.", "Run as that user.") from None
    data["folder"] = Path(data["folder"])
    data["options"] = Options.from_json(data["options"])
    data["components"] = {name: Component(**c) for name, c in data["components"].items()}
    return State(**data)


def names() -> list[str]:
    """Names of the clusters of this user."""
    home = paths.state_home()
    return sorted(p.name for p in home.iterdir() if p.is_dir()) if home.is_dir() else []


_ENDING_SECONDS = 3.0
"""A child that a killed command was just starting shares its lock until it runs its own program."""


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """One ``up`` or ``down`` of a cluster at a time; the lock is the folder itself, which is made when missing."""
    try:
        with folder_lock(folder, mode=0o700, wait_seconds=_ENDING_SECONDS):
            yield
    except BlockingIOError:
        raise LocalKubeError(
            f"Another localkube command works on the cluster in {folder}.", "Wait for it to end."
        ) from None
