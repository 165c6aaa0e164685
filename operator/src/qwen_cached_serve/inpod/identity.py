"""The compatibility identity: a name for everything two engines must agree on to read each other's cache entries (D7).

LMCache's keys hold the tokens, the model's name and the rank, nothing else: engines that differ in anything below and
share a store read each other's state without a warning. The identity is computed in the pod, where the device, the
image and the checkpoint can be seen. It is the hash of a flat map of components, so that a difference can be named;
values that may be secret are masked in it and count by their presence only (`redact.counted`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .arguments import canonical
from .builds import build_hashes
from .device import UNKNOWN, architecture
from .facts import ProbeReport, ServeSettings
from .fingerprint import fingerprint
from .flag import to_json
from .message import CompactReport
from .named_files import with_content
from .neutral import CACHE_SERVER, ENGINE, load_neutral
from .profiles import load_profiles
from .redact import MASK, counted, digest
from .refusal import Refusal

SCHEMA = 1
"""Version of the components' meaning; part of every identity."""
_DIGEST_CHARACTERS = 40
_DTYPES = {
    "fp8": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "half": "float16", "fp16": "float16",
    "float": "float32", "fp32": "float32", "bf16": "bfloat16",
}  # fmt: skip
"""Other names of data types, as vLLM's parser takes them."""
_AUTO, _NONE = "auto", "none"

# Flags that have a component of their own, with what the engine takes without them (vLLM 0.32).
_NAMED_FLAGS = {
    "--quantization": ("weightQuantisation", "as the checkpoint"),
    "--dtype": ("dtype", _AUTO),
    "--mamba-cache-dtype": ("convolutionStateDtype", _AUTO),
    "--load-format": ("loadFormat", _AUTO),
    "--seed": ("seed", "0"),
}
_DTYPE_FLAGS = frozenset({"--dtype", "--mamba-cache-dtype"})
RELEASES = ("vllm", "lmcache", "torch")
KV_LAYOUT_VARIABLE = "VLLM_KV_CACHE_LAYOUT"
_DUMMY = "dummy"
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHOWN_VARIABLES = (
    "VLLM_", "LMCACHE_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "TORCH", "PYTORCH_", "TRITON_",
    "FLASHINFER_", "PYTHON", "LD_", "HF_", "OMP_", "MKL_",
)  # fmt: skip
"""Variables of the engine's own libraries: their values are shown, those of all others only by a digest."""
ENGINE_FLAG, SERVER_FLAG = "engine flag ", "cache server flag "
ENGINE_VARIABLE, SERVER_VARIABLE = "engine variable ", "cache server variable "


def attach(settings: ServeSettings, report: ProbeReport, environ: Mapping[str, str]) -> ProbeReport:
    """Complete a report with its identity; a pod without a cache has none, since it shares nothing.

    `environ` is the container's environment as it was before vLLM was imported, which adds variables of its own.

    Raises:
        Refusal: the checkpoint's (`fingerprint`).

    """
    if not settings.cache.enabled:
        return report
    began = time.monotonic()
    dummy = _load_format(settings, report) == _DUMMY
    named = with_identity(settings, report, environ, checkpoint_of(settings, report, dummy=dummy), build_hashes())
    seconds = round(time.monotonic() - began, 2)
    return dataclasses.replace(named, timings_seconds={**report.timings_seconds, "identity": seconds})


def with_identity(
    settings: ServeSettings,
    report: ProbeReport,
    environ: Mapping[str, str],
    checkpoint: str,
    builds: Mapping[str, str],
) -> ProbeReport:
    """Complete a report from what was found out about checkpoint and builds."""
    found = components(settings, report, environ, checkpoint, builds)
    return dataclasses.replace(
        report,
        identity=identity(found),
        identity_summary=summary(report, settings.engine.tensor_parallel_size),
        identity_components=found,
    )


