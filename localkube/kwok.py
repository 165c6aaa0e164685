"""Simulated nodes: KWOK's command line and the Node objects it manages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from localkube import paths
from localkube.controlplane import LOOPBACK, kubeconfig_of
from localkube.errors import LocalKubeError
from localkube.state import State

MANAGED = "kwok.x-k8s.io/node"
TAINT = {"key": MANAGED, "value": "fake", "effect": "NoSchedule"}
# RFC 2544's benchmarking range: no route leads there, so a simulated pod is never mistaken for a real one.
_NODE_ADDRESS = "198.18.0.1"
_POD_ADDRESSES = "198.19.0.0/16"


def argv(state: State, binary: Path) -> list[str]:
    """Command line of kwok: built-in stages first, then the user's."""
    stages = [*sorted(paths.STAGES.glob("*.yaml")), *map(Path, state.options.stages)]
    return [
        str(binary),
        f"--kubeconfig={kubeconfig_of(state, 'kwok')}",
        *(f"--config={stage}" for stage in stages),
        f"--manage-nodes-with-annotation-selector={MANAGED}=fake",
        f"--node-ip={_NODE_ADDRESS}",
        f"--cidr={_POD_ADDRESSES}",
        "--node-lease-duration-seconds=40",
        f"--server-address={LOOPBACK}:{state.ports['kwok']}",
    ]


def check_stages(files: tuple[str, ...]) -> None:
    """Refuse stage files that are missing or hold no Stage: kwok itself would ignore what it does not know."""
    for name in files:
        try:
            documents = [d for d in yaml.safe_load_all(Path(name).read_text()) if d]
        except FileNotFoundError:
            raise LocalKubeError(f"--kwok-stages {name} does not exist.", "Correct the path.") from None
        except yaml.YAMLError as wrong:
            raise LocalKubeError(f"--kwok-stages {name} is not YAML: {wrong}", "Correct the file.") from wrong
        kinds = {d.get("kind") if isinstance(d, dict) else type(d).__name__ for d in documents}
        if kinds != {"Stage"}:
            found = ", ".join(sorted(map(str, kinds))) or "nothing"
            raise LocalKubeError(
                f"--kwok-stages {name} holds {found}.", "It must hold Stage objects of kwok.x-k8s.io/v1alpha1 only."
            )


def node_object(
    name: str,
    gpus: int,
    tainted: bool,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Node that kwok manages. ``annotations`` may name other capacities (stages/node.yaml)."""
    product = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "Simulated-GPU"} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {MANAGED: "fake", "localkube/gpus": str(gpus), **(annotations or {})},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
                **product,
                **(labels or {}),
            },
        },
        "spec": {"taints": [TAINT] if tainted else []},
    }
