"""Unasked changes (DESIGN D9): pods of one template whose compatibility identities differ, and who came first.

A moved tag, another driver, another backend: nobody edited the resource, and yet a new pod cannot read what the older
ones have stored. Such a change runs through time, so the newer identity is the one of all pods probed last. Where
identities do not follow time (nodes with different images, mixed GPUs) no replacing would make them equal, and where a
replacement came back with what had been replaced, it did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwen_cached_serve.core.eviction_memory import COMPATIBILITY, Eviction
from qwen_cached_serve.core.podstate import PodJudgement
from qwen_cached_serve.core.records import moment


@dataclass(frozen=True, slots=True)
class Older:
    """Pods that a newer identity has left behind."""

    pods: tuple[tuple[PodJudgement, str], ...] = ()
    """Each with the identity of the newer ones, the oldest first."""
    why_not: str = ""
    """A sentence, when identities differ on equal GPUs and replacing pods would not make them equal."""


def older_pods(pods: Sequence[PodJudgement], memory: Sequence[Eviction], template: str) -> Older:
    """Find them among the live pods of one template.

    A pod whose identity is not known says nothing, and then nothing is done: it may be the one that decides.
    Pods are compared with those on the same GPU model only.
    """
    if any(not pod.identity for pod in pods):
        return Older()
    live = {pod.pod.uid for pod in pods}  # what was decided and not carried out has replaced nothing
    done = [one for one in memory if one.uid not in live]
    replaced = {one.identity for one in done if one.reason == COMPATIBILITY and one.template == template}
    found: list[tuple[PodJudgement, str]] = []
    reasons: list[str] = []
    for gpu in sorted({pod.gpu for pod in pods}):
        group = sorted((pod for pod in pods if pod.gpu == gpu), key=lambda pod: (_age(pod), pod.pod.name))
        left, why_not = _left_behind(group, replaced)
        found += left
        reasons += [why_not] if why_not else []
    return Older(tuple(found), " ".join(reasons))


_LOOK = "look for nodes that hold another image under the same tag, or have another driver"


def _left_behind(group: Sequence[PodJudgement], replaced: set[str]) -> tuple[list[tuple[PodJudgement, str]], str]:
    target = group[-1].identity
    others = [pod for pod in group if pod.identity != target]
    if not others:
        return [], ""
    if target in replaced:
        return [], (
            f"Pod {group[-1].pod.name} came with the identity that had been replaced, so replacing pods does not "
            f"make them equal and has stopped: {_LOOK}. A new revision (qcs restart, or an edit) begins anew."
        )
    if max(map(_age, others)) >= min(_age(pod) for pod in group if pod.identity == target):
        return [], (
            "Older and newer pods have either identity, so it does not follow time and replacing pods would not make "
            f"them equal: {_LOOK}."
        )
    return [(pod, target) for pod in others], ""


def _age(pod: PodJudgement) -> float:
    """When the pod's identity was found, in seconds; when it was created, where that is not known."""
    found = moment(pod.probed_at)
    return found.timestamp() if found else 0.0
