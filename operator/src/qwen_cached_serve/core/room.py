"""Why a pod has no node yet, told from the pod alone: the scheduler's words, its gates, a nominated node.

Events are not read (they are not watched, expire and are somebody else's), so a scale-up that an autoscaler tells only
by an event looks like any other wait. The classes are in `causes.cluster`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from qwen_cached_serve.core.diagnose import Diagnosis, classified
from qwen_cached_serve.core.refusals import shorten

_QUEUES = {"kueue.x-k8s.io": "Kueue", "scheduling.run.ai": "Run:ai", "scheduling.volcano.sh": "Volcano"}
"""Queueing systems by the domain of their gates' names, for example `kueue.x-k8s.io/admission`."""

GATED = "SchedulingGated"
NOMINATED = "ScaleUpInProgress"


def diagnose_unschedulable(words: str) -> Diagnosis:
    """Put the scheduler's own words into a waiting reason; any extended resource name counts as GPU shortage."""
    quoted = shorten(words)
    if re.search(r"Insufficient [\w.-]+/[\w.-]+", words):
        return classified("WaitingForGPU", f"No node has a free GPU for the pod: {quoted}")
    if "Insufficient memory" in words:
        return classified("WaitingForMemory", f"No node has enough memory for the pod: {quoted}")
    if "Insufficient cpu" in words:
        return classified("WaitingForCPU", f"No node has enough free processors for the pod: {quoted}")
    if "persistentvolumeclaim" in words.lower() or "volume" in words.lower():
        return classified("WaitingForVolume", f"The pod's volume is not available: {quoted}")
    return classified("WaitingForNode", f"No node fits the pod: {quoted}")


def diagnose_gates(gates: Iterable[str]) -> Diagnosis:
    """Name the queueing system that holds a pod back by its scheduling gates."""
    listed = sorted(gates)
    owners = sorted({_QUEUES[gate.partition("/")[0]] for gate in listed if gate.partition("/")[0] in _QUEUES})
    who = " and ".join(owners) or "A queueing system"
    verb = "hold" if len(owners) > 1 else "holds"
    named = f" (scheduling gate {shorten(', '.join(listed))})" if listed else ""
    return classified(GATED, f"{who} {verb} the pod back{named}.")


def diagnose_nomination(node: str) -> Diagnosis:
    """Say which node is expected to take the pod: the scheduler, Karpenter or another autoscaler nominated it."""
    return classified(
        NOMINATED, f"The pod is to run on node {node}, which is starting or being cleared of pods of lower priority."
    )


def waits_for_room(code: str) -> bool:
    """Whether a class says that there is no room: own pods that still stop may be what it waits for."""
    return code.startswith("WaitingFor") or code == NOMINATED
