"""The arguments of `vllm serve`: those that shape N, shared with the probe, and those that follow from it."""

from __future__ import annotations

from typing import Any

from .facts import IPV4_WILDCARD, Gpu, ProbeReport, ServeSettings
from .flag import LOOPBACK, Flag, to_json, tokens_per_step, verbatim
from .profiles import Profiles, VllmProfile, load_profiles
from .refusal import Refusal

_GIB = 1 << 30
CONNECTOR = "LMCacheMPConnector"
CONNECTOR_MODULE = "lmcache.integration.vllm.lmcache_mp_connector"

MESSAGE_TIMEOUT_SECONDS = 60
"""`lmcache.mp.mq_timeout`: how long a request to the cache server may hang; LMCache's 300 s would hold users that
long.
"""
HEARTBEAT_SECONDS = 5
"""`lmcache.mp.heartbeat_interval`; a third of the reap time at most (LMCache's own rule)."""


def engine_flags(settings: ServeSettings, report: ProbeReport, profiles: Profiles | None = None) -> list[Flag]:
    """Every argument of `vllm serve`, in order.

    Raises:
        Refusal: FixedTokensOutOfRange, MaxNumSeqsOutOfRange, ModelNameNotCacheable, SettingsInvalid.

    """
    profiles = profiles or load_profiles()
    flags = shaping_flags(settings, report.versions.vllm, report.versions.lmcache, profiles)
    if report.model_revision:
        # The probe resolved it; the moving name the user wrote could mean another commit by now.
        flags = [flag for flag in flags if flag.name != "--revision"]
        flags.insert(
            1,
            Flag(
                "--revision",
                (report.model_revision,),
                "the commit that the probe resolved, so that a moved branch changes nothing",
                "probe",
            ),
        )
    tokens = tokens_per_step(settings, report.block_size, profiles.for_lmcache(report.versions.lmcache))
    flags += _step_flags(settings, report, tokens, profiles)
    flags += _serving_flags(settings, report.engine_host)
    return flags + own_arguments(settings)


def own_arguments(settings: ServeSettings) -> list[Flag]:
    """The user's own arguments, for probe and engine alike."""
    return verbatim(settings.engine.extra_args, settings.engine.unsupported_args, "spec.engine", "engineArgs")


def shaping_flags(settings: ServeSettings, vllm: str, lmcache: str, profiles: Profiles) -> list[Flag]:
    """Arguments that decide N, plus the connector: what probe and engine must have in common."""
    engine, cache = settings.engine, settings.cache
    if not settings.model or settings.model.startswith("-"):
        raise Refusal("SettingsInvalid", f"model.name {settings.model!r} is not a name", "Correct spec.model.name.")
    if cache.enabled and "@" in settings.model:
        raise Refusal(
            "ModelNameNotCacheable",
            f'model.name {settings.model!r} contains "@", which separates the parts of LMCache\'s keys',
            "Use a path or id without it, or set spec.cache.mode to Disabled.",
        )
    vllm_field = "spec.engine.vllm"
    flags = [Flag("", (settings.model,), "what is served", "spec.model.name")]

    def given(name: str, value: Any, reason: str, source: str) -> None:
        if value is not None and value != "":
            flags.append(Flag(name, (str(value),), reason, source))

    given("--revision", settings.revision, "as the resource says", "spec.model.source.huggingFace.revision")
    given(
        "--tensor-parallel-size",
        engine.tensor_parallel_size,
        "ranks of the engine; N depends on it once there are more ranks than KV heads",
        f"{vllm_field}.tensorParallelSize",
    )
    given("--max-model-len", engine.max_model_len, "longest request", "spec.model.maxModelLen")
    if engine.text_only:
        why = "only text is validated with the cache; images could share prefixes wrongly"
        flags.append(Flag("--language-model-only", (), why, "spec.model.modalities"))
    given("--kv-cache-dtype", engine.kv_cache_dtype, "fp8 doubles N", f"{vllm_field}.kvCacheDtype")
    given(
        "--mamba-ssm-cache-dtype",
        engine.mamba_ssm_cache_dtype,
        "bfloat16 about halves N",
        f"{vllm_field}.mambaSsmCacheDtype",
    )
    given(
        "--attention-backend",
        engine.attention_backend,
        "its smallest kernel block is N's granularity",
        f"{vllm_field}.attentionBackend",
    )
    given(
        "--block-size", engine.block_size, "an alignment step of N, not a block size (B17)", f"{vllm_field}.blockSize"
    )
    if engine.speculative_method:
        config: dict[str, Any] = {"method": engine.speculative_method}
        if engine.speculative_tokens is not None:
            config["num_speculative_tokens"] = engine.speculative_tokens
        why = "every speculative token widens the convolution state, so N grows"
        flags.append(Flag("--speculative-config", (to_json(config),), why, f"{vllm_field}.speculative"))
    if cache.enabled:
        flags += _caching_flags(settings, vllm, lmcache, profiles)
    return flags


