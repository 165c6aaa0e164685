"""How far one pod has got, and what is wrong with it.

A report of the probe is taken from its termination message; when that is gone (an init container's status is collected
with its container) the one that the status remembers for this pod counts. A lost message is a gap in what we know and
never a reason to act (DESIGN §3).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from qwen_cached_serve.core.diagnose import Diagnosis, classified
from qwen_cached_serve.core.endings import explain_end
from qwen_cached_serve.core.observed import (
    CACHE_SERVER,
    ENGINE,
    PROBE,
    ContainerObservation,
    PodObservation,
)
from qwen_cached_serve.core.refusals import diagnose_pod_failure, diagnose_waiting
from qwen_cached_serve.core.room import diagnose_gates, diagnose_nomination, diagnose_unschedulable
from qwen_cached_serve.inpod.message import CompactReport, ProbeFailure, read


class Phase(StrEnum):
    """Where a pod is on its way; the order is the order of a start.

    `Ended` is a pod that will never run again (evicted): its Deployment makes another one.
    """

    TERMINATING = "Terminating"
    WAITING = "WaitingForNode"
    PREPARING = "Preparing"
    PROBING = "Probing"
    CACHE_STARTING = "CacheServerStarting"
    STARTING = "Starting"
    SERVING = "Serving"
    NOT_READY = "NotReady"
    FAILING = "Failing"
    ENDED = "Ended"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the status kept of a pod's report when the message itself is gone."""

    block_size: int
    gpu: str = ""
    identity: str = ""


NOT_REGISTERED = "NotRegistered"
SERVER_DOWN = "CacheServerDown"


@dataclass(frozen=True, slots=True)
class Detached:
    """An engine without its cache (`core.detachment` judges it)."""

    reason: str
    """`NotRegistered` or `CacheServerDown`."""
    since: str
    """When it was first seen so, RFC 3339."""
    certain: bool = True
    """Whether it is seen now; otherwise it was so when the pod could last be asked."""


@dataclass(frozen=True, slots=True)
class PodJudgement:
    """One pod, judged."""

    pod: PodObservation
    phase: Phase
    report: CompactReport | None = None
    remembered: Remembered | None = None
    diagnosis: Diagnosis | None = None
    cache_down: Diagnosis | None = None
    """Set while the cache server is away although the engine serves."""
    detached: Detached | None = None
    """Set while the engine serves without its cache."""
    wants_log_of: str | None = None
    """Container whose former log would tell more than its termination message did."""

    @property
    def block_size(self) -> int | None:
        """N as this pod's probe found it."""
        if self.report:
            return self.report.block_size
        return self.remembered.block_size if self.remembered else None

    @property
    def gpu(self) -> str:
        """GPU model of this pod, empty when it is not known."""
        return self.report.gpu_name if self.report else (self.remembered.gpu if self.remembered else "")

    @property
    def identity(self) -> str:
        """Compatibility identity of this pod, empty when it is not known."""
        return self.report.identity if self.report else (self.remembered.identity if self.remembered else "")

    @property
    def other_block_sizes(self) -> tuple[int, ...]:
        """What its programs say they run with, where that is not N; empty also when they could not be asked."""
        seen = self.pod.verification
        if seen is None or self.block_size is None:
            return ()
        sizes = {seen.engine_block_size, *seen.server_block_sizes} - {self.block_size}
        return tuple(sorted(size for size in sizes if size))

    @property
    def probed_at(self) -> str:
        """When the probe found what this pod is; when it was created, where the kubelet does not tell."""
        end = self.pod.container(PROBE).terminated
        return (end.finished_at if end else "") or self.pod.created

    @property
    def restarts(self) -> int:
        """Restarts of all containers."""
        return sum(container.restarts for container in (self.pod.containers or {}).values())

    @property
    def gate_passed(self) -> bool:
        """Whether the start-up gate in the pod let this life of the engine through."""
        return self.pod.container(ENGINE).started


