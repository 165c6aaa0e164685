"""LMCache's refusals, in the engine's connector and in the cache server."""

from __future__ import annotations

from .rule import FailureClass, Tier, rule

_AREA = "Cache"
_ENGINE_IMAGE = "spec.engine.image"
_CACHE_ARGS = "spec.cache.extraArgs"

CLASSES = (
    FailureClass(
        "ChunkSizeMismatch",
        _AREA,
        "The cache server's chunk is not a multiple of the engine's block size N.",
        "spec.unsupported.cacheServerArgs",
        "Remove what sets either size by hand. Otherwise delete the pod, so that both are derived from one probe; if "
        "it comes back, report it.",
    ),
    FailureClass(
        "MixedChunkSizes",
        _AREA,
        "The engine talks to cache servers of different chunk sizes.",
        "spec.unsupported.engineArgs",
        "Remove lmcache.mp.server_urls from the connector settings: a pod has one cache server.",
    ),
    FailureClass(
        "UnsupportedCacheGroups",
        _AREA,
        "LMCache cannot cache this model as the engine is configured.",
        "spec.cache.mode",
        "Set it to Disabled, or remove the settings that the message names.",
    ),
    FailureClass(
        "PaddedPageNotCacheable",
        _AREA,
        "Without a GPU, LMCache can cache only models whose state fills a block exactly; this one is padded.",
        "spec.cache.mode",
        "Use a GPU, or set it to Disabled.",
    ),
    FailureClass(
        "CacheServerNotReady",
        _AREA,
        "The cache server did not answer the engine in time.",
        "",
        "Look at the log of container cache-server; the engine starts again by itself.",
        heals=True,
    ),
    FailureClass(
        "GPUMemorySharingFailed",
        _AREA,
        "The cache server could not open the engine's GPU memory.",
        "spec.engine.accelerator.gpu.cacheAccess",
        "Check that it names the way in which the second container gets the GPU on this cluster, and that no setting "
        "turns on sleep mode or expandable segments.",
    ),
    FailureClass(
        "LMCacheBuildMismatch",
        _AREA,
        "A compiled part in the image (most often LMCache's) was built for another torch.",
        _ENGINE_IMAGE,
        "Use an image whose vLLM and LMCache fit: vLLM 0.32.0 with LMCache 0.5.6 (0.5.6 does not load with vLLM 0.33).",
    ),
    FailureClass(
        "L2Misconfigured",
        _AREA,
        "The cache server refuses its second tier.",
        "spec.cache.l2",
        "Correct the entry that the message names.",
    ),
    FailureClass(
        "L2Unreachable",
        _AREA,
        "The store of a second tier cannot be reached.",
        "spec.cache.l2",
        "Check the endpoint, and that network policies let the pod reach it; without the entry pods serve from memory.",
        heals=True,
    ),
    FailureClass(
        "L2CredentialsRefused",
        _AREA,
        "The store of a second tier refuses the user or the password.",
        "spec.cache.l2",
        "Correct the Secret that the entry refers to, or its username; a changed Secret is read when the container "
        "starts again.",
        heals=True,
    ),
    FailureClass(
        "L2ClientMissing",
        _AREA,
        "The image lacks the Python package that a second tier needs.",
        _ENGINE_IMAGE,
        "Add to the image: valkey-glide-sync 2.3 or later for Valkey; boto3 for S3 without credentials in the "
        "resource.",
    ),
    FailureClass(
        "CacheServerMisconfigured",
        _AREA,
        "The cache server refuses its settings.",
        _CACHE_ARGS,
        "Correct or remove what the message names; it can also come from spec.cache.env or spec.unsupported.",
    ),
    FailureClass(
        "RegistrationLost",
        _AREA,
        "The cache server does not know the engine any more (it was restarted too quickly to be noticed), so nothing "
        "is cached although everything runs.",
        "",
        "Delete the pod.",
        heals=True,
    ),
)

_CHUNK = r"LMCache chunk size (?P<chunkSize>\d+) must be a multiple of "
_CHUNK_MESSAGE = (
    "The cache server's chunk of {chunkSize} tokens is not a multiple of the engine's block size {blockSize}."
)

