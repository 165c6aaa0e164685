"""What a machine must have, and which Debian packages bring it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localkube.errors import LocalKubeError

Purpose = Literal["control-plane", "node", "images"]
PURPOSES: tuple[Purpose, ...] = ("control-plane", "node", "images")

CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Need:
    """A program and the Debian package it comes from."""

    program: str
    package: str
    purpose: Purpose
    why: str


NEEDS = (
    Need("openssl", "openssl", "control-plane", "certificates"),
    Need("unshare", "util-linux", "node", "the node's own namespaces"),
    Need("nsenter", "util-linux", "node", "the node's own namespaces"),
    Need("mount", "mount", "node", "the node's own folders"),
    Need("ip", "iproute2", "node", "the link between host and node"),
    Need("sysctl", "procps", "node", "forwarding"),
    Need("runc", "runc", "node", "containers"),
    Need("nft", "nftables", "node", "kube-proxy and masquerading"),
    Need("iptables", "iptables", "node", "CNI plugins"),
    Need("conntrack", "conntrack", "node", "kube-proxy"),
    Need("buildah", "buildah", "images", "building images"),
    Need("mmdebstrap", "mmdebstrap", "images", "a base image without a registry"),
    Need("gcc", "gcc libc6-dev", "images", "the pause program"),
)


def which(program: str) -> str | None:
    """Like ``shutil.which``, also in the sbin folders that ordinary users do not have on PATH."""
    return shutil.which(program, path=search_path())


def search_path(*first: Path) -> str:
    """PATH with the given folders in front and the sbin folders at the end."""
    return ":".join([*map(str, first), os.environ.get("PATH", ""), *_SBIN])


def cni_folder() -> Path | None:
    """Folder with all CNI plugins that the node uses."""
    for folder in map(Path, CNI_FOLDERS):
        if all(os.access(folder / plugin, os.X_OK) for plugin in _CNI_PLUGINS):
            return folder
    return None


def missing(purposes: Iterable[Purpose], find: Callable[[str], str | None] = which) -> list[Need]:
    """What the machine lacks for the purposes."""
    wanted = set(purposes)
    lacking = [need for need in NEEDS if need.purpose in wanted and find(need.program) is None]
    if "node" in wanted and cni_folder() is None:
        plugins = Need(f"CNI plugins {', '.join(_CNI_PLUGINS)}", "containernetworking-plugins", "node", "pod network")
        lacking.append(plugins)
    return lacking


def install_line(lacking: Iterable[Need]) -> str:
    """The command that installs what is lacking."""
    return "apt-get install -y " + " ".join(sorted({need.package for need in lacking}))


def require(node: bool) -> None:
    """Raise one sentence that says what to install or do before a cluster (with a real node) can run here."""
    if not sys.platform.startswith("linux"):
        raise LocalKubeError(
            f"localkube runs on Linux, not on {sys.platform}.", "Use a Linux machine, VM or container."
        )
    if node and os.geteuid() != 0:
        raise LocalKubeError("A real node needs root.", "Run with sudo, or leave --node out for a control plane.")
    lacking = missing(("control-plane", "node") if node else ("control-plane",))
    if lacking:
        names = ", ".join(f"{need.program} ({need.why})" for need in lacking)
        raise LocalKubeError(f"Missing on this machine: {names}.", f"Install: {install_line(lacking)}")


def require_snapshots(folder: Path) -> None:
    """Raise when images cannot be unpacked below ``folder``: overlayfs does not stack its upper layers on itself."""
    kind = file_system(folder, Path("/proc/self/mountinfo").read_text())
    if kind in {"overlay", "aufs", "fuse.fuse-overlayfs", "nfs", "nfs4"}:
        raise LocalKubeError(
            f"{folder} is on {kind}, on which containers cannot have their file systems.",
            "Set LOCALKUBE_HOME to a folder on ext4, xfs, btrfs or tmpfs (in a container: a mounted volume).",
        )


def file_system(path: Path, mountinfo: str) -> str:
    """Type of the file system that holds ``path`` according to the text of /proc/<pid>/mountinfo."""
    best, kind = "", "unknown"
    for line in mountinfo.splitlines():
        fields = line.split()
        point = fields[4].replace("\\040", " ")
        holds = point == "/" or str(path) == point or str(path).startswith(f"{point}/")
        if holds and len(point) >= len(best):  # of mounts over each other the later line is on top
            best, kind = point, fields[fields.index("-") + 1]
    return kind


def install(lacking: list[Need], report: Callable[[str], None]) -> None:
    """Install the packages with apt-get; needs root."""
    if not lacking:
        return
    line = install_line(lacking)
    if which("apt-get") is None:
        raise LocalKubeError("This machine has no apt-get.", f"Install what these packages hold: {line}")
    if os.geteuid() != 0:
        raise LocalKubeError("Installing packages needs root.", f"Run: sudo {line}")
    report(line)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["apt-get", "update", "-qq"], [*line.split(), "--no-install-recommends", "-qq"]):
        ran = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise LocalKubeError(f"`{' '.join(argv)}` failed: {ran.stderr.strip()[-600:]}", "Repair apt, then repeat.")
