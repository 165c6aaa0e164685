"""Environment variables of the pod's containers: the operator's own, then the user's over them by name.

Kubernetes expands `$(NAME)` in a variable's value and in arguments. What the operator writes from a user's string is
escaped (`$$(NAME)`), so that it arrives as it was written (B20); in `spec.engine.env` the expansion is Kubernetes' own
and wanted. Values with quotes or spaces need nothing: no shell reads them.
"""

from __future__ import annotations

from typing import Any

from qwen_cached_serve.api.v1alpha1.environment import EnvVar, SecretKeySelector
from qwen_cached_serve.core.budget import CPU_KV_SPACE_VARIABLE
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.core.variables import NODE_NAME
from qwen_cached_serve.inpod.environment import quiet
from qwen_cached_serve.inpod.facts import CACHE_DIR

EnvEntry = dict[str, Any]
"""One variable in the API's shape: name and value, or name and valueFrom."""

# Everything an engine writes goes below one writable folder: the root file system is read-only, and a claim there keeps
# compiled kernels over restarts.
_WRITABLE = {
    "HOME": CACHE_DIR,
    "XDG_CACHE_HOME": CACHE_DIR,
    "XDG_CONFIG_HOME": f"{CACHE_DIR}/config",
    "HF_HOME": f"{CACHE_DIR}/huggingface",
    "VLLM_CACHE_ROOT": f"{CACHE_DIR}/vllm",
    "VLLM_CONFIG_ROOT": f"{CACHE_DIR}/vllm-config",
    "TRITON_CACHE_DIR": f"{CACHE_DIR}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_DIR}/inductor",
    "CUDA_CACHE_PATH": f"{CACHE_DIR}/cuda",
    "FLASHINFER_WORKSPACE_BASE": CACHE_DIR,
    "NUMBA_CACHE_DIR": f"{CACHE_DIR}/numba",
    # A uid without an entry in the image's passwd has no user name, and torch asks for one.
    "USER": "vllm",
}
_SCRATCH = "/tmp"  # noqa: S108 - an emptyDir of the container's own


def escape(text: str) -> str:
    """Keep Kubernetes from expanding `$(NAME)` in a string that is meant literally."""
    return text.replace("$(", "$$(")


def engine_environment(resolved: Resolved) -> list[EnvEntry]:
    """Variables of probe and engine: one list, so that the probe sees what the engine will see (B02, B21)."""
    values = dict(_WRITABLE) | _no_usage_reports(resolved.engine_env)
    values["HF_HUB_DISABLE_TELEMETRY"] = "1"
    values["VLLM_ENGINE_READY_TIMEOUT_S"] = str(resolved.timing.startup)
    if resolved.model.offline:
        values |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if resolved.model.endpoint:
        values["HF_ENDPOINT"] = escape(resolved.model.endpoint)
    if resolved.budget.cpu_kv_space_gib is not None:
        values[CPU_KV_SPACE_VARIABLE] = str(resolved.budget.cpu_kv_space_gib)
    entries = [*_entries(values), _node_name()]
    if resolved.model.token:
        entries.append(_from_secret("HF_TOKEN", resolved.model.token))
    return _overlay(entries, [_plain(variable) for variable in resolved.engine_env])


def cache_server_environment(resolved: Resolved) -> list[EnvEntry]:
    """Variables of the cache server: no model token, sight of every GPU of the node (it finds its own by UUID)."""
    values = {"HOME": _SCRATCH, "XDG_CACHE_HOME": f"{_SCRATCH}/cache", "USER": "vllm"}
    values |= _no_usage_reports(resolved.cache_env)
    if resolved.gpu and resolved.gpu.nvidia:
        # The nvidia runtime class reads these; the container itself requests no GPU (facts/lmcache.md §4.3).
        values |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    secrets = [_from_secret(name, selector) for name, selector in sorted(resolved.l2_secrets.items())]
    return _overlay([*_entries(values), _node_name(), *secrets], [_plain(variable) for variable in resolved.cache_env])


def _no_usage_reports(given: tuple[EnvVar, ...]) -> dict[str, str]:
    named = {variable.name: "" for variable in given}
    return {name: value for name, value in quiet(named).items() if name not in named}


def _entries(values: dict[str, str]) -> list[EnvEntry]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]


def _node_name() -> EnvEntry:
    return {"name": NODE_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def _from_secret(name: str, selector: SecretKeySelector) -> EnvEntry:
    return {"name": name, "valueFrom": {"secretKeyRef": selector.model_dump(by_alias=True, exclude_none=True)}}


def _plain(variable: EnvVar) -> EnvEntry:
    entry: EnvEntry = variable.model_dump(mode="json", by_alias=True, exclude_none=True)
    # An absent value and an empty one are the same to Kubernetes; the field has to be there for server-side apply.
    return entry if len(entry) > 1 else entry | {"value": ""}


def _overlay(own: list[EnvEntry], users: list[EnvEntry]) -> list[EnvEntry]:
    named = {entry["name"] for entry in users}
    return [entry for entry in own if entry["name"] not in named] + users
