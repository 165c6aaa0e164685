"""A host environment with the engine's CPU build, from the pins of its image; `python -m tools.engine_env` makes it.

The engine tier's quick tests run vLLM and LMCache as processes of this machine. The environment lies in
`${XDG_CACHE_HOME:-~/.cache}/qcs-engine-env/<key>`, key = hash of the image's requirement files and slim.py; it is made
once, under a lock, and appears whole or not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = tuple(ROOT / "images" / "engine-cpu" / name for name in ("requirements.txt", "torch.txt", "slim.py"))


def home() -> Path:
    """Folder of the environment for the current pins."""
    digest = hashlib.sha256(sys.version.encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "qcs-engine-env" / digest.hexdigest()[:16]


def ensure() -> Path:
    """Make the environment unless it is there; returns its Python.

    Raises:
        subprocess.CalledProcessError: an installation step failed; its words are on standard error.

    """
    target = home()
    python = target / "bin" / "python"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / ".complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            _make(target)
            (target / ".complete").touch()
    return python


def _make(target: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    install = [uv, "pip", "install", "-q", "--python", str(target), "--no-deps", "--require-hashes"]
    requirements, torch, slim = SOURCES
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(target)], check=True)
    subprocess.run([*install, "-r", str(requirements)], check=True)
    subprocess.run([*install, "-r", str(torch)], check=True)
    subprocess.run([sys.executable, str(slim), str(target)], check=True)


if __name__ == "__main__":
    print(ensure())
