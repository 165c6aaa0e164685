"""Host environments with several vLLM releases, and the versions tier in them (`make test-versions`).

    python -m tools.engine_versions [VERSION …]             make them; prints "VERSION PYTHON" for each
    python -m tools.engine_versions --test [VERSION …]      make them and run tests/versions there

Older releases are installed with the packages that were current when they were new (tests/versions/README.md), without
LMCache: what it accepts is a matter of its own. The newest is the engine image's own pair.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from tools import engine_env, environments
from tools.engine_env import IMAGE_PINS, ROOT, Pins
from tools.pytests import pytest

_PINS = ROOT / "tests" / "versions" / "pins"

RELEASES: dict[str, Pins] = {
    "0.25.1": Pins(_PINS / "0.25.1.txt", _PINS / "torch-2.11.0.txt"),
    "0.29.0": Pins(_PINS / "0.29.0.txt", IMAGE_PINS.torch),
    "0.32.0": IMAGE_PINS,
}
"""Oldest supported line, a release between (CPU granularity and kernel blocks changed in 0.29), the advised one."""


def python_of(version: str) -> Path:
    """Interpreter of a release's environment, whether or not it has been made."""
    return engine_env.home(RELEASES[version]) / "bin" / "python"


def is_made(version: str) -> bool:
    """Whether the environment is there, whole."""
    return environments.is_made(engine_env.home(RELEASES[version]))


def ensure(version: str) -> Path:
    """Make a release's environment unless it is there; returns its Python."""
    return engine_env.ensure(RELEASES[version])


def test(versions: Sequence[str], *options: str) -> int:
    """Run the versions tier for these releases; pytest's exit status."""
    return pytest("versions", "-v", *options, env={"QCS_ENGINE_VERSIONS": " ".join(versions)})


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true", help="run tests/versions in them")
    parser.add_argument("version", nargs="*", metavar="VERSION", help=f"of {', '.join(RELEASES)}; all by default")
    arguments = parser.parse_args()
    versions = arguments.version or os.environ.get("QCS_ENGINE_VERSIONS", "").split() or list(RELEASES)
    for version in versions:
        if version not in RELEASES:
            parser.error(f"no pins for vLLM {version}; there are {', '.join(RELEASES)}")
        print(version, ensure(version), flush=True)
    return test(versions) if arguments.test else 0


if __name__ == "__main__":
    raise SystemExit(main())
