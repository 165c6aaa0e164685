"""The status of a resource: conditions, figures, events.

`judge` is the whole of it: a pure function of what was asked, what is seen and the time. Everything in the result is
stable while nothing happens, so writing it when it differs costs no write on an idle cluster. Nothing that changes with
traffic or with time alone is in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from qwen_cached_serve.api import quantity
from qwen_cached_serve.core import domain, eviction_memory, evictions, names
from qwen_cached_serve.core.children.service import service_url
from qwen_cached_serve.core.conditions import Condition, timed
from qwen_cached_serve.core.detachment import detached
from qwen_cached_serve.core.events import Event, transitions
from qwen_cached_serve.core.eviction_memory import Eviction
from qwen_cached_serve.core.lifecycle import (
    OPTIONAL_CHILD_REFUSED,
    available,
    capacity_available,
    ready,
    reconciling,
    revision_current,
    roll_back_to,
    spec_accepted,
    stalled,
)
from qwen_cached_serve.core.observed import CACHE_SERVER, Observation
from qwen_cached_serve.core.podstate import PodJudgement, judge_pod
from qwen_cached_serve.core.progress import roll_status
from qwen_cached_serve.core.remedy import remedied
from qwen_cached_serve.core.shown_plan import plan_status
from qwen_cached_serve.core.tuning import Adjustment, tuning_status
from qwen_cached_serve.core.view import Subject, View
from qwen_cached_serve.inpod.identity import summary
from qwen_cached_serve.inpod.namespaces import namespace_of

MAX_PODS = 20
MAX_IDENTITIES = 16
_TEXT_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class LogRequest:
    """A container whose former log would tell more than its termination message did."""

    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be written and said."""

    status: dict[str, Any]
    events: tuple[Event, ...] = ()
    log_requests: tuple[LogRequest, ...] = ()
    """Answering them (`PodObservation.log_tails`) is optional; the judgement then names the cause."""
    roll_back_to: str = ""
    """Name of the revision to use in place of the present one, whose roll failed; empty: nothing of the kind."""
    evict: Eviction | None = None
    """A pod to evict, once the status that names it is stored."""
    adjustment: Adjustment | None = None
    """What to tune in a new revision, whose pods take the place of those that fail; None: nothing."""
    requeue_after_seconds: float | None = None
    """When to look again without an event; None = the watches are enough."""


def judge(subject: Subject, observation: Observation, now: datetime) -> Judgement:
    """Judge a resource; `now` dates conditions that change."""
    before = {entry.get("name"): entry for entry in subject.previous.get("pods") or ()}
    pods = tuple(
        judge_pod(pod, before.get(pod.name), cached=CACHE_SERVER in (pod.containers or {})) for pod in observation.pods
    )
    stamp = eviction_memory.stamp_of(now)
    pods = tuple(dataclasses.replace(pod, detached=detached(pod, before.get(pod.pod.name), stamp)) for pod in pods)
    view, adjustment = remedied(View(subject, observation.deployment, pods))
    found = _conditions(view)
    # A child beside the pods that was refused says nothing about them: they are replaced as ever.
    stuck = any(
        one.type == "Stalled" and one.status == "True" and one.reason != OPTIONAL_CHILD_REFUSED for one in found
    )
    planned = evictions.plan(view, stuck, now)
    told = [_told(one, planned.notes.get(one.type, "")) for one in found]
    conditions = timed(told, subject.previous.get("conditions") or (), subject.generation, now)
    status = _figures(view) | {"observedGeneration": subject.generation, "conditions": conditions}
    if planned.memory:
        status["evictions"] = eviction_memory.shown(planned.memory)
    return Judgement(
        status=status,
        events=transitions(subject.previous, status),
        roll_back_to=roll_back_to(view),
        adjustment=adjustment,
        log_requests=tuple(LogRequest(pod.pod.name, pod.wants_log_of) for pod in view.current if pod.wants_log_of),
        evict=planned.evict,
        requeue_after_seconds=planned.again_after_seconds,
    )


def _told(condition: Condition, note: str) -> Condition:
    """Return the condition with what is done about it; one that holds needs nothing."""
    if not note or condition.status == "True":
        return condition
    return dataclasses.replace(condition, message=f"{condition.message} {note}")


def _conditions(view: View) -> list[Condition]:
    stuck = stalled(view)
    return [
        ready(view),
        reconciling(view, stuck),
        stuck,
        available(view),
        spec_accepted(view),
        domain.probed(view),
        domain.block_size_verified(view),
        domain.cache_effective(view),
        domain.cache_compatible(view),
        capacity_available(view),
        revision_current(view),
        domain.validated(view),
    ]


def _figures(view: View) -> dict[str, Any]:
    deployment, resolved, previous = view.deployment, view.subject.resolved, view.subject.previous
    status: dict[str, Any] = {
        "replicas": deployment.replicas if deployment else 0,
        "readyReplicas": deployment.ready if deployment else 0,
        "availableReplicas": deployment.available if deployment else 0,
        "updatedReplicas": deployment.updated if deployment else 0,
    }
    reports = [pod.report for pod in view.current if pod.report]
    asked = view.subject.revision
    waits = view.subject.edit_waits or bool(asked and asked.blocked)
    if resolved is None or (waits and "resolved" in previous):
        # The running children belong to the last spec that was carried out, and so do these.
        kept = ("resolved", "plan", "selector", "url", "blockSize", "tuning")
        status |= {name: previous[name] for name in kept if name in previous}
    else:
        status |= {
            "selector": names.selector_text(resolved.name),
            "url": service_url(resolved),
            "resolved": _resolved(view),
        }
        if block := _block_size(view):
            status["blockSize"] = block
        shown = plan_status(resolved.settings, reports) if reports else previous.get("plan")
        if shown and view.live:
            status["plan"] = shown
        if asked and asked.tuning:
            status["tuning"] = tuning_status(asked.tuning)
    if identities := _identities(view):
        status["identities"] = identities
    if view.pods:
        status["pods"] = [_pod(pod) for pod in _shown(view.pods)]
    if revision := _revision(view):
        status["revision"] = revision
        if roll := roll_status(view, revision):
            status["roll"] = roll
    return status


