"""One resource from snapshot to status: the only place where the steps stand in a row.

    snapshot -> desired (parse, resolve, plan, render) -> apply what differs -> prune
             -> observe -> judge -> status, events

A step that refuses ends up in the status and leaves what runs as it is: a spec that became invalid never touches
the children (D3). Trouble that is not about the resource (no answer, a conflict) is raised to the worker, which
tries again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from qwen_cached_serve.control.apply import Applier, Report, why_due
from qwen_cached_serve.control.cache import Cache, Key, Snapshot
from qwen_cached_serve.control.desired import Designer, Desired, SpecRefused
from qwen_cached_serve.control.reporter import Reporter
from qwen_cached_serve.core import names
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.observed import Observation, observe
from qwen_cached_serve.core.status import Judgement, judge
from qwen_cached_serve.core.view import Subject
from qwen_cached_serve.kube.port import DEPLOYMENTS, Manifest, Port
from qwen_cached_serve.observe.metrics import Metrics

log = structlog.get_logger(__name__)

REFUSED_AGAIN_SECONDS = 60.0
"""When to try a refused child again: what is in its way (a foreign object, a quota) is not watched."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """See `control.worker.Outcome`."""

    again_after_seconds: float | None = None
    summary: dict[str, object] = field(default_factory=dict)


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Reconciler:
    """See the module's text."""

    def __init__(
        self,
        *,
        port: Port,
        cache: Cache,
        metrics: Metrics,
        defaults: OperatorDefaults,
        enrich: Callable[[Observation], Observation] = lambda observation: observation,
        utc_now: Callable[[], dt.datetime] = _utc_now,
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._designer = Designer(defaults)
        self._applier = Applier(port, cache, metrics, utc_now)
        self._reporter = Reporter(port, cache, metrics, utc_now)
        self._enrich = enrich
        self._utc_now = utc_now

    def warm_up(self) -> None:
        """Load what the first reconcile needs; takes a second or so, and may run in a thread."""
        self._designer.warm_up()

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one resource and its status up to date.

        Raises:
            ApiError: trouble that is worth another try.
            WriteDenied: this process does not lead any more.

        """
        snapshot = self._cache.snapshot(key)
        if snapshot is None:
            self._designer.forget(key)
            self._metrics.forget(*key)
            return Outcome(summary={"gone": True})
        if snapshot.serve["metadata"].get("deletionTimestamp"):
            # The garbage collector takes the children by their owner references; nothing is made for a dying owner.
            return Outcome(summary={"deleting": True})
        desired, problems = self._design(snapshot.serve)
        report = await self._children(key, snapshot, desired)
        if report.changed:
            snapshot = self._cache.snapshot(key) or snapshot
        judgement = self._judge(snapshot, desired, problems, report)
        wrote = await self._reporter.report(snapshot.serve, judgement)
        return Outcome(
            again_after_seconds=REFUSED_AGAIN_SECONDS if report.refusals else judgement.requeue_after_seconds,
            summary=_summary(report, wrote, problems),
        )

    def _design(self, serve: Manifest) -> tuple[Desired | None, tuple[str, ...]]:
        try:
            return self._designer.desired(serve), ()
        except SpecRefused as refused:
            return None, refused.problems

    async def _children(self, key: Key, snapshot: Snapshot, desired: Desired | None) -> Report:
        if desired is None or desired.resolved.lifecycle == "Paused":
            return Report()
        manifests = desired.manifests()
        report = await self._applier.apply(snapshot, manifests, lambda: self._designer.whole(desired))
        if not report.refusals:
            await self._applier.prune(snapshot, manifests, report)
        return report

    def _judge(
        self, snapshot: Snapshot, desired: Desired | None, problems: tuple[str, ...], report: Report
    ) -> Judgement:
        deployment = snapshot.children.get((DEPLOYMENTS, names.base_name(snapshot.serve["metadata"]["name"])))
        subject = Subject(
            generation=int(snapshot.serve["metadata"].get("generation") or 0),
            resolved=desired.resolved if desired else None,
            plan=desired.plan if desired else None,
            problems=problems,
            previous=snapshot.serve.get("status") or {},
            edit_waits=_edit_waits(snapshot, desired),
            apply_error=" ".join(refusal.message for refusal in report.refusals),
            apply_reason=report.refusals[0].code if report.refusals else "",
        )
        observation = observe(deployment, snapshot.replica_sets, snapshot.pods)
        return judge(subject, self._enrich(observation), self._utc_now())


def _edit_waits(snapshot: Snapshot, desired: Desired | None) -> bool:
    """Whether a paused resource asks for other children than it has; before anything was made, nothing waits."""
    if desired is None or desired.resolved.lifecycle != "Paused" or not snapshot.children:
        return False
    return any(why_due(snapshot, manifest) for manifest in desired.manifests())


def _summary(report: Report, wrote_status: bool, problems: tuple[str, ...]) -> dict[str, object]:
    said: dict[str, object] = {"status": "written" if wrote_status else "unchanged"}
    if report.applied:
        said["applied"] = report.applied
    if report.deleted:
        said["deleted"] = report.deleted
    if report.refusals:
        said["refused"] = [f"{refusal.kind}/{refusal.name}: {refusal.code}" for refusal in report.refusals]
    if problems:
        said["problems"] = list(problems)
    return said
