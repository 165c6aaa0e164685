"""GPU names as people write them, and the compute capability that vLLM decides by.

The block size depends on the GPU's generation only (facts/vllm.md §1.2, §1.3), so product names map to capabilities.
"""

from __future__ import annotations

import re

from qwen_cached_serve.inpod.facts import Gpu

Capability = tuple[int, int]

_CAPABILITIES: tuple[tuple[str, Capability], ...] = (
    # Longer names first: "GB200" holds "B200", "L40S" holds "L40", "H200" must not match in "GH200".
    ("GB300", (10, 3)),
    ("B300", (10, 3)),
    ("GB200", (10, 0)),
    ("GB10", (12, 1)),
    ("B200", (10, 0)),
    ("B100", (10, 0)),
    ("GH200", (9, 0)),
    ("H200", (9, 0)),
    ("H100", (9, 0)),
    ("H800", (9, 0)),
    ("H20", (9, 0)),
    ("RTX PRO 6000", (12, 0)),
    ("RTX PRO 5000", (12, 0)),
    ("RTX 5090", (12, 0)),
    ("RTX 5080", (12, 0)),
    ("RTX 5070", (12, 0)),
    ("THOR", (11, 0)),
    ("RTX 4000 ADA", (8, 9)),
    ("RTX 5000 ADA", (8, 9)),
    ("RTX 6000 ADA", (8, 9)),
    ("RTX 4090", (8, 9)),
    ("RTX 4080", (8, 9)),
    ("L40S", (8, 9)),
    ("L40", (8, 9)),
    ("L4", (8, 9)),
    ("RTX 3090", (8, 6)),
    ("RTX 3080", (8, 6)),
    ("RTX A6000", (8, 6)),
    ("A100", (8, 0)),
    ("A800", (8, 0)),
    ("A10G", (8, 6)),
    ("A10", (8, 6)),
    ("A40", (8, 6)),
    ("A30", (8, 0)),
    ("A16", (8, 6)),
    ("A2", (8, 6)),
    ("T4", (7, 5)),
    ("V100", (7, 0)),
)

_GIB = 1 << 30
_MEMORY_GIB = {
    **dict.fromkeys(("GB300", "B300", "GB200", "B200", "B100"), 180),
    **dict.fromkeys(("GH200", "H200", "H100", "H800", "H20", "RTX PRO 6000", "GB10", "THOR"), 80),
    **dict.fromkeys(("L40S", "L40", "L4", "A40", "A30", "A16", "A10G", "A10", "A2", "RTX A6000", "RTX 5090"), 24),
    **dict.fromkeys(("RTX 4090", "RTX 3090", "RTX 6000 ADA", "A100"), 24),
}
"""Memory as far as vLLM's defaults ask for it: below 70 GiB (and every A100), from there on, from 160 GiB on."""

_NUMERIC = re.compile(r"^(?:SM_?)?(\d{1,2})[.]?(\d)$")


class UnknownGpuError(ValueError):
    """A GPU name or capability that is not known; the message says how to write it."""


def capability_of(text: str) -> Capability:
    """Read a compute capability from `9.0`, `sm90` or a product name such as `NVIDIA H100 80GB HBM3`.

    Raises:
        UnknownGpuError: neither form is recognised.

    """
    wanted = _spelled(text)
    number = _NUMERIC.match(wanted.replace(" ", ""))
    if number:
        return int(number.group(1)), int(number.group(2))
    name = _product(wanted)
    if name is None:
        raise UnknownGpuError(
            f"GPU {text!r} is not known; give its compute capability instead, e.g. 9.0 for Hopper, 10.0 for Blackwell"
        )
    return dict(_CAPABILITIES)[name]


def typical_gpu(text: str) -> Gpu | None:
    """Describe a GPU by its product name as a probe would find it, memory roughly; None when it is not known."""
    name = _product(_spelled(text))
    if name not in _MEMORY_GIB:
        return None
    major, minor = dict(_CAPABILITIES)[name]
    return Gpu(text, "", f"{major}.{minor}", "", _MEMORY_GIB[name] * _GIB)


def _spelled(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.strip().upper())


def _product(wanted: str) -> str | None:
    names = (name for name, _ in _CAPABILITIES)
    return next((name for name in names if re.search(rf"(?<![A-Z0-9]){re.escape(name)}(?![A-Z0-9])", wanted)), None)
