"""`spec.engine`: the serving engine, its accelerator and what is passed to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import (
    BY_NAME,
    KEEPS_PODS,
    ApiModel,
    Default,
    ImageReference,
    ObjectName,
    PullPolicy,
    Toggle,
)
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.environment import EnvVars, ExtraArgs, ResourceRequirements

Alias = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_]+$")]


class GpuSpec(ApiModel):
    """The GPUs of one pod."""

    count: Annotated[int | None, Field(ge=1, le=64), Default(defaults.GPU_COUNT)] = None
    """GPUs that each pod requests."""
    resource_name: Annotated[str | None, Field(min_length=3, max_length=317), Default(defaults.GPU_RESOURCE_NAME)] = (
        None
    )
    """Extended resource to request, for example nvidia.com/gpu, nvidia.com/mig-3g.40gb or amd.com/gpu."""
    cache_access: Annotated[Literal["RuntimeClass", "CDI", "DRA"] | None, Default(defaults.CACHE_ACCESS)] = None
    """How the cache server sees the engine's GPU without requesting one of its own. CDI and DRA are not implemented
    yet."""
    runtime_class_name: Annotated[ObjectName | None, Default(defaults.RUNTIME_CLASS_NAME)] = None
    """RuntimeClass whose runtime gives containers sight of the GPUs."""


class AcceleratorSpec(ApiModel):
    """What the engine computes on: `type` and the block of that name."""

    type: Annotated[Literal["GPU", "CPU"] | None, Default(defaults.ACCELERATOR)] = None
    """GPU, or CPU for evaluation, laptops and CI: vLLM's CPU build, the same chain, no GPU request."""
    gpu: GpuSpec | None = None
    """The GPUs of type GPU; may be left out for one nvidia.com/gpu."""


class TokensPerStepSpec(ApiModel):
    """How --max-num-batched-tokens follows from the block size N."""

    policy: Annotated[
        Literal["TwoBlocksMinusOne", "OneBlock", "Fixed"] | None, Default(defaults.TOKENS_PER_STEP_POLICY)
    ] = None
    """TwoBlocksMinusOne is 2N-1, the largest step that still saves every block; OneBlock is N; Fixed takes `value`."""
    value: Annotated[int | None, Field(ge=1, le=1048576)] = None
    """Tokens per step, with policy Fixed only. The pod refuses to start below N, and with LMCache before 0.5.4 from 2N
    on; with a newer one a step of 2N or more keeps only the state of its last block."""


class SpeculativeSpec(ApiModel):
    """Speculative decoding; it widens the recurrent state and so changes N."""

    method: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9_]+$")]
    """The engine's name of the method, for example mtp."""
    tokens: Annotated[int, Field(ge=1, le=64)]
    """Tokens drafted per step."""


class VllmSpec(ApiModel):
    """Options of vLLM that shape the cache; an absent one is left to the engine."""

    tensor_parallel_size: Annotated[int | None, Field(ge=1, le=64)] = None
    """GPUs that one copy of the model is split over. Absent means accelerator.gpu.count, or 1 on CPU."""
    gpu_memory_utilization_percent: Annotated[
        int | None, Field(ge=1, le=100), Default(defaults.GPU_MEMORY_UTILIZATION_PERCENT)
    ] = None
    """Share of each GPU's memory that the engine takes."""
    max_num_batched_tokens: TokensPerStepSpec | None = None
    """Tokens per scheduler step; absent means 2N-1."""
    max_num_seqs: Annotated[int | None, Field(ge=1, le=65536)] = None
    """Requests that the engine runs at the same time. A hybrid model needs one state slot for each."""
    kv_cache_dtype: Alias | None = None
    """Data type of the attention cache, for example fp8_e4m3. It changes N and makes older cache entries unreadable."""
    mamba_ssm_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = None
    """Data type of the recurrent state. It changes N."""
    attention_backend: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Z0-9_]+$")] | None = None
    """The engine's name of the attention backend, for example FLASH_ATTN. It changes the kernel block size and can
    change N."""
    block_size: Annotated[int | None, Field(ge=1, le=65536)] = None
    """Alignment step of the block size, not the block size itself: on a hybrid model N becomes a multiple of it,
    often a larger one than expected. Leave it unset unless you know why."""
    speculative: SpeculativeSpec | None = None
    """Speculative decoding; absent means off."""


class EngineSpec(ApiModel):
    """The serving engine: `type` and the block of that name."""

    type: Annotated[Literal["vLLM", "SGLang"] | None, Default(defaults.ENGINE_TYPE)] = None
    """Only vLLM works so far."""
    image: ImageReference | None = None
    """Image with vLLM and LMCache; probe, engine and cache server all run from it. Absent or empty means the image
    that the operator is configured with, shown in status.resolved.image."""
    image_pull_policy: Annotated[PullPolicy | None, Default(defaults.IMAGE_PULL_POLICY)] = None
    """When the node pulls the image."""
    accelerator: AcceleratorSpec | None = None
    """What the engine computes on; absent means one GPU."""
    resources: ResourceRequirements | None = None
    """CPU and memory of the engine's container, also given to the probe. GPUs are set by accelerator.gpu, not here."""
    startup_timeout_seconds: Annotated[
        int | None, Field(ge=60, le=86400), Default(defaults.STARTUP_TIMEOUT_SECONDS)
    ] = None
    """Time from the start of the engine's container to passing the start-up gate: download, load, compile, warm up."""
    env: Annotated[EnvVars, BY_NAME] = None
    """Further environment variables of the engine and the probe."""
    extra_args: ExtraArgs = None
    """Further arguments of the engine, one list item each. A flag that the operator derives or that has a field of
    its own is refused in every spelling."""
    vllm: VllmSpec | None = None
    """Options of type vLLM."""
    block_size_policy: Annotated[Literal["Native", "Portable"] | None, Default(defaults.BLOCK_SIZE_POLICY)] = None
    """Native takes the engine's own N. Portable, the same N on every GPU and version, is not implemented yet."""
    auto_tune: Annotated[Toggle | None, Default(defaults.AUTO_TUNE), KEEPS_PODS] = None
    """Enabled: when the engine does not start because it has fewer state blocks than sequences to run, and maxNumSeqs
    is unset, the operator lowers it to the number that the engine names, at most three times for one spec; see
    status.tuning. Disabled only explains; what was adjusted before stays until the pods' part of the spec changes."""
