"""Host environments with the engine's CPU build; `python -m tools.engine_env` makes the one of the image's own pins.

The engine tier's quick tests run vLLM and LMCache as processes of this machine; the versions tier does so with older
releases (`tools.engine_versions`). An environment lies in `${XDG_CACHE_HOME:-~/.cache}/qcs-engine-env/<key>`, key =
hash of its requirement files, slim.py and the form of environments; it is made once, under a lock, and appears whole or
not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import environments

ROOT = Path(__file__).resolve().parent.parent
_IMAGE = ROOT / "images" / "engine-cpu"
_SLIM = _IMAGE / "slim.py"


@dataclass(frozen=True, slots=True)
class Pins:
    """What an environment holds: two hashed requirement files."""

    requirements: Path
    torch: Path
    """torch apart: its CUDA half is stubbed, and a build for another index can take its place."""


IMAGE_PINS = Pins(_IMAGE / "requirements.txt", _IMAGE / "torch.txt")


def home(pins: Pins = IMAGE_PINS) -> Path:
    """Folder of the environment for the current pins."""
    digest = hashlib.sha256(f"{sys.version} {environments.FORM}".encode())
    for source in (pins.requirements, pins.torch, _SLIM):
        digest.update(source.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "qcs-engine-env" / digest.hexdigest()[:16]


def ensure(pins: Pins = IMAGE_PINS) -> Path:
    """Make the environment unless it is there; returns its Python.

    Raises:
        subprocess.CalledProcessError: an installation step failed; its words are on standard error.

    """
    return environments.ensure(home(pins), lambda target: _make(target, pins))


def _make(target: Path, pins: Pins) -> None:
    environments.install(target, pins.requirements, pins.torch)
    subprocess.run([sys.executable, str(_SLIM), str(target)], check=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(ensure())
