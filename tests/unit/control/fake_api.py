"""A stand-in for the API server: stores what is applied and counts requests. It merges nothing and validates nothing
but that a ControllerRevision's data never change;
what a real server does is tested in tests/cluster."""

import copy

from qwen_cached_serve.control.cache import OWNER_UID_LABEL, Cache, Packed
from qwen_cached_serve.kube.port import (
    CONTROLLER_REVISIONS,
    OPTIONAL,
    OWNED,
    PODS,
    REPLICA_SETS,
    SERVES,
    Conflict,
    Invalid,
    NotFound,
    resource_of,
)

UID = "00000000-0000-4000-8000-000000000001"


class FakeApi:
    """Implements the port's methods that the reconciler uses; also feeds a cache's indices."""

    def __init__(self):
        self.objects = {}
        self.version = 100
        self.requests = []
        self.refuse = {}  # (verb, kind) -> error raised once

    # port

    async def get(self, resource, namespace, name):
        self._note("get", resource.kind, name)
        try:
            return copy.deepcopy(self.objects[resource.kind, namespace, name])
        except KeyError:
            raise NotFound(f'{resource.plural} "{name}" not found', status=404) from None

    async def apply(self, manifest, *, dry_run=False):
        self._note("apply", manifest["kind"], manifest["metadata"]["name"])
        live = self.objects.get((manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
        if live and manifest["kind"] == CONTROLLER_REVISIONS.kind and live["data"] != manifest["data"]:
            raise Invalid("data: field is immutable", status=422)
        return self.store(manifest)

    async def apply_status(self, manifest):
        self._note("apply_status", manifest["kind"], manifest["metadata"]["name"])
        place = manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        return self.store({**self.objects[place], "status": manifest["status"]})

    async def create(self, resource, manifest):
        self._note("create", manifest["kind"], manifest["metadata"]["name"])
        place = manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        if place in self.objects:
            raise Conflict(f'{resource.plural} "{place[2]}" already exists', status=409)
        return self.store(manifest)

    async def merge(self, resource, namespace, name, patch):
        self._note("merge", resource.kind, name)
        before = self.objects[resource.kind, namespace, name]
        metadata = patch["metadata"]
        if (
            metadata.get("resourceVersion", before["metadata"]["resourceVersion"])
            != before["metadata"]["resourceVersion"]
        ):
            raise Conflict("modified meanwhile", status=409)
        annotations = {**before["metadata"].get("annotations", {}), **metadata["annotations"]}
        changed = {key: value for key, value in patch.items() if key != "metadata"}
        return self.store({**before, **changed, "metadata": {**before["metadata"], "annotations": annotations}})

    async def list_all(self, resource, namespace, *, selector="", limit=0):
        self._note("list", resource.kind, selector)
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        here = [one for (kind, where, _), one in self.objects.items() if (kind, where) == (resource.kind, namespace)]
        fits = [one for one in here if wanted.items() <= (one["metadata"].get("labels") or {}).items()]
        # Items of a list carry neither.
        return [{k: v for k, v in copy.deepcopy(one).items() if k not in ("apiVersion", "kind")} for one in fits]

    async def delete(self, resource, namespace, name, *, uid):
        self._note("delete", resource.kind, name)
        assert self.objects[resource.kind, namespace, name]["metadata"]["uid"] == uid
        del self.objects[resource.kind, namespace, name]

    async def evict(self, namespace, name, *, uid):
        self._note("evict", "Pod", name)
        found = self.objects.get(("Pod", namespace, name))
        if found is None or found["metadata"]["uid"] != uid:
            return False
        self.store({**found, "metadata": {**found["metadata"], "deletionTimestamp": "2026-11-29T00:00:00Z"}})
        return True

    # test's side

    def store(self, manifest):
        place = manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        before = self.objects.get(place)
        kept = copy.deepcopy(manifest)
        if before is not None:
            same = {**before, "metadata": {k: v for k, v in before["metadata"].items() if k != "resourceVersion"}}
            kept["metadata"].setdefault("uid", before["metadata"]["uid"])
            if {**kept, "metadata": {k: v for k, v in kept["metadata"].items() if k != "resourceVersion"}} == same:
                return copy.deepcopy(before)
        self.version += 1
        kept["metadata"]["resourceVersion"] = str(self.version)
        kept["metadata"].setdefault("uid", f"uid-{self.version}")
        self.objects[place] = kept
        return copy.deepcopy(kept)

    def of(self, kind):
        return {name: manifest for (k, _, name), manifest in self.objects.items() if k == kind.kind}

    def writes(self):
        return [request for request in self.requests if request[0] not in ("get", "list")]

    def cache(self):
        """A cache whose indices show what is stored, as kopf's would once every event has arrived."""
        made = Cache()
        made.complete = True
        made.attach(
            {kind: _Index(self, kind) for kind in (SERVES, *OWNED, *OPTIONAL, CONTROLLER_REVISIONS, PODS, REPLICA_SETS)}
        )
        return made

    def _note(self, verb, kind, name):
        self.requests.append((verb, kind, name))
        error = self.refuse.pop((verb, kind), None)
        if error:
            raise error


class _Index(dict):
    """Computed at every access."""

    def __init__(self, api, kind):
        super().__init__()
        self._api, self._kind = api, kind

    def _now(self):
        found = {}
        for manifest in self._api.of(self._kind).values():
            metadata = manifest["metadata"]
            keys = [metadata.get("labels", {}).get(OWNER_UID_LABEL)]
            if self._kind is SERVES:
                keys = [(metadata["namespace"], metadata["name"]), metadata["uid"]]
            for key in keys:
                found.setdefault(key, []).append(Packed(manifest))
        return found

    def __getitem__(self, key):
        return self._now()[key]

    def __contains__(self, key):
        return key in self._now()

    def __iter__(self):
        return iter(self._now())

    def items(self):
        return self._now().items()


def serve(generation=1, **spec):
    base = {"model": {"name": "Qwen/Qwen3.6-27B", "maxModelLen": 65536}, "cache": {"l1": {"size": "10Gi"}}}
    return {
        "apiVersion": SERVES.api_version,
        "kind": SERVES.kind,
        "metadata": {"namespace": "ns", "name": "q", "uid": UID, "generation": generation},
        "spec": {"replicas": 1} | base | spec,
        "status": {"observedGeneration": -1},  # as the definition gives it to everything new
    }


def replica_set(deployment, name, revision="1"):
    """What the Deployment controller makes of a template."""
    template = deployment["spec"]["template"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "namespace": "ns",
            "name": name,
            "labels": {**template["metadata"]["labels"], "pod-template-hash": name},
            "annotations": {**deployment["metadata"]["annotations"], "deployment.kubernetes.io/revision": revision},
        },
        "spec": {"replicas": 0, "template": template},
        "status": {},
    }


assert resource_of(serve()) is SERVES
