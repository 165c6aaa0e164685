"""Whether this machine can run the tests of localkube: skipped with the reason where it cannot, a failure under CI."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localkube import build, cluster, modules, paths, prereqs
from localkube.errors import LocalKubeError
from tests.machine import unavailable


def require_machine(*, node: bool) -> None:
    """Skip (fail under CI=true) unless a cluster can run here."""
    reason = _why_not(node)
    if reason is not None:
        unavailable(reason)


def _why_not(node: bool) -> str | None:
    try:
        prereqs.require(node)
        if node and shutil.which("gcc") is None:
            return "the test images need gcc: apt-get install -y gcc libc6-dev"
        for module in modules.all_modules(modules.DEFAULT_VERSION):
            if build.built(module) is None and build.go_version(module) is None:
                return f"{module.name} is not built and Go is not installed"
    except LocalKubeError as wrong:
        return str(wrong)
    return None


@contextmanager
def own_home(folder: Path) -> Iterator[Path]:
    """Keep clusters in a folder of the test; whatever is left of them at the end is taken down."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALKUBE_HOME", str(folder))
        patch.delenv("KUBEBUILDER_ASSETS", raising=False)
        try:
            yield folder
        finally:
            for entry in list(folder.iterdir()) if folder.is_dir() else []:
                cluster.down(entry.name)
            assert paths.state_home() == folder
