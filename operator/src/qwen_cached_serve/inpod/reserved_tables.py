"""The reserved flags and variables: data for `reserved`, also turned into the CRD's CEL rules.

Every flag that `flags` emits is here, and those that would take away what the product rests on: another connector,
another model, another device, several engines in one pod, an API that the probes cannot reach. Names were read from
the parsers of vLLM 0.32 and LMCache 0.5.6, older and newer spellings from their release notes.
"""

from __future__ import annotations

from .reserved import FlagTable, ReservedFlag, ReservedVariable

_VLLM = "spec.engine.vllm"
_UNSUPPORTED_ENGINE = "There is no field for it; spec.unsupported.engineArgs passes it on, unvalidated."
_UNSUPPORTED_SERVER = "There is no field for it; spec.unsupported.cacheServerArgs passes it on, unvalidated."
_DROP = "Remove it."


def _use(field: str) -> str:
    return f"Use {field} instead."


def _flag(name: str, reason: str, remedy: str, *aliases: str, negatable: bool = False) -> ReservedFlag:
    return ReservedFlag(name, reason, remedy, aliases, negatable)


_CONNECTOR = "the operator writes the connector to the cache server; another one does not know hybrid models"
_STATE = "the cache needs the recurrent state of every block end, so the operator sets how it is kept"
_PARALLEL = "a pod is one engine with tensor parallelism only"
_LISTEN = "the Service, the probes and the start-up gate expect it as the operator sets it"
_SPECULATION = "it changes N, so the probe must know it"
_IPC = "GPU memory that is shared with the cache server must not come from that allocator"
_LORA = "LMCache's keys do not hold the adapter, so adapters would read each other's entries (vllm#44250)"
_TLS = "the probes, the start-up gate and the Service speak plain HTTP"

