"""`python -m tools.gpu_matrix.pins RELEASE …`: write requirements/RELEASE.txt anew, exact pins with hashes.

Only files that fit CPython 3.11 on x86-64 Linux are named: those of all others would be ten times as many lines.
Versions that are there already stay; a release without a file is resolved from `vllm==RELEASE`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from tools.gpu_matrix.environment import requirements

_PYTHON = (3, 11)
_GLIBC = 28
_PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(_GLIBC, 4, -1)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
]
_TAGS = frozenset(
    (
        *cpython_tags(_PYTHON, platforms=_PLATFORMS),
        *compatible_tags(_PYTHON, interpreter="cp311", platforms=_PLATFORMS),
    )
)


def resolved(release: str) -> list[dict[str, Any]]:
    """Let uv resolve a release; its packages as the lock format has them. The file names hosts and is not kept."""
    uv = str(Path(sys.executable).with_name("uv"))
    with tempfile.TemporaryDirectory() as folder:
        lock, wanted = Path(folder) / "pylock.toml", Path(folder) / "wanted.in"
        known = requirements(release)
        wanted.write_text(
            known.read_text(encoding="utf-8") if known.exists() else f"vllm=={release}\n", encoding="utf-8"
        )
        python = ".".join(map(str, _PYTHON))
        command = [uv, "pip", "compile", "-q", str(wanted), "-o", str(lock), "--format", "pylock.toml"]
        command += ["--python-version", python, "--python-platform", f"x86_64-manylinux_2_{_GLIBC}"]
        subprocess.run([*command, *(["--no-deps"] if known.exists() else [])], check=True)
        packages: list[dict[str, Any]] = tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]
    return packages


def lines(packages: list[dict[str, Any]]) -> Iterator[str]:
    """Requirement lines, each with the hashes of what an installer may take.

    Raises:
        ValueError: a package has no file for this platform.

    """
    for package in packages:
        name = f"{package['name']}=={package['version']}"
        fits = [wheel for wheel in package.get("wheels", ()) if not _TAGS.isdisjoint(_tags(wheel))]
        files = fits or [package[kind] for kind in ("sdist",) if kind in package]
        if not files:
            raise ValueError(f"{name} has no file for this platform")
        yield " \\\n    ".join((name, *sorted({f"--hash=sha256:{file['hashes']['sha256']}" for file in files})))


def _tags(wheel: dict[str, Any]) -> frozenset[Tag]:
    return parse_wheel_filename(wheel.get("name") or wheel["url"].rsplit("/", 1)[-1])[3]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", nargs="+", help="of vLLM")
    for wanted in parser.parse_args().release:
        text = "\n".join(lines(resolved(wanted)))
        requirements(wanted).write_text(text + "\n", encoding="utf-8")
