"""`qcs history`: the stored revisions of a resource, and reading them for the commands that change something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qwen_cached_serve.cli.cluster import ask
from qwen_cached_serve.cli.options import aligned
from qwen_cached_serve.core import names
from qwen_cached_serve.core.conditions import state_of
from qwen_cached_serve.core.records import FORMAT, Record, record_of
from qwen_cached_serve.core.revision import HOLD_ANNOTATION, held_off, hold_of
from qwen_cached_serve.core.stored import UnreadableRevision, unpack
from qwen_cached_serve.core.tuning import Tuning, from_data, tuning_status
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import CONTROLLER_REVISIONS, SERVES, Manifest


@dataclass(frozen=True, slots=True)
class Stored:
    """A resource and its stored revisions, newest first."""

    resource: Manifest
    records: tuple[Record, ...]
    running: Mapping[str, Any] | None = None
    """The spec that the revision in use was made from; None when it cannot be read."""
    tunings: Mapping[str, Tuning] = field(default_factory=dict)
    """What the operator adjusted, by revision; of those that can be read."""

    @property
    def status(self) -> Mapping[str, Any]:
        """The resource's status."""
        return self.resource.get("status") or {}

    @property
    def used(self) -> Record | None:
        """The revision that the pods are being brought to."""
        name = (self.status.get("revision") or {}).get("updated")
        return next((record for record in self.records if record.name == name), None)

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return a condition, empty when it is not there."""
        return state_of(self.status.get("conditions") or (), kind)

    @property
    def held_off(self) -> str:
        """What a hold has to name to keep the present spec off; there must be a revision."""
        image = ((self.resource.get("spec") or {}).get("engine") or {}).get("image") or ""
        return held_off(self.records[0].spec_hash, image)

    @property
    def held(self) -> bool:
        """Whether somebody's rollback holds (and not `rollout.onFailure`)."""
        stalled = self.condition("Stalled")
        annotations = self.resource["metadata"].get("annotations") or {}
        hold = hold_of(annotations.get(HOLD_ANNOTATION, ""))
        asked = bool(self.records) and hold is not None and hold.spec_hash == self.held_off
        return asked and stalled.get("status") == "True" and stalled.get("reason") == "RolledBack"


async def read(client: KubeClient, namespace: str, name: str) -> Stored:
    """Read a resource and its revisions."""
    resource = await client.get(SERVES, namespace, name)
    selector = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{names.OWNER_UID_LABEL}={resource['metadata']['uid']}"
    found = await client.list_all(CONTROLLER_REVISIONS, namespace, selector=selector)
    records = sorted((record_of(one) for one in found), key=lambda record: -record.number)
    stored = Stored(resource, tuple(records))
    data = {one["metadata"]["name"]: one.get("data") for one in found}
    tunings = {one.name: tuning for one in records if (tuning := _tuning_of(data, one))}
    return replace(stored, running=_spec_of(data, stored.used), tunings=tunings)


def _tuning_of(data: Mapping[str, Any], record: Record) -> Tuning:
    if not record.tuning_hash:
        return ()
    try:
        return from_data(unpack(data[record.name], record.content_hash).tuning)
    except ValueError:
        return ()  # UnreadableRevision is one, too; the operator tells of it


def _spec_of(data: Mapping[str, Any], used: Record | None) -> Mapping[str, Any] | None:
    if used is None:
        return None
    try:
        return unpack(data[used.name], used.content_hash).spec
    except UnreadableRevision:
        return None  # another release wrote it; what the resource asks for is the best that is known


def fetch(origin: Origin, namespace: str, name: str) -> Stored:
    """Connect and read a resource and its revisions; errors as `cluster.run`."""
    return ask(origin, lambda client: read(client, namespace, name))


def states(stored: Stored, record: Record) -> list[str]:
    """Return what there is to say about one revision."""
    revision = stored.status.get("revision") or {}
    words = []
    if record.name == revision.get("updated"):
        words.append("held" if stored.held else "in use")
    if record.name == revision.get("current") and record.name != revision.get("updated"):
        words.append("served last")
    if record.rejected_for:
        words.append("failed")
    if not record.spec_hash:
        words.append("adopted")
    if record.restarted_at:
        words.append("restart")
    words += [f"{one['name']} {one['value']}" for one in tuning_status(stored.tunings.get(record.name, ()))]
    if record.format > FORMAT:
        words.append(f"format {record.format}")
    return words


def as_json(stored: Stored) -> list[dict[str, Any]]:
    """Return the revisions as JSON data, newest first."""
    return [
        {
            "revision": record.number,
            "name": record.name,
            "created": record.created,
            "image": record.image,
            "imageFrom": record.image_from,
            "specHash": record.spec_hash,
            "contentHash": record.content_hash,
            "format": record.format,
            "tuning": tuning_status(stored.tunings.get(record.name, ())),
            "restartedAt": record.restarted_at or None,
            "states": states(stored, record),
        }
        for record in stored.records
    ]


def table(stored: Stored) -> Iterator[str]:
    """One line a revision, newest first."""
    rows = [("REVISION", "NAME", "CREATED", "IMAGE", "STATE")]
    rows += [
        (str(one.number), one.name, one.created or "-", one.image or "-", ", ".join(states(stored, one)))
        for one in stored.records
    ]
    return aligned(rows)
