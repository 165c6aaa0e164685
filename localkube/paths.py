"""Where localkube keeps things. Nothing outside these folders is written, except what ``hostnet`` and ``node`` name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from localkube.errors import LocalKubeError

MODULES = Path(__file__).parent / "modules"
STAGES = Path(__file__).parent / "stages"

RUNTIME = Path("/run/localkube")
"""Host-wide register of clusters with a real node (root only); gone after a reboot, as are the things it registers."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")


def cache_home() -> Path:
    """Folder of built binaries: ``$XDG_CACHE_HOME/localkube`` or ``~/.cache/localkube``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "localkube"


def state_home() -> Path:
    """Folder of clusters: ``$LOCALKUBE_HOME``, ``$XDG_STATE_HOME/localkube`` or ``~/.local/state/localkube``."""
    if own := os.environ.get("LOCALKUBE_HOME"):
        return Path(own).absolute()
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "localkube"


def cluster_folder(name: str) -> Path:
    """The folder of one cluster; refuses names that cannot be part of Kubernetes names."""
    if not _NAME.fullmatch(name):
        raise LocalKubeError(
            f"--name {name!r} is not usable.", "Use 1 to 30 lower-case letters, digits and dashes, such as 'a-1'."
        )
    return state_home() / name
