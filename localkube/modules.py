"""
The pinned Go modules, what each yields, and with which flags it is built: the one place for both.

A module folder holds go.mod (versions, ``tool`` lines) and go.sum; ``go install … tool`` builds all its tools. Those of
our own have their sources beside them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localkube import paths
from localkube.errors import LocalKubeError

KUBERNETES_VERSIONS = ("1.34", "1.36", "1.37")
DEFAULT_VERSION = "1.36"

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NODE = ("kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr")
SIMULATION = ("kwok",)


@dataclass(frozen=True)
class Module:
    """One Go module folder and the binaries that come out of it."""

    name: str
    binaries: tuple[str, ...]
    tags: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """(name Go gives the binary, name it gets here)"""
    stamped: bool = False
    """The Kubernetes version is linked in; without it the servers report a development version."""

    @property
    def folder(self) -> Path:
        """Folder with go.mod and go.sum."""
        return paths.MODULES / self.name

    def required_version(self, module: str) -> str:
        """Version of ``module`` in go.mod, such as ``v1.36.3``."""
        found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\S+)", self._file("go.mod"), re.MULTILINE)
        if found is None:
            raise LocalKubeError(f"{self.folder / 'go.mod'} does not require {module}.", "Restore the file.")
        return found[1]

    def flags(self) -> list[str]:
        """Arguments of ``go install`` that shape the result."""
        linked = ["-s", "-w"]
        if self.stamped:
            version = self.required_version("k8s.io/kubernetes")
            major, minor = version.removeprefix("v").split(".")[:2]
            where = "k8s.io/component-base/version"
            linked += ["-X", f"{where}.gitVersion={version}", "-X", f"{where}.gitMajor={major}"]
            linked += ["-X", f"{where}.gitMinor={minor}"]
        flags = ["-trimpath"]
        if self.tags:
            flags += ["-tags", " ".join(self.tags)]
        return [*flags, "-ldflags", " ".join(linked)]

    def source_hash(self) -> str:
        """Hash over go.mod, go.sum, our own sources and flags: what shapes the result except the Go release."""
        digest = hashlib.sha256()
        sources = [path.read_text() for path in sorted(self.folder.glob("*.go"))]
        for part in (self._file("go.mod"), self._file("go.sum"), *sources, "\0".join(self.flags()), "CGO_ENABLED=0"):
            digest.update(part.encode() + b"\0\0")
        return digest.hexdigest()

    def _file(self, name: str) -> str:
        try:
            return (self.folder / name).read_text()
        except FileNotFoundError:
            raise LocalKubeError(
                f"{self.folder / name} is missing.", f"Run `go mod tidy` in {self.folder} or restore it from git."
            ) from None


ETCD = Module("etcd", ("etcd",), renamed=(("server", "etcd"),))
CONTAINERD = Module(
    "containerd", ("containerd", "containerd-shim-runc-v2", "ctr"), tags=("no_btrfs", "no_devmapper", "no_zfs")
)
KWOK = Module("kwok", ("kwok",))

# Not of a cluster: what the tests of charts, alerts and GitOps run. Built when asked for only.
HELM = Module("helm", ("helm",))
# Without the service discoveries of the clouds, which rules never use: a fifth of the packages to compile.
PROMTOOL = Module("promtool", ("promtool",), tags=("remove_all_sd",))
# A program of our own around the libraries of Argo CD's and Flux's health and apply.
GITOPS_JUDGE = Module("gitops-judge", ("gitops-judge",))
TOOLS = (HELM, PROMTOOL, GITOPS_JUDGE)
# Read, never built: the definitions of ServiceMonitor, PodMonitor and PrometheusRule.
PROMETHEUS_OPERATOR = Module("prometheus-operator", ())
# The same of Argo CD, Flux and KEDA, for the manifests of examples/.
GITOPS_DEFINITIONS = Module("gitops-definitions", ())


def kubernetes(version: str) -> Module:
    """The Kubernetes module of a minor version; an unknown one is refused with the choices."""
    if version not in KUBERNETES_VERSIONS:
        raise LocalKubeError(
            f"--version {version} is not available.", f"Choose one of {', '.join(KUBERNETES_VERSIONS)}."
        )
    binaries = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
    return Module(f"kubernetes-{version}", binaries, stamped=True)


def all_modules(version: str) -> tuple[Module, ...]:
    """Every module a cluster of that version can need, in build order: the quick ones first."""
    return (ETCD, CONTAINERD, KWOK, kubernetes(version))


def modules_for(binaries: Sequence[str], version: str) -> list[Module]:
    """The modules that yield the named binaries."""
    wanted = [m for m in (*all_modules(version), *TOOLS) if set(m.binaries) & set(binaries)]
    missing = set(binaries) - {b for m in wanted for b in m.binaries}
    if missing:
        raise LocalKubeError(f"No module yields {', '.join(sorted(missing))}.")
    return wanted


def named(name: str, version: str) -> Module:
    """The module of that name; ``kubernetes`` means the one of ``version``."""
    known = {m.name: m for m in (*all_modules(version), *TOOLS)}
    wanted = f"kubernetes-{version}" if name == "kubernetes" else name
    if wanted not in known:
        choices = ", ".join(["kubernetes", *known])
        raise LocalKubeError(f"--module {name} is not known.", f"Choose from {choices}.")
    return known[wanted]
