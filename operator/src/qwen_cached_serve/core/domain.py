"""The conditions about block size, cache and validation: each a function from what is seen to one statement."""

from __future__ import annotations

from collections.abc import Mapping

from qwen_cached_serve.core.compatibility import compare, of_message
from qwen_cached_serve.core.conditions import Condition
from qwen_cached_serve.core.hits import chunk_tokens, never_cached_tokens
from qwen_cached_serve.core.observed import CACHE_SERVER
from qwen_cached_serve.core.podstate import NOT_REGISTERED, Phase, PodJudgement
from qwen_cached_serve.core.validation import combination
from qwen_cached_serve.core.view import View
from qwen_cached_serve.inpod.message import CompactReport


def probed(view: View) -> Condition:
    """Did the probe find N, and is it one N?"""
    failed = next(
        (pod for pod in view.current if pod.phase is Phase.FAILING and not pod.block_size and pod.diagnosis), None
    )
    sizes = block_sizes(view)
    if failed and failed.diagnosis and not sizes:
        return Condition("Probed", "False", failed.diagnosis.code, failed.diagnosis.sentence)
    if len(sizes) > 1:
        where = "; ".join(f"N = {size} on {', '.join(_nodes_of(view, size))}" for size in sizes)
        return Condition(
            "Probed",
            "True",
            "MixedBlockSizes",
            f"Pods found different block sizes: {where}. Each pod uses its own; name one GPU model in "
            "spec.pod.nodeSelector to make them equal.",
        )
    if sizes:
        return Condition("Probed", "True", "Probed", _probed_words(view, sizes[0]))
    unreadable = next((pod for pod in view.current if _message_lost(pod)), None)
    if unreadable:
        return Condition(
            "Probed",
            "Unknown",
            "ReportLost",
            f"The probe of pod {unreadable.pod.name} succeeded, but its message is gone or cannot be read; the pod "
            "itself has the report (GET /report on its relay port).",
        )
    if any(pod.phase is Phase.PROBING for pod in view.current):
        return Condition("Probed", "Unknown", "Probing", "The probe is running; N is not known yet.")
    return Condition("Probed", "Unknown", "NoPodProbed", "No pod has been probed yet.")


def _nodes_of(view: View, size: int) -> list[str]:
    return sorted({pod.pod.node or pod.pod.name for pod in view.live if pod.block_size == size})


def block_sizes(view: View) -> list[int]:
    """Different N of the live pods, of the current template where it has any, ascending."""
    current = sorted({pod.block_size for pod in view.current if pod.block_size})
    return current or sorted({pod.block_size for pod in view.live if pod.block_size})


def _message_lost(pod: PodJudgement) -> bool:
    return pod.block_size is None and pod.phase in (
        Phase.CACHE_STARTING,
        Phase.STARTING,
        Phase.SERVING,
        Phase.NOT_READY,
    )


def _probed_words(view: View, size: int) -> str:
    report = next((pod.report for pod in view.current if pod.report and pod.report.block_size == size), None)
    words = f"N = {size}"
    if report:
        backends = "+".join(report.attention_backends)
        words += f" (kernel block {report.kernel_block_size or 'unknown'}, {backends})" if backends else ""
        words += f" on {report.gpu_name}" if report.gpu_name else ""
        words += ", found by starting the engine dry" if report.method == "DryStart" else ""
    plan = view.subject.plan
    predicted = plan.predicted.block_size if plan and plan.predicted else None
    if predicted and predicted != size:
        words += f"; {predicted} was predicted, and the probe decides"
    return words + "."


def block_size_verified(view: View) -> Condition:
    """Do the running programs agree with the probe? The start-up gate in the pod is the proof; later reads only
    confirm.
    """
    kind = "BlockSizeVerified"
    for pod in view.current:
        if pod.diagnosis and pod.diagnosis.code in ("BlockSizeMismatch", "ChunkSizeMismatch"):
            return Condition(kind, "False", pod.diagnosis.code, pod.diagnosis.sentence)
        if wrong := pod.other_block_sizes:
            return Condition(
                kind,
                "False",
                "BlockSizeMismatch",
                f"Pod {pod.pod.name} was probed with N = {pod.block_size}, but its programs run with "
                f"{', '.join(map(str, wrong))}. If that comes back with another pod, report it.",
            )
    if _nothing_to_compare(view):
        return Condition(
            kind,
            "Unknown",
            "CacheDisabled",
            "The cache is off: the gate asks for the engine's health only, and no block sizes are compared.",
        )
    passed = [pod for pod in view.current if pod.gate_passed]
    if passed and len(passed) == len(view.current):
        return Condition(kind, "True", "GatePassed", "Engine and cache server run with the probed block size.")
    if passed:
        return Condition(
            kind, "Unknown", "PartlyVerified", f"{len(passed)} of {len(view.current)} pods have passed the gate."
        )
    return Condition(kind, "Unknown", "NotRunning", "No engine has passed the start-up gate yet.")


