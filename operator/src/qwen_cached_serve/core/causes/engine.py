"""vLLM's own refusals: sizes, attention backends, settings that exclude each other."""

from __future__ import annotations

from .rule import FailureClass, rule

_AREA = "Engine"
_VLLM = "spec.engine.vllm"
_EXTRA = "spec.engine.extraArgs"

CLASSES = (
    FailureClass(
        "TokensPerStepOutOfRange",
        _AREA,
        "The tokens per step do not fit the block size N: at least N is needed, and releases up to LMCache 0.5.3 want "
        "less than 2N.",
        f"{_VLLM}.maxNumBatchedTokens",
        "Use policy TwoBlocksMinusOne (2N-1), and remove what sets another value (spec.engine.env, spec.unsupported). "
        "Exactly N, which the message may advise, would serialise prefill.",
    ),
    FailureClass(
        "MaxNumSeqsTooLarge",
        _AREA,
        "The engine is asked to run more sequences at once than it has state blocks, or tokens per step, for.",
        f"{_VLLM}.maxNumSeqs",
        "Set it to the number in the message or less, or raise gpuMemoryUtilizationPercent.",
    ),
    FailureClass(
        "MaxModelLenTooLarge",
        _AREA,
        "The context length is beyond what the model was made for.",
        "spec.model.maxModelLen",
        "Lower it to the model's own length.",
    ),
    FailureClass(
        "AttentionBackendUnusable",
        _AREA,
        "The attention backend cannot serve this model with these settings.",
        f"{_VLLM}.attentionBackend",
        "Leave it and blockSize unset, or choose a backend that accepts the KV dtype and block size in the message.",
    ),
    FailureClass(
        "ChunkedPrefillDisabled",
        _AREA,
        "Prefix caching of a hybrid model needs chunked prefill, and it is switched off.",
        _EXTRA,
        "Remove --no-enable-chunked-prefill and --disable-chunked-mm-input.",
    ),
    FailureClass(
        "PrefixCachingDisabled",
        _AREA,
        "Prefix caching is off, so the engine keeps no state that could be cached.",
        _EXTRA,
        "Remove what turns it off, use an image with vLLM 0.32.0, or set spec.cache.mode to Disabled.",
    ),
    FailureClass(
        "RetentionIntervalInvalid",
        _AREA,
        "The prefix-cache retention interval is not a multiple of N.",
        _EXTRA,
        "Remove --prefix-cache-retention-interval, or make it a multiple of the block size in the message.",
    ),
    FailureClass(
        "ModelRunnerUnsupported",
        _AREA,
        "The engine's second model runner cannot keep states of a hybrid model in this release.",
        "spec.engine.env",
        "Remove VLLM_USE_V2_MODEL_RUNNER.",
    ),
    FailureClass(
        "TensorParallelUnfit",
        _AREA,
        "The tensor-parallel size does not fit the GPUs of the pod or the heads of the model.",
        f"{_VLLM}.tensorParallelSize",
        "Make it equal to spec.engine.accelerator.gpu.count and a divisor of the model's attention heads.",
    ),
    FailureClass(
        "WrongKVConnector",
        _AREA,
        "The engine's KV connector is not the one that can serve hybrid models.",
        "spec.engine.image",
        "Use an image with LMCache 0.5.6 beside vLLM, and remove settings of a connector of your own. Do not follow "
        "advice to disable the hybrid KV cache manager.",
    ),
    FailureClass(
        "HybridCacheManagerDisabled",
        _AREA,
        "The hybrid KV cache manager is off, and these models need it.",
        _EXTRA,
        "Remove --disable-hybrid-kv-cache-manager; with a vLLM before 0.24 use a newer image (spec.engine.image).",
    ),
    FailureClass(
        "ExpandableSegments",
        _AREA,
        "GPU memory that the allocator may move cannot be shared with the cache server.",
        "spec.engine.env",
        "Remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF.",
    ),
)

