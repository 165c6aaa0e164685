"""What runs without a stored revision: children of a release that stored none, or whose ControllerRevisions are gone.

It becomes a revision as it is, so that taking over restarts nobody. What the operator itself stated is taken from the
live Deployment (its managed fields); what others put there stays theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qwen_cached_serve.control import drift
from qwen_cached_serve.control.cache import Snapshot
from qwen_cached_serve.control.desired import Desired
from qwen_cached_serve.core import names, ownership
from qwen_cached_serve.core.conditions import state_of
from qwen_cached_serve.core.lifecycle import OPTIONAL_CHILD_REFUSED
from qwen_cached_serve.core.records import RESTART_ANNOTATION, Content
from qwen_cached_serve.core.volumes import CODE
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    FIELD_MANAGER,
    SERVICE_ACCOUNTS,
    Manifest,
    NotFound,
    Port,
)

_NOT_APPLIED = frozenset({"ApplyForbidden", "ApplyRefused", "NameTaken"})


@dataclass(frozen=True, slots=True)
class Running:
    """What runs, as a revision would have stored it."""

    content: Content
    image: str
    restarted_at: str
    settled: bool
    """Whether it is what the present spec asked for, in the rendering of its time."""


async def running(port: Port, snapshot: Snapshot, fresh: Desired, rendered: Content) -> Running | None:
    """Return what runs when it is not what this operator renders; None when it is, or when nothing can be adopted.

    Raises:
        ApiError: the API server cannot be asked.

    """
    serve = snapshot.serve["metadata"]
    place = DEPLOYMENTS, names.base_name(serve["name"])
    known = snapshot.children.get(place)
    if known is None or _hash(known) == _hash(_deployment(fresh)):
        return None
    try:
        live = await port.get(DEPLOYMENTS, serve["namespace"], place[1])
        fields = ownership.below(ownership.fields_of(live, FIELD_MANAGER), ("spec", "template"))
        template: Manifest = ownership.owned(live["spec"]["template"], fields, rendered.template) if fields else {}
        name = _code(template)
        if not name:
            return None
        files = await port.get(CONFIG_MAPS, serve["namespace"], name)
    except NotFound:
        return None  # its scripts are gone: no pod of it could start again
    settled = _settled(snapshot.serve)
    content, restarted_at = _content(snapshot, template, files, rendered, settled=settled)
    expected = _restarted(rendered.template, restarted_at)
    same = (
        name == rendered.config_map["metadata"]["name"]
        and ownership.states(expected, fields)
        and not drift.differences(expected, live["spec"]["template"])
    )
    if same and not restarted_at:
        return None
    image = next((c.get("image", "") for c in template["spec"]["containers"] if c.get("name") == "engine"), "")
    return Running(rendered if same else content, image, restarted_at, settled or same)


def _restarted(template: Mapping[str, Any], restarted_at: str) -> Manifest:
    metadata = template.get("metadata") or {}
    stamp = {RESTART_ANNOTATION: restarted_at} if restarted_at else {}
    return {**template, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **stamp}}}


def _deployment(fresh: Desired) -> Manifest:
    return next(manifest for manifest in fresh.manifests() if manifest["kind"] == DEPLOYMENTS.kind)


def _hash(manifest: Manifest) -> str:
    return str((manifest["metadata"].get("annotations") or {}).get(drift.HASH_ANNOTATION, ""))


def _code(template: Mapping[str, Any]) -> str:
    """Return the ConfigMap that a template's scripts come from, empty when it has none."""
    volumes = (template.get("spec") or {}).get("volumes") or []
    found: Manifest = next((volume for volume in volumes if volume.get("name") == CODE), {})
    return str((found.get("configMap") or {}).get("name", ""))


def _content(
    snapshot: Snapshot, template: Mapping[str, Any], files: Manifest, rendered: Content, *, settled: bool
) -> tuple[Content, str]:
    metadata = dict(template.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    restarted_at = annotations.pop(RESTART_ANNOTATION, "")
    kept = {key: files["metadata"].get(key) for key in ("name", "namespace", "labels", "annotations")}
    config_map = drift.unstamped(
        {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {**kept, "ownerReferences": rendered.config_map["metadata"]["ownerReferences"]},
            "immutable": True,
            "data": files.get("data") or {},
        }
    )
    account = snapshot.children.get((SERVICE_ACCOUNTS, str(template["spec"].get("serviceAccountName", ""))))
    return (
        Content(
            spec=snapshot.serve["spec"] if settled else {},
            config_map=config_map,
            template={**template, "metadata": {**metadata, "annotations": annotations}},
            service_account=rendered.service_account if account else None,
        ),
        restarted_at,
    )


def _settled(serve: Manifest) -> bool:
    status = serve.get("status") or {}
    conditions = status.get("conditions") or ()
    return (
        status.get("observedGeneration") == serve["metadata"].get("generation")
        and state_of(conditions, "SpecAccepted").get("status") == "True"
        # What is refused beside the pods is Ready's reason as well, and Stalled's own.
        and (
            state_of(conditions, "Ready").get("reason") not in _NOT_APPLIED
            or state_of(conditions, "Stalled").get("reason") == OPTIONAL_CHILD_REFUSED
        )
    )
