"""What is asked: the full product of releases, GPU generations, models and settings, and the variants beside it.

Pure. The unit test builds the same list and demands an answer for each cell, so that none can go missing unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

RELEASES = ("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")


@dataclass(frozen=True, slots=True)
class Generation:
    """A GPU generation and the product that stands for it."""

    name: str
    capability: tuple[int, int]
    product: str
    memory_bytes: int
    processors: int
    """Streaming multiprocessors; FlashInfer sizes a buffer by them, N does not depend on it."""

    @property
    def told(self) -> str:
        """What the faked NVML reads from the environment variable FAKED_GPU."""
        major, minor = self.capability
        return f"{major}.{minor}|{self.product}|{self.memory_bytes}"


FAKED_GPU = "QCS_FAKED_GPU"

_GIB = 1 << 30
GENERATIONS = (
    Generation("SM80", (8, 0), "NVIDIA A100-SXM4-80GB", 80 * _GIB, 108),
    Generation("SM89", (8, 9), "NVIDIA L40S", 48 * _GIB, 142),
    Generation("SM90", (9, 0), "NVIDIA H100 80GB HBM3", 80 * _GIB, 132),
    Generation("SM100", (10, 0), "NVIDIA B200", 180 * _GIB, 148),
    Generation("SM120", (12, 0), "NVIDIA RTX PRO 6000 Blackwell Server Edition", 96 * _GIB, 188),
)

MODELS = (
    "Qwen/Qwen3.5-0.8B",
    "Qwen/Qwen3.5-2B",
    "Qwen/Qwen3.5-4B",
    "Qwen/Qwen3.5-9B",
    "Qwen/Qwen3.6-27B",
    "Qwen/Qwen3.6-35B-A3B",
    "Qwen/Qwen3.5-122B-A10B",
    "Qwen/Qwen3.5-397B-A17B",
)
"""One hub id for each geometry of the catalogue; the others (3.5-27B, 3.8-27B, 3.5-35B-A3B) share these."""

RANKS = (1, 2, 4, 8)
KV_DTYPES = ("auto", "fp8")
DRAFT_TOKENS = (0, 1, 3)


@dataclass(frozen=True, slots=True)
class Cell:
    """One question; None means the flag is not given."""

    release: str
    generation: str
    model: str
    tensor_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    draft_tokens: int = 0
    attention_backend: str | None = None
    gdn_prefill_backend: str | None = None
    block_size: int | None = None
    mamba_ssm_cache_dtype: str | None = None

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Cell:
        """Read the asking part of a row of the JSON."""
        return cls(**{name: row[key] for name, key in COLUMN_OF_FIELD.items()})

    def row(self) -> dict[str, Any]:
        """The asking part of a row of the JSON."""
        return {key: getattr(self, name) for name, key in COLUMN_OF_FIELD.items()}


COLUMN_OF_FIELD = {
    "release": "version",
    "generation": "sm",
    "model": "model",
    "tensor_parallel_size": "tp",
    "kv_cache_dtype": "kvDtype",
    "draft_tokens": "mtp",
    "attention_backend": "askedAttentionBackend",
    "gdn_prefill_backend": "askedGdnPrefill",
    "block_size": "askedBlockSize",
    "mamba_ssm_cache_dtype": "askedSsmDtype",
}
assert set(COLUMN_OF_FIELD) == {field.name for field in fields(Cell)}  # noqa: S101 - a column for each field


def main_cells(release: str, generation: str) -> Iterator[Cell]:
    """Model x TP x KV dtype x draft tokens, everything else the engine's default."""
    for model, kv, draft, ranks in product(MODELS, KV_DTYPES, DRAFT_TOKENS, RANKS):
        yield Cell(release, generation, model, ranks, kv, draft)


_VARIANT_MODELS = ("Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-0.8B")
_ATTENTION_BACKENDS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
_GDN_BACKENDS = ("triton", "flashinfer", "cutedsl")
_BLOCK_SIZES = (16, 32, 64, 128, 640, 784, 832, 1024)


def variant_cells(release: str, generation: str) -> Iterator[Cell]:
    """Flags that people set by hand (facts/vllm.md §1.7), one or two at a time, on two models."""
    for model, kv in product(_VARIANT_MODELS, KV_DTYPES):
        plain = Cell(release, generation, model, kv_cache_dtype=kv)
        for backend in _ATTENTION_BACKENDS:
            yield replace(plain, attention_backend=backend)
            yield replace(plain, attention_backend=backend, block_size=784)
            yield replace(plain, attention_backend=backend, block_size=1024)
        for gdn in _GDN_BACKENDS:
            yield replace(plain, gdn_prefill_backend=gdn)
        for block_size in _BLOCK_SIZES:
            yield replace(plain, block_size=block_size)
        # A single query head for each KV head: FlashInfer's large pages are off there.
        yield replace(plain, block_size=1024, tensor_parallel_size=8)
        yield replace(plain, mamba_ssm_cache_dtype="bfloat16")


def cells_of(release: str, generation: str) -> list[Cell]:
    """Every question for one release on one GPU generation."""
    return [*main_cells(release, generation), *variant_cells(release, generation)]


def all_cells() -> list[Cell]:
    """The whole matrix, in the order of the JSON."""
    return [cell for release in RELEASES for gpu in GENERATIONS for cell in cells_of(release, gpu.name)]


def generation(name: str) -> Generation:
    """Find a generation by name.

    Raises:
        KeyError: not one of GENERATIONS.

    """
    return {gpu.name: gpu for gpu in GENERATIONS}[name]
