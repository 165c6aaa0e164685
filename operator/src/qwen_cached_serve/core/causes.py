"""The causes that are recognised in a log: one row each, with a code, a sentence and what to do.

The texts are those of vLLM 0.20-0.33 and LMCache 0.4.7-0.5.6 (facts/vllm.md §4, facts/lmcache.md §3.3), matched by what
stayed the same over the releases.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """One cause and how its text looks."""

    code: str
    pattern: re.Pattern[str]
    message: str | Callable[[re.Match[str]], str]
    hint: str
    needs_a_person: bool = True
    numbers: tuple[str, ...] = ()
    """Names for the pattern's numeric groups, in order; empty name = skip."""


def _rule(
    code: str,
    pattern: str,
    message: str | Callable[[re.Match[str]], str],
    hint: str,
    *,
    heals: bool = False,
    numbers: tuple[str, ...] = (),
) -> Rule:
    return Rule(code, re.compile(pattern, re.DOTALL), message, hint, not heals, numbers)


CAUSES: tuple[Rule, ...] = (
    _rule(
        "TokensPerStepBelowBlock",
        r"In Mamba cache align mode, block_size \((\d+)\) must be <= max_num_batched_tokens \((\d+)\)",
        lambda m: f"The engine's token budget {m[2]} is below the block size N = {m[1]}.",
        "The derived value is 2N-1; remove what sets another one (spec.engine.env, spec.unsupported).",
        numbers=("blockSize", "maxNumBatchedTokens"),
    ),
    _rule(
        "TokensPerStepBelowBlock",
        r"Mamba-hybrid models with LMCache require [^\n]*?got max_num_batched_tokens=(\d+), block_size=(\d+)",
        lambda m: f"LMCache refuses a token budget of {m[1]} with block size N = {m[2]}.",
        "Use spec.engine.vllm.maxNumBatchedTokens.policy TwoBlocksMinusOne (2N-1); exactly N would serialise prefill.",
        numbers=("maxNumBatchedTokens", "blockSize"),
    ),
    _rule(
        "MaxNumSeqsTooLarge",
        r"max_num_seqs \((\d+)\) exceeds available Mamba cache blocks \((\d+)\)",
        lambda m: f"The engine may run {m[1]} sequences at once but has memory for {m[2]}.",
        "Set spec.engine.vllm.maxNumSeqs to that number or less, or raise gpuMemoryUtilizationPercent.",
        numbers=("maxNumSeqs", "availableBlocks"),
    ),
    _rule(
        "MaxNumSeqsTooLarge",
        r"max_num_batched_tokens \((\d+)\) must be greater than or equal to max_num_seqs \((\d+)\)",
        lambda m: f"The engine may run {m[2]} sequences at once but computes only {m[1]} tokens per step.",
        "Set spec.engine.vllm.maxNumSeqs to the second number or less.",
        numbers=("maxNumBatchedTokens", "maxNumSeqs"),
    ),
    _rule(
        "KVCacheTooSmall",
        r"To serve at least one request with the models?(?:'s|s's)? max seq len \((\d+)\)"
        r"(?:.{0,400}?estimated maximum model length is (\d+))?",
        lambda m: (
            f"The KV cache cannot hold one request of {m[1]} tokens"
            + (f"; the engine estimates that {m[2]} would fit." if m[2] else ".")
        ),
        "Set spec.model.maxModelLen to what fits, or give the engine more memory.",
        numbers=("maxModelLen", "fittingModelLen"),
    ),
    _rule(
        "KVCacheTooSmall",
        r"No available memory for the cache blocks",
        "Weights and activations leave no memory for the KV cache.",
        "Raise spec.engine.vllm.gpuMemoryUtilizationPercent, use more GPUs, or a smaller model.",
    ),
    _rule(
        "GPUMemoryBusy",
        r"Free memory on device[^\n]{0,40}\(([\d.]+)/([\d.]+) GiB\) on startup is less than "
        r"desired GPU memory utilization",
        lambda m: f"Only {m[1]} of {m[2]} GiB of GPU memory are free: something else holds the rest.",
        "After a crash the cache server may keep the former engine's memory for minutes; if it stays, delete the pod.",
        heals=True,
    ),
    _rule(
        "GPUMemoryExhausted",
        r"(?:torch\.OutOfMemoryError|CUDA out of memory)",
        "The GPU ran out of memory while the engine started.",
        "Lower spec.engine.vllm.gpuMemoryUtilizationPercent or maxNumSeqs, or use more GPUs.",
    ),
    _rule(
        "ChunkSizeMismatch",
        r"LMCache chunk size (\d+) must be a multiple of (?:[a-z ]*group \S+ tokens_per_block )?(\d+)",
        lambda m: f"The cache server's chunk of {m[1]} tokens is not a multiple of the engine's block size {m[2]}.",
        "Delete the pod so that both are derived from one probe; if it comes back, report it.",
        numbers=("chunkSize", "blockSize"),
    ),
    _rule(
        "ChunkSizeMismatch",
        r"LMCache chunk size should be a multiple of vLLM block size",
        "The cache server's chunk is not a multiple of the engine's block size.",
        "Delete the pod so that both are derived from one probe; if it comes back, report it.",
    ),
    _rule(
        "UnsupportedCacheGroups",
        r"group (\d+) block size (\d+) must be a positive multiple of vllm_block_size (\d+)",
        lambda m: (
            f"A cache group of this model has a block of {m[2]} tokens, which LMCache cannot combine with {m[3]}."
        ),
        "This model cannot be cached; set spec.cache.mode to Disabled.",
    ),
    _rule(
        "UnsupportedCacheGroups",
        r"LMCache cannot serve this model's KV cache groups",
        "LMCache cannot cache this model as the engine is configured.",
        "Remove settings that turn prefix caching off, or set spec.cache.mode to Disabled.",
    ),
    _rule(
        "UnsupportedCacheGroups",
        r"engine-driven transfer does not support multiple KV transfer groups",
        "Without a GPU the connector chose the engine-driven transfer, which cannot cache hybrid models.",
        "Remove what sets lmcache.mp.mp_transfer_mode or LMCACHE_MP_TRANSFER_MODE.",
    ),
    _rule(
        "PaddedPageNotCacheable",
        r"migrate_to_shm_and_wrap requires a contiguous tensor",
        "Without a GPU, LMCache can cache only models whose state fills a block exactly; this one is padded.",
        "Use a GPU, or set spec.cache.mode to Disabled.",
    ),
    _rule(
        "MixedChunkSizes",
        r"All LMCache servers must share the same chunk_size",
        "The engine talks to cache servers of different chunk sizes.",
        "Remove lmcache.mp.server_urls from the connector settings.",
    ),
    _rule(
        "CacheServerNotReady",
        r"(?:LMCache server did not respond (?:to register_kv_caches )?within|Cannot reach the LMCache MP server at)",
        "The cache server did not answer the engine in time.",
        "Look at the cache-server container; the engine starts again by itself.",
        heals=True,
    ),
    _rule(
        "WrongKVConnector",
        r"Connector (\S+) does not support HMA but HMA is enabled",
        lambda m: f"The KV connector {m[1]} cannot serve hybrid models.",
        "Remove it; the operator configures LMCacheMPConnector. Do not disable the hybrid KV cache manager.",
    ),
    _rule(
        "WrongKVConnector",
        r"(?:Unsupported connector type: (\S+)|LMCacheMPConnector only works without hybrid kv cache manager)",
        "The image has no LMCache connector that serves hybrid models.",
        "Use an image with LMCache 0.5.6 beside vLLM (spec.engine.image) and leave LMCACHE_USE_UPSTREAM_MP unset.",
    ),
    _rule(
        "StaleSharedMemory",
        r"FileExistsError: \[Errno 17\] File exists: '/(lmcache_kv_\S+?)'",
        lambda m: f"The shared-memory segment {m[1]} of a former engine is in the way.",
        "Delete the pod.",
        heals=True,
    ),
    _rule(
        "ServiceEnvCollision",
        r"VLLM_PORT '(\S+?)' appears to be a URI",
        lambda m: f"A Service's environment variable sets VLLM_PORT to {m[1]}.",
        "Remove VLLM_PORT from spec.engine.env; the pod itself has enableServiceLinks: false.",
    ),
    _rule(
        "SharedMemoryTooSmall",
        r"(?:Error while creating shared memory segment /dev/shm/\S+|No space left on device \(28\)|"
        r"/dev/shm[^\n]{0,120}No space left)",
        "The pod's /dev/shm is full.",
        "Raise spec.engine.resources.limits.memory; /dev/shm is sized from it (a disk is not full).",
    ),
    _rule(
        "ModelAccessDenied",
        r"(?:GatedRepoError|401 Client Error|403 Client Error|Access to model \S+ is restricted|"
        r"Invalid credentials in Authorization header)",
        "The model hub refuses access to the model.",
        "Accept the model's terms and check the token in spec.model.source.huggingFace.tokenSecretKeyRef "
        "(no trailing newline).",
    ),
    _rule(
        "ReadOnlyModelVolume",
        r"Read-only file system: '(\S+?)'",
        lambda m: f"Something wanted to write to the read-only {m[1]}.",
        "Complete the model on the volume (all files, no pending downloads); it is mounted read-only.",
    ),
    _rule(
        "ModelNotAvailableOffline",
        r"(?:OfflineModeIsEnabled|LocalEntryNotFoundError|HF_HUB_OFFLINE|outgoing traffic has been disabled)",
        "The model's files are not there and downloading is switched off.",
        "Check spec.model.name (for a volume: the path inside it), or allow the hub.",
        heals=True,
    ),
    _rule(
        "ModelHubUnreachable",
        r"(?:Temporary failure in name resolution|Name or service not known|Failed to establish a new connection|"
        r"Max retries exceeded with url)",
        "The model hub cannot be reached from the pod.",
        "Check DNS and egress, set spec.model.source.huggingFace.endpoint, or use a volume.",
        heals=True,
    ),
    _rule(
        "ModelNotFound",
        r"(?:RepositoryNotFoundError|RevisionNotFoundError|404 Client Error|Invalid repository ID or local directory|"
        r"is not a local folder and is not a valid model identifier)",
        "The model or its revision does not exist.",
        "Check spec.model.name and spec.model.source.",
    ),
    _rule(
        "UnsupportedFlag",
        r"error: unrecognized arguments: (--?\S+)",
        lambda m: f"The engine in this image does not know {m[1]}.",
        "If it is in spec.engine.extraArgs, remove it; otherwise the image is too old or too new (spec.engine.image).",
    ),
    _rule(
        "UnsupportedFlag",
        r"error: argument (--\S+?)(?:/\S+)?: (?:invalid|expected)[^\n]*",
        lambda m: f"The program in this image refuses the value of {m[1]}.",
        "If it is in spec.engine.extraArgs or spec.cache.extraArgs, correct it; otherwise the image does not fit.",
    ),
    _rule(
        "MaxModelLenTooLarge",
        r"User-specified max_model_len \((\d+)\) is greater than the derived max_model_len "
        r"\(max_position_embeddings=(\d+)",
        lambda m: f"maxModelLen {m[1]} is beyond the {m[2]} tokens that the model was made for.",
        "Lower spec.model.maxModelLen.",
        numbers=("maxModelLen", "maxPositionEmbeddings"),
    ),
    _rule(
        "AttentionBackendUnusable",
        r"(?:Unknown attention backend: '\S+?'|Selected backend \S+ is not valid for this configuration|"
        r"No valid attention backend found|Aligned KV cache block size \d+ is not supported by attention backend)",
        "The attention backend cannot serve this model with these settings.",
        "Leave spec.engine.vllm.attentionBackend unset, or choose another one.",
    ),
    _rule(
        "GPUNotVisible",
        r"(?:Failed to infer device type|Device string must not be empty|"
        r"libcuda\.so\.1: cannot open shared object file|Device UUID \S+ not found in the discovered)",
        "The container does not see its GPU.",
        "Check the node's driver and device plugin, spec.engine.accelerator.gpu.runtimeClassName and cacheAccess.",
        heals=True,
    ),
    _rule(
        "ExpandableSegments",
        r"is incompatible with PYTORCH_CUDA_ALLOC_CONF=expandable_segments",
        "Expandable segments cannot be shared with the cache server.",
        "Remove PYTORCH_CUDA_ALLOC_CONF from spec.engine.env.",
    ),
    _rule(
        "CPUCacheSpaceInvalid",
        r"invalid literal for int\(\) with base 10: '(\d*\.\d+)'[^\n]*VllmConfig|1 validation error for VllmConfig\s+"
        r"Value error, invalid literal for int\(\) with base 10: '([\d.]+)'",
        "The engine wants a whole number where it got a fraction.",
        "VLLM_CPU_KVCACHE_SPACE in spec.engine.env takes whole GiB.",
    ),
)

WRAPPERS: tuple[Rule, ...] = (
    _rule(
        "KilledDuringStart",
        r"KeyboardInterrupt: terminated",
        "The engine was told to stop while it was starting.",
        "If nobody deleted the pod, raise spec.engine.startupTimeoutSeconds.",
        heals=True,
    ),
    _rule(
        "EngineStartFailed",
        r"(?:Engine core initialization failed|EngineCore failed to start|Worker failed with error)",
        "The engine failed to start; the cause is not in the captured part of its log.",
        "Read the engine container's log (kubectl logs --previous).",
        heals=True,
    ),
)
"""Wrappers: looked for only when no rule names a cause."""