def identity(found: Mapping[str, str]) -> str:
    """Name of a set of components: `v1-` and 40 hexadecimal digits."""
    text = json.dumps([SCHEMA, dict(found)], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"v{SCHEMA}-{hashlib.sha256(text.encode('ascii')).hexdigest()[:_DIGEST_CHARACTERS]}"


def summary(report: ProbeReport | CompactReport, tensor_parallel_size: int) -> str:
    """Short form for people, as in `FLASH_ATTN/16 N784 tp1 auto`."""
    backends = "+".join(report.attention_backends) or "?"
    kv = report.kv_cache_dtype or _AUTO
    return f"{backends}/{report.kernel_block_size or '?'} N{report.block_size} tp{tensor_parallel_size} {kv}"


def components(
    settings: ServeSettings,
    report: ProbeReport,
    environ: Mapping[str, str],
    checkpoint: str,
    builds: Mapping[str, str],
) -> dict[str, str]:
    """Everything that counts, as text; names and values are in one spelling."""
    engine, cache = settings.engine, settings.cache
    profile = load_profiles().for_lmcache(report.versions.lmcache)
    flags = engine_arguments(settings, report.versions.vllm)
    server_flags = server_arguments(settings, report.versions.lmcache)
    found = {
        "checkpoint": checkpoint,
        # A dry start does not always hear what became of them; then what was asked for counts.
        "kvCacheDtype": dtype(report.kv_cache_dtype or engine.kv_cache_dtype or _AUTO),
        "recurrentStateDtype": dtype(report.mamba_ssm_cache_dtype or engine.mamba_ssm_cache_dtype or _AUTO),
        "mambaCacheMode": report.mamba_cache_mode or _AUTO,
        "blockSize": str(report.block_size),
        "chunkSize": str(cache.chunk_blocks * report.block_size),
        # A dry start does not see it (0); it follows from what is here, so pods without it are alike.
        "kernelBlockSize": str(report.kernel_block_size or "not found"),
        "attentionBackend": "+".join(sorted(set(report.attention_backends))) or UNKNOWN,
        "gdnPrefillBackend": report.gdn_prefill_backend or flags.get("--gdn-prefill-backend", _AUTO),
        "tensorParallelSize": str(engine.tensor_parallel_size),
        "speculative": speculative(settings),
        "objectGroups": "separate" if profile.separate_object_groups else "one",
        "kvLayout": environ.get(KV_LAYOUT_VARIABLE, "").strip() or _AUTO,
        "modalities": "text" if engine.text_only else "all",
        "architecture": architecture(engine.accelerator, report.gpus),
    }
    found |= {f"build {package}": digest for package, digest in builds.items()}
    # The builds say it all; releases are there for people, and for what can be told before there is a pod.
    found |= {f"release {package}": release(getattr(report.versions, package)) for package in RELEASES}
    found |= argument_components(flags, server_flags, with_content)
    found |= variables(ENGINE_VARIABLE, engine_variables(settings, environ))
    found |= variables(SERVER_VARIABLE, server_variables(settings))
    return dict(sorted(found.items()))


def argument_components(
    flags: Mapping[str, str], server_flags: Mapping[str, str], shown: Callable[[str], str]
) -> dict[str, str]:
    """Components of the user's own arguments of both programs; `shown` says what of a value counts."""
    given = {flag: flags.get(flag, default).lower() for flag, (_, default) in _NAMED_FLAGS.items()}
    found = {
        name: dtype(given[flag]) if flag in _DTYPE_FLAGS else given[flag] for flag, (name, _) in _NAMED_FLAGS.items()
    }
    found |= counting_flags(ENGINE_FLAG, ENGINE, flags, shown, besides={*_NAMED_FLAGS, "--gdn-prefill-backend"})
    return found | counting_flags(SERVER_FLAG, CACHE_SERVER, server_flags, shown, besides=set())


def engine_arguments(settings: ServeSettings, vllm: str) -> dict[str, str]:
    """The user's own arguments of the engine in one spelling."""
    given = (*settings.engine.extra_args, *settings.engine.unsupported_args)
    return canonical(given, load_neutral().programs[ENGINE], vllm)


def server_arguments(settings: ServeSettings, lmcache: str) -> dict[str, str]:
    """The user's own arguments of the cache server in one spelling."""
    given = (*settings.cache.extra_args, *settings.cache.unsupported_args)
    return canonical(given, load_neutral().programs[CACHE_SERVER], lmcache)


def engine_variables(settings: ServeSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The engine's variables without the one that has a component of its own; fields of the pod without their value."""
    own = dict.fromkeys(settings.pod_variables, "a field of the pod")
    return {name: own.get(name, value) for name, value in environ.items() if name != KV_LAYOUT_VARIABLE}


def server_variables(settings: ServeSettings) -> dict[str, str]:
    """The user's variables of the cache server."""
    return dict(entry.partition("=")[::2] for entry in settings.cache.environment)


def checkpoint_of(settings: ServeSettings, report: ProbeReport, *, dummy: bool) -> str:
    """The checkpoint's name: the commit of a hub id, the fingerprint of a folder.

    Raises:
        Refusal: the checkpoint cannot be read.

    """
    if not settings.model.startswith("/"):
        if not _COMMIT.fullmatch(report.model_revision):
            raise Refusal(
                "CheckpointUnreadable",
                f"the hub names no commit for {settings.model} ({report.model_revision or 'nothing'!r})",
                "Check spec.model.source.huggingFace.endpoint, or deliver the model on a volume.",
            )
        return hub_checkpoint(report.model_revision)
    # Half of the probe's time at most: what comes before and after it needs some, too.
    limit = settings.probe_timeout_seconds / 2
    return f"files {fingerprint(Path(settings.model), weights=not dummy, limit_seconds=limit).digest}"


def hub_checkpoint(commit: str) -> str:
    """The checkpoint of a hub id: a commit's hash covers every file of it, whatever the repository is called."""
    return f"commit {commit}"


def unknown_parts(found: Mapping[str, str]) -> list[str]:
    """Components that nothing told; two pods with the same gap need not be alike."""
    return sorted(name for name, value in found.items() if value == UNKNOWN)


def _load_format(settings: ServeSettings, report: ProbeReport) -> str:
    return engine_arguments(settings, report.versions.vllm).get("--load-format", _AUTO).lower()


def speculative(settings: ServeSettings) -> str:
    """How tokens are drafted, `none` when they are not."""
    engine = settings.engine
    if not engine.speculative_method:
        return _NONE
    return to_json({"method": engine.speculative_method, "num_speculative_tokens": engine.speculative_tokens})


def counting_flags(
    kind: str, program: str, flags: Mapping[str, str], shown: Callable[[str], str], besides: set[str]
) -> dict[str, str]:
    """Components of the user's arguments that count, without those that have one of their own."""
    neutral = load_neutral().programs[program].neutral
    return {
        f"{kind}{name}": counted(name, shown(value))
        for name, value in flags.items()
        if name not in neutral and name not in besides
    }


def variables(kind: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Components of the variables that count."""
    neutral = load_neutral()
    counting = {name: value for name, value in environ.items() if neutral.variable(name) is None}
    return {
        f"{kind}{name}": counted(name, value) if name.startswith(_SHOWN_VARIABLES) else _digested(name, value)
        for name, value in counting.items()
    }


def _digested(name: str, value: str) -> str:
    """Enough to see that two values differ: a variable that nobody knows may hold what is not for everybody."""
    return MASK if counted(name, value) == MASK else digest(value)


def release(version: str) -> str:
    """A version without what a builder added (`+cu130`): the build tells that apart, and a tag does not name it."""
    return version.partition("+")[0] or _NONE


def dtype(name: str) -> str:
    """One name of a data type that has several."""
    return _DTYPES.get(name, name)
