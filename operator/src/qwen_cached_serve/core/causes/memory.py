"""Memory that is too small or taken: GPU, KV cache, shared memory, the container's own."""

from __future__ import annotations

from .rule import FailureClass, Tier, rule

_AREA = "Memory"
_UTILIZATION = "spec.engine.vllm.gpuMemoryUtilizationPercent"
_ENGINE_MEMORY = "spec.engine.resources.limits.memory"

CLASSES = (
    FailureClass(
        "KVCacheTooSmall",
        _AREA,
        "What is left for the KV cache does not hold a single request.",
        "spec.model.maxModelLen",
        "Set it to what fits, raise gpuMemoryUtilizationPercent, or use more GPUs. Fewer sequences do not help.",
    ),
    FailureClass(
        "GPUMemoryBusy",
        _AREA,
        "Something else holds the GPU's memory.",
        _UTILIZATION,
        "After a crash the cache server may keep the former engine's memory for minutes, so wait or delete the pod. "
        "Lower the field only if another program shares the GPU for good.",
        heals=True,
    ),
    FailureClass(
        "GPUMemoryExhausted",
        _AREA,
        "The GPU ran out of memory.",
        _UTILIZATION,
        "Lower it, or spec.engine.vllm.maxNumSeqs, or use more GPUs.",
    ),
    FailureClass(
        "SharedMemoryTooSmall",
        _AREA,
        "The pod's /dev/shm is full.",
        _ENGINE_MEMORY,
        "Raise it; /dev/shm is sized from it and counts against it. No disk is full.",
    ),
    FailureClass(
        "HostMemoryExhausted",
        _AREA,
        "A program was refused memory by the system.",
        _ENGINE_MEMORY,
        "Raise it; for the cache server raise spec.cache.resources.limits.memory or lower spec.cache.l1.size.",
    ),
    FailureClass(
        "EngineProcessKilled",
        _AREA,
        "A process of the engine was killed (SIGKILL) while the container lived on; the kernel does so when a "
        "container reaches its memory limit.",
        _ENGINE_MEMORY,
        "Raise it.",
    ),
    FailureClass(
        "StaleSharedMemory",
        _AREA,
        "A shared-memory segment of a former engine is in the way.",
        "",
        "Delete the pod.",
        heals=True,
    ),
    FailureClass(
        "VolumeFull",
        _AREA,
        "A disk is full.",
        "spec.model.downloadVolume",
        "Give the volume more room, or use a claim that holds the model, its download and the compile cache.",
    ),
)

RULES = (
    rule(
        "KVCacheTooSmall",
        r"To serve at least one request with the models?(?:'s|s's)? max seq len \((?P<maxModelLen>\d+)\), "
        r"\(?(?P<neededGiB>[\d.]+) GiB KV cache is needed, which is larger than the available KV cache "
        r"memory \((?P<availableGiB>[\d.]+) GiB\)\. Based on the available memory, the estimated maximum model "
        r"length is (?P<fittingModelLen>\d+)",
        "The KV cache cannot hold one request of {maxModelLen} tokens ({neededGiB} GiB needed, {availableGiB} GiB "
        "there); the engine estimates that {fittingModelLen} would fit.",
        remedy="Set it to {fittingModelLen} or less, raise gpuMemoryUtilizationPercent, or use more GPUs. Fewer "
        "sequences do not help.",
    ),
    rule(
        "KVCacheTooSmall",
        r"To serve at least one request with the models?(?:'s|s's)? max seq len \((?P<maxModelLen>\d+)\)",
        "The KV cache cannot hold one request of {maxModelLen} tokens.",
    ),
    rule(
        "KVCacheTooSmall",
        r"No available memory for the cache blocks",
        "Weights and activations leave no memory for the KV cache.",
        remedy="Raise it, use more GPUs, or a smaller model.",
        field=_UTILIZATION,
    ),
    rule(
        "GPUMemoryBusy",
        r"Free memory on device[^\n]{0,40}\((?P<freeGiB>[\d.]+)/(?P<totalGiB>[\d.]+) GiB\) on startup is less than "
        r"(?:desired GPU memory utilization|the engine's budget)",
        "Only {freeGiB} of {totalGiB} GiB of GPU memory are free: something else holds the rest.",
    ),
    rule(
        "GPUMemoryBusy",
        r"Externally held weights on device[^\n]{0,40}\((?P<heldGiB>[\d.]+)/(?P<totalGiB>[\d.]+) GiB\) exceed",
        "Another process holds {heldGiB} of {totalGiB} GiB of GPU memory.",
    ),
    rule(
        "GPUMemoryExhausted",
        r"CUDA out of memory occurred when warming up sampler with (?P<maxNumSeqs>\d+) dummy requests",
        "The GPU ran out of memory when the engine tried {maxNumSeqs} sequences at once.",
        remedy="Set it below {maxNumSeqs}, or lower gpuMemoryUtilizationPercent.",
        field="spec.engine.vllm.maxNumSeqs",
    ),
    rule(
        "GPUMemoryExhausted",
        r"CUDA out of memory\. Tried to allocate (?:(?P<wantedGiB>[\d.]+) GiB|(?P<wantedMiB>[\d.]+) MiB)"
        r"(?:[^\n]{0,120}?total capacity of (?P<totalGiB>[\d.]+) GiB of which "
        r"(?:(?P<freeGiB>[\d.]+) GiB|(?P<freeMiB>[\d.]+) MiB) is free)?",
    ),
    rule(
        "GPUMemoryExhausted",
        r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation|"
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY)",
    ),
    rule(
        "SharedMemoryTooSmall",
        r"(?:Error while creating shared memory segment /dev/shm/\S+(?: \(size (?P<wantedBytes>\d+)\))?|"
        r"No space left on device \(28\)|/dev/shm[^\n]{0,160}No space left|No space left on device[^\n]{0,40}/dev/shm|"
        r"insufficient shared memory \(shm\))",
    ),
    rule(
        "VolumeFull",
        r"(?:No space left on device: '(?P<path>[^'\n]{1,200})'|\[Errno 28\] No space left on device|"
        r"No space left on device \(os error 28\)|\[Errno 122\] Disk quota exceeded)",
    ),
    rule(
        "HostMemoryExhausted",
        r"(?:Cannot allocate memory|^MemoryError\b|_ArrayMemoryError: Unable to allocate|"
        r"DefaultCPUAllocator: can't allocate memory|cudaHostRegister[^\n]{0,40}fail|std::bad_alloc)",
    ),
    rule(
        "HostMemoryExhausted",
        r"Insufficient hugepages: (?P<freePages>\d+) free, (?P<neededPages>\d+) required",
        "The node has {freePages} free huge pages of 2 MiB, the cache server wants {neededPages}.",
        remedy="Remove --l1-use-hugepages, or make more huge pages on the node.",
        field="spec.cache.extraArgs",
    ),
    rule(
        "EngineProcessKilled",
        r"(?:Failed core proc\(s\): \{[^}\n]*: -9\b|Worker proc \S+ died unexpectedly \(exit code: -9\))",
        tier=Tier.SYMPTOM,
    ),
    rule(
        "StaleSharedMemory",
        r"FileExistsError: \[Errno 17\] File exists: '/(?P<segment>lmcache_kv_[^'\s]+)",
        "The shared-memory segment {segment} of a former engine is in the way.",
    ),
)
