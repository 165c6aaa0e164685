"""Whose a live object is: this resource's, a former one's of the same name, or somebody else's."""

from __future__ import annotations

import datetime as dt

from qwen_cached_serve.control.cache import OWNER_UID_LABEL, Snapshot
from qwen_cached_serve.core import names
from qwen_cached_serve.kube.port import CONFIG_MAPS, SERVES, SERVICE_ACCOUNTS, Manifest, Resource

COLLECTING_SECONDS = 300.0
"""How long the end of a former resource's children is waited for. The garbage collector needs a second or two; with
`--cascade=foreground` a Deployment stays until its pods have ended. Later somebody has to be told."""


def controller_of(manifest: Manifest) -> Manifest | None:
    """Return the owner reference of a manifest's controller."""
    references = manifest["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)


def controlled_by(manifest: Manifest, uid: str) -> bool:
    """Whether the resource with that uid is an object's controller."""
    controller = controller_of(manifest)
    return controller is not None and controller.get("uid") == uid


def going(live: Manifest, serve: Manifest, now: dt.datetime) -> bool:
    """Whether a live object is about to vanish, so that its name will be free: it is being deleted, or its owner was
    a former resource of the same name. False once it should have been gone long ago.
    """
    controller = controller_of(live) or {}
    me = serve["metadata"]
    former = (
        (controller.get("apiVersion"), controller.get("kind")) == (SERVES.api_version, SERVES.kind)
        and controller.get("name") == me["name"]
        and controller.get("uid") != me["uid"]
    )
    ending = live["metadata"].get("deletionTimestamp")
    if not former and not ending:
        return False
    since = [dt.datetime.fromisoformat(text) for text in (me.get("creationTimestamp"), ending) if text]
    return not since or now - max(since) < dt.timedelta(seconds=COLLECTING_SECONDS)


def may_take(live: Manifest, serve: Manifest) -> bool:
    """Whether a live object is this resource's own: by its controller, or left behind by it (`--cascade=orphan`)."""
    controller = controller_of(live)
    if controller is not None:
        return bool(controller.get("uid") == serve["metadata"]["uid"])
    labels = live["metadata"].get("labels") or {}
    annotations = live["metadata"].get("annotations") or {}
    ours = labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY and OWNER_UID_LABEL in labels
    return ours and annotations.get(names.NAME_ANNOTATION) == serve["metadata"]["name"]


def owner_words(live: Manifest) -> str:
    """Say whose a live object is."""
    controller = controller_of(live)
    if controller:
        return f"{controller.get('kind')} {controller.get('name')} (uid {controller.get('uid')})"
    return "nobody of this operator's"


def named_by_pods(snapshot: Snapshot) -> set[tuple[Resource, str]]:
    """Return the ConfigMaps and accounts that a pod or a ReplicaSet still names."""
    found: set[tuple[Resource, str]] = set()
    templates = [(rs.get("spec") or {}).get("template") or {} for rs in snapshot.replica_sets]
    for owner in (*snapshot.pods, *templates):
        spec = owner.get("spec") or {}
        for volume in spec.get("volumes") or []:
            if "configMap" in volume:
                found.add((CONFIG_MAPS, volume["configMap"].get("name", "")))
        if spec.get("serviceAccountName"):
            found.add((SERVICE_ACCOUNTS, spec["serviceAccountName"]))
    return found
