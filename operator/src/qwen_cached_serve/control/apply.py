"""Children: what differs from the desired state is applied, what is wanted no longer is removed, nothing else is
touched.

Order and safety:

- a name that an object of somebody else has is never taken over (B58): before anything is created, each name that
  is free in the cache is looked up, and one that is taken stops the whole set, so that there is no half-made one
  (B46);
- an object of a former resource of the same name, or one that is being deleted, is waited for: the garbage collector
  is on its way;
- what the pods need (ConfigMap, account, Service) comes before the Deployment;
- an immutable ConfigMap whose content is not ours any more is made anew, since it cannot be corrected;
- optional children (a NetworkPolicy, for instance) come before the Deployment, too, but nothing waits for them: what
  the API server says of one is told, and the pods roll;
- the revision they are made from is stored before any of them but a new ConfigMap, which is named by its content and
  touches nothing: a process that ends in between leaves nothing that the next one would not find again, or remove;
- an old ConfigMap or account goes only when no pod, no ReplicaSet and no stored revision names it: a rollback needs it
  (D4). As long as the cache does not know every pod and ReplicaSet, nothing goes.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from qwen_cached_serve.control import drift
from qwen_cached_serve.control.belonging import controlled_by, going, may_take, named_by_pods, owner_words
from qwen_cached_serve.control.cache import Cache, Snapshot
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    OPTIONAL,
    SERVICE_ACCOUNTS,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    Manifest,
    NotFound,
    Port,
    Resource,
    resource_of,
)
from qwen_cached_serve.observe.metrics import Metrics

log = structlog.get_logger(__name__)

_PRUNED = (CONFIG_MAPS, SERVICE_ACCOUNTS, *OPTIONAL)
"""Kinds whose names or existence depend on the spec."""

COLLECTED_AGAIN_SECONDS = 1.0
REFUSED_AGAIN_SECONDS = 60.0
"""When to try a refused child again: what is in its way (a foreign object, a quota) is not watched."""
FAILED_AGAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server's no to one child."""

    kind: str
    name: str
    code: str
    """`NameTaken`, `ApplyRefused` or `ApplyForbidden`; of an optional child also `ApplyFailed`."""
    message: str
    again_after_seconds: float = REFUSED_AGAIN_SECONDS


@dataclass(slots=True)
class Report:
    """What was done to the children."""

    applied: list[str] = field(default_factory=list)
    """`Kind/name`, with what differed."""
    deleted: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    beside: list[Refusal] = field(default_factory=list)
    """Of optional children; the others were applied all the same."""
    notes: tuple[str, ...] = ()
    """About kinds that the cluster does not have."""
    stored: bool = False
    """Whether a revision was stored or got the next number."""

    @property
    def again_after_seconds(self) -> float | None:
        """When to try again what was refused."""
        return min((refusal.again_after_seconds for refusal in (*self.refusals, *self.beside)), default=None)

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self.applied or self.deleted or self.stored)


