"""Find the image's own `vllm` and `lmcache`, and the Python that has them installed.

Images differ: vLLM's has them on PATH, LMCache's in /opt/venv, and `python3` need not be the interpreter they belong
to.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import util
from pathlib import Path

from .refusal import Refusal

CODE_FOLDER = Path(__file__).resolve().parents[2]
"""Folder that runs as `python3 FOLDER VERB`: where this package and `__main__.py` lie."""
_MORE_PLACES = ("/opt/venv/bin",)


def locate(name: str) -> str:
    """Path of a program: beside this interpreter, on PATH, or where known images keep it.

    Raises:
        Refusal: ProgramMissing.

    """
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath), *_MORE_PLACES])
    found = shutil.which(name, path=path)
    if found is None:
        raise Refusal(
            "ProgramMissing",
            f"the image has no program `{name}`",
            "Use an image with vLLM and LMCache in spec.engine.image.",
        )
    return found


def engine_python() -> str:
    """The interpreter that can import vllm."""
    return python_of("vllm")


def python_of(program: str) -> str:
    """The interpreter that can import a program: this one, or the one that its script names in its first line.

    Raises:
        Refusal: ProgramMissing.

    """
    if util.find_spec(program) is not None:
        return sys.executable
    script = Path(locate(program))
    with script.open("rb") as lines:
        first = lines.readline(4096).decode("utf-8", "replace").strip()
    interpreter = first.removeprefix("#!").split(" ")[0]
    if first.startswith("#!") and Path(interpreter).name.startswith("python") and os.access(interpreter, os.X_OK):
        return interpreter
    return sys.executable
