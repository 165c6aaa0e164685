"""What differs between releases of vLLM and LMCache, read from `vllm-profiles.json` and `lmcache-profiles.json`.

A row says what a release changed; what it does not name holds on from the rows before it. A version newer than the
newest reviewed one, older than the oldest, or one that cannot be read, gets the nearest profile and a note.
Pre-releases behave like the release they lead to (0.5.7rc2 as 0.5.7) but sort before it when compared with a minimum.
Source of the data: the programs' own wheels; `tools/release_facts.py` reads them again, a test compares.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_VERSION = re.compile(
    r"v?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?(?:[-_.]?post\d*)?([-_.]?dev\d*)?(?:\+.*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Release numbers without trailing zeros, and whether it is final: pre-releases sort before the release."""

    release: tuple[int, ...]
    final: bool = True


def parse_version(text: str) -> Version | None:
    """Read `0.32.0+cpu`, `v0.5.7rc2`, `0.33.1.dev12+g4ba`; None when it is not a version (`nightly`, empty)."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return Version(tuple(numbers), match[2] is None and match[3] is None)


@dataclass(frozen=True, slots=True)
class VllmProfile:
    """How one range of vLLM releases takes its flags and rounds N; block sizes are tokens."""

    since: str
    mamba_cache_mode_flag: bool
    """`--mamba-cache-mode align` must be given; from 0.33 it is a deprecated no-op."""
    retention_flag: bool
    """`--prefix-cache-retention-interval` exists (0.29) and its default keeps almost no prefixes."""
    small_capabilities: tuple[str, ...]
    """Compute capabilities that get a small GPU's default of sequences whatever their memory (0.33: GB10)."""
    flash_attention_float32_state_blocks: tuple[int, ...]
    """The only blocks FLASH_ATTN takes on a hybrid model with a float32 state; empty = every multiple of 16."""
    flash_attention_blackwell_block: int
    """The only block FLASH_ATTN takes on SM10x with heads of 256 and plain KV (FlashAttention 4); 0 = no such rule."""
    flashinfer_large_blocks: bool
    """FLASHINFER takes 128 to 1,024 on SM10x too, where TensorRT-LLM's kernels can be used."""
    cpu_kernel_block: int
    """CPU_ATTN takes multiples of this."""
    gdn_flashinfer_generations: tuple[int, ...]
    """Major compute capabilities on which FlashInfer prefills the linear layers unless told otherwise."""
    gdn_checkpoint_tokens: int
    """Multiple on which FlashInfer's prefill can leave a state behind, and N must lie on it; 1 = no such rule."""
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class LMCacheProfile:
    """How one range of LMCache releases takes its flags."""

    since: str
    separate_object_groups: bool
    isolated_ipc: bool
    reap_timeout: bool
    tokens_per_step: str
    """`OneBlockOnly`: the connector demands N <= tokens per step < 2N; `AtLeastOneBlock`: only >= N."""
    negotiates_chunk: bool
    """The server raises its chunk size to a multiple of N by itself; an explicit chunk size stays valid."""
    http_host_default: str
    """Where the server's HTTP API (no authentication) would listen without `--http-host`."""
    prometheus_port: str
    """`Ignored`: `--prometheus-port` is accepted, but nothing listens there; metrics are on the HTTP port."""
    valkey_credentials_swapped: bool
    """Its Valkey client takes `ServerCredentials(username, password)`, whose first parameter is the password: what the
    adapter calls user name has to be the password."""
    source: str = ""
    note: str = ""


P = TypeVar("P", VllmProfile, LMCacheProfile)


@dataclass(frozen=True, slots=True)
class PairRule:
    """A range of vLLM x LMCache releases with a known fault; bounds that are None are open."""

    effect: str
    issues: tuple[str, ...]
    vllm_since: Version | None = None
    vllm_before: Version | None = None
    lmcache_since: Version | None = None
    lmcache_before: Version | None = None

    def matches(self, vllm: Version, lmcache: Version) -> bool:
        """Tell whether the pair lies in the rule's ranges."""
        return _within(vllm, self.vllm_since, self.vllm_before) and _within(
            lmcache, self.lmcache_since, self.lmcache_before
        )


