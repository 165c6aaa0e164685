"""Could two engines read each other's cache entries? Comparing what is known of both, and saying what is not.

A side is a probe's full report, the short message of a pod, or a resource that no pod has been made of yet. A report
knows everything. A message knows the identity, which decides, and a part of the reasons. Of a resource some parts are
predicted (N and what follows from it) and some are open until a pod has been probed (a branch's commit, an image's
files): two sides with open parts are compatible only if those parts have the same unchangeable source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qwen_cached_serve.inpod.facts import ProbeReport
from qwen_cached_serve.inpod.identity import ENGINE_VARIABLE, dtype, hub_checkpoint, identity, release
from qwen_cached_serve.inpod.message import CompactReport


@dataclass(frozen=True, slots=True)
class Open:
    """A part that only a pod will tell."""

    words: str
    """What is known of it, for people."""
    pinned: bool = False
    """Whether the same words always lead to the same value (a digest, a commit), or can move (a tag, a branch)."""


@dataclass(frozen=True, slots=True)
class Side:
    """One engine, or the resource that it will be made of."""

    label: str
    components: Mapping[str, str]
    identity: str = ""
    """Empty as long as parts are open."""
    predicted: frozenset[str] = frozenset()
    """Components that were computed and not seen."""
    open: Mapping[str, Open] = field(default_factory=dict)
    image_variables: bool = False
    """Whether variables that the image sets are missing from the components."""
    partial: bool = False
    """Whether components that it does not name may exist all the same (a message holds a part of them)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One component in which the sides differ; an empty value means that the side does not have it."""

    component: str
    first: str
    second: str
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class Unsettled:
    """One component that cannot be compared yet."""

    component: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer: `compatible` is None while nothing differs and something is not known."""

    compatible: bool | None
    differences: tuple[Difference, ...] = ()
    unsettled: tuple[Unsettled, ...] = ()


def of_report(label: str, report: ProbeReport) -> Side:
    """Side of a probe's full report.

    Raises:
        ValueError: the report has no identity, or not the one that its components have.

    """
    if not report.identity or not report.identity_components:
        raise ValueError("the report names no identity: its pod runs without a cache, or an older operator made it")
    found = identity(report.identity_components)
    if found != report.identity:
        raise ValueError(f"the report says {report.identity}, but its components make {found}: it was changed")
    return Side(label, report.identity_components, report.identity)


def of_message(label: str, message: CompactReport) -> Side:
    """Side of a pod's termination message.

    Raises:
        ValueError: it names no identity.

    """
    if not message.identity:
        raise ValueError("the pod reported no identity: it runs without a cache, or an older operator made it")
    return Side(label, message_components(message), message.identity, partial=True)


def message_components(message: CompactReport) -> dict[str, str]:
    """The components that a message holds, under the names that the pod's own report uses."""
    found = {
        "blockSize": str(message.block_size),
        "kernelBlockSize": str(message.kernel_block_size or "not found"),
        "attentionBackend": "+".join(sorted(set(message.attention_backends))),
        "gdnPrefillBackend": message.gdn_prefill_backend,
        "kvCacheDtype": dtype(message.kv_cache_dtype),
        "recurrentStateDtype": dtype(message.mamba_ssm_cache_dtype),
        "mambaCacheMode": message.mamba_cache_mode,
        "release vllm": release(message.vllm) if message.vllm else "",
        "release lmcache": release(message.lmcache) if message.lmcache else "",
        "checkpoint": hub_checkpoint(message.model_revision) if message.model_revision else "",
        "architecture": f"sm_{message.gpu_capability.replace('.', '')}" if message.gpu_capability else "",
    }
    return {name: value for name, value in found.items() if value}


def compare(first: Side, second: Side) -> Comparison:
    """Compare two sides."""
    if first.identity and first.identity == second.identity:
        return Comparison(True)
    differences, unsettled = [], []
    for name in sorted({*first.components, *first.open, *second.components, *second.open}):
        found = _compare_one(name, first, second)
        if isinstance(found, Difference):
            differences.append(found)
        elif found:
            unsettled.append(found)
    if first.identity and second.identity:
        # Both are final. What a message does not hold cannot be named, and need not be.
        whole = Difference("identity", first.identity, second.identity)
        return Comparison(False, tuple(differences) or (whole,))
    if differences:
        return Comparison(False, tuple(differences), tuple(unsettled))
    return Comparison(None if unsettled or first.partial or second.partial else True, (), tuple(unsettled))


def _compare_one(name: str, first: Side, second: Side) -> Difference | Unsettled | None:
    if name in first.open or name in second.open:
        one, other = first.open.get(name), second.open.get(name)
        if one and other and one == other and one.pinned:
            return None
        return Unsettled(name, _words(name, first), _words(name, second))
    mine, theirs = first.components.get(name), second.components.get(name)
    if mine == theirs:
        return None
    if mine is None and _may_exist(name, first, second):
        return Unsettled(name, "not known", theirs or "")
    if theirs is None and _may_exist(name, second, first):
        return Unsettled(name, mine or "", "not known")
    return Difference(name, mine or "", theirs or "", name in first.predicted or name in second.predicted)


def _may_exist(name: str, lacking: Side, having: Side) -> bool:
    """Whether the side that does not name a component may have it all the same."""
    if lacking.partial:
        return True
    # The image of a resource may set what a pod was seen with; two resources' own variables are compared as they are.
    return lacking.image_variables and not having.image_variables and name.startswith(ENGINE_VARIABLE)


def _words(name: str, side: Side) -> str:
    if name in side.open:
        return side.open[name].words
    return side.components.get(name, "not known" if side.partial else "")
