"""From a pod's settings to what the prediction of N takes: fields, and the user's own arguments that change N.

Arguments win over fields, as they do in the engine, which gets them last. What changes N in a way that is not modelled
is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from qwen_cached_serve.core.accelerators import Capability
from qwen_cached_serve.core.blocksize import EngineShape, PredictionError
from qwen_cached_serve.inpod.arguments import canonical
from qwen_cached_serve.inpod.facts import Gpu, ServeSettings
from qwen_cached_serve.inpod.neutral import ENGINE, load_neutral
from qwen_cached_serve.inpod.profiles import load_profiles

N = TypeVar("N", int, int | None)

_ARGUMENTS = "engine.extraArgs and unsupported.engineArgs"

_UNMODELLED = {
    "--additional-config": "it can choose the kernels of the linear layers",
    "--attention-config": "it can choose the attention backend and its version",
    "--config": "a file can set anything",
    "--decode-context-parallel-size": "it changes which kernels are used",
    "--enable-prefix-caching": "it decides how recurrent state is kept",
    "--disable-hybrid-kv-cache-manager": "hybrid models need it",
    "--hf-config-path": "it replaces the model's dimensions",
    "--hf-overrides": "it changes the model's dimensions",
    "--kv-cache-dtype-skip-layers": "layers with different KV dtypes then share one pool",
    "--mamba-block-size": "it is a setting of the recurrent state",
    "--mamba-cache-mode": "it decides how recurrent state is kept",
    "--model": "it replaces the model",
    "--pipeline-parallel-size": "layers of different ranks then form their own groups",
    "--prefill-context-parallel-size": "it changes which kernels are used",
    "--spec-method": "drafting widens the recurrent state",
    "--spec-model": "drafting widens the recurrent state",
    "--spec-tokens": "drafting widens the recurrent state",
    "--speculative-config": "drafting widens the recurrent state",
}


@dataclass(frozen=True, slots=True)
class Environment:
    """What a plan assumes about where the pod will run; None = not known, the advised release or Hopper is taken."""

    vllm_version: str | None = None
    lmcache_version: str | None = None
    capability: Capability | None = None
    cuda_major: int | None = None
    gpu: Gpu | None = None
    """The GPU as far as the engine's own defaults depend on it."""


def engine_shape(settings: ServeSettings, environment: Environment) -> EngineShape:
    """Collect what N depends on besides the checkpoint.

    Raises:
        PredictionError: an argument whose effect on N is not modelled.

    """
    engine = settings.engine
    version = environment.vllm_version or load_profiles().advised_vllm
    given = canonical((*engine.extra_args, *engine.unsupported_args), load_neutral().programs[ENGINE], version)
    for name, why in _UNMODELLED.items():
        if name in given:
            raise PredictionError(_ARGUMENTS, f"{name} is not modelled here ({why}); the probe will tell N")
    return EngineShape(
        accelerator=engine.accelerator,
        capability=environment.capability,
        tensor_parallel_size=_number(given, "--tensor-parallel-size", engine.tensor_parallel_size),
        model_dtype=given.get("--dtype"),
        kv_cache_dtype=given.get("--kv-cache-dtype", engine.kv_cache_dtype),
        mamba_ssm_cache_dtype=given.get("--mamba-ssm-cache-dtype", engine.mamba_ssm_cache_dtype),
        mamba_cache_dtype=given.get("--mamba-cache-dtype"),
        speculative_method=engine.speculative_method,
        speculative_tokens=engine.speculative_tokens or 0,
        attention_backend=given.get("--attention-backend", engine.attention_backend),
        gdn_prefill_backend=given.get("--gdn-prefill-backend"),
        block_size=_number(given, "--block-size", engine.block_size),
        vllm_version=environment.vllm_version,
        cuda_major=environment.cuda_major,
    )


def _number(given: dict[str, str], name: str, default: N) -> N | int:
    if name not in given:
        return default
    try:
        return int(given[name])
    except ValueError:
        raise PredictionError(_ARGUMENTS, f"{name} {given[name]!r} is not a whole number") from None