RESERVED_ENGINE_FLAGS = FlagTable(
    program="vllm serve",
    allowed=("-dc",),
    flags=(
        _flag("--model", "the model is given once", _use("spec.model.name")),
        _flag("--revision",
              "the probe resolves the revision to a commit", _use("spec.model.source.huggingFace.revision")),
        _flag("--hf-token",
              "a token would be readable in the resource", _use("spec.model.source.huggingFace.tokenSecretKeyRef")),
        _flag("--served-model-name", "the start-up gate must know the names", _use("spec.model.servedNames")),
        _flag("--max-model-len", "sizing and the start-up gate must know it", _use("spec.model.maxModelLen")),
        _flag("--language-model-only",
              "images are not validated with the cache", _use("spec.model.modalities"), negatable=True),
        _flag("--config", "a file could set any derived flag", "Write its settings as fields or extraArgs."),
        _flag("--tensor-parallel-size",
              "it changes N and the number of GPUs", _use(f"{_VLLM}.tensorParallelSize"), "-tp"),
        _flag("--pipeline-parallel-size", _PARALLEL, _DROP, "-pp"),
        _flag("--prefill-context-parallel-size", _PARALLEL, _DROP, "-pcp"),
        _flag("--decode-context-parallel-size", _PARALLEL, _DROP, "-dcp"),
        _flag("--data-parallel-size", _PARALLEL, _use("spec.replicas"), "-dp"),
        _flag("--data-parallel-rank", _PARALLEL, _use("spec.replicas"), "-dpn"),
        _flag("--data-parallel-start-rank", _PARALLEL, _use("spec.replicas"), "-dpr"),
        _flag("--data-parallel-size-local", _PARALLEL, _use("spec.replicas"), "-dpl"),
        _flag("--data-parallel-address", _PARALLEL, _use("spec.replicas"), "-dpa"),
        _flag("--data-parallel-rpc-port", _PARALLEL, _use("spec.replicas"), "-dpp"),
        _flag("--data-parallel-backend", _PARALLEL, _use("spec.replicas"), "-dpb"),
        _flag("--data-parallel-hybrid-lb", _PARALLEL, _use("spec.replicas"), "-dph", negatable=True),
        _flag("--data-parallel-external-lb", _PARALLEL, _use("spec.replicas"), "-dpe", negatable=True),
        _flag("--data-parallel-multi-port-external-lb", _PARALLEL, _use("spec.replicas"), "-dpm"),
        _flag("--nnodes", _PARALLEL, _DROP, "-n"),
        _flag("--node-rank", _PARALLEL, _DROP, "-r"),
        _flag("--device-ids", "the device plugin gives the GPUs", _use("spec.engine.accelerator.gpu.count")),
        _flag("--gpu-memory-utilization", "the cache server needs a share of the GPU too",
              _use(f"{_VLLM}.gpuMemoryUtilizationPercent"), "--device-memory-utilization"),
        _flag("--max-num-batched-tokens",
              "it is derived from N (2N-1 by default)", _use(f"{_VLLM}.maxNumBatchedTokens")),
        _flag("--max-num-scheduled-tokens",
              "a step must hold a whole block of N tokens", _use(f"{_VLLM}.maxNumBatchedTokens")),
        _flag("--max-num-seqs", "it must fit the tokens of a step", _use(f"{_VLLM}.maxNumSeqs")),
        _flag("--kv-cache-dtype", "it changes N", _use(f"{_VLLM}.kvCacheDtype")),
        _flag("--mamba-ssm-cache-dtype", "it changes N", _use(f"{_VLLM}.mambaSsmCacheDtype")),
        _flag("--block-size",
              "on hybrid models it is an alignment step that changes N", _use(f"{_VLLM}.blockSize")),
        _flag("--attention-backend", "it decides the granularity of N", _use(f"{_VLLM}.attentionBackend")),
        _flag("--attention-config", "it can choose the attention backend, which decides the granularity of N",
              _use(f"{_VLLM}.attentionBackend"), "-ac"),
        _flag("--mamba-cache-mode", _STATE, _DROP),
        _flag("--mamba-block-size", "vLLM overwrites it with N", _DROP),
        _flag("--prefix-match-unit", "hits must lie on block ends, where the state is", _DROP),
        _flag("--prefix-cache-retention-interval", _STATE, _UNSUPPORTED_ENGINE),
        _flag("--enable-prefix-caching", _STATE, "To serve without the cache set spec.cache.mode to Disabled.",
              "--disable-prefix-caching", negatable=True),
        _flag("--enable-chunked-prefill", "prefix caching of hybrid models needs chunked prefill", _DROP,
              "--disable-chunked-prefill", negatable=True),
        _flag("--disable-chunked-mm-input", "steps must be cut at block ends", _DROP, negatable=True),
        _flag("--disable-hybrid-kv-cache-manager", "hybrid models need the hybrid KV cache manager", _DROP,
              "--enable-hybrid-kv-cache-manager", negatable=True),
        _flag("--kv-transfer-config", _CONNECTOR, "Use spec.cache, or spec.cache.mode Disabled for none."),
        _flag("--kv-offloading-size", _CONNECTOR, _use("spec.cache.l1.size")),
        _flag("--kv-offloading-backend", _CONNECTOR, _use("spec.cache")),
        _flag("--speculative-config", _SPECULATION, _use(f"{_VLLM}.speculative"), "-sc"),
        _flag("--spec-method", _SPECULATION, _use(f"{_VLLM}.speculative.method")),
        _flag("--spec-model", _SPECULATION, _UNSUPPORTED_ENGINE),
        _flag("--spec-tokens", _SPECULATION, _use(f"{_VLLM}.speculative.tokens")),
        _flag("--enable-sleep-mode", _IPC, _UNSUPPORTED_ENGINE, negatable=True),
        _flag("--enable-cumem-allocator", _IPC, _UNSUPPORTED_ENGINE, negatable=True),
        _flag("--enable-lora", _LORA, _UNSUPPORTED_ENGINE, negatable=True),
        _flag("--lora-modules", _LORA, _UNSUPPORTED_ENGINE),
        _flag("--host", _LISTEN, _use("spec.service")),
        _flag("--port", _LISTEN, _use("spec.service.port")),
        _flag("--uds", _LISTEN, _DROP),
        _flag("--grpc", _LISTEN, _DROP),
        _flag("--headless", _LISTEN, _DROP),
        _flag("--ssl-keyfile", _TLS, "Terminate TLS in front of the Service."),
        _flag("--ssl-certfile", _TLS, "Terminate TLS in front of the Service."),
        _flag("--ssl-ca-certs", _TLS, "Terminate TLS in front of the Service."),
        _flag("--ssl-cert-reqs", _TLS, "Terminate TLS in front of the Service."),
        _flag("--api-key", "the key would be readable in the resource",
              "Set VLLM_API_KEY in spec.engine.env from a Secret."),
        _flag("--disable-log-stats", "the start-up gate and the status read the engine's metrics", _DROP),
        _flag("--shutdown-timeout",
              "it must fit the pod's grace period", _use("spec.pod.terminationGracePeriodSeconds")),
        _flag("--omni", "it starts another program", _UNSUPPORTED_ENGINE),
        _flag("--help", "it prints the help and ends the engine", _DROP, "-h"),
    ),
)  # fmt: skip

