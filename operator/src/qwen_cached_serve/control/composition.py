"""Manifests from a stored revision and the rest of the rendering, and what live objects say of revisions."""

from __future__ import annotations

from collections.abc import Sequence

from qwen_cached_serve.control import drift
from qwen_cached_serve.control.cache import FOREIGN_KEY, Snapshot
from qwen_cached_serve.core import names
from qwen_cached_serve.core.children.meta import Meta, Owner
from qwen_cached_serve.core.records import RESTART_ANNOTATION, Content, Record, annotations_of, labels_of
from qwen_cached_serve.core.stored import pack
from qwen_cached_serve.kube.port import CONFIG_MAPS, DEPLOYMENTS, SERVICE_ACCOUNTS, Manifest
from qwen_cached_serve.render.manifests import render_revision


def compose(rendered: Sequence[Manifest], record: Record, content: Content | None) -> list[Manifest]:
    """Put a revision's part and the rest of the children together, stamped.

    `rendered` is how this operator renders the spec now; with `content` None that is the revision, too. Replicas,
    strategy, Service and whatever else pods are not made of follow the spec and the operator at once.
    """
    made = []
    if content is not None:
        made = [drift.stamped(dict(one)) for one in (content.config_map, content.service_account) if one]
    for manifest in rendered:
        if content is not None and manifest["kind"] in (CONFIG_MAPS.kind, SERVICE_ACCOUNTS.kind):
            continue
        if manifest["kind"] == DEPLOYMENTS.kind:
            made.append(drift.stamped(_with_revision(manifest, record, content)))
        else:
            made.append(manifest)
    return made


def _with_revision(deployment: Manifest, record: Record, content: Content | None) -> Manifest:
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = dict(content.template if content is not None else spec["template"])
    if record.restarted_at:
        template["metadata"] = _annotated(template["metadata"], RESTART_ANNOTATION, record.restarted_at)
    return {
        **deployment,
        "metadata": _annotated(metadata, names.REVISION_ANNOTATION, record.name),
        "spec": {**spec, "template": template},
    }


def _annotated(metadata: Manifest, name: str, value: str) -> Manifest:
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), name: value}}


def foreign_fields(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the fields of the pod template that somebody else put there, each with its manager."""
    deployment = snapshot.children.get((DEPLOYMENTS, names.base_name(snapshot.serve["metadata"]["name"]))) or {}
    return tuple(deployment.get(FOREIGN_KEY) or ())


def applied(snapshot: Snapshot) -> str:
    """Return the revision that the Deployment was last brought to."""
    deployment = snapshot.children.get((DEPLOYMENTS, names.base_name(snapshot.serve["metadata"]["name"]))) or {}
    annotations = (deployment.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(names.REVISION_ANNOTATION, ""))


def revisions_in_use(snapshot: Snapshot) -> set[str]:
    """Return the revisions that ReplicaSets name; a pod's is that of its ReplicaSet."""
    annotations = ((one["metadata"].get("annotations") or {}) for one in snapshot.replica_sets)
    return {found[names.REVISION_ANNOTATION] for found in annotations if names.REVISION_ANNOTATION in found} | {
        applied(snapshot)
    }


def revision_manifest(serve: Manifest, record: Record, content: Content) -> Manifest:
    """Return the ControllerRevision of a record and its content, to be applied.

    Applied and not created: of an applied object the API server writes the data down in its own spelling, of a created
    one as it came, and then every later patch (the garbage collector's, too) looks to it like a change of what is
    immutable (seen with 1.36.3: `delete --cascade=orphan` never ended).
    """
    return render_revision(_meta(serve, record), record.number, pack(content))


def _meta(serve: Manifest, record: Record) -> Meta:
    metadata = serve["metadata"]
    return Meta(
        name=record.name,
        namespace=metadata["namespace"],
        labels={**names.labels(metadata["name"], metadata["uid"]), **labels_of(record)},
        annotations={names.NAME_ANNOTATION: metadata["name"], **annotations_of(record)},
        owner=Owner(metadata["name"], metadata["uid"]),
    )