RULES = (
    rule(
        "TokensPerStepOutOfRange",
        r"In Mamba cache align mode, block_size \((?P<blockSize>\d+)\) must be <= "
        r"max_num_batched_tokens \((?P<maxNumBatchedTokens>\d+)\)",
        "The engine's token budget {maxNumBatchedTokens} is below the block size N = {blockSize}.",
    ),
    rule(
        "TokensPerStepOutOfRange",
        r"Mamba-hybrid models with LMCache require block_size <= max_num_batched_tokens.{0,300}?"
        r"got max_num_batched_tokens=(?P<maxNumBatchedTokens>\d+), block_size=(?P<blockSize>\d+)",
        "This LMCache refuses {maxNumBatchedTokens} tokens per step with block size N = {blockSize}: it wants N to "
        "2N-1.",
    ),
    rule(
        "TokensPerStepOutOfRange",
        r"Mamba-hybrid models with LMCache require max_num_batched_tokens >= block_size.{0,300}?"
        r"got max_num_batched_tokens=(?P<maxNumBatchedTokens>\d+), block_size=(?P<blockSize>\d+)",
        "LMCache refuses {maxNumBatchedTokens} tokens per step: less than the block size N = {blockSize}.",
    ),
    rule(
        "MaxNumSeqsTooLarge",
        r"max_num_seqs \((?P<maxNumSeqs>\d+)\) exceeds available Mamba cache blocks \((?P<availableBlocks>\d+)\)",
        "The engine may run {maxNumSeqs} sequences at once but has state blocks for {availableBlocks}.",
        remedy="Set it to {availableBlocks} or less, or raise gpuMemoryUtilizationPercent.",
    ),
    rule(
        "MaxNumSeqsTooLarge",
        r"max_num_batched_tokens \((?P<maxNumBatchedTokens>\d+)\) must be greater than or equal to "
        r"max_num_seqs \((?P<maxNumSeqs>\d+)\)",
        "The engine may run {maxNumSeqs} sequences at once but computes only {maxNumBatchedTokens} tokens per step.",
        remedy="Set it to {maxNumBatchedTokens} or less.",
    ),
    rule(
        "MaxModelLenTooLarge",
        r"User-specified max_model_len \((?P<maxModelLen>\d+)\) is greater than the derived max_model_len "
        r"\(\w+=(?P<maxPositionEmbeddings>\d+)",
        "maxModelLen {maxModelLen} is beyond the {maxPositionEmbeddings} tokens that the model was made for.",
        remedy="Lower it to {maxPositionEmbeddings} or less.",
    ),
    rule(
        "AttentionBackendUnusable",
        r"Unknown attention backend: '(?P<backend>[^'\n]{0,80})'",
        "The image knows no attention backend {backend}.",
    ),
    rule(
        "AttentionBackendUnusable",
        r"Selected backend (?P<backend>\S+) is not valid for this configuration"
        r"(?:\. Reason: \[(?P<reason>[^\]\n]{0,200}))?",
        "The attention backend {backend} cannot serve this model with these settings: {reason}",
    ),
    rule("AttentionBackendUnusable", r"No valid attention backend found for", "No attention backend fits."),
    rule(
        "AttentionBackendUnusable",
        r"Aligned KV cache block size (?P<blockSize>\d+) is not supported by attention backend",
        "The block size N = {blockSize} is not accepted by the attention backend.",
    ),
    rule(
        "AttentionBackendUnusable",
        r"No common block size for (?P<blockSize>\d+)\b",
        "The attention backends have no kernel block in common that divides N = {blockSize}.",
    ),
    rule(
        "ChunkedPrefillDisabled",
        r"Chunked MM input is required because we need the flexibility",
        "The engine must be free to cut images at block ends, which --disable-chunked-mm-input forbids.",
        remedy="Remove --disable-chunked-mm-input.",
    ),
    rule(
        "ChunkedPrefillDisabled",
        r"Chunked prefill is required for (?:Mamba prefix caching|mamba cache mode)",
        remedy="Remove --no-enable-chunked-prefill.",
    ),
    rule(
        "PrefixCachingDisabled",
        r"--mamba-block-size can only be set with --enable-prefix-caching",
        "--mamba-block-size is given although prefix caching is off.",
        remedy="Remove --mamba-block-size; it would be overwritten by N in any case.",
    ),
    rule(
        "PrefixCachingDisabled",
        r"LMCache cannot serve this model's KV cache groups:[^\n]{0,300}?mamba_cache_mode='none'",
        "LMCache cannot cache this model because the engine keeps no states (mamba_cache_mode 'none').",
    ),
    rule(
        "RetentionIntervalInvalid",
        r"prefix_cache_retention_interval \((?P<retentionInterval>-?\d+)\) must be non-negative and a multiple of "
        r"scheduler_block_size \((?P<blockSize>\d+)\)",
        "The retention interval {retentionInterval} is not a multiple of the block size N = {blockSize}.",
    ),
    rule("ModelRunnerUnsupported", r"Model Runner V2 has not yet supported mamba_cache_mode='align'"),
    rule(
        "TensorParallelUnfit",
        r"World size \((?P<worldSize>\d+)\) is larger than the number of available GPUs \((?P<gpus>\d+)\)",
        "The engine wants {worldSize} GPUs and sees {gpus}.",
    ),
    rule(
        "TensorParallelUnfit",
        r"Total number of attention heads \((?P<attentionHeads>\d+)\) must be divisible by "
        r"tensor parallel size \((?P<tensorParallelSize>\d+)\)",
        "The model's {attentionHeads} attention heads cannot be spread over {tensorParallelSize} ranks.",
    ),
    rule(
        "WrongKVConnector",
        r"Connector (?P<connector>\S+) does not support HMA but HMA is enabled",
        "The KV connector {connector} cannot serve hybrid models.",
        remedy="Remove it; the operator configures LMCacheMPConnector. Do not disable the hybrid KV cache manager.",
        field=_EXTRA,
    ),
    rule(
        "WrongKVConnector",
        r"Unsupported connector type: (?P<connector>\S+)",
        "The engine in this image has no KV connector {connector}.",
    ),
    rule(
        "WrongKVConnector",
        r"Class LMCacheMPConnector not found in lmcache\S*",
        "The LMCache in this image has no connector that serves hybrid models.",
    ),
    rule(
        "WrongKVConnector",
        r"LMCacheMPConnector only works without hybrid kv cache manager",
        "The engine fell back to its own LMCache connector, which cannot serve hybrid models.",
        remedy="Leave LMCACHE_USE_UPSTREAM_MP unset (spec.engine.env) and use an image with LMCache 0.5.6 beside vLLM.",
    ),
    rule(
        "WrongKVConnector",
        r"Please specify kv_role when kv_connector is set",
        "A KV connector is configured without its role.",
        remedy="Remove the connector settings; the operator writes them.",
        field=_EXTRA,
    ),
    rule(
        "HybridCacheManagerDisabled",
        r"(?:Hybrid KV cache manager is disabled but failed to|"
        r"Failed to promote local KV cache specs to one unified type)",
    ),
    rule("ExpandableSegments", r"is incompatible with PYTORCH_CUDA_ALLOC_CONF=expandable_segments"),
)