_LOOPBACK = "the cache server's API has no authentication, so it stays on loopback; the relay serves what may be read"
_BOTH_SIDES = "both sides must agree, so the operator sets it on both"
_SHARED = "entries from another pod could belong to another model or block size"
_BLEND = "CacheBlend does not know hybrid models"

RESERVED_CACHE_SERVER_FLAGS = FlagTable(
    program="lmcache server",
    flags=(
        _flag("--host", _LOOPBACK, _DROP),
        _flag("--port", _LOOPBACK, _DROP),
        _flag("--http-host", _LOOPBACK, _DROP),
        _flag("--http-port", _LOOPBACK, _DROP),
        _flag("--run-script-api-enabled", "it runs any code it is sent", _DROP, negatable=True),
        _flag("--chunk-size", "it is a multiple of N", _use("spec.cache.chunkBlocks")),
        _flag("--l1-size-gb", "the memory request follows from it", _use("spec.cache.l1.size")),
        _flag("--l1-manager", "the memory request follows from the size of L1", _use("spec.cache.l1")),
        _flag("--eviction-policy", "it is derived", _use("spec.cache.l1.evictionPolicy")),
        _flag("--l2-adapter", "the namespace below it must follow the engine's identity", _use("spec.cache.l2")),
        _flag("--separate-object-groups", "hybrid models need it", _DROP, negatable=True),
        _flag("--isolated-ipc", _BOTH_SIDES, _DROP, negatable=True),
        _flag("--transport", _BOTH_SIDES, _DROP),
        _flag("--supported-transfer-mode", _BOTH_SIDES, _DROP),
        _flag("--shm-name", _BOTH_SIDES, _DROP),
        _flag("--hash-algorithm", _BOTH_SIDES, _UNSUPPORTED_SERVER),
        _flag("--null-block-id", _BOTH_SIDES, _DROP),
        _flag("--engine-type", _BLEND, _DROP),
        _flag("--enable-segmented-prefix", _BLEND, _DROP),
        _flag("--enable-dedup-content", _BLEND, _DROP),
        _flag("--enable-blend-reorder", _BLEND, _DROP),
        _flag("--enable", "it loads further modules into the server", _UNSUPPORTED_SERVER),
        _flag("--server-module", "it replaces the server", _UNSUPPORTED_SERVER),
        _flag("--worker-reap-timeout-seconds",
              "it must be three heartbeats of the engine at least", _UNSUPPORTED_SERVER),
        _flag("--max-gpu-workers", "it follows the tensor-parallel size", _use(f"{_VLLM}.tensorParallelSize")),
        _flag("--p2p-advertise-url", _SHARED, _UNSUPPORTED_SERVER),
        _flag("--p2p-listen-url", _SHARED, _UNSUPPORTED_SERVER),
        _flag("--coordinator-url", _SHARED, _UNSUPPORTED_SERVER),
        _flag("--disable-metrics", "the status reads the cache server's metrics", _DROP),
        _flag("--disable-observability", "the status reads the cache server's metrics", _DROP),
        _flag("--help", "it prints the help and ends the server", _DROP, "-h"),
    ),
)  # fmt: skip

