"""Volumes of the pod and where each container has them.

Own volumes are named `qcs-…`, which `api.rules` keeps free. The root file system is read-only, so everything writable
is here. The scripts, the state shared between the containers, scratch space, shared memory, caches, the model.
"""

from __future__ import annotations

from typing import Any

from qwen_cached_serve.api import quantity
from qwen_cached_serve.core import names
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.inpod import facts

VolumeEntry = dict[str, Any]
"""One volume in the API's shape."""
Mount = dict[str, Any]
"""One mount in the API's shape."""

CODE = "qcs-code"
STATE = "qcs-state"
CACHE = "qcs-cache"
MODEL = "qcs-model"
SHM = "qcs-shm"
ENGINE_TMP = "qcs-tmp"
SERVER_TMP = "qcs-server-tmp"

_TMP_DIR = "/tmp"  # noqa: S108 - an emptyDir of the container's own
_READABLE = 0o444


def file_key(path: str) -> str:
    """Key in the ConfigMap of a file of the pod's folder: keys hold no slash."""
    return path.replace("/", ".")


def code_volume(config_map: str, paths: tuple[str, ...]) -> VolumeEntry:
    """Mount the ConfigMap so that its files lie where the package expects them (docs/adr/0001)."""
    items = [{"key": file_key(path), "path": path} for path in paths]
    return {"name": CODE, "configMap": {"name": config_map, "defaultMode": _READABLE, "items": items}}


def pod_volumes(resolved: Resolved) -> tuple[VolumeEntry, ...]:
    """List the volumes of the pod, without the scripts'."""
    volumes: list[VolumeEntry] = [
        {"name": STATE, "emptyDir": {}},
        {"name": ENGINE_TMP, "emptyDir": {}},
        {
            "name": SHM,
            "emptyDir": {"medium": "Memory", "sizeLimit": quantity.format_bytes_up(resolved.budget.shm_bytes)},
        },
        _downloads(resolved),
    ]
    if resolved.cached:
        volumes.append({"name": SERVER_TMP, "emptyDir": {}})
    for tier, claim in resolved.l2_claims.items():
        volumes.append({"name": l2_volume(tier), "persistentVolumeClaim": {"claimName": claim}})
    model = _model(resolved)
    if model:
        volumes.append(model)
    return (*volumes, *_given(resolved))


def pod_mounts(resolved: Resolved, container: str) -> tuple[Mount, ...]:
    """List the mounts of `engine` (also the probe's) or `cache-server`."""
    mounts: list[Mount] = [
        {"name": CODE, "mountPath": facts.CODE_DIR, "readOnly": True},
        {"name": STATE, "mountPath": facts.STATE_DIR},
    ]
    if container == "engine":
        mounts += [
            {"name": ENGINE_TMP, "mountPath": _TMP_DIR},
            {"name": SHM, "mountPath": "/dev/shm"},  # noqa: S108 - the engine's own tmpfs
            {"name": CACHE, "mountPath": facts.CACHE_DIR},
        ]
        if resolved.model.source != "HuggingFace":
            mounts.append({"name": MODEL, "mountPath": facts.MODEL_DIR, "readOnly": True})
    else:
        mounts.append({"name": SERVER_TMP, "mountPath": _TMP_DIR})
        mounts += [{"name": l2_volume(tier), "mountPath": f"{facts.L2_DIR}/{tier}"} for tier in resolved.l2_claims]
        if resolved.gpu is None:
            # Without a GPU the connector hands the KV space over as a POSIX segment (facts/chain-without-gpu.md §4).
            mounts.append({"name": SHM, "mountPath": "/dev/shm"})  # noqa: S108
    given = [
        mount.model_dump(mode="json", by_alias=True, exclude_none=True) for mount in resolved.pod.volume_mounts or ()
    ]
    return (*mounts, *given)


def l2_volume(tier: str) -> str:
    """Name of a file-system tier's volume: a DNS label, like the tier's name with our prefix."""
    name = f"qcs-l2-{tier}"
    return name if len(name) <= 63 else f"qcs-l2-{names.digest(tier)[:12]}"


def _downloads(resolved: Resolved) -> VolumeEntry:
    claim, limit = resolved.model.download_claim, resolved.model.download_limit
    if claim:
        return {"name": CACHE, "persistentVolumeClaim": {"claimName": claim}}
    return {"name": CACHE, "emptyDir": {"sizeLimit": limit} if limit else {}}


def _model(resolved: Resolved) -> VolumeEntry | None:
    model = resolved.model
    if model.claim_name:
        # readOnly on the volume too: the kubelet then leaves its owners alone instead of walking 55 GB.
        return {"name": MODEL, "persistentVolumeClaim": {"claimName": model.claim_name, "readOnly": True}}
    if model.image:
        image = {"reference": model.image.reference, "pullPolicy": model.image.pull_policy or "IfNotPresent"}
        return {"name": MODEL, "image": image}
    return None


def _given(resolved: Resolved) -> list[VolumeEntry]:
    volumes = []
    for volume in resolved.pod.volumes or ():
        entry: VolumeEntry = volume.model_dump(mode="json", by_alias=True, exclude_none=True)
        if "emptyDir" in entry and "sizeLimit" in entry["emptyDir"]:
            entry["emptyDir"]["sizeLimit"] = str(entry["emptyDir"]["sizeLimit"])
        volumes.append(entry)
    return volumes
