"""The architecture of the device an engine runs on, as far as it decides how cached state is laid out."""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from .facts import Gpu

UNKNOWN = "unknown"
_CPU_FEATURES = frozenset({"avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "bf16", "sve"})
"""Instruction sets that vLLM's CPU attention chooses its cache layout by (`cpu_attn._get_attn_isa`), or its kernels."""


def architecture(accelerator: str, gpus: Sequence[Gpu], root: Path = Path("/")) -> str:
    """`sm_90` for compute capability 9.0, `x86_64 avx2` for a processor, `unknown` when nothing tells.

    `root` is the file system to look at.
    """
    if accelerator == "CPU":
        return " ".join([platform.machine(), *_cpu_features(root)])
    capabilities = sorted({f"sm_{gpu.capability.replace('.', '')}" for gpu in gpus if gpu.capability})
    if capabilities:
        return "+".join(capabilities)
    found = _amd_targets(root) or _nvidia_models(root)
    return "+".join(sorted(found)) or UNKNOWN


def _cpu_features(root: Path) -> list[str]:
    with contextlib.suppress(OSError):
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
        if match:
            return sorted(_CPU_FEATURES & set(match[1].split()))
    return []


def _amd_targets(root: Path) -> set[str]:
    found = set()
    for path in root.glob("sys/class/kfd/kfd/topology/nodes/*/properties"):
        with contextlib.suppress(OSError):
            match = re.search(r"^gfx_target_version (\d+)$", path.read_text(encoding="ascii"), re.MULTILINE)
            if match and int(match[1]):
                found.add(f"gfx_{match[1]}")
    return found


def _nvidia_models(root: Path) -> set[str]:
    """Without nvidia-smi the driver's own files still name the GPUs."""
    found = set()
    for path in root.glob("proc/driver/nvidia/gpus/*/information"):
        with contextlib.suppress(OSError):
            match = re.search(r"^Model:\s*(.+)$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
            if match:
                found.add(match[1].strip())
    return found