def _resolved(view: View) -> dict[str, Any]:
    resolved = view.subject.resolved
    assert resolved is not None  # noqa: S101 - asked only then
    former = view.subject.previous.get("resolved") or {}
    shown: dict[str, Any] = {
        "image": resolved.image,
        "tensorParallelSize": resolved.settings.engine.tensor_parallel_size,
    }
    if resolved.cached:
        shown["cacheMemory"] = quantity.format_bytes_up(resolved.budget.cache_server_memory_bytes)
    report = next((pod.report for pod in view.current if pod.report), None)
    if report:
        found = {"vllm": report.vllm, "lmcache": report.lmcache, "modelRevision": report.model_revision}
        return shown | {name: value for name, value in found.items() if value}
    if former.get("image") == resolved.image:
        shown |= {name: former[name] for name in ("vllm", "lmcache", "modelRevision") if name in former}
    return shown


def _block_size(view: View) -> dict[str, Any]:
    plan = view.subject.plan
    sizes = domain.block_sizes(view)
    shown: dict[str, Any] = {}
    if plan and plan.predicted:
        shown["predicted"] = plan.predicted.block_size
    if len(sizes) == 1:
        shown["probed"] = sizes[0]
        if probed_with := _probed_with(view, sizes[0]):
            shown["probedWith"] = probed_with
        if domain.block_size_verified(view).status == "True":
            shown["verified"] = sizes[0]
    return shown


def _probed_with(view: View, size: int) -> str:
    """Return for which settings the N that is shown holds; during a roll it may still be that of the former pods."""
    deployment = view.deployment
    taken_up = deployment is not None and deployment.current and bool(deployment.template_hash)
    if taken_up and any(pod.block_size == size for pod in view.current):
        return view.subject.probed_with
    former = view.subject.previous.get("blockSize") or {}
    return str(former.get("probedWith") or "") if former.get("probed") == size else ""


def _identities(view: View) -> list[dict[str, Any]]:
    ranks = view.subject.resolved.settings.engine.tensor_parallel_size if view.subject.resolved else 1
    shared = bool(view.subject.resolved and view.subject.resolved.settings.cache.l2)
    groups: dict[str, dict[str, Any]] = {}
    for pod in view.live:
        if pod.report is None or not pod.identity:
            continue
        entry = groups.setdefault(
            pod.identity,
            {
                "identity": pod.report.identity,
                "summary": pod.report.identity_summary or summary(pod.report, ranks),
                "blockSize": pod.report.block_size,
                "pods": 0,
            }
            | ({"gpu": pod.report.gpu_name} if pod.report.gpu_name else {})
            | ({"namespace": namespace_of(pod.report.identity)} if shared else {}),
        )
        entry["pods"] += 1
    if not groups:
        # Messages may be gone while the pods live on.
        return list(view.subject.previous.get("identities") or ()) if any(pod.remembered for pod in view.live) else []
    return [groups[key] for key in sorted(groups)][:MAX_IDENTITIES]


def _shown(pods: Sequence[PodJudgement]) -> Sequence[PodJudgement]:
    """Choose the pods of the status: those whose times have to be remembered first."""
    chosen = sorted(pods, key=lambda pod: (pod.detached is None, pod.pod.name))[:MAX_PODS]
    return sorted(chosen, key=lambda pod: pod.pod.name)


def _pod(pod: PodJudgement) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": pod.pod.name, "phase": str(pod.phase), "restarts": pod.restarts}
    trouble = pod.diagnosis or pod.cache_down
    optional = {
        "node": pod.pod.node,
        "revision": pod.pod.revision or pod.pod.template_hash,
        "reason": trouble.sentence[:_TEXT_CHARACTERS] if trouble else "",
        "blockSize": pod.block_size,
        "identity": pod.identity,
        "gpu": pod.gpu,
        "detached": {"reason": pod.detached.reason, "since": pod.detached.since} if pod.detached else None,
    }
    return shown | {name: value for name, value in optional.items() if value}


def _common_identity(view: View, former: Mapping[str, Any], settled: bool) -> str:
    """Return the identity that all pods of the revision had last, none after they differed.

    Only a finished roll says something new: until then some pods may be of the revision before.
    """
    found = {pod.identity for pod in view.current}
    if len(found - {""}) > 1:
        return ""
    if settled and len(found) == 1 and "" not in found:
        return found.pop()
    revision = view.subject.revision
    return str(former.get("identity") or "") if revision and former.get("updated") == revision.updated else ""


def _revision(view: View) -> dict[str, Any]:
    former, revision = view.subject.previous.get("revision") or {}, view.subject.revision
    if revision is None or not revision.updated:
        return dict(former)
    settled = view.rolled_out and not view.subject.edit_waits and not view.subject.apply_error
    # At no replicas everything counts as rolled out, but nobody knows whether the revision's pods start: the one whose
    # pods did last stays, so that a roll which fails later has something to go back to.
    ran = settled and view.deployment is not None and view.deployment.wanted > 0
    current = revision.updated if ran else former.get("current")
    shown: dict[str, Any] = {"updated": revision.updated}
    if current:
        shown["current"] = current
    if identity := _common_identity(view, former, settled):
        shown["identity"] = identity
    return shown | ({"history": list(revision.history)} if revision.history else {})
