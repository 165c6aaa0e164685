"""CPU, memory and shared memory of the pod's containers.

Every container states requests and limits (B49: a namespace with a compute quota admits no pod otherwise). Figures that
a resource gives win; the rest comes from here:

- cache server: L1 plus a fixed overhead, request = limit. LMCache's `--l1-size-gb` counts GiB (its /status reports
  2**30 bytes for `--l1-size-gb 1`), so L1 in the flag and in the container's memory are the same number.
- engine on a GPU: weights pass through the page cache, which the kernel takes back; what stays is the process, pinned
  staging buffers and compiler runs. Estimated, not measured: a figure of the resource is better.
- engine on a CPU: weights, the KV space and shared memory are all main memory. The connector moves the KV space into
  /dev/shm (segment `lmcache_kv_*`), so /dev/shm is as large as that plus room for the engine's own segments, and the
  memory limit holds the KV space twice because both exist for a moment.
- probe: the same as the engine. Kubernetes counts the larger of init and main containers, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.v1alpha1.defaults import CACHE_SERVER_OVERHEAD_BYTES

GIB = 1024**3
MIB = 1024**2

CPU_KV_SPACE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
"""vLLM's CPU build reads its KV cache size from here, in whole GiB (a fraction ends it)."""
DEFAULT_CPU_KV_SPACE_GIB = 4
"""Enough for a few requests of a small model on a laptop; the engine's own default follows the node's memory and not
the container's limit."""

_ENGINE_SEGMENTS_BYTES = GIB
"""The engine's own shared memory: 252 MB per life and worker was seen (facts/local-cluster.md §6)."""
_CPU_PROCESS_BYTES = 2 * GIB
_CPU_SPIKE_BYTES = 2 * GIB
"""Beyond the request: loading, warm-up."""
_GPU_BASE_BYTES = 4 * GIB
_GPU_PER_RANK_BYTES = 8 * GIB


class BudgetError(ValueError):
    """A figure of the resource that cannot work; `field` names it, the text has the figure that does."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """Requests and limits of one container as Kubernetes takes them, GPUs not included."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Budget:
    """Resources of the pod's containers; sizes in bytes."""

    engine: ContainerResources
    """Also the probe's."""
    cache_server: ContainerResources | None
    """None while the cache is disabled."""
    shm_bytes: int
    """Limit of the memory emptyDir at /dev/shm; it counts against the engine's memory."""
    cache_server_memory_bytes: int = 0
    cpu_kv_space_gib: int | None = None
    """Value for VLLM_CPU_KVCACHE_SPACE when the resource sets none; None on GPUs."""

    @property
    def pod_memory_bytes(self) -> int:
        """Memory that the scheduler reserves for the pod."""
        engine = quantity.to_bytes(self.engine.requests["memory"])
        return engine + (quantity.to_bytes(self.cache_server.requests["memory"]) if self.cache_server else 0)


@dataclass(frozen=True, slots=True)
class BudgetInputs:
    """What the budget is computed from."""

    accelerator: str
    ranks: int
    """Tensor-parallel ranks, each a process."""
    l1_bytes: int | None
    """None while the cache is disabled."""
    engine_requests: Mapping[str, int | str]
    engine_limits: Mapping[str, int | str]
    cache_requests: Mapping[str, int | str]
    cache_limits: Mapping[str, int | str]
    cpu_kv_space: str | None = None
    """Literal value of VLLM_CPU_KVCACHE_SPACE in the resource."""
    weights_bytes: int = 0
    """Size of the weights where it is known; only a CPU engine keeps them in main memory."""


def budget(inputs: BudgetInputs) -> Budget:
    """Compute the resources of all containers.

    Raises:
        BudgetError: a limit below what the container certainly needs, or a senseless KV space.

    """
    kv_gib = _cpu_kv_space(inputs)
    shm = _shm_bytes(inputs, kv_gib)
    return Budget(
        engine=_engine(inputs, kv_gib, shm),
        cache_server=None if inputs.l1_bytes is None else _cache_server(inputs, inputs.l1_bytes),
        shm_bytes=shm,
        cache_server_memory_bytes=0 if inputs.l1_bytes is None else inputs.l1_bytes + CACHE_SERVER_OVERHEAD_BYTES,
        cpu_kv_space_gib=kv_gib,
    )