_LIBRARY = "it changes what code the programs load, in the probe's back"
_GPU_CHOICE = "the device plugin and the operator decide which GPUs a container sees"
_CACHES = "every writable cache lies where the operator mounts a volume"
_USE_DOWNLOAD = "Use spec.model.downloadVolume instead."
_HUB = "spec.model.source.huggingFace"

RESERVED_ENV: tuple[ReservedVariable, ...] = (
    ReservedVariable("LMCACHE_", "it can change the connector or the cache server behind the derived flags",
                     "Use spec.cache instead.", prefix=True,
                     allowed=("LMCACHE_LOG_LEVEL", "LMCACHE_TRACK_USAGE", "LMCACHE_USAGE_TRACK_INTERVAL")),
    ReservedVariable("QCS_", "the operator's own scripts read it", _DROP, prefix=True),
    ReservedVariable("VLLM_KV_CACHE_LAYOUT", "hybrid models need the layout that the engine chooses", _DROP),
    ReservedVariable("VLLM_PORT",
                     "it is an internal port of the engine, and a Service's name can collide with it",
                     "Use spec.service.port for the port of clients."),
    ReservedVariable("VLLM_TARGET_DEVICE",
                     "it decides the platform, and with it N", "Use spec.engine.accelerator.type instead."),
    ReservedVariable("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "the operator sets it by the flag", _UNSUPPORTED_ENGINE),
    ReservedVariable("CUDA_VISIBLE_DEVICES", _GPU_CHOICE, "Use spec.engine.accelerator.gpu instead."),
    ReservedVariable("NVIDIA_VISIBLE_DEVICES", _GPU_CHOICE, "Use spec.engine.accelerator.gpu instead."),
    ReservedVariable("HIP_VISIBLE_DEVICES", _GPU_CHOICE, "Use spec.engine.accelerator.gpu instead."),
    ReservedVariable("ROCR_VISIBLE_DEVICES", _GPU_CHOICE, "Use spec.engine.accelerator.gpu instead."),
    ReservedVariable("LD_PRELOAD", _LIBRARY, "Build it into the image."),
    ReservedVariable("PYTHONPATH", _LIBRARY, "Build it into the image."),
    ReservedVariable("PYTHONHOME", _LIBRARY, "Build it into the image."),
    ReservedVariable("PYTHONSTARTUP", _LIBRARY, "Build it into the image."),
    ReservedVariable("HF_TOKEN", "a token would be readable in the resource", f"Use {_HUB}.tokenSecretKeyRef instead."),
    ReservedVariable("HUGGING_FACE_HUB_TOKEN",
                     "a token would be readable in the resource", f"Use {_HUB}.tokenSecretKeyRef instead."),
    ReservedVariable("HF_ENDPOINT", "the probe and the engine must ask the same hub", f"Use {_HUB}.endpoint instead."),
    ReservedVariable("HF_HUB_OFFLINE", "the probe and the engine must agree on it", f"Use {_HUB}.offline instead."),
    ReservedVariable("HF_HOME", _CACHES, _USE_DOWNLOAD),
    ReservedVariable("HF_HUB_CACHE", _CACHES, _USE_DOWNLOAD),
    ReservedVariable("HOME", _CACHES, _USE_DOWNLOAD),
    ReservedVariable("VLLM_CACHE_ROOT", _CACHES, _USE_DOWNLOAD),
    ReservedVariable("PYTORCH_CUDA_ALLOC_CONF",
                     "GPU memory in expandable segments cannot be shared with the cache server",
                     "Leave expandable_segments out of it.", value_pattern="expandable_segments *: *[Tt]rue"),
    ReservedVariable("PYTORCH_ALLOC_CONF", "GPU memory in expandable segments cannot be shared with the cache server",
                     "Leave expandable_segments out of it.", value_pattern="expandable_segments *: *[Tt]rue"),
)  # fmt: skip

WARNED_ENV: dict[str, str] = {
    "VLLM_ATTENTION_BACKEND": "vLLM ignores it since 0.12; the backend that runs is the probed one. "
    "Use spec.engine.vllm.attentionBackend instead.",
}
"""Variables without effect that people still set: passed on, with a warning."""