RULES = (
    rule(
        "ChunkSizeMismatch",
        _CHUNK + r"(?:engine )?group (?P<group>\d+) tokens_per_block (?P<blockSize>\d+)",
        _CHUNK_MESSAGE,
    ),
    rule("ChunkSizeMismatch", _CHUNK + r"(?P<blockSize>\d+)\b", _CHUNK_MESSAGE),
    rule("ChunkSizeMismatch", r"LMCache chunk size should be a multiple of vLLM block size"),
    rule("MixedChunkSizes", r"All LMCache servers must share the same chunk_size"),
    rule(
        "UnsupportedCacheGroups",
        r"group (?P<group>\d+) block size (?P<groupBlockSize>\d+) must be a positive multiple of "
        r"vllm_block_size (?P<blockSize>\d+)",
        "A cache group of this model has a block of {groupBlockSize} tokens, which LMCache cannot combine with "
        "{blockSize}.",
    ),
    rule(
        "UnsupportedCacheGroups",
        r"LMCache cannot serve this model's KV cache groups: (?P<groups>[^\n]{1,200})",
        "LMCache cannot cache this model as the engine is configured: {groups}",
    ),
    rule(
        "UnsupportedCacheGroups",
        r"All Mamba KV cache groups must use one physical block size; got \[(?P<sizes>[\d, ]+)\]",
        "The model's states have blocks of different sizes ({sizes}), which LMCache cannot cache.",
    ),
    rule(
        "UnsupportedCacheGroups",
        r"engine-driven transfer does not support (?:multiple KV transfer groups|hybrid KV cache groups)",
        "The connector uses the engine-driven transfer, which cannot cache hybrid models.",
        remedy="Remove what sets lmcache.mp.mp_transfer_mode or LMCACHE_MP_TRANSFER_MODE.",
        field="spec.engine.env",
    ),
    rule(
        "UnsupportedCacheGroups",
        r"(?:LMCacheMPConnector does not support prefill-context parallelism|"
        r"Each LMCache server needs at least decode_context_parallel_size)",
        "LMCache cannot cache with this kind of context parallelism.",
        remedy="Remove the context-parallel settings.",
        field="spec.unsupported.engineArgs",
    ),
    rule("PaddedPageNotCacheable", r"migrate_to_shm_and_wrap requires a contiguous tensor"),
    rule(
        "CacheServerNotReady",
        r"Cannot reach the LMCache MP server at '(?P<address>[^'\n]{1,200})' within (?P<seconds>\d+)",
        "The engine could not reach the cache server at {address} within {seconds} s.",
    ),
    rule(
        "CacheServerNotReady",
        r"LMCache server did not respond (?:to register_kv_caches )?within (?P<seconds>\d+)",
        "The cache server did not answer the engine within {seconds} s.",
    ),
    rule(
        "GPUMemorySharingFailed",
        r"(?:cudaIpc(?:OpenMemHandle|GetMemHandle|OpenEventHandle)\b[^\n]{0,200}|CUDA_ERROR_INVALID_CONTEXT|"
        r"CUDA error: invalid (?:resource handle|device context))",
    ),
    rule(
        "LMCacheBuildMismatch",
        r"ImportError: (?P<library>[^\n:]{0,200}\.so[^\n:]{0,20}): undefined symbol",
        "{library} was built for another torch than the image has.",
    ),
    rule(
        "L2Misconfigured",
        r"unknown L2 adapter type '(?P<adapter>[^'\n]{1,80})'",
        "This LMCache has no second tier of type {adapter}.",
    ),
    rule(
        "L2CredentialsRefused",
        r"Received error for address `(?P<address>[^`\n]{1,260})`: "
        r"(?P<words>(?:NOAUTH|WRONGPASS|NOPERM)\b[^\n]{0,160})",
        "The Valkey at {address} refuses the login: {words}",
    ),
    rule(
        "L2Unreachable",
        # In capitals it is the store's answer (a code, maybe cut), not the way to it.
        r"Received error for address `(?P<address>[^`\n]{1,260})`: (?P<words>(?![A-Z]{2})\S[^\n]{1,160})",
        "The Valkey at {address} cannot be reached: {words}",
    ),
    rule("L2ClientMissing", r"Valkey support requires the glide_sync module"),
    rule("L2ClientMissing", r"S3L2Adapter requires boto3 to resolve credentials"),
    rule(
        "L2CredentialsRefused",
        r"S3L2Adapter: boto3 found no credentials in the environment",
        "There are no credentials for the bucket in the pod's environment.",
        remedy="Set s3.credentials, or give the pod's service account a role.",
    ),
    # A store that is away while the server runs ends nothing.
    rule(
        "L2CredentialsRefused",
        r"\[LMCache Connector Worker Error\] AUTH failed: (?P<words>[^\n]{1,160})",
        "The Redis refuses the login ({words}); the tier stays off until the cache server starts again.",
        tier=Tier.SYMPTOM,
    ),
    rule(
        "L2Unreachable",
        r"\[LMCache Connector Worker Error\] (?P<words>(?:connection failed|getaddrinfo failed)[^\n]{0,160})",
        "The Redis cannot be reached ({words}); the tier stays off until the cache server starts again.",
    ),
    rule(
        "L2Unreachable",
        r"S3L2Adapter (?:connection error \(\d+/\d+\): (?P<words>[^\n]{1,160})|disabled after \d+ consecutive "
        r"connection failures)",
        "The bucket cannot be reached. After three failures the tier stays off until the cache server starts again.",
        tier=Tier.SYMPTOM,
    ),
    rule("L2Misconfigured", r"No adapter factory registered for type (?P<adapter>[\w.-]+)"),
    rule(
        "CacheServerMisconfigured",
        r"ValueError: (?P<words>(?:worker (?:reap timeout|registration grace) must|grpc server workers must|"
        r"coordinator \w+ \w+ must|--runtime-plugin-config is not valid|"
        r"l1-(?:devdax-path|use-hugepages) (?:is|requires)|"
        r"Unknown L1 fields)[^\n]{0,160})",
        "The cache server refuses its settings: {words}",
    ),
)

OBSERVATIONS = (
    rule("RegistrationLost", r"Rejecting (?:STORE|RETRIEVE) for unregistered GPU instance ID"),
    rule(
        "ImageTooOld",
        r"Hybrid or mamba-based model detected without support for prefix caching: disabling",
        "The engine turned prefix caching off because this release cannot do it for hybrid models: nothing is cached.",
    ),
)
"""Found in lines that are no errors: looked at only in a log without any failure, since they end nothing."""