def _caching_flags(settings: ServeSettings, vllm: str, lmcache: str, profiles: Profiles) -> list[Flag]:
    profile = profiles.for_vllm(vllm)
    flags = [Flag("--enable-prefix-caching", (), "LMCache stores what vLLM's prefix caching keeps", "rule")]
    if profile.mamba_cache_mode_flag:
        why = "recurrent state is kept at block ends; vLLM 0.33 made this the only mode"
        flags.append(Flag("--mamba-cache-mode", ("align",), why, "profile"))
    if profile.retention_flag:
        why = "dense: every block end can be hit on the GPU; the default 0 needs one more cold pass per prefix"
        flags.append(Flag("--prefix-cache-retention-interval", ("None",), why, "profile"))
    extra: dict[str, Any] = {
        "lmcache.mp.host": f"tcp://{LOOPBACK}",
        "lmcache.mp.port": settings.ports.cache_server,
        "lmcache.mp.mq_timeout": MESSAGE_TIMEOUT_SECONDS,
        "lmcache.mp.heartbeat_interval": HEARTBEAT_SECONDS,
    }
    if settings.engine.accelerator == "CPU":
        # The default on CPU, engine-driven transfer, refuses models with more than one group of KV layers.
        extra["lmcache.mp.mp_transfer_mode"] = "lmcache_driven"
    elif profiles.for_lmcache(lmcache).isolated_ipc:
        extra["lmcache.mp.isolated_ipc"] = True
    connector = {
        "kv_connector": CONNECTOR,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra,
    }
    why = (
        "LMCache's own connector, named by module so that a broken install fails aloud; a failed load is computed "
        "again instead of failing the request"
    )
    flags.append(Flag("--kv-transfer-config", (to_json(connector),), why, "spec.cache"))
    return flags


def _step_flags(settings: ServeSettings, report: ProbeReport, tokens: int | None, profiles: Profiles) -> list[Flag]:
    engine = settings.engine
    flags = []
    if tokens is not None:
        why = _step_reason(settings, report.block_size, tokens)
        flags.append(Flag("--max-num-batched-tokens", (str(tokens),), why, "spec.engine.vllm.maxNumBatchedTokens"))
    if engine.max_num_seqs is not None:
        if tokens is not None and engine.max_num_seqs > tokens:
            raise Refusal(
                "MaxNumSeqsOutOfRange",
                f"maxNumSeqs is {engine.max_num_seqs}, but a step holds {tokens} tokens: every sequence needs one",
                f"Set spec.engine.vllm.maxNumSeqs to {tokens} or less.",
            )
        flags.append(
            Flag("--max-num-seqs", (str(engine.max_num_seqs),), "as the resource says", "spec.engine.vllm.maxNumSeqs")
        )
    elif engine.tuned_max_num_seqs is not None:
        tuned = engine.tuned_max_num_seqs if tokens is None else min(engine.tuned_max_num_seqs, tokens)
        why = "lowered by the operator: the engine had state blocks for no more and did not start"
        flags.append(Flag("--max-num-seqs", (str(tuned),), why, "status.tuning"))
    elif tokens is not None and (default := _default_max_num_seqs(settings, report, profiles)) > tokens:
        why = f"the engine's default, {default}, is more than a step's {tokens} tokens, which vLLM refuses"
        flags.append(Flag("--max-num-seqs", (str(tokens),), why, "rule"))
    return flags


def _step_reason(settings: ServeSettings, block_size: int, tokens: int) -> str:
    if not settings.cache.enabled:
        return "as the resource says; without the cache nothing ties it to N"
    if tokens >= 2 * block_size:
        return f"fixed by the resource: {tokens // block_size} blocks of {block_size} a step, one state kept of them"
    figure = {"TwoBlocksMinusOne": "2N-1", "OneBlock": "N"}.get(settings.engine.tokens_per_step.policy, "fixed")
    rest = tokens - block_size
    left = f"{rest} tokens are left for decoding" if rest else "nothing is left for decoding, so prefill waits for it"
    return f"{figure} with N = {block_size}: one whole block a step, {left}"


def _default_max_num_seqs(settings: ServeSettings, report: ProbeReport, profiles: Profiles) -> int:
    """vLLM's own default (`EngineArgs.get_batch_defaults`); the larger one when the GPU's memory is not known."""
    ranks = settings.engine.tensor_parallel_size
    if settings.engine.accelerator == "CPU":
        default = profiles.max_num_seqs_cpu_per_rank * ranks
    elif report.gpus and _small(report.gpus[0], profiles.for_vllm(report.versions.vllm)):
        default = profiles.max_num_seqs_gpu
    else:
        default = profiles.max_num_seqs_gpu_70gib
    throughput = any("throughput" in argument for argument in settings.engine.extra_args)
    return default * 2 if throughput else default


def _small(gpu: Gpu, profile: VllmProfile) -> bool:
    """Tell whether vLLM gives this GPU the defaults of a small one."""
    if gpu.memory_bytes >= 160 * _GIB:
        return False
    return gpu.memory_bytes < 70 * _GIB or "a100" in gpu.name.lower() or gpu.capability in profile.small_capabilities


def _serving_flags(settings: ServeSettings, host: str) -> list[Flag]:
    engine = settings.engine
    flags = []
    if settings.served_names:
        why = "the first one is also the metrics' label"
        flags.append(Flag("--served-model-name", settings.served_names, why, "spec.model.servedNames"))
    why = "probes and the Service reach the pod's address"
    if host != IPV4_WILDCARD:
        why += "; this pod has an IPv6 one, and a socket for :: takes both families"
    flags.append(Flag("--host", (host,), why, "rule"))
    flags.append(Flag("--port", (str(settings.ports.engine),), "the Service's target port", "rule"))
    if engine.accelerator == "GPU":
        value = f"{engine.gpu_memory_utilization_percent / 100:.2f}"
        why = "the rest is for the cache server's CUDA context and staging buffers on the same GPU"
        flags.append(Flag("--gpu-memory-utilization", (value,), why, "spec.engine.vllm.gpuMemoryUtilizationPercent"))
    why = "running requests are finished on SIGTERM, for that many seconds"
    flags.append(
        Flag(
            "--shutdown-timeout", (str(engine.shutdown_timeout_seconds),), why, "spec.pod.terminationGracePeriodSeconds"
        )
    )
    return flags
