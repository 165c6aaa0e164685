"""Brings a cluster's components up, each only when it does not run yet: first start and repair are one path."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from localkube import cgroups, controlplane, hostnet, kwok, node, pki, ports
from localkube.api import Api
from localkube.archives import image_digests
from localkube.build import Report
from localkube.controlplane import LOOPBACK, kubeconfig_of
from localkube.errors import LocalKubeError
from localkube.hostnet import Block
from localkube.process import Process, start, tail, wait_until
from localkube.state import Component, State

# Generous: image builds may use every core beside us. What is really awaited comes within seconds.
_PATIENCE_S = 120.0
_LINE_EVERY_S = 15.0
_RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "runc",
}


class Launch:
    """One run of ``up`` over one cluster's state."""

    def __init__(self, state: State, binaries: Mapping[str, Path], report: Report) -> None:
        self.state = state
        self.binaries = binaries
        self.report = report
        self.block: Block | None = None

    @property
    def api(self) -> Api:
        """Client of the cluster with the administrator's identity."""
        return admin_api(self.state)

    def everything(self, taken_ports: set[int]) -> None:
        """Start what does not run and wait until the cluster can be used. Raises ComponentDiedError, LocalKubeError."""
        self.state.logs.mkdir(exist_ok=True)
        if self.state.options.node:
            self._namespaces()
        self._identities(taken_ports)
        self._control_plane()
        if self.state.options.node:
            self._node()
        if self.state.options.simulated_nodes or self.state.options.stages:
            self._simulation()
        self._wait_for_controllers()

    def _namespaces(self) -> None:
        self.block = block = hostnet.claim(self.state.folder)
        self.state.slot, self.state.address = block.slot, block.host
        hostnet.prepare_host()
        node.write_configuration_folders(self.state)
        if self._run("namespaces", node.holder_argv(self.state), self._holder_ready):
            hostnet.connect(block, self.state.components["namespaces"].pid)
        cgroups.create(block.link)

    def _holder_ready(self) -> bool:
        return node.holder_ready(self.state.components["namespaces"].pid)

    def _identities(self, taken_ports: set[int]) -> None:
        state = self.state
        if not state.ports:
            state.ports = ports.choose(controlplane.LOOPBACK_PORTS, LOOPBACK, taken_ports)
            used = taken_ports | set(state.ports.values())
            state.ports |= ports.choose(["kube-apiserver"], state.address, used)
        if not state.tokens:
            state.tokens = controlplane.new_tokens()
            state.save()
            first = self._services().rpartition("/")[0].rpartition(".")[0] + ".1"
            pki.create(controlplane.pki(state), [LOOPBACK, state.address, first])
            controlplane.write_identities(state)

    def _services(self) -> str:
        return self.block.services if self.block else controlplane.CONTROL_PLANE_SERVICES

    def _control_plane(self) -> None:
        state = self.state
        self._run(
            "etcd", controlplane.etcd(state, self.binaries["etcd"]), lambda: _listens(LOOPBACK, state.ports["etcd"])
        )
        advertised = self.block.host if self.block else None
        server = controlplane.apiserver(state, self.binaries["kube-apiserver"], self._services(), advertised)
        self._run("kube-apiserver", server, self.api.ready)
        manager = controlplane.controller_manager(state, self.binaries["kube-controller-manager"])
        self._run("kube-controller-manager", manager)
        self._run("kube-scheduler", controlplane.scheduler(state, self.binaries["kube-scheduler"]))
        self.api.apply("/apis/node.k8s.io/v1/runtimeclasses/nvidia", _RUNTIME_CLASS)

    def _node(self) -> None:
        state, block = self.state, self.block
        assert block is not None
        node.write_configuration(state, block)
        containerd = self.binaries["containerd"]
        if self._run(
            "containerd", node.containerd_argv(state, containerd), self._containerd_ready, [containerd.parent]
        ):
            load_image(state, self.binaries["ctr"], Path(state.options.pause_archive), self.report, node.PAUSE_IMAGE)
        self._run("kubelet", node.kubelet_argv(state, self.binaries["kubelet"], block))
        self._run("kube-proxy", node.kube_proxy_argv(state, self.binaries["kube-proxy"]))
        self._wait("kubelet", lambda: node_ready(self.api, state.node_name), "Ready as node")
        self._wait("kube-proxy", lambda: _healthy("http", block.node, 10256))
        if state.options.gpus:
            set_capacity(self.api, state.node_name, {"nvidia.com/gpu": state.options.gpus})

    def _containerd_ready(self) -> bool:
        ran = subprocess.run(
            node.ctr_argv(self.state, self.binaries["ctr"], "version"), capture_output=True, check=False
        )
        return ran.returncode == 0

    def _simulation(self) -> None:
        state = self.state
        self._run(
            "kwok", kwok.argv(state, self.binaries["kwok"]), lambda: _healthy("http", LOOPBACK, state.ports["kwok"])
        )
        names = [f"simulated-{number}" for number in range(state.options.simulated_nodes)]
        for name in names:
            made = kwok.node_object(name, state.options.simulated_gpus, tainted=state.options.node)
            self.api.apply(f"/api/v1/nodes/{name}", made)
        self._wait(
            "kwok", lambda: all(node_ready(self.api, name) for name in names), "done with making its nodes Ready"
        )

    def _wait_for_controllers(self) -> None:
        for name in ("kube-controller-manager", "kube-scheduler"):
            port = self.state.ports[name]
            self._wait(name, lambda port=port: _healthy("https", LOOPBACK, port))  # type: ignore[misc]
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait("kube-controller-manager", lambda: self.api.exists(account), "done with the default service account")

    def _run(
        self,
        name: str,
        argv: list[str],
        ready: Callable[[], bool] | None = None,
        path: Sequence[Path] = (),
    ) -> bool:
        """Start a component unless it runs, wait until it is ready; True when it was started."""
        known = self.state.components.get(name)
        starting = known is None or not known.process.alive()
        if starting:
            process = start(argv, self.state.log(name), self.state.folder, path)
            self.state.components[name] = Component(argv, process.pid, process.started)
            self.state.save()
        began = time.monotonic()
        if ready is not None:
            self._wait(name, ready)
        if starting:
            self.report(f"{name}: {'ready' if ready else 'started'} after {time.monotonic() - began:.1f} s")
        return starting

    def _wait(self, name: str, ready: Callable[[], bool], what: str = "ready") -> None:
        process: Process = self.state.components[name].process
        wait_until(ready, name, process, self.state.log(name), _PATIENCE_S, what)


