"""From a spec to the settings that the pod's scripts read: field by field, with the defaults filled in."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from qwen_cached_serve.api.v1alpha1 import QwenCachedServe, defaults
from qwen_cached_serve.api.v1alpha1.cache import CacheSpec
from qwen_cached_serve.api.v1alpha1.engine import EngineSpec, VllmSpec
from qwen_cached_serve.api.v1alpha1.model import ModelSource
from qwen_cached_serve.api.v1alpha1.operations import UnsupportedSpec
from qwen_cached_serve.core.tiers import tiers
from qwen_cached_serve.core.variables import pod_variables, visible_to_the_probe
from qwen_cached_serve.inpod.facts import MODEL_DIR, CacheSettings, EngineSettings, ServeSettings, TokensPerStep


@dataclass(frozen=True, slots=True)
class Decided:
    """What the resolution has decided about more than one field."""

    accelerator: str
    ranks: int
    gpus: int
    """GPUs of one pod, 0 on CPU."""
    l1_bytes: int | None
    """None while the cache is off."""
    startup_seconds: int
    probe_seconds: int
    shutdown_seconds: int


def serve_settings(serve: QwenCachedServe, decided: Decided) -> ServeSettings:
    """Return the settings that the pod's scripts read."""
    spec = serve.spec
    engine = spec.engine or EngineSpec()
    vllm = engine.vllm or VllmSpec()
    cache = spec.cache or CacheSpec()
    unsupported = spec.unsupported or UnsupportedSpec()
    model, served = _model_argument(serve)
    tokens = vllm.max_num_batched_tokens
    percent = vllm.gpu_memory_utilization_percent or defaults.GPU_MEMORY_UTILIZATION_PERCENT
    return ServeSettings(
        model=model,
        revision=_revision(spec.model.source),
        served_names=served,
        pod_variables=pod_variables(engine.env or ()),
        gpu_count=decided.gpus,
        startup_timeout_seconds=decided.startup_seconds,
        probe_timeout_seconds=decided.probe_seconds,
        probe_method=(spec.block_size_probe and spec.block_size_probe.method) or defaults.PROBE_METHOD,
        engine=EngineSettings(
            accelerator=decided.accelerator,
            tensor_parallel_size=decided.ranks,
            gpu_memory_utilization_percent=percent,
            tokens_per_step=TokensPerStep(
                policy=(tokens and tokens.policy) or defaults.TOKENS_PER_STEP_POLICY,
                value=tokens.value if tokens else None,
            ),
            max_model_len=spec.model.max_model_len,
            max_num_seqs=vllm.max_num_seqs,
            kv_cache_dtype=vllm.kv_cache_dtype,
            mamba_ssm_cache_dtype=vllm.mamba_ssm_cache_dtype,
            attention_backend=vllm.attention_backend,
            block_size=vllm.block_size,
            speculative_method=vllm.speculative.method if vllm.speculative else None,
            speculative_tokens=vllm.speculative.tokens if vllm.speculative else None,
            text_only=(spec.model.modalities or defaults.MODALITIES) == "TextOnly",
            shutdown_timeout_seconds=decided.shutdown_seconds,
            extra_args=engine.extra_args or (),
            unsupported_args=unsupported.engine_args or (),
        ),
        cache=CacheSettings(
            enabled=decided.l1_bytes is not None,
            l1_size_bytes=decided.l1_bytes or 0,
            eviction_policy=(cache.l1 and cache.l1.eviction_policy) or defaults.EVICTION_POLICY,
            chunk_blocks=cache.chunk_blocks or defaults.CHUNK_BLOCKS,
            extra_args=cache.extra_args or (),
            unsupported_args=unsupported.cache_server_args or (),
            environment=visible_to_the_probe(cache.env or ()),
            l2=tiers(cache.l2 or ()),
        ),
    )


def source_type(source: ModelSource | None) -> str:
    """Return where the checkpoint comes from, by the source's type or the default."""
    return (source and source.type) or defaults.MODEL_SOURCE


def _model_argument(serve: QwenCachedServe) -> tuple[str, tuple[str, ...]]:
    """Return what the engine is given as model, and the names it serves it under."""
    model = serve.spec.model
    if source_type(model.source) == "HuggingFace":
        return model.name, model.served_names or ()
    path = posixpath.normpath(posixpath.join(MODEL_DIR, model.name.lstrip("/")))
    # Without a name of its own the engine would serve the model under its mount path.
    own = serve.metadata.name if path == MODEL_DIR else model.name
    return path, model.served_names or (own,)


def _revision(source: ModelSource | None) -> str | None:
    if source_type(source) != "HuggingFace":
        return None
    return (source and source.hugging_face and source.hugging_face.revision) or defaults.HUB_REVISION