def _nothing_to_compare(view: View) -> bool:
    """Whether the cache is off, by the pods themselves where the kubelet has told their containers."""
    told = [pod.pod.containers for pod in view.current if pod.pod.containers]
    if told:
        return not any(CACHE_SERVER in containers for containers in told)
    return view.subject.resolved is not None and not view.subject.resolved.cached


def cache_effective(view: View) -> Condition:
    """Can requests hit the cache at all?"""
    kind, resolved = "CacheEffective", view.subject.resolved
    if resolved is None:
        return Condition(kind, "Unknown", "SpecNotAccepted", "The spec was refused.")
    if not resolved.cached:
        return Condition(kind, "False", "Disabled", "The cache is switched off (spec.cache.mode: Disabled).")
    size = next(iter(block_sizes(view)), None)
    limit = _context(view)
    never = never_cached_tokens(resolved.settings, size) if size else 0
    if never and limit and limit <= never:
        return Condition(
            kind,
            "False",
            "BlockLargerThanContext",
            f"Prompts of {never} tokens or fewer are never cached, and the longest request has {limit}: nothing can "
            "ever be cached. Raise spec.model.maxModelLen or lower spec.cache.chunkBlocks.",
        )
    down = next((pod for pod in view.current if pod.cache_down), None)
    if down and down.cache_down:
        return Condition(
            kind,
            "False",
            down.cache_down.code,
            f"Pod {down.pod.name} serves without its cache: {down.cache_down.sentence}",
        )
    lost = next((pod for pod in view.current if pod.detached and pod.detached.reason == NOT_REGISTERED), None)
    if lost and lost.phase is Phase.SERVING:
        return Condition(
            kind,
            "False",
            "NotRegistered",
            f"The engine of pod {lost.pod.name} is not registered with its cache server; it registers again by itself, "
            "usually within half a minute.",
        )
    if size is None or not any(pod.phase is Phase.SERVING for pod in view.current):
        return Condition(kind, "Unknown", "NotServing", "No pod serves yet.")
    steps = chunk_tokens(resolved.settings, size)
    return Condition(kind, "True", "Effective", f"Prompts longer than {never} tokens are cached, in steps of {steps}.")


def _context(view: View) -> int | None:
    resolved = view.subject.resolved
    if resolved and resolved.settings.engine.max_model_len:
        return resolved.settings.engine.max_model_len
    return next((pod.report.max_model_len for pod in view.current if pod.report and pod.report.max_model_len), None)


def cache_compatible(view: View) -> Condition:
    """Can the pods of the current template read each other's entries? Those of an older one are being replaced."""
    kind = "CacheCompatible"
    groups: dict[str, CompactReport | None] = {}
    for pod in view.current:
        if pod.report or pod.identity:
            groups[pod.identity] = groups.get(pod.identity) or pod.report
    if not groups:
        return Condition(kind, "Unknown", "NoPodProbed", "No pod has been probed yet.")
    if "" in groups:
        cached = view.subject.resolved is None or view.subject.resolved.cached
        if not cached:
            return Condition(kind, "Unknown", "CacheDisabled", "The cache is off, so nothing could be shared.")
        return Condition(
            kind,
            "Unknown",
            "IdentityNotReported",
            "A pod's probe reported no compatibility identity: scripts of an older operator. A new pod will.",
        )
    if len(groups) > 1:
        return Condition(kind, "False", "PodsDiffer", _pods_differ(view, groups))
    return Condition(kind, "True", "Identical", "All pods have the same compatibility identity.")


def _pods_differ(view: View, groups: Mapping[str, CompactReport | None]) -> str:
    gpus = sorted({pod.gpu for pod in view.current if pod.gpu})
    # Of a pod whose message is gone only the identity is known, which names no reasons.
    sides = [of_message(name, report) for name, report in sorted(groups.items()) if report]
    found = [compare(sides[0], other) for other in sides[1:]]
    names = sorted({entry.component for one in found for entry in one.differences} - {"identity"})
    what = f" They differ in {', '.join(names)}." if names else " qcs compat pod/A pod/B tells what differs."
    why = ""
    if len(gpus) > 1:
        why = f" They run on {', '.join(gpus)}: name one GPU model in spec.pod.nodeSelector to make them equal."
    return (
        f"The pods could not read each other's cache entries.{what}{why} Each identity has a namespace of its own, so "
        "answers are not affected."
    )


def validated(view: View) -> Condition:
    """Is this combination one that was run end to end?"""
    resolved = view.subject.resolved
    if resolved is None:
        return Condition("Validated", "Unknown", "SpecNotAccepted", "The spec was refused.")
    report = next((pod.report for pod in view.current if pod.report), None)
    return combination(resolved.settings, report.vllm if report else None, report.lmcache if report else "")
