"""Command lines of etcd, kube-apiserver, kube-controller-manager and kube-scheduler: pure functions of the state."""

from __future__ import annotations

import secrets
from pathlib import Path

from localkube import kubeconfig
from localkube.state import State

LOOPBACK = "127.0.0.1"
LOOPBACK_PORTS = ("etcd", "etcd-peer", "kube-controller-manager", "kube-scheduler", "kwok")
CONTROL_PLANE_SERVICES = "10.96.0.0/16"
"""ClusterIPs of a cluster without a real node: nothing routes them, so clusters may share the range."""

USERS = {
    "admin": ("localkube-admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kwok": ("localkube-kwok", "system:masters"),
    "kubelet": ("system:node:{node}", "system:nodes"),
    "kube-proxy": ("system:kube-proxy", ""),
}
"""Component: (user, group); the roles bound to these names are Kubernetes' own defaults."""


def new_tokens() -> dict[str, str]:
    """A fresh token per component."""
    return {name: secrets.token_hex(24) for name in USERS}


def write_identities(state: State) -> None:
    """Write the API server's token file and a kubeconfig per component (``admin`` is the user's own)."""
    rows = []
    for name, (user, group) in USERS.items():
        user = user.format(node=state.node_name)
        rows.append(f'{state.tokens[name]},{user},{name},"{group}"' if group else f"{state.tokens[name]},{user},{name}")
        kubeconfig.write(
            kubeconfig_of(state, name),
            state.options.name,
            server(state),
            pki(state) / "ca.crt",
            name,
            state.tokens[name],
        )
    tokens = pki(state) / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text("\n".join(rows) + "\n")


def kubeconfig_of(state: State, component: str) -> Path:
    """Path of a component's kubeconfig; the user's is called ``kubeconfig``."""
    return state.folder / ("kubeconfig" if component == "admin" else f"kubeconfig-{component}")


def server(state: State) -> str:
    """URL of the API server."""
    return f"https://{state.address}:{state.ports['kube-apiserver']}"


def pki(state: State) -> Path:
    """Folder of keys and certificates."""
    return state.folder / "pki"


def etcd(state: State, binary: Path) -> list[str]:
    """Etcd on loopback; clients need a certificate. No fsync: a cluster here need not survive a power cut."""
    keys = pki(state)
    client = f"https://{LOOPBACK}:{state.ports['etcd']}"
    peer = f"http://{LOOPBACK}:{state.ports['etcd-peer']}"
    return [
        str(binary),
        "--name=localkube",
        f"--data-dir={state.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=localkube={peer}",
        f"--cert-file={keys / 'etcd.crt'}",
        f"--key-file={keys / 'etcd.key'}",
        f"--trusted-ca-file={keys / 'ca.crt'}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--auto-compaction-mode=revision",
        "--auto-compaction-retention=20000",
        "--log-level=warn",
    ]


def apiserver(state: State, binary: Path, services: str, advertised: str | None) -> list[str]:
    """
    The API server. ``advertised``: address of the ``kubernetes`` Service's endpoint; loopback is not allowed there.

    Without one the Service stays without endpoints, which matters to pods on a real node only.
    """
    keys = pki(state)
    return [
        str(binary),
        f"--bind-address={state.address}",
        f"--secure-port={state.ports['kube-apiserver']}",
        *([f"--advertise-address={advertised}"] if advertised else []),
        f"--endpoint-reconciler-type={'lease' if advertised else 'none'}",
        f"--etcd-servers=https://{LOOPBACK}:{state.ports['etcd']}",
        f"--etcd-cafile={keys / 'ca.crt'}",
        f"--etcd-certfile={keys / 'etcd.crt'}",
        f"--etcd-keyfile={keys / 'etcd.key'}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--token-auth-file={keys / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={keys / 'service-account.pub'}",
        f"--service-account-signing-key-file={keys / 'service-account.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={services}",
        "--allow-privileged",
        "--profiling=false",
    ]


def controller_manager(state: State, binary: Path) -> list[str]:
    """kube-controller-manager on loopback, without leader election (there is one)."""
    keys = pki(state)
    own = kubeconfig_of(state, "kube-controller-manager")
    return [
        str(binary),
        *_served_on_loopback(state, "kube-controller-manager", own),
        f"--service-account-private-key-file={keys / 'service-account.key'}",
        f"--root-ca-file={keys / 'ca.crt'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
        "--use-service-account-credentials",
    ]


def scheduler(state: State, binary: Path) -> list[str]:
    """kube-scheduler on loopback, without leader election."""
    return [str(binary), *_served_on_loopback(state, "kube-scheduler", kubeconfig_of(state, "kube-scheduler"))]


def _served_on_loopback(state: State, component: str, own: Path) -> list[str]:
    return [
        f"--kubeconfig={own}",
        f"--authentication-kubeconfig={own}",
        f"--authorization-kubeconfig={own}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={state.ports[component]}",
        "--leader-elect=false",
        "--profiling=false",
        # The defaults (20 requests a second for the controller manager) make its start last 4 s longer: it creates a
        # service account and a token per controller.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]
