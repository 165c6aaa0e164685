"""What an engine's log says about N, the attention backend and prefix caching.

The line that carries N moved between modules, processes and prefixes over the releases, so it is recognised by its full
sentence and by nothing around it (cases B01-B06). The log is a witness only: the probe measures N.
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
# Older releases. The words after the name keep the vision encoder's line out ("… for MMEncoderAttention.").
_BACKEND_OLD = re.compile(r"Using AttentionBackendEnum\.([A-Z][A-Z0-9_]+) backend\.")
_PREFIX_CACHING_OFF = re.compile(r"[^\n]*without support for prefix caching: disabling\.[^\n]*")


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


def read_engine_log(text: str) -> EngineLogFacts:
    """Collect the facts of an engine's log; several workers that say the same count once."""
    sizes = sorted({int(size) for size in _BLOCK_SIZE.findall(text)})
    kernels = {int(size) for size in _KERNEL_BLOCK.findall(text)}
    backend = _BACKEND.search(text) or _BACKEND_OLD.search(text)
    padding = _PADDING.search(text)
    disabled = _PREFIX_CACHING_OFF.search(text)
    return EngineLogFacts(
        block_size=sizes[0] if len(sizes) == 1 else None,
        conflicting_block_sizes=tuple(sizes) if len(sizes) > 1 else (),
        kernel_block_size=kernels.pop() if len(kernels) == 1 else None,
        attention_backend=backend.group(1) if backend else None,
        padding_percent=float(padding.group(1)) if padding else None,
        prefix_caching_disabled=disabled.group(0).strip() if disabled else None,
    )
