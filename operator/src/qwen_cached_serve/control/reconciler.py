"""One resource from snapshot to status: the only place where the steps stand in a row.

    snapshot -> desired (parse, resolve, plan, render) -> choose the revision -> store it, apply what differs
             -> prune -> observe -> judge -> status, events -> evict a pod

A step that refuses ends up in the status and leaves what runs as it is: a spec that became invalid never touches
the children (D3). Trouble that is not about the resource (no answer, a conflict) is raised to the worker, which
tries again.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from qwen_cached_serve.control.apply import Applier, Report, why_due
from qwen_cached_serve.control.beside import Problem, by_use, optional_kinds
from qwen_cached_serve.control.cache import Cache, Key, Snapshot
from qwen_cached_serve.control.composition import foreign_fields
from qwen_cached_serve.control.desired import Designer, Desired, SpecRefused
from qwen_cached_serve.control.ending_rolls import with_strategy_now
from qwen_cached_serve.control.evictor import Evictor
from qwen_cached_serve.control.reporter import Reported, Reporter
from qwen_cached_serve.control.revisions import Choice, Revisions
from qwen_cached_serve.core import names
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.observed import Observation, observe
from qwen_cached_serve.core.status import Judgement, LogRequest, judge
from qwen_cached_serve.core.view import Subject
from qwen_cached_serve.kube.port import DEPLOYMENTS, Manifest, Port, Resource
from qwen_cached_serve.observe.metrics import Metrics

log = structlog.get_logger(__name__)


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
        want_logs: Callable[[Key, Observation, Sequence[LogRequest]], None] = lambda *_: None,
        problem: Problem = lambda *_: None,
        wants: Callable[[Key, Collection[Resource]], None] = lambda *_: None,
        utc_now: Callable[[], dt.datetime] = _utc_now,
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._designer = Designer(defaults)
        self._revisions = Revisions(port, cache, self._designer)
        self._applier = Applier(port, cache, metrics, utc_now)
        self._reporter = Reporter(port, cache, metrics, utc_now)
        self._evictor = Evictor(port, self._reporter, metrics)
        self._enrich = enrich
        self._want_logs = want_logs
        self._problem = problem
        self._wants = wants
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
            self._revisions.forget(key)
            self._reporter.forget(key)
            self._metrics.forget(*key)
            self._wants(key, ())
            return Outcome(summary={"gone": True})
        if snapshot.serve["metadata"].get("deletionTimestamp"):
            # The garbage collector takes the children by their owner references; nothing is made for a dying owner.
            return Outcome(summary={"deleting": True})
        desired, problems = self._design(snapshot.serve)
        choice = await self._revisions.choose(snapshot, desired) if desired else None
        if choice:
            choice = with_strategy_now(choice, snapshot)
            self._wants(key, optional_kinds(choice.desired.manifests()))
        report = await self._children(snapshot, choice)
        self._metrics.refused(*key, ((one.kind, one.code) for one in (*report.refusals, *report.beside)))
        if report.changed:
            snapshot = self._cache.snapshot(key) or snapshot
        judgement = self._judge(snapshot, choice, problems, report)
        reported = await self._reporter.report(snapshot.serve, judgement)
        if judgement.evict and not reported.wait_seconds:
            judgement = await self._evict(key, choice, problems, report, judgement)
        if choice and choice.applies and judgement.roll_back_to:
            # The revision's own event brings the next look, which applies the other one.
            await self._revisions.reject(snapshot, choice, judgement.roll_back_to)
        if desired and choice and choice.applies and judgement.adjustment:
            await self._revisions.tune(snapshot, desired, choice, judgement.adjustment)
        return Outcome(
            again_after_seconds=_soonest(
                report.again_after_seconds, judgement.requeue_after_seconds, reported.wait_seconds or None
            ),
            summary=_summary(report, reported, problems),
        )

    def _design(self, serve: Manifest) -> tuple[Desired | None, tuple[str, ...]]:
        try:
            return self._designer.desired(serve), ()
        except SpecRefused as refused:
            return None, refused.problems

    async def _children(self, snapshot: Snapshot, choice: Choice | None) -> Report:
        if choice is None:
            return Report()
        asked = by_use(choice.desired.manifests(), self._problem)
        if not choice.applies or choice.whole is None:
            return Report(notes=asked.notes)
        report = await self._applier.apply(snapshot, asked.usable, choice.whole, choice.store)
        report.beside += asked.refusals
        report.notes = asked.notes
        if not report.refusals:
            gone = await self._revisions.prune(snapshot, choice)
            report.deleted += gone
            left = {record.config_map for record in choice.records if f"ControllerRevision/{record.name}" not in gone}
            await self._applier.prune(snapshot, choice.desired.manifests(), report, left)
        return report

    async def _evict(
        self, key: Key, choice: Choice | None, problems: tuple[str, ...], report: Report, judgement: Judgement
    ) -> Judgement:
        """Carry out what the status names by now; a refusal is judged and told as well."""
        snapshot = self._cache.snapshot(key)
        if snapshot is None or judgement.evict is None:
            return judgement
        refused = await self._evictor.evict(snapshot.serve, judgement.evict)
        if refused:
            judgement = self._judge(snapshot, choice, problems, report, refused)
            await self._reporter.report(snapshot.serve, judgement)
        return judgement

    def _judge(
        self,
        snapshot: Snapshot,
        choice: Choice | None,
        problems: tuple[str, ...],
        report: Report,
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> Judgement:
        deployment = snapshot.children.get((DEPLOYMENTS, names.base_name(snapshot.serve["metadata"]["name"])))
        subject = Subject(
            generation=int(snapshot.serve["metadata"].get("generation") or 0),
            resolved=choice.desired.resolved if choice else None,
            plan=choice.desired.plan if choice else None,
            probed_with=choice.desired.probed_with if choice else "",
            problems=problems,
            previous=snapshot.serve.get("status") or {},
            edit_waits=_edit_waits(snapshot, choice, self._problem),
            revision=dataclasses.replace(choice.state, foreign=foreign_fields(snapshot)) if choice else None,
            apply_error=" ".join(refusal.message for refusal in report.refusals),
            apply_reason=report.refusals[0].code if report.refusals else "",
            refused=refused,
            beside_error=" ".join(refusal.message for refusal in report.beside),
            beside_reason=report.beside[0].code if report.beside else "",
            notes=report.notes,
        )
        observation = self._enrich(observe(deployment, snapshot.replica_sets, snapshot.pods))
        judgement = judge(subject, observation, self._utc_now())
        key = (snapshot.serve["metadata"]["namespace"], snapshot.serve["metadata"]["name"])
        self._want_logs(key, observation, judgement.log_requests)
        return judgement


def _edit_waits(snapshot: Snapshot, choice: Choice | None, problem: Problem) -> bool:
    """Whether a paused resource asks for other children than it has; before anything was made, nothing waits."""
    if choice is None or choice.desired.resolved.lifecycle != "Paused" or not snapshot.children:
        return False
    return choice.waits or any(
        why_due(snapshot, manifest) for manifest in by_use(choice.desired.manifests(), problem).usable
    )


def _soonest(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)


def _summary(report: Report, reported: Reported, problems: tuple[str, ...]) -> dict[str, object]:
    kept = "delayed" if reported.wait_seconds else "unchanged"
    said: dict[str, object] = {"status": "written" if reported.wrote else kept}
    if report.applied:
        said["applied"] = report.applied
    if report.deleted:
        said["deleted"] = report.deleted
    if refused := (*report.refusals, *report.beside):
        said["refused"] = [f"{refusal.kind}/{refusal.name}: {refusal.code}" for refusal in refused]
    if problems:
        said["problems"] = list(problems)
    return said