def _cpu_kv_space(inputs: BudgetInputs) -> int | None:
    if inputs.accelerator != "CPU":
        return None
    if inputs.cpu_kv_space is None:
        return DEFAULT_CPU_KV_SPACE_GIB
    if not inputs.cpu_kv_space.isdecimal() or int(inputs.cpu_kv_space) < 1:
        raise BudgetError(
            f"spec.engine.env[{CPU_KV_SPACE_VARIABLE}]",
            f"must be whole GiB, 1 or more, got {inputs.cpu_kv_space!r}; the engine refuses anything else",
        )
    return int(inputs.cpu_kv_space)


def _shm_bytes(inputs: BudgetInputs, kv_gib: int | None) -> int:
    if kv_gib is None:
        # NCCL and the workers' message queues; grows with the ranks that talk to each other.
        return max(2, inputs.ranks) * GIB
    return inputs.ranks * (kv_gib * GIB + _ENGINE_SEGMENTS_BYTES)


def _engine(inputs: BudgetInputs, kv_gib: int | None, shm: int) -> ContainerResources:
    if kv_gib is None:
        request = _GPU_BASE_BYTES + inputs.ranks * _GPU_PER_RANK_BYTES + shm
        cpu_request, cpu_limit = 2 * inputs.ranks, 8 * inputs.ranks
    else:
        request = _CPU_PROCESS_BYTES * inputs.ranks + inputs.weights_bytes + shm
        cpu_request, cpu_limit = 1, 16
    limit = 2 * request if kv_gib is None else request + inputs.ranks * (kv_gib * GIB + _CPU_SPIKE_BYTES)
    return _merged(
        {"cpu": str(cpu_request), "memory": quantity.format_bytes_up(request)},
        {"cpu": str(cpu_limit), "memory": quantity.format_bytes_up(limit)},
        inputs.engine_requests,
        inputs.engine_limits,
    )


def _cache_server(inputs: BudgetInputs, l1: int) -> ContainerResources:
    needed = l1 + CACHE_SERVER_OVERHEAD_BYTES
    for kind, given in (("limits", inputs.cache_limits), ("requests", inputs.cache_requests)):
        if kind == "limits" and "memory" in given and quantity.to_bytes(given["memory"]) < needed:
            raise BudgetError(
                "spec.cache.resources.limits.memory",
                f"{given['memory']} is less than cache.l1.size {quantity.format_bytes(l1)} plus "
                f"{quantity.format_bytes(CACHE_SERVER_OVERHEAD_BYTES)} for the server itself; it would be killed when "
                f"the cache fills. Use at least {quantity.format_bytes_up(needed)}, or leave it out",
            )
    memory = quantity.format_bytes_up(needed)
    cpu = ("1", "8") if inputs.accelerator == "GPU" else ("250m", "4")
    return _merged(
        {"cpu": cpu[0], "memory": memory}, {"cpu": cpu[1], "memory": memory}, inputs.cache_requests, inputs.cache_limits
    )


def _merged(
    requests: dict[str, str],
    limits: dict[str, str],
    given_requests: Mapping[str, int | str],
    given_limits: Mapping[str, int | str],
) -> ContainerResources:
    """Put what the resource gives over the defaults and keep request <= limit for what it does not give."""
    wanted = requests | {key: str(value) for key, value in given_requests.items()}
    capped = limits | {key: str(value) for key, value in given_limits.items()}
    for key in set(wanted) & set(capped):
        if quantity.parse(wanted[key]) <= quantity.parse(capped[key]):
            continue
        if key not in given_requests:
            wanted[key] = capped[key]
        elif key not in given_limits:
            capped[key] = wanted[key]
    return ContainerResources(dict(sorted(wanted.items())), dict(sorted(capped.items())))
