"""
Addresses and the host's side of the network of clusters with a real node.

A real node lives in network and mount namespaces of its own (``node``). One veth pair joins them with the host, so
the host has one link, two routes and one nftables table per cluster. kube-proxy's table, the CNI bridge and its rules
stay inside the namespace: several clusters do not meet, and nothing of theirs outlives it.

``/run/localkube`` is the host-wide register: which address block ("slot") belongs to whom, and what was changed on the
host for all clusters together (sysctls, folders made as mount points), so that the last ``down`` can put it back.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localkube import paths, prereqs
from localkube.errors import LocalKubeError
from localkube.locks import folder_lock

SLOTS = 16
MOUNT_POINTS = ("/var/lib/kubelet", "/var/lib/cni", "/run/containerd", "/var/log/containers", "/var/log/pods")
"""Paths that kubelet, containerd or CNI have built in; inside the namespace each is a folder of the cluster."""
SYSCTLS = {
    "net/ipv4/ip_forward": "1",  # pods reach the outside through the host
    # Set by every kubelet at its start (it offers no way not to); listed so that they are put back.
    "vm/overcommit_memory": None,
    "vm/panic_on_oom": None,
    "kernel/panic": None,
    "kernel/panic_on_oops": None,
    "kernel/keys/root_maxkeys": None,
    "kernel/keys/root_maxbytes": None,
}
_SYS = Path("/proc/sys")
_HOST = "host.json"


@dataclass(frozen=True)
class Block:
    """The addresses of one cluster."""

    slot: int

    @property
    def link(self) -> str:
        """Name of the host's end of the veth pair."""
        return f"localkube{self.slot}"

    @property
    def table(self) -> str:
        """Name of the host's nftables table (family ip)."""
        return f"localkube{self.slot}"

    @property
    def host(self) -> str:
        """The host's end; the API server listens here."""
        return f"10.99.0.{4 * self.slot + 1}"

    @property
    def node(self) -> str:
        """The node's end; the kubelet listens here."""
        return f"10.99.0.{4 * self.slot + 2}"

    @property
    def link_net(self) -> str:
        """Network of the pair."""
        return f"10.99.0.{4 * self.slot}/30"

    @property
    def pods(self) -> str:
        """Network of the node's pods."""
        return f"10.244.{16 * self.slot}.0/24"

    @property
    def services(self) -> str:
        """Network of ClusterIPs."""
        return f"10.96.{16 * self.slot}.0/20"

    def overlaps(self, networks: Sequence[str]) -> bool:
        """Whether one of the networks, such as a route of the host, holds addresses of this block."""
        own = [ipaddress.ip_network(n) for n in (self.link_net, self.pods, self.services)]
        others = [ipaddress.ip_network(n, strict=False) for n in networks]
        return any(a.overlaps(b) for a in own for b in others if b.version == 4)


@contextlib.contextmanager
def _register() -> Iterator[Path]:
    """The register, locked; an empty one is removed at the end."""
    with folder_lock(paths.RUNTIME, mode=0o755, wait_seconds=math.inf):
        yield paths.RUNTIME
        if not any(paths.RUNTIME.iterdir()):
            paths.RUNTIME.rmdir()


def claim(folder: Path) -> Block:
    """Register an address block for the cluster in ``folder`` that no other cluster and no route of the host uses."""
    with _register() as register:
        owners = _owners(register)
        mine = next((slot for slot, owner in owners.items() if owner == folder), None)
        if mine is not None:
            return Block(mine)
        routes = _routes()
        for slot in range(SLOTS):
            block = Block(slot)
            if slot not in owners and not block.overlaps(routes):
                (register / f"slot-{slot}").write_text(f"{folder}\n")
                return block
    raise LocalKubeError(
        f"All {SLOTS} address blocks (10.99.0.x, 10.244.x, 10.96.x) are in use by clusters or by routes of this host.",
        "End a cluster with `down`, or remove the routes (`ip route`).",
    )


def release(folder: Path) -> None:
    """Give the block back; the last cluster puts back the host's sysctls and removes the mount points made for it."""
    if not paths.RUNTIME.is_dir():
        return
    with _register() as register:
        for slot, owner in _owners(register).items():
            if owner == folder:
                (register / f"slot-{slot}").unlink()
        host = register / _HOST
        if not _owners(register) and host.exists():
            before = json.loads(host.read_text())
            for key, value in before["sysctls"].items():
                if _SYS.joinpath(key).read_text().strip() != value:
                    _SYS.joinpath(key).write_text(value)
            for made in reversed(before["made"]):
                with contextlib.suppress(OSError):  # no longer empty: somebody else uses it now
                    Path(made).rmdir()
            host.unlink()


