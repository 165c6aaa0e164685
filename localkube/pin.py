"""
Writes the Go module of a Kubernetes release: ``python -m localkube.pin v1.36.3`` (maintainers; needs the network).

Kubernetes' own go.mod points its libraries at ``./staging/src/…``, which exists in its repository only; a module that
requires ``k8s.io/kubernetes`` must replace each of them by the published v0 release of the same minor and patch number.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from localkube import paths
from localkube.errors import LocalKubeError

_TOOLS = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet")


def go_mod(release: str, upstream: str) -> str:
    """Text of our go.mod for the release, from the text of Kubernetes' own."""
    go = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    staged = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/\S+$", upstream, re.MULTILINE)
    if go is None or not staged:
        raise LocalKubeError(f"go.mod of k8s.io/kubernetes {release} has no go line or no staging modules.")
    library = "v0." + release.removeprefix("v1.")
    tools = "\n".join(f"\tk8s.io/kubernetes/cmd/{tool}" for tool in _TOOLS)
    replaced = "\n".join(f"\t{module} => {module} {library}" for module in staged)
    return (
        f"module qwencache.dev/localkube/{_folder(release).name}\n\ngo {go[1]}\n\ntool (\n{tools}\n)\n\n"
        f"require k8s.io/kubernetes {release}\n\nreplace (\n{replaced}\n)\n"
    )


def _folder(release: str) -> Path:
    return paths.MODULES / f"kubernetes-{'.'.join(release.removeprefix('v').split('.')[:2])}"


def pin(release: str) -> Path:
    """Write and tidy the module of a release such as ``v1.36.3``; returns its folder."""
    if not re.fullmatch(r"v1\.\d+\.\d+", release):
        raise LocalKubeError(f"{release!r} is no Kubernetes release.", "Give one such as v1.36.3.")
    asked = _go(["mod", "download", "-json", f"k8s.io/kubernetes@{release}"], Path.cwd())
    folder = _folder(release)
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text(go_mod(release, Path(json.loads(asked)["GoMod"]).read_text()))
    _go(["mod", "tidy"], folder)
    return folder


def _go(arguments: list[str], folder: Path) -> str:
    ran = subprocess.run(["go", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise LocalKubeError(
            f"`go {' '.join(arguments)}` failed: {ran.stderr.strip()}", "It needs the Go module proxy."
        )
    return ran.stdout


def main() -> int:
    """Entry point of `python -m localkube.pin`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", nargs="+", help="of Kubernetes, such as v1.36.3")
    try:
        for wanted in parser.parse_args().release:
            print(pin(wanted))
    except LocalKubeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