class Applier:
    """See the module's text."""

    def __init__(self, port: Port, cache: Cache, metrics: Metrics, utc_now: Callable[[], dt.datetime]) -> None:
        self._port = port
        self._cache = cache
        self._metrics = metrics
        self._utc_now = utc_now

    async def apply(
        self,
        snapshot: Snapshot,
        desired: Sequence[Manifest],
        whole: Callable[[], Awaitable[Sequence[Manifest]]],
        store: Callable[[], Awaitable[None]] | None = None,
    ) -> Report:
        """Make the children what `desired` says.

        `desired` is enough to compare (ConfigMaps condensed); `whole` gives the manifests to send, once one is needed;
        `store` stores the revision they belong to, where that is still due.

        Raises:
            ApiError: trouble that is not about one child or an optional one: no answer, conflict (also while objects of
                a former resource are being deleted), a terminating namespace.

        """
        report = Report()
        reasons: dict[tuple[Resource, str], str] = {}
        for manifest in desired:
            if reason := why_due(snapshot, manifest):
                reasons[_place(manifest)] = reason
            else:
                self._metrics.applied(manifest["kind"], "unchanged")
        due = [(m, reasons[_place(m)]) for m in (await whole() if reasons else ()) if _place(m) in reasons]
        optional = [(m, reason) for m, reason in due if resource_of(m) in OPTIONAL]
        due = [(m, reason) for m, reason in due if resource_of(m) not in OPTIONAL]
        missing = [m for m, _ in due if _place(m) not in snapshot.children]
        report.refusals += await self._taken(snapshot, missing)
        if report.refusals:
            return report
        first = [(m, reason) for m, reason in due if resource_of(m) is not DEPLOYMENTS]
        new_files = [one for one in first if _is_new_file(snapshot, one[0])]
        others = [one for one in first if not _is_new_file(snapshot, one[0])]

        async def stored_and_others() -> None:
            if store:
                await self._store(store, report)
            if not report.refusals:
                await _together(
                    *(self._apply(snapshot, m, reason, report) for m, reason in others),
                    *(self._apply_optional(snapshot, m, reason, report) for m, reason in optional),
                )

        # The ConfigMap is the largest request by far, and the revision the next: the pods wait for both.
        await _together(*(self._apply(snapshot, m, reason, report) for m, reason in new_files), stored_and_others())
        if not report.refusals:
            for manifest, reason in due:
                if resource_of(manifest) is DEPLOYMENTS:
                    await self._apply(snapshot, manifest, reason, report)
        return report

    async def _store(self, store: Callable[[], Awaitable[None]], report: Report) -> None:
        try:
            await store()
        except ApiError as error:
            self._metrics.applied(CONTROLLER_REVISIONS.kind, "failed")
            refusal = _refusal(CONTROLLER_REVISIONS, "of this resource", error)
            if refusal is None:
                raise
            report.refusals.append(refusal)
            return
        self._metrics.applied(CONTROLLER_REVISIONS.kind, "applied")
        report.stored = True

    async def prune(
        self, snapshot: Snapshot, desired: Sequence[Manifest], report: Report, config_maps: Collection[str] = ()
    ) -> None:
        """Remove children of former specs that nothing names any more; `config_maps` are those of stored revisions."""
        if not self._cache.complete:
            return
        wanted = {_place(m) for m in desired}
        named = named_by_pods(snapshot) | {(CONFIG_MAPS, name) for name in config_maps}
        for (kind, name), child in snapshot.children.items():
            if kind not in _PRUNED or (kind, name) in wanted or (kind, name) in named:
                continue
            if not controlled_by(child, snapshot.serve["metadata"]["uid"]):
                continue
            metadata = child["metadata"]
            try:
                await self._port.delete(kind, metadata["namespace"], name, uid=metadata["uid"])
            except ApiError as error:
                if kind not in OPTIONAL:
                    raise
                report.beside.append(_optional_refusal(kind, name, error))
                continue
            self._cache.deleted(kind, metadata["namespace"], name, metadata["uid"])
            report.deleted.append(f"{kind.kind}/{name}")

    async def _taken(self, snapshot: Snapshot, missing: Sequence[Manifest]) -> list[Refusal]:
        found = await asyncio.gather(*(self._owner_problem(snapshot, manifest) for manifest in missing))
        return [refusal for refusal in found if refusal]

    async def _owner_problem(self, snapshot: Snapshot, manifest: Manifest) -> Refusal | None:
        kind, metadata = resource_of(manifest), manifest["metadata"]
        try:
            live = await self._port.get(kind, metadata["namespace"], metadata["name"])
        except NotFound:
            return None
        if going(live, snapshot.serve, self._utc_now()):
            raise Conflict(
                f"the {kind.kind} {metadata['name']} has to go first: it is being deleted, or belonged to a former "
                "resource of this name",
                status=409,
                retry_after_seconds=COLLECTED_AGAIN_SECONDS,
            )
        if may_take(live, snapshot.serve):
            return None
        return Refusal(
            kind.kind,
            metadata["name"],
            "NameTaken",
            f"A {kind.kind} named {metadata['name']} exists already and belongs to {owner_words(live)}; "
            "it is left alone. Remove it, or create this resource under another name.",
        )

    async def _apply_optional(self, snapshot: Snapshot, manifest: Manifest, reason: str, report: Report) -> None:
        kind, name = resource_of(manifest), manifest["metadata"]["name"]
        try:
            missing = _place(manifest) not in snapshot.children
            refusal = await self._owner_problem(snapshot, manifest) if missing else None
            if refusal is None:
                written = await self._port.apply(manifest)
        except ApiError as error:
            self._metrics.applied(kind.kind, "failed")
            refusal = _optional_refusal(kind, name, error)
        if refusal is not None:
            report.beside.append(refusal)
            return
        self._applied(kind, written, reason, report)

    def _applied(self, kind: Resource, written: Manifest, reason: str, report: Report) -> None:
        self._metrics.applied(kind.kind, "applied")
        self._cache.wrote(written)
        report.applied.append(f"{kind.kind}/{written['metadata']['name']} ({reason})")

    async def _apply(self, snapshot: Snapshot, manifest: Manifest, reason: str, report: Report) -> None:
        kind, name = resource_of(manifest), manifest["metadata"]["name"]
        live = snapshot.children.get((kind, name))
        try:
            if kind is CONFIG_MAPS and live is not None and drift.CONTENT_KEY in reason:
                namespace, uid = live["metadata"]["namespace"], live["metadata"]["uid"]
                await self._port.delete(kind, namespace, name, uid=uid)
                self._cache.deleted(kind, namespace, name, uid)
            written = await self._port.apply(manifest)
        except ApiError as error:
            self._metrics.applied(kind.kind, "failed")
            refusal = _refusal(kind, name, error)
            if refusal is None:
                raise
            report.refusals.append(refusal)
            return
        self._applied(kind, written, reason, report)


async def _together(*steps: Coroutine[Any, Any, None]) -> None:
    """Take steps beside each other; what went wrong is raised when none of them is on its way any more."""
    for end in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end


def _place(manifest: Manifest) -> tuple[Resource, str]:
    return resource_of(manifest), str(manifest["metadata"]["name"])


def _is_new_file(snapshot: Snapshot, manifest: Manifest) -> bool:
    return resource_of(manifest) is CONFIG_MAPS and _place(manifest) not in snapshot.children


def why_due(snapshot: Snapshot, manifest: Manifest) -> str:
    """Return why a manifest has to be applied, empty when the live object says the same."""
    live = snapshot.children.get(_place(manifest))
    return "missing" if live is None else ", ".join(drift.differences(manifest, live))


def _refusal(kind: Resource, name: str, error: ApiError) -> Refusal | None:
    """Return a refusal that is about this child; None when trying again is all there is to do."""
    if isinstance(error, Invalid):
        return Refusal(
            kind.kind, name, "ApplyRefused", f"The API server refuses the {kind.kind} {name}: {error.message}"
        )
    if isinstance(error, Forbidden) and not error.namespace_terminating and error.status == 403:
        return Refusal(
            kind.kind, name, "ApplyForbidden", f"The operator may not apply the {kind.kind} {name}: {error.message}"
        )
    return None


def _optional_refusal(kind: Resource, name: str, error: ApiError) -> Refusal:
    again = error.retry_after_seconds or FAILED_AGAIN_SECONDS
    failed = Refusal(kind.kind, name, "ApplyFailed", f"The {kind.kind} {name} is not as asked: {error.message}", again)
    return _refusal(kind, name, error) or failed
