"""Status and events: written when they say something new, and in that order, so that an event is said once.

The status is written whole and from here only, by server-side apply: a field that is not in it any more disappears.
An installed CRD that is older than this operator (B52) makes the API server refuse the whole status, naming the
field it does not know. That field is left out then, for UNKNOWN_SECONDS, so that the rest gets through and nothing
is retried in a circle; after that it is tried again, since the CRD may have been updated.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from qwen_cached_serve.control.cache import Cache, Key
from qwen_cached_serve.control.pace import Pace
from qwen_cached_serve.core.conditions import state_of
from qwen_cached_serve.core.events import Event
from qwen_cached_serve.core.status import Judgement
from qwen_cached_serve.kube.lease import micro_time
from qwen_cached_serve.kube.port import EVENTS, FIELD_MANAGER, SERVES, ApiError, Invalid, Manifest, NotFound, Port
from qwen_cached_serve.observe.metrics import Metrics

log = structlog.get_logger(__name__)

UNKNOWN_SECONDS = 600.0
_UNDECLARED = re.compile(r"\.status((?:\.\w+|\[[^\]]*\])+): field not declared in schema")
_FIELD = re.compile(r"\.(\w+)")
_NOTE_CHARACTERS = 1024
"""Limit of events.k8s.io for `note`."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What became of a status."""

    wrote: bool = False
    wait_seconds: float = 0.0
    """When above 0: it is not written yet, and may be after that time."""


class Reporter:
    """See the module's text."""

    def __init__(
        self, port: Port, cache: Cache, metrics: Metrics, utc_now: Callable[[], dt.datetime], instance: str = ""
    ) -> None:
        self._port = port
        self._cache = cache
        self._metrics = metrics
        self._utc_now = utc_now
        self._instance = instance or FIELD_MANAGER
        self._pace = Pace(lambda: utc_now().timestamp())
        self._unknown: dict[tuple[str, ...], dt.datetime] = {}  # path below status -> until when it is left out

    async def report(self, serve: Manifest, judgement: Judgement) -> Reported:
        """Write status and events as far as they are new, and not too often (`control.pace`)."""
        metadata = serve["metadata"]
        self._publish(metadata["namespace"], metadata["name"], judgement.status.get("conditions") or ())
        reported = await self._write(serve, judgement.status)
        if reported.wrote:
            for event in judgement.events:
                await self.say(serve, event)
        return reported

    def _publish(self, namespace: str, name: str, conditions: Sequence[Mapping[str, Any]]) -> None:
        self._metrics.conditions(namespace, name, {entry["type"]: entry["status"] for entry in conditions})
        stuck = state_of(conditions, "Stalled")
        self._metrics.stalled(namespace, name, stuck["reason"] if stuck.get("status") == "True" else "")

    def forget(self, key: Key) -> None:
        """Drop what is known of a resource that is gone."""
        self._pace.forget(key)

    async def _write(self, serve: Manifest, judged: Manifest) -> Reported:
        """Write what is new; every round leaves out one more field that the API server does not know."""
        key = (serve["metadata"]["namespace"], serve["metadata"]["name"])
        while True:
            status = self._known(judged)
            if (serve.get("status") or {}) == status:
                self._metrics.applied("Status", "unchanged")
                return Reported()
            if wait := self._pace.wait_seconds(key, status):
                self._metrics.applied("Status", "delayed")
                return Reported(wait_seconds=wait)
            try:
                written = await self._apply(serve, status)
            except NotFound:
                return Reported()  # deleted meanwhile
            except Invalid as error:
                self._metrics.applied("Status", "failed")
                if not self._learn(error.message):
                    raise
                continue
            self._metrics.applied("Status", "applied")
            self._pace.wrote(key, status)
            self._cache.wrote(written)
            return Reported(wrote=True)

    async def _apply(self, serve: Manifest, status: Manifest) -> Manifest:
        metadata = {key: serve["metadata"][key] for key in ("namespace", "name", "uid")}
        return await self._port.apply_status(
            {"apiVersion": SERVES.api_version, "kind": SERVES.kind, "metadata": metadata, "status": status}
        )

    def _known(self, status: Manifest) -> Manifest:
        now = self._utc_now()
        self._unknown = {path: until for path, until in self._unknown.items() if until > now}
        self._metrics.definition_lacks(len(self._unknown))
        for path in self._unknown:
            status = _without(status, path)
        return status

    def _learn(self, message: str) -> bool:
        """Remember the fields that the API server does not know; whether there are new ones."""
        paths = {tuple(_FIELD.findall(found)) for found in _UNDECLARED.findall(message)} - self._unknown.keys()
        if not paths:
            return False
        until = self._utc_now() + dt.timedelta(seconds=UNKNOWN_SECONDS)
        self._unknown |= dict.fromkeys(paths, until)
        log.warning(
            "the installed CustomResourceDefinition is older than this operator: update it (kubectl apply -f crds/)",
            unknown=sorted(".".join(("status", *path)) for path in paths),
        )
        return True

    async def say(self, serve: Manifest, event: Event) -> None:
        """Post one event about the resource."""
        metadata = serve["metadata"]
        try:
            await self._port.create(
                EVENTS,
                {
                    "apiVersion": EVENTS.api_version,
                    "kind": EVENTS.kind,
                    "metadata": {
                        "namespace": metadata["namespace"],
                        # A name of 253 characters leaves no room for a suffix.
                        "name": f"{metadata['name'][:200].rstrip('-.')}.{uuid.uuid4().hex[:16]}",
                    },
                    "eventTime": micro_time(self._utc_now()),
                    "reportingController": f"{SERVES.group}/{FIELD_MANAGER}",
                    "reportingInstance": self._instance,
                    "type": event.type,
                    "reason": event.reason,
                    "action": "Reconcile",
                    "note": event.message[:_NOTE_CHARACTERS] or event.reason,
                    "regarding": {
                        "apiVersion": SERVES.api_version,
                        "kind": SERVES.kind,
                        "namespace": metadata["namespace"],
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                    },
                },
            )
        except ApiError as error:
            # An event is a courtesy; the status has the same facts.
            log.info("event not posted", reason=event.reason, error=error.message)


def _without(node: Any, path: Sequence[str]) -> Any:
    """Return a copy of a tree without a field, in every item where the path leads through a list."""
    if isinstance(node, list):
        return [_without(item, path) for item in node]
    if not isinstance(node, dict) or path[0] not in node:
        return node
    if len(path) == 1:
        return {key: value for key, value in node.items() if key != path[0]}
    return {**node, path[0]: _without(node[path[0]], path[1:])}
