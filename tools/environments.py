"""Python environments that appear whole or not at all, made once under a lock, from hashed requirement files."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FORM = "compiled"
"""Changes when `install` does something else with the same files, for the keys of environments."""
_COMPLETE = ".complete"


def is_made(target: Path) -> bool:
    """Whether the environment is there, whole."""
    return (target / _COMPLETE).exists()


def ensure(target: Path, make: Callable[[Path], None]) -> Path:
    """Let `make` fill the folder unless it is whole; returns its Python. What raises in `make` is raised again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made(target):
            shutil.rmtree(target, ignore_errors=True)
            make(target)
            (target / _COMPLETE).touch()
    return target / "bin" / "python"


def install(target: Path, *requirements: Path) -> None:
    """Make a virtual environment with exactly what the files name, each with its hashes.

    Raises:
        subprocess.CalledProcessError: a step failed; its words are on standard error.

    """
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(target)], check=True)
    for file in requirements:
        command = [
            uv,
            "pip",
            "install",
            "-q",
            "--python",
            str(target),
            "--no-deps",
            "--compile-bytecode",  # vLLM is imported a hundred times in a test run, maybe by processes that write none
            "--require-hashes",
            "-r",
            str(file),
        ]
        subprocess.run(command, check=True)
