"""The conditions about block size, cache and validation: each a function from what is seen to one statement."""

from __future__ import annotations

from qwen_cached_serve.core.conditions import Condition
from qwen_cached_serve.core.identity import identity_of
from qwen_cached_serve.core.observed import CACHE_SERVER
from qwen_cached_serve.core.podstate import Phase, PodJudgement
from qwen_cached_serve.core.view import View
from qwen_cached_serve.inpod.profiles import load_profiles, parse_version


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
        words += f" (kernel block {report.kernel_block_size}, {backends})" if backends else ""
        words += f" on {report.gpu_name}" if report.gpu_name else ""
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
        seen = pod.pod.verification
        if seen is None or pod.block_size is None:
            continue
        wrong = {seen.engine_block_size, *seen.server_block_sizes} - {None, pod.block_size}
        if wrong:
            return Condition(
                kind,
                "False",
                "BlockSizeMismatch",
                f"Pod {pod.pod.name} was probed with N = {pod.block_size}, but its programs run with "
                f"{', '.join(str(size) for size in sorted(size for size in wrong if size))}. Delete the pod; "
                "if it comes back, report it.",
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
    chunk = size * resolved.settings.cache.chunk_blocks if size else None
    if chunk and limit and limit <= chunk:
        return Condition(
            kind,
            "False",
            "BlockLargerThanContext",
            f"A cache entry holds {chunk} tokens and the longest request {limit}: nothing can ever be cached. "
            "Raise spec.model.maxModelLen or lower spec.cache.chunkBlocks.",
        )
    down = next((pod for pod in view.current if pod.cache_down), None)
    if down and down.cache_down:
        return Condition(
            kind,
            "False",
            down.cache_down.code,
            f"Pod {down.pod.name} serves without its cache: {down.cache_down.sentence}",
        )
    lost = next(
        (pod for pod in view.current if pod.pod.verification and pod.pod.verification.registered is False), None
    )
    if lost and lost.phase is Phase.SERVING:
        return Condition(
            kind,
            "False",
            "NotRegistered",
            f"The engine of pod {lost.pod.name} is not registered with its cache server; it registers again by itself, "
            "usually within half a minute.",
        )
    if chunk is None or not any(pod.phase is Phase.SERVING for pod in view.current):
        return Condition(kind, "Unknown", "NotServing", "No pod serves yet.")
    return Condition(kind, "True", "Effective", f"Prompts longer than {chunk} tokens are cached, in steps of {chunk}.")


def _context(view: View) -> int | None:
    resolved = view.subject.resolved
    if resolved and resolved.settings.engine.max_model_len:
        return resolved.settings.engine.max_model_len
    return next((pod.report.max_model_len for pod in view.current if pod.report and pod.report.max_model_len), None)


def cache_compatible(view: View) -> Condition:
    """Could the pods read each other's entries? Nothing is shared yet, so a difference harms nobody."""
    kind = "CacheCompatible"
    reports = {pod.pod.name: pod.report for pod in view.live if pod.report}
    if not reports:
        return Condition(kind, "Unknown", "NoPodProbed", "No pod has been probed yet.")
    if len({identity_of(report) for report in reports.values()}) > 1:
        gpus = sorted({report.gpu_name for report in reports.values() if report.gpu_name})
        why = f" They run on {', '.join(gpus)}." if len(gpus) > 1 else ""
        return Condition(
            kind,
            "False",
            "PodsDiffer",
            f"The pods could not read each other's cache entries.{why} Each has a cache of its own, so answers are not "
            "affected.",
        )
    return Condition(kind, "True", "Identical", "All pods were probed with the same result.")


def validated(view: View) -> Condition:
    """Is this combination one that was run end to end?"""
    kind, resolved = "Validated", view.subject.resolved
    if resolved is None:
        return Condition(kind, "Unknown", "SpecNotAccepted", "The spec was refused.")
    settings = resolved.settings
    if settings.engine.unsupported_args or settings.cache.unsupported_args:
        return Condition(
            kind,
            "False",
            "UnsupportedArguments",
            "spec.unsupported is in use: nobody but you has checked those arguments.",
        )
    if settings.cache.enabled and not settings.engine.text_only:
        return Condition(
            kind, "False", "Modalities", "Images together with the cache are not validated (spec.model.modalities)."
        )
    if settings.cache.enabled and settings.engine.speculative_method:
        return Condition(
            kind,
            "False",
            "SpeculativeDecoding",
            "Speculative decoding together with the cache has open reports of wrong answers on hybrid models.",
        )
    report = next((pod.report for pod in view.current if pod.report), None)
    if report is None:
        return Condition(kind, "Unknown", "NoPodProbed", "Which versions the image holds is not known before a probe.")
    return _versions(kind, report.vllm, report.lmcache, cached=settings.cache.enabled)


def _versions(kind: str, vllm: str, lmcache: str, *, cached: bool) -> Condition:
    profiles = load_profiles()
    pair = f"vLLM {vllm}" + (f" with LMCache {lmcache}" if cached else "")
    engine, server = parse_version(vllm), parse_version(lmcache)
    if cached and engine and server:
        rule = next((rule for rule in (*profiles.denied, *profiles.warned) if rule.matches(engine, server)), None)
        if rule:
            return Condition(kind, "False", "KnownFault", f"{pair} {rule.effect} ({', '.join(rule.issues)}).")
    notes = [profiles.for_vllm(vllm).note, profiles.for_lmcache(lmcache).note if cached else ""]
    if any(notes):
        return Condition(kind, "False", "NotReviewed", f"{'; '.join(note for note in notes if note)}.")
    if engine == parse_version(profiles.advised_vllm) and (
        not cached or server == parse_version(profiles.advised_lmcache)
    ):
        return Condition(kind, "True", "AdvisedPair", f"{pair} is the pair that was run end to end.")
    return Condition(kind, "True", "Reviewed", f"{pair} was reviewed; the advised pair is {profiles.advised_pair}.")
