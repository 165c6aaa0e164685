"""Which pod to replace now, and why, or why not: one pure decision for unasked changes and recycles (DESIGN D9, D13).

Causes, the gravest first:

- BlockSizeMismatch: the programs say that they run with other blocks than the probe found, so what is cached is wrong;
- NotRegistered, CacheServerDown: the engine serves without its cache for longer than it heals by itself, and the
  resource says `cache.onUnavailable: RecyclePod`;
- CompatibilityChanged: newer pods of the same template have another identity (`core.unasked`), and the resource says
  `rollout.onCompatibilityChange: Roll`.

Bounds: one pod at a time, the next when its replacement is available; nothing while anything else is in progress or
somebody has said to change nothing; never the last pod that answers, unless that was asked for; the pauses of
`core.eviction_memory`. Only what is seen for certain begins an eviction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from qwen_cached_serve.core.eviction_memory import (
    COMPATIBILITY,
    MISMATCH,
    Eviction,
    not_before,
    remembered,
    stamp_of,
)
from qwen_cached_serve.core.podstate import NOT_REGISTERED, SERVER_DOWN, Phase, PodJudgement
from qwen_cached_serve.core.records import moment
from qwen_cached_serve.core.unasked import older_pods
from qwen_cached_serve.core.view import View

RECOVERY = timedelta(minutes=10)
"""How long an engine without its cache is left to heal, beside a second for each GiB of L1 that a cache server pins
when it starts. LMCache 0.5.6 registers again about 10 s after its server is back; the pod's own supervision of the
server may take some minutes before that (pauses of up to 60 s, a hung server is killed after 120 s)."""
HELD_BACK_SECONDS = 60.0
"""When to ask again after a refusal: what allows it (a budget, a permission) is not watched."""

CONDITION_OF = {
    MISMATCH: "BlockSizeVerified",
    NOT_REGISTERED: "CacheEffective",
    SERVER_DOWN: "CacheEffective",
    COMPATIBILITY: "CacheCompatible",
}
"""Where a cause is told; a resource's status says there what is done about it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided."""

    memory: tuple[Eviction, ...] = ()
    """What the status has to hold before anything is done."""
    evict: Eviction | None = None
    """The entry of `memory` to carry out now; it may have been sent before."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By condition: what is done about it, or why nothing is."""
    again_after_seconds: float | None = None
    """When to look again without an event."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """A reason to replace one pod."""

    pod: PodJudgement
    reason: str
    target: str = ""
    certain: bool = True
    asked: bool = False
    """Whether the resource asks for it even where nobody answers meanwhile."""


def plan(view: View, stalled: bool, now: datetime) -> Plan:
    """Decide. `stalled`: a person is needed for the pods, so nothing is done by itself."""
    memory = tuple(_updated(one, view) for one in remembered(view.subject.previous))
    causes, notes, waits = _causes(view, memory, now)
    if not _free(view, stalled):
        return Plan(memory, again_after_seconds=waits)
    begun, memory = _begun(view, memory, causes)
    cause = _next(causes, begun)
    if cause is None or not cause.certain or not _calm(view, causes):
        return Plan(memory, notes=notes, again_after_seconds=waits)
    name, condition = cause.pod.pod.name, CONDITION_OF[cause.reason]
    if _last_one(view, cause):
        return Plan(memory, notes=_joined(notes, condition, _LAST.format(pod=name)), again_after_seconds=waits)
    if begun:
        words = _HELD.format(pod=name, words=begun.held_back.rstrip(".")) if begun.held_back else ""
        return Plan(memory, begun, _joined(notes, condition, words), _sooner(waits, HELD_BACK_SECONDS))
    template = cause.pod.pod.template_hash
    if due := not_before(memory, cause.reason, template, now):
        words = f"The next pod is replaced at {stamp_of(due)} at the earliest."
        return Plan(memory, None, _joined(notes, condition, words), _sooner(waits, (due - now).total_seconds()))
    made = Eviction(
        uid=cause.pod.pod.uid,
        pod=name,
        reason=cause.reason,
        template=template,
        time=stamp_of(now),
        identity=cause.pod.identity if cause.target else "",
        target=cause.target,
    )
    return Plan((*memory, made), made, notes, _sooner(waits, HELD_BACK_SECONDS))


_LAST = (
    "Pod {pod} is the only one that answers, so it is left alone; delete it when that suits (with one replica "
    "spec.cache.onUnavailable: RecyclePod has it replaced)."
)
_GO = "The pods of the older identity are replaced one at a time (spec.rollout.onCompatibilityChange: Roll)."
_STAY = "The pods of the older identity stay (spec.rollout.onCompatibilityChange: Isolate); qcs restart replaces all."
_HELD = "The eviction of pod {pod} is held back and tried again every minute: {words}."


def _updated(one: Eviction, view: View) -> Eviction:
    """Take in what was answered to it; once it was carried out, nothing holds it back any more."""
    live = any(pod.pod.uid == one.uid for pod in view.live)
    return dataclasses.replace(one, held_back=view.subject.refused.get(one.uid, one.held_back) if live else "")


def _begun(
    view: View, memory: Sequence[Eviction], causes: Sequence[_Cause]
) -> tuple[Eviction | None, tuple[Eviction, ...]]:
    """Return what was decided and not carried out yet, and the memory without what is not the case any more: it
    healed, or the spec changed.
    """
    live = {pod.pod.uid for pod in view.live}
    holds = {(cause.pod.pod.uid, cause.reason) for cause in causes}
    kept = tuple(one for one in memory if one.uid not in live or (one.uid, one.reason) in holds)
    return next((one for one in kept if one.uid in live), None), kept


def _next(causes: Sequence[_Cause], begun: Eviction | None) -> _Cause | None:
    if begun:
        return next(cause for cause in causes if (cause.pod.pod.uid, cause.reason) == (begun.uid, begun.reason))
    return next((cause for cause in causes if cause.certain), None)


def _free(view: View, stalled: bool) -> bool:
    """Whether the operator may do anything by itself."""
    subject = view.subject
    revision, resolved = subject.revision, subject.resolved
    if resolved is None or revision is None or resolved.lifecycle != "Running" or subject.edit_waits or stalled:
        return False
    return not (subject.problems or subject.apply_error or revision.held or revision.blocked)


def _calm(view: View, causes: Sequence[_Cause]) -> bool:
    """Whether exactly the wanted pods exist, all of one template, and all answer but those that are to go."""
    deployment = view.deployment
    if deployment is None or not deployment.current or not deployment.template_hash or view.terminating:
        return False
    ill = {cause.pod.pod.uid for cause in causes if cause.reason != COMPATIBILITY and cause.certain}
    silent = [pod for pod in view.current if pod.phase is not Phase.SERVING]
    return (
        len(view.live) == len(view.current) == deployment.wanted == deployment.replicas == deployment.updated
        and all(pod.pod.uid in ill for pod in silent)
        and deployment.available >= deployment.wanted - len(silent)
    )


def _last_one(view: View, cause: _Cause) -> bool:
    """Whether nobody would answer without this pod, and that was not asked for."""
    if cause.asked or cause.pod.phase is not Phase.SERVING:
        return False
    return not any(pod.phase is Phase.SERVING and pod is not cause.pod for pod in view.current)


def _causes(view: View, memory: Sequence[Eviction], now: datetime) -> tuple[list[_Cause], dict[str, str], float | None]:
    """Return every reason to replace a pod, notes, and seconds until more may become due."""
    resolved = view.subject.resolved
    if resolved is None or not resolved.cached:
        return [], {}, None
    recycles = resolved.on_unavailable == "RecyclePod"
    alone = recycles and resolved.wanted_replicas == 1
    found = [_Cause(pod, MISMATCH, asked=alone) for pod in view.current if pod.gate_passed and pod.other_block_sizes]
    # A pod that cannot be asked now has not healed: what was begun is neither carried out nor taken back.
    begun = {one.uid for one in memory if one.reason == MISMATCH}
    found += [
        _Cause(pod, MISMATCH, certain=False)
        for pod in view.current
        if pod.pod.uid in begun and pod.pod.verification is None
    ]
    notes: dict[str, str] = {}
    waits = None
    if recycles:
        grace = RECOVERY + timedelta(seconds=resolved.settings.cache.l1_size_bytes >> 30)
        for pod, since in sorted(_detached(view), key=lambda entry: entry[1]):
            left = (since + grace - now).total_seconds()
            due = f"If pod {pod.pod.name} has not healed by {stamp_of(since + grace)}, it is replaced"
            notes |= _joined(notes, "CacheEffective", f"{due} (spec.cache.onUnavailable: RecyclePod).")
            if left > 0:
                waits = _sooner(waits, left)
            elif pod.detached:
                found.append(_Cause(pod, pod.detached.reason, certain=pod.detached.certain, asked=alone))
    older, words = _unasked(view, memory, resolved.on_compatibility_change == "Roll")
    if words:
        notes |= {"CacheCompatible": words}
    return [*found, *older], notes, waits


def _unasked(view: View, memory: Sequence[Eviction], roll: bool) -> tuple[list[_Cause], str]:
    """Return the pods that a newer identity has left behind, and what is done about them."""
    older = older_pods(view.current, memory, view.deployment.template_hash if view.deployment else "")
    if not roll:
        return [], _STAY if older.pods else ""
    found = [_Cause(pod, COMPATIBILITY, target) for pod, target in older.pods]
    if any(not pod.identity for pod in view.current):
        # Nothing can be told now, which is no healing: a replacement may be seen before its predecessor is seen to go.
        begun = {one.uid for one in memory if one.reason == COMPATIBILITY}
        found += [_Cause(pod, COMPATIBILITY, certain=False) for pod in view.current if pod.pod.uid in begun]
    return found, _GO if older.pods else older.why_not


def _detached(view: View) -> list[tuple[PodJudgement, datetime]]:
    """Pods without their cache that another pod could heal, with the time since when."""
    found = []
    for pod in view.current:
        since = moment(pod.detached.since) if pod.detached else None
        # What only a person can change (its arguments, its memory) would meet the next pod as well.
        if since and not (pod.cache_down and pod.cache_down.needs_a_person):
            found.append((pod, since))
    return found


def _joined(notes: Mapping[str, str], condition: str, words: str) -> dict[str, str]:
    return {**notes, condition: f"{notes.get(condition, '')} {words}".strip()}


def _sooner(one: float | None, other: float) -> float:
    return other if one is None else min(one, other)
