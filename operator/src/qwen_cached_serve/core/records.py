"""One stored revision: what stands in a ControllerRevision's labels and annotations, and what its data holds.

Choosing a revision reads the former only. They are mutable where the data is not, so nothing that pods are made of is
among them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from qwen_cached_serve.core import names
from qwen_cached_serve.core.inputs import digest

FORMAT = 1
"""Of the stored data. A release that meets a higher number understands nothing of it and changes nothing."""

SPEC_LABEL = f"{names.GROUP}/spec-hash"
TUNING_LABEL = f"{names.GROUP}/tuning-hash"
CONTENT_LABEL = f"{names.GROUP}/content-hash"
FORMAT_ANNOTATION = f"{names.GROUP}/revision-format"
IMAGE_ANNOTATION = f"{names.GROUP}/image"
IMAGE_SOURCE_ANNOTATION = f"{names.GROUP}/image-from"
CONFIG_MAP_ANNOTATION = f"{names.GROUP}/config-map"
RESTART_SEEN_ANNOTATION = f"{names.GROUP}/restart-seen"
REJECTED_ANNOTATION = f"{names.GROUP}/rejected-for"
"""On a revision whose roll failed under `rollout.onFailure: RollBack`: the revision that is used in its place."""
RESTART_ANNOTATION = f"{names.GROUP}/restarted-at"
"""On the resource: when a restart was asked for (RFC 3339). On a revision and its pods: the one it was made for."""

ImageSource = Literal["Spec", "Operator"]


@dataclass(frozen=True, slots=True)
class Record:
    """One stored revision without its data."""

    name: str
    number: int
    format: int
    spec_hash: str
    """Empty for one that was adopted without knowing the spec it belongs to."""
    tuning_hash: str
    content_hash: str
    image: str
    image_from: ImageSource
    config_map: str = ""
    restarted_at: str = ""
    restart_seen: str = ""
    rejected_for: str = ""
    """Name of the revision that is used in its place since its roll failed."""
    created: str = ""


def record_of(manifest: Mapping[str, Any]) -> Record:
    """Read a ControllerRevision, with or without its data; one that is not ours to read has a format of its own."""
    metadata = manifest.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return Record(
        name=str(metadata.get("name", "")),
        number=int(manifest.get("revision") or 0),
        format=_number(annotations.get(FORMAT_ANNOTATION)),
        spec_hash=labels.get(SPEC_LABEL, ""),
        tuning_hash=labels.get(TUNING_LABEL, ""),
        content_hash=labels.get(CONTENT_LABEL, ""),
        image=annotations.get(IMAGE_ANNOTATION, ""),
        image_from="Spec" if annotations.get(IMAGE_SOURCE_ANNOTATION) == "Spec" else "Operator",
        config_map=annotations.get(CONFIG_MAP_ANNOTATION, ""),
        restarted_at=annotations.get(RESTART_ANNOTATION, ""),
        restart_seen=annotations.get(RESTART_SEEN_ANNOTATION, ""),
        rejected_for=annotations.get(REJECTED_ANNOTATION, ""),
        created=str(metadata.get("creationTimestamp") or ""),
    )


def _number(text: str | None) -> int:
    try:
        return int(text or "")
    except ValueError:
        # Somebody took the annotation away. Nothing tells what the data is, so it is treated like a later format.
        return FORMAT + 1


def labels_of(record: Record) -> dict[str, str]:
    """Return the labels that `record_of` reads."""
    return {SPEC_LABEL: record.spec_hash, TUNING_LABEL: record.tuning_hash, CONTENT_LABEL: record.content_hash}


def annotations_of(record: Record) -> dict[str, str]:
    """Return the annotations that `record_of` reads."""
    found = {
        FORMAT_ANNOTATION: str(record.format),
        IMAGE_ANNOTATION: record.image,
        IMAGE_SOURCE_ANNOTATION: record.image_from,
        CONFIG_MAP_ANNOTATION: record.config_map,
        RESTART_ANNOTATION: record.restarted_at,
        RESTART_SEEN_ANNOTATION: record.restart_seen,
        REJECTED_ANNOTATION: record.rejected_for,
    }
    return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Content:
    """The data of a revision: the pods' part of the children."""

    spec: Mapping[str, Any]
    """The spec it was rendered from, as the resource had it."""
    config_map: Mapping[str, Any]
    template: Mapping[str, Any]
    service_account: Mapping[str, Any] | None = None
    tuning: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Hash over what a pod is made of. Labels of the ConfigMap and the account are not part of it."""
        return content_hash(self.config_map, self.template)


def content_hash(config_map: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """Return the hash of what a pod is made of."""
    files = {"name": config_map["metadata"]["name"], "data": config_map.get("data") or {}}
    return digest([files, template])


def moment(text: str) -> dt.datetime | None:
    """Read an RFC 3339 time; without a zone it is UTC."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def later(one: str, other: str) -> bool:
    """Whether a time is later than another; one that cannot be read is earlier than any."""
    first, second = moment(one), moment(other)
    return first is not None and (second is None or first > second)


def latest(*texts: str) -> str:
    """Return the latest of some times, empty when none can be read."""
    newest = ""
    for text in texts:
        newest = text if later(text, newest) else newest
    return newest