def _owners(register: Path) -> dict[int, Path]:
    """Which slot belongs to which cluster folder; entries of folders that are gone are dropped."""
    owners = {}
    for entry in register.glob("slot-*"):
        folder = Path(entry.read_text().strip())
        if folder.is_dir():
            owners[int(entry.name.removeprefix("slot-"))] = folder
        else:
            entry.unlink()
    return owners


def _routes() -> list[str]:
    listed = json.loads(_run("ip", "-json", "-4", "route", "show", "table", "all") or "[]")
    return [r["dst"] for r in listed if r["dst"] not in {"default", "0.0.0.0/0"} and r.get("type") != "broadcast"]


def prepare_host() -> None:
    """Make the mount points and set the sysctls, remembering what was there before the first cluster."""
    with _register() as register:
        host = register / _HOST
        if not host.exists():
            before = {k: _SYS.joinpath(k).read_text().strip() for k in SYSCTLS if _SYS.joinpath(k).exists()}
            host.write_text(json.dumps({"sysctls": before, "made": []}))
        known = json.loads(host.read_text())
        missing = {p for place in map(Path, MOUNT_POINTS) for p in (place, *place.parents) if not p.exists()}
        known["made"] += sorted(map(str, missing))  # parents sort before what is in them
        host.write_text(json.dumps(known))  # before they are made, so that a killed `up` cannot forget them
        for path in sorted(missing):
            path.mkdir(mode=0o755)
        for key, value in SYSCTLS.items():
            if value is not None:
                _SYS.joinpath(key).write_text(value)


def connect(block: Block, holder: int) -> None:
    """Join the namespaces of process ``holder`` with the host: veth pair, addresses, routes, masquerading."""
    disconnect(block)
    _run("ip", "link", "add", block.link, "type", "veth", "peer", "name", "eth0", "netns", str(holder))
    _run("ip", "address", "add", f"{block.host}/30", "dev", block.link)
    _run("ip", "link", "set", block.link, "up")
    inside = ("nsenter", "--target", str(holder), "--net", "--")
    _run(*inside, "ip", "link", "set", "lo", "up")
    _run(*inside, "ip", "address", "add", f"{block.node}/30", "dev", "eth0")
    _run(*inside, "ip", "link", "set", "eth0", "up")
    _run(*inside, "ip", "route", "add", "default", "via", block.host)
    _run(*inside, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
    for network in (block.pods, block.services):
        _run("ip", "route", "add", network, "via", block.node, "dev", block.link)
    sources = f"{{ {block.pods}, {block.node} }}"
    rules = f"""table ip {block.table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {sources} oifname != "{block.link}" masquerade
  }}
}}
"""
    _run("nft", "-f", "-", text=rules)


def disconnect(block: Block) -> None:
    """Remove the host's end of the pair (its routes go with it) and the table; what is not there is fine."""
    if Path("/sys/class/net", block.link).exists():
        _run("ip", "link", "delete", block.link)
    if f"table ip {block.table}" in _run("nft", "list", "tables").splitlines():
        _run("nft", "delete", "table", "ip", block.table)


def _run(*argv: str, text: str | None = None) -> str:
    environment = os.environ | {"PATH": prereqs.search_path()}  # nsenter looks up what it runs
    program = prereqs.which(argv[0]) or argv[0]
    ran = subprocess.run([program, *argv[1:]], env=environment, input=text, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise LocalKubeError(f"`{' '.join(argv)}` failed: {ran.stderr.strip()}")
    return ran.stdout


def claimed(folder: Path) -> Block | None:
    """The block registered for the cluster in ``folder``, also when its ``up`` was killed right after the claim."""
    return next((Block(slot) for slot in range(SLOTS) if owner(slot) == folder), None)


def owner(slot: int) -> Path | None:
    """The folder of the cluster that the slot is registered for."""
    try:
        return Path((paths.RUNTIME / f"slot-{slot}").read_text().strip())
    except (FileNotFoundError, PermissionError):  # without root there is no real node to look for
        return None
