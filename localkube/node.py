"""
The real node: namespaces, containerd, kubelet and kube-proxy; their configuration, start and end.

All of it runs in one mount and one network namespace per cluster, held open by a sleeping process. Paths that the
programs have built in (``hostnet.MOUNT_POINTS``) are folders of the cluster there, and whatever they mount, bridge or
filter disappears with the last process.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import yaml

from localkube import cgroups, hostnet, prereqs
from localkube.controlplane import kubeconfig_of, pki
from localkube.errors import LocalKubeError
from localkube.hostnet import Block
from localkube.state import State

PAUSE_IMAGE = "localhost/pause:1"
_SOCKET = "/run/containerd/containerd.sock"


def folder(state: State) -> Path:
    """Folder of everything the node writes."""
    return state.folder / "node"


def mounts(state: State) -> dict[str, Path]:
    """Built-in path inside the namespace -> folder of the cluster."""
    own = {path: folder(state) / path.strip("/").replace("/", "-") for path in hostnet.MOUNT_POINTS}
    own["/var/log/pods"] = state.logs / "pods"
    return own


def write_configuration_folders(state: State) -> None:
    """Make the folders that stand for built-in paths."""
    for own in mounts(state).values():
        own.mkdir(mode=0o755, parents=True, exist_ok=True)


def write_configuration(state: State, block: Block) -> None:
    """Write every configuration file of the node."""
    cni = prereqs.cni_folder()
    if cni is None:
        raise LocalKubeError("The CNI plugins are missing.", "Install: apt-get install -y containernetworking-plugins")
    (folder(state) / "cni").mkdir(exist_ok=True)
    (folder(state) / "cni" / "10-localkube.conflist").write_text(json.dumps(cni_network(block), indent=1) + "\n")
    (folder(state) / "containerd.toml").write_text(containerd_config(folder(state), cni))
    _write_yaml(folder(state) / "kubelet.yaml", kubelet_config(state, block))
    _write_yaml(folder(state) / "kube-proxy.yaml", kube_proxy_config(state, block))


def _write_yaml(path: Path, data: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(data, sort_keys=False))


def holder_argv(state: State) -> list[str]:
    """A process that makes the namespaces and holds them open."""
    binds = [f"mount --bind {shlex.quote(str(own))} {path}" for path, own in mounts(state).items()]
    # Shared again inside (kubelet's mounts must reach containers that ask for it), but never out to the host.
    script = " && ".join(["mount --make-rshared /", *binds, "exec sleep infinity"])
    return ["unshare", "--mount", "--net", "--propagation", "slave", "--", "sh", "-c", script]


def holder_ready(pid: int) -> bool:
    """Whether the holder has finished its set-up: it has become the sleeping program."""
    return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"


def inside(state: State) -> list[str]:
    """Prefix that runs a program in the node's namespaces."""
    return ["nsenter", f"--target={state.components['namespaces'].pid}", "--mount", "--net", "--"]


def containerd_argv(state: State, binary: Path) -> list[str]:
    """Command line of containerd."""
    return [*inside(state), str(binary), "--config", str(folder(state) / "containerd.toml")]


def kubelet_argv(state: State, binary: Path, block: Block) -> list[str]:
    """Command line of the kubelet."""
    return [
        *inside(state),
        str(binary),
        f"--config={folder(state) / 'kubelet.yaml'}",
        f"--kubeconfig={kubeconfig_of(state, 'kubelet')}",
        f"--hostname-override={state.node_name}",
        f"--node-ip={block.node}",
    ]


def kube_proxy_argv(state: State, binary: Path) -> list[str]:
    """Command line of kube-proxy."""
    return [*inside(state), str(binary), f"--config={folder(state) / 'kube-proxy.yaml'}"]


def ctr_argv(state: State, binary: Path, *arguments: str) -> list[str]:
    """Command line of ctr in the namespace of Kubernetes' containers and images."""
    return [*inside(state), str(binary), "--address", _SOCKET, "--namespace", "k8s.io", *arguments]


def cni_network(block: Block) -> dict[str, Any]:
    """The pod network: one bridge, masqueraded to the outside, host ports."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": block.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "localkube", "plugins": [bridge, portmap]}


def containerd_config(own: Path, cni: Path) -> str:
    """containerd's TOML. JSON strings are valid TOML strings, so paths are quoted by ``json.dumps``."""
    q = json.dumps
    return f"""version = 3
root = {q(str(own / "containerd"))}
state = "/run/containerd/state"
# opt would make /opt/containerd on the host; nri would open a socket of its own.
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
imports = []

[grpc]
address = {q(_SOCKET)}

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = {q(PAUSE_IMAGE)}

[plugins."io.containerd.cri.v1.runtime"]
# Machines without CAP_SYS_RESOURCE cannot lower oom_score_adj.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [{q(str(cni))}]
conf_dir = {q(str(own / "cni"))}
"""


def kubelet_config(state: State, block: Block) -> dict[str, Any]:
    """KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": block.node,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki(state) / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{block.link}",
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusReportFrequency": "1m0s",
        "registerNode": True,
        "resolvConf": str(resolver(Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    }


def resolver(usual: Path, behind_stub: Path) -> Path:
    """
    The resolv.conf that pods get.

    A local stub resolver (systemd-resolved) answers on the host's loopback only, which is not the pods'; the file
    behind it names the real servers.
    """
    lines = usual.read_text().splitlines() if usual.exists() else []
    servers = [line.split()[1] for line in lines if line.startswith("nameserver ")]
    stub = bool(servers) and all(server.startswith("127.") or server == "::1" for server in servers)
    return behind_stub if stub and behind_stub.exists() else usual


def kube_proxy_config(state: State, block: Block) -> dict[str, Any]:
    """KubeProxyConfiguration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig_of(state, "kube-proxy"))},
        "clusterCIDR": block.pods,
        "hostnameOverride": state.node_name,
        "healthzBindAddress": f"{block.node}:10256",
        "metricsBindAddress": f"{block.node}:10249",
        # Zero leaves the host's limits alone; a network namespace may not change them.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def kill_pods(block: Block) -> None:
    """End every process of every pod."""
    cgroups.kill(block.link)


def remove(block: Block) -> None:
    """End what the pods ran and remove the node's traces outside its namespaces."""
    cgroups.kill(block.link)
    cgroups.remove(block.link)
    hostnet.disconnect(block)