def judge_pod(pod: PodObservation, previous: Mapping[str, Any] | None, *, cached: bool) -> PodJudgement:
    """Judge one pod; `previous` is its entry in the last status (`status.pods[]`), `cached` whether it has a
    sidecar.
    """
    probe, engine = pod.container(PROBE), pod.container(ENGINE)
    report = _report(probe)
    base = PodJudgement(pod, Phase.PREPARING, report=report, remembered=_remembered(previous))
    if pod.deleting:
        return dataclasses.replace(base, phase=Phase.TERMINATING)
    if pod.phase == "Failed":
        lost = diagnose_pod_failure(pod.status_reason, pod.status_message)
        return dataclasses.replace(base, phase=Phase.ENDED, diagnosis=lost)
    if not pod.scheduled:
        return dataclasses.replace(base, phase=Phase.WAITING, diagnosis=_unplaced(pod))
    if waiting := _waiting(pod):
        return dataclasses.replace(base, phase=Phase.FAILING, diagnosis=waiting)
    if not _passed(probe):
        return _probing(base, probe)
    server = pod.container(CACHE_SERVER)
    if cached and not server.started and not engine.started:
        return _starting_server(base, server)
    if cached:
        down, more = _server_down(pod)
        base = dataclasses.replace(base, cache_down=down, wants_log_of=CACHE_SERVER if more else None)
    return _engine(base, engine)


def _remembered(previous: Mapping[str, Any] | None) -> Remembered | None:
    entry = previous or {}
    size = entry.get("blockSize")
    if not isinstance(size, int):
        return None
    return Remembered(size, str(entry.get("gpu") or ""), str(entry.get("identity") or ""))


def _report(probe: ContainerObservation) -> CompactReport | None:
    """Read the newest report: of this life, else of the one before."""
    messages = (read(end.message) for end in (probe.terminated, probe.last_terminated) if end)
    return next((message for message in messages if isinstance(message, CompactReport)), None)


def _passed(probe: ContainerObservation) -> bool:
    return probe.terminated is not None and probe.terminated.exit_code == 0


def _unplaced(pod: PodObservation) -> Diagnosis | None:
    """Why the pod has no node; None when nobody has said anything yet."""
    if pod.gated:
        return diagnose_gates(pod.gates)
    if pod.nominated:
        return diagnose_nomination(pod.nominated)
    return diagnose_unschedulable(pod.unschedulable) if pod.unschedulable else None


def _waiting(pod: PodObservation) -> Diagnosis | None:
    for container in (pod.containers or {}).values():
        if container.state == "waiting" and (
            found := diagnose_waiting(container.name, container.waiting_reason, container.waiting_message)
        ):
            return found
    return None


def _probing(base: PodJudgement, probe: ContainerObservation) -> PodJudgement:
    end = probe.latest_end
    if end and (end.exit_code or isinstance(read(end.message), ProbeFailure)):
        diagnosis, more = explain_end(PROBE, end, base.pod.log_tail(PROBE))
        return dataclasses.replace(base, phase=Phase.FAILING, diagnosis=diagnosis, wants_log_of=PROBE if more else None)
    return dataclasses.replace(base, phase=Phase.PROBING if probe.state == "running" else Phase.PREPARING)


def _starting_server(base: PodJudgement, server: ContainerObservation) -> PodJudgement:
    if server.latest_end:
        diagnosis, more = explain_end(CACHE_SERVER, server.latest_end, base.pod.log_tail(CACHE_SERVER))
        return dataclasses.replace(
            base, phase=Phase.FAILING, diagnosis=diagnosis, wants_log_of=CACHE_SERVER if more else None
        )
    return dataclasses.replace(base, phase=Phase.CACHE_STARTING)


def _engine(base: PodJudgement, engine: ContainerObservation) -> PodJudgement:
    if base.pod.ready:
        return dataclasses.replace(base, phase=Phase.SERVING)
    if engine.started:
        return dataclasses.replace(base, phase=Phase.NOT_READY)
    # An orderly end (exit code 0, a stop somebody asked for) is no failure while the next life starts.
    if engine.latest_end and (engine.latest_end.exit_code or engine.state != "running"):
        diagnosis, more = explain_end(ENGINE, engine.latest_end, base.pod.log_tail(ENGINE))
        wanted = ENGINE if more else base.wants_log_of
        return dataclasses.replace(base, phase=Phase.FAILING, diagnosis=diagnosis, wants_log_of=wanted)
    return dataclasses.replace(base, phase=Phase.STARTING)


def _server_down(pod: PodObservation) -> tuple[Diagnosis | None, bool]:
    """Why the cache server is away, None while it is there; and whether its log would tell more."""
    server = pod.container(CACHE_SERVER)
    if server.state == "running" and server.started:
        return None, False
    if server.latest_end:
        return explain_end(CACHE_SERVER, server.latest_end, pod.log_tail(CACHE_SERVER))
    return classified("CacheServerNotReady", "The cache server is not up yet.", remedy="It starts by itself."), False
