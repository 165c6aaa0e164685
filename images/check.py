"""
Runs a built image without a cluster: `python -m images.check operator|engine-cpu`.

operator: starts as its own user and finds its command lines. engine-cpu: the whole cached chain (its selftest.py)
stores a prompt, restarts the engine and retrieves it; prints the figures. Needs root, like the builds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from images.build import BuildError, cache_home, ensure, locked, reference_in
from images.catalogue import ROOT
from images.runner import Runner, tail
from images.storage import storage

_LOGS = ROOT / "build" / "logs" / "images"
OPERATOR_COMMAND = (
    "qcs --help > /dev/null && qwen-cached-serve-operator --help > /dev/null"
    " && grep -q pkg:pypi/kopf@ /opt/qwen-cached-serve/sbom.cdx.json"
    " && grep -q pkg:deb/debian/libc6@ /opt/qwen-cached-serve/sbom.cdx.json && id -u"
)


def check(name: str, archive: Path, report: Runner) -> str:
    """Runs the image's check; returns its last words. Raises BuildError with the end of the log."""
    commands = {
        "operator": ("65532:65532", ["sh", "-c", OPERATOR_COMMAND], {}),
        "engine-cpu": (
            "1000:0",
            ["sh", "-c", "work=$(mktemp -d) && exec python3 /selftest.py /models/tiny-chain-352 $work"],
            {
                ROOT / "images/engine-cpu/selftest.py": "/selftest.py",
                ROOT / "images/model-tiny": "/models",
            },
        ),
    }
    user, command, volumes = commands[name]
    log = _LOGS / f"check-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    work = cache_home() / "storage" / f"check-{name}"
    with (
        locked(cache_home() / f"check-{name}.lock", lambda: report.report(f"{name}: another check runs, waiting")),
        storage(work, report, f"check {name}", log) as buildah,
    ):
        buildah.load(archive.resolve())
        buildah.run(reference_in(archive), user, command, volumes)
    return tail(log, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m images.check", description="Runs a built image without a cluster.")
    parser.add_argument("name", choices=["operator", "engine-cpu"])
    name: str = parser.parse_args(argv).name
    try:
        print(check(name, ensure([name])[name], Runner(lambda line: print(line, flush=True))))
    except BuildError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
