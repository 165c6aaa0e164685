"""What an engine's log says about N, the attention backend, prefix caching and the model.

The line that carries N moved between modules, processes and prefixes over the releases, so it is recognised by its full
sentence and by nothing around it (cases B01-B06); the same holds for the others. Read by the probe's dry start in the
pod and by the operator; wording read in vLLM 0.25 to 0.33.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK_SIZE = re.compile(
    r"Setting attention block size to (\d+) tokens to ensure that attention page size is >= mamba page size\."
)
_PADDING = re.compile(
    r"Padding mamba page size by (\d+(?:\.\d+)?)% to ensure that mamba page size and attention page size "
    r"are exactly equal"
)
# Printed first by backends that do not take 16-token blocks; never N.
_KERNEL_BLOCK = re.compile(r"Setting kv cache block size to (\d+) for [^\n]*? backend")
_BACKEND = re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) attention backend out of potential backends")
# Older releases, and every release when the backend was asked for. The words after the name keep the vision encoder's
# line out ("… for MMEncoderAttention.").
_BACKEND_OLD = re.compile(r"Using AttentionBackendEnum\.([A-Z][A-Z0-9_]+) backend\.")
_PREFIX_CACHING_OFF = re.compile(r"[^\n]*without support for prefix caching: disabling\.[^\n]*")
_ARCHITECTURE = re.compile(r"Resolved architecture: (\w+)")
_GDN_PREFILL = re.compile(r"Using (\S+) GDN prefill kernel")
_GDN_NAMES = {"FlashInfer": "flashinfer", "Triton/FLA": "triton", "CuteDSL": "cutedsl"}
"""The log's names → the values of `--gdn-prefill-backend`. On a CPU the layers call themselves triton all the same."""
_ENGINE_CONFIG = re.compile(r"Initializing a V1 LLM engine \(v[^)]*\) with config: ([^\n]*)")
_VERSION = re.compile(r"Initializing a V1 LLM engine \(v([^)]*)\)")


@dataclass(frozen=True, slots=True)
class EngineLogFacts:
    """Facts found in one log; None or empty where the log says nothing."""

    block_size: int | None = None
    """N in tokens. None when no line names it: the engine prints it only when it raises the block size (B05)."""
    conflicting_block_sizes: tuple[int, ...] = ()
    """Two or more different values of N in one log; `block_size` is None then."""
    kernel_block_size: int | None = None
    attention_backend: str | None = None
    padding_percent: float | None = None
    prefix_caching_disabled: str | None = None
    """The line by which an engine says that it turned prefix caching off (B06: the image is too old)."""
    architecture: str | None = None
    gdn_prefill_backend: str | None = None
    vllm_version: str | None = None
    device: str | None = None
    """`cuda`, `cpu` …: what the engine runs on."""
    kv_cache_dtype: str | None = None
    """After resolution."""
    prefix_caching: bool | None = None
    max_model_len: int | None = None


def read_engine_log(text: str) -> EngineLogFacts:
    """Collect the facts of an engine's log; several workers that say the same count once."""
    sizes = sorted({int(size) for size in _BLOCK_SIZE.findall(text)})
    kernels = {int(size) for size in _KERNEL_BLOCK.findall(text)}
    backend = _BACKEND.search(text) or _BACKEND_OLD.search(text)
    padding = _PADDING.search(text)
    disabled = _PREFIX_CACHING_OFF.search(text)
    gdn = _first(_GDN_PREFILL, text)
    config = _first(_ENGINE_CONFIG, text) or ""
    caching, length = _setting(config, "enable_prefix_caching"), _setting(config, "max_seq_len")
    return EngineLogFacts(
        block_size=sizes[0] if len(sizes) == 1 else None,
        conflicting_block_sizes=tuple(sizes) if len(sizes) > 1 else (),
        kernel_block_size=kernels.pop() if len(kernels) == 1 else None,
        attention_backend=backend.group(1) if backend else None,
        padding_percent=float(padding.group(1)) if padding else None,
        prefix_caching_disabled=disabled.group(0).strip() if disabled else None,
        architecture=_first(_ARCHITECTURE, text),
        gdn_prefill_backend=_GDN_NAMES.get(gdn) if gdn else None,
        vllm_version=_first(_VERSION, text),
        device=_setting(config, "device_config"),
        kv_cache_dtype=_setting(config, "kv_cache_dtype"),
        prefix_caching={"True": True, "False": False}.get(caching or ""),
        max_model_len=int(length) if length and length.isdecimal() else None,
    )


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match.group(1) if match else None


def _setting(config: str, name: str) -> str | None:
    """One value of the engine's configuration line: `a=1, b=auto, …`."""
    match = re.search(rf"(?:^|, ){name}=([\w.:-]+)", config)
    return match.group(1) if match else None