def admin_api(state: State) -> Api:
    """Client with the administrator's identity."""
    ca = controlplane.pki(state) / "ca.crt"
    return Api(state.address, state.ports["kube-apiserver"], ca, state.tokens["admin"])


def load_image(state: State, ctr: Path, archive: Path, report: Report, name: str | None = None) -> None:
    """Import an OCI or Docker archive into containerd; with ``name``, that image must be there afterwards."""
    if not archive.is_file():
        remedy = "Build it (`make images`) or correct the path."
        raise LocalKubeError(f"The image archive {archive} does not exist.", remedy)
    # By digest, since an image that was built anew can have the name of the former one.
    wanted = image_digests(archive)
    there = image_index(state, ctr)
    if wanted and all(there.get(image) == digest for image, digest in wanted.items()):
        report(f"{', '.join(wanted)}: already there")
        return
    began = time.monotonic()
    argv = node.ctr_argv(state, ctr, "images", "import", str(archive.absolute()))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        while True:
            try:
                _, errors = running.communicate(timeout=_LINE_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - began
                report(f"importing {archive.name} ({archive.stat().st_size / 1e6:.0f} MB): {seconds:.0f} s")
            except BaseException:
                running.terminate()
                raise
    if running.returncode != 0:
        said = [line for line in errors.splitlines() if "level=warning" not in line]
        why = " ".join(said or tail(state.log("containerd")))
        raise LocalKubeError(
            f"{archive} cannot be imported ({why}).", "It must be an OCI or Docker image archive (tar)."
        )
    if name is not None and name not in image_names(state, ctr):
        remedy = f"Tag it so: buildah push … oci-archive:FILE:{name}"
        raise LocalKubeError(f"{archive} does not hold the image {name}.", remedy)


def image_names(state: State, ctr: Path) -> list[str]:
    """Names of the node's images."""
    return list(image_index(state, ctr))


def image_index(state: State, ctr: Path) -> dict[str, str]:
    """Name → manifest digest of the node's images."""
    ran = subprocess.run(node.ctr_argv(state, ctr, "images", "list"), capture_output=True, text=True, check=False)
    # REF TYPE DIGEST SIZE … below a heading; the first three hold no spaces.
    rows = (line.split() for line in ran.stdout.splitlines()[1:])
    return {row[0]: row[2] for row in rows if len(row) > 2}


def set_capacity(api: Api, name: str, capacity: Mapping[str, int | str]) -> None:
    """Show extended resources on a node; the kubelet leaves those it does not manage alone in its own updates."""
    shown = {key: str(value) for key, value in capacity.items()}
    api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": shown, "allocatable": shown}})


def node_ready(api: Api, name: str) -> bool:
    """Whether the node exists and is Ready."""
    path = f"/api/v1/nodes/{name}"
    if not api.exists(path):
        return False
    found: dict[str, Any] = api.get(path)
    conditions = found.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _healthy(scheme: str, address: str, port: int) -> bool:
    """Whether /healthz answers 200. A component makes its certificate in memory: there is nothing to check it by."""
    connection: http.client.HTTPConnection
    if scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, port, timeout=2, context=context)
    else:
        connection = http.client.HTTPConnection(address, port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def kubeconfig(state: State) -> Path:
    """Path of the user's kubeconfig."""
    return kubeconfig_of(state, "admin")