@dataclass(frozen=True, slots=True)
class Profiles:
    """The whole of both data files."""

    advised_vllm: str
    advised_lmcache: str
    minimum_vllm: str
    minimum_vllm_reason: str
    minimum_vllm_with_cache: str
    minimum_lmcache: str
    minimum_lmcache_reason: str
    architectures: tuple[str, ...]
    max_num_seqs_gpu_70gib: int
    max_num_seqs_gpu: int
    max_num_seqs_cpu_per_rank: int
    vllm: tuple[VllmProfile, ...]
    lmcache: tuple[LMCacheProfile, ...]
    newest_vllm: str
    """Newest release whose sources were read; a newer patch of it counts as read."""
    newest_lmcache: str
    denied: tuple[PairRule, ...]
    warned: tuple[PairRule, ...]

    @property
    def advised_pair(self) -> str:
        """The pair that was run end to end, for people."""
        return f"vLLM {self.advised_vllm} with LMCache {self.advised_lmcache}"

    def for_vllm(self, version: str) -> VllmProfile:
        """Profile of a vLLM version; its `note` says when the version is not one that was reviewed."""
        return _select(self.vllm, version, "vLLM", self.newest_vllm)

    def for_lmcache(self, version: str) -> LMCacheProfile:
        """Profile of an LMCache version; its `note` says when the version is not one that was reviewed."""
        return _select(self.lmcache, version, "LMCache", self.newest_lmcache)

    def known_faults(self, vllm: str, lmcache: str) -> tuple[PairRule, ...]:
        """Deny list and warnings that hold for a pair; none when one of the versions cannot be read."""
        engine, server = parse_version(vllm), parse_version(lmcache)
        if engine is None or server is None:
            return ()
        return tuple(rule for rule in (*self.denied, *self.warned) if rule.matches(engine, server))


@functools.cache
def load_profiles() -> Profiles:
    """Read both data files; they lie beside this module, in the package and in the pod."""
    here = Path(__file__).parent
    vllm = json.loads((here / "vllm-profiles.json").read_text(encoding="utf-8"))
    lmcache = json.loads((here / "lmcache-profiles.json").read_text(encoding="utf-8"))
    seqs = vllm["default_max_num_seqs"]
    return Profiles(
        advised_vllm=vllm["advised"],
        advised_lmcache=lmcache["advised"],
        minimum_vllm=vllm["minimum"],
        minimum_vllm_reason=vllm["minimum_reason"],
        minimum_vllm_with_cache=vllm["minimum_with_cache"],
        minimum_lmcache=lmcache["minimum"],
        minimum_lmcache_reason=lmcache["minimum_reason"],
        architectures=tuple(vllm["architectures"]),
        max_num_seqs_gpu_70gib=seqs["gpu_70gib"],
        max_num_seqs_gpu=seqs["gpu"],
        max_num_seqs_cpu_per_rank=seqs["cpu_per_rank"],
        vllm=_rows(VllmProfile, vllm["profiles"]),
        lmcache=_rows(LMCacheProfile, lmcache["profiles"]),
        newest_vllm=vllm["newest_reviewed"],
        newest_lmcache=lmcache["newest_reviewed"],
        denied=tuple(_pair_rule(row) for row in lmcache["denied_pairs"]),
        warned=tuple(_pair_rule(row) for row in lmcache["warned_pairs"]),
    )


def _rows(kind: type[P], rows: list[dict[str, Any]]) -> tuple[P, ...]:
    """Every row with what it takes over from the one before; a source belongs to its own row only."""
    made: list[P] = []
    held: dict[str, Any] = {}
    for row in rows:
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        held = held | {"source": ""} | values
        made.append(kind(**held))
    return tuple(made)


def _pair_rule(row: dict[str, Any]) -> PairRule:
    bounds = {key: parse_version(value) for key, value in row.items() if key.endswith(("_since", "_before"))}
    return PairRule(effect=row["effect"], issues=tuple(row["issues"]), **bounds)


def _within(version: Version, since: Version | None, before: Version | None) -> bool:
    return (since is None or version >= since) and (before is None or version < before)


def _select(rows: tuple[P, ...], version: str, program: str, newest: str) -> P:
    parsed = parse_version(version)
    if parsed is None:
        note = f"the image reports no release number for {program} ({version!r}); it is treated as {newest}"
        return dataclasses.replace(rows[-1], note=note)
    # Behaviour follows the release a pre-release leads to, so only the numbers count here.
    known = [row for row in rows if _release(row.since) <= parsed.release]
    if not known:
        note = f"{program} {version} is older than the oldest reviewed release ({rows[0].since})"
        return dataclasses.replace(rows[0], note=note)
    reviewed = _release(newest)
    if parsed.release[: len(reviewed)] > reviewed:
        note = f"{program} {version} is newer than the newest reviewed release ({newest}) and treated as that one"
        return dataclasses.replace(known[-1], note=note)
    return known[-1]


def _release(text: str) -> tuple[int, ...]:
    version = parse_version(text)
    assert version is not None, f"not a version in the profile data: {text!r}"  # noqa: S101
    return version.release
