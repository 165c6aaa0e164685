"""What the operator needs of the Kubernetes API, and nothing else: the seam between deciding and the cluster.

Manifests are plain dicts throughout (facts/kopf-and-libraries.md §0.3). Errors are few, because the reconciler acts
on few distinctions; each keeps the API server's own sentence, which is shown to people as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Manifest = dict[str, Any]

FIELD_MANAGER = "qwen-cached-serve"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object as the API addresses it; a fixed table of them replaces discovery requests."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, the object or its subresource."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/" + "/".join(parts)


GROUP = "qwencache.dev"

SERVES = Resource(GROUP, "v1alpha1", "QwenCachedServe", "qwencachedserves")
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
REPLICA_SETS = Resource("apps", "v1", "ReplicaSet", "replicasets")
CONTROLLER_REVISIONS = Resource("apps", "v1", "ControllerRevision", "controllerrevisions")
PODS = Resource("", "v1", "Pod", "pods")
SERVICES = Resource("", "v1", "Service", "services")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
EVENTS = Resource("events.k8s.io", "v1", "Event", "events")

NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
DISRUPTION_BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
POD_MONITORS = Resource("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors")

OWNED = (CONFIG_MAPS, SERVICE_ACCOUNTS, SERVICES, DEPLOYMENTS)
"""Kinds of children that every resource has, in the order in which they are applied: what the pods need comes before
the pods."""
OPTIONAL = (NETWORK_POLICIES, DISRUPTION_BUDGETS, POD_MONITORS)
"""Kinds of children that a resource may ask for. The cluster may lack one, or the operator its permission: nothing else
may suffer from that."""
READ_ONLY = (REPLICA_SETS, PODS)
"""Kinds that are watched and never written."""

_BY_KIND = {
    (r.api_version, r.kind): r for r in (SERVES, *OWNED, *OPTIONAL, CONTROLLER_REVISIONS, *READ_ONLY, LEASES, EVENTS)
}


def resource_of(manifest: Manifest) -> Resource:
    """Return the table's entry for a manifest.

    Raises:
        KeyError: a kind this operator has no business with.

    """
    return _BY_KIND[manifest["apiVersion"], manifest["kind"]]


class ApiError(Exception):
    """An answer (or none) of the API server that is not a success; `message` is the server's sentence."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class Conflict(ApiError):  # noqa: N818 - named after the API's reasons
    """409: modified meanwhile, exists already, or a precondition does not hold. Look again."""


class NotFound(ApiError):  # noqa: N818
    """404: the object, its namespace or its kind is not there."""


class Invalid(ApiError):  # noqa: N818
    """400, 405, 413, 415, 422: the same request will never succeed; the message names the field."""


class Forbidden(ApiError):  # noqa: N818
    """403 (or 401): RBAC, admission, quota, or a namespace that is being terminated."""

    @property
    def namespace_terminating(self) -> bool:
        """Whether the refusal only says that the namespace is going away (cause NamespaceTerminating)."""
        return "is being terminated" in self.message or "NamespaceTerminating" in self.message


class Transient(ApiError):  # noqa: N818
    """429, 5xx, timeout, connection lost: the same request may succeed later, and may even have succeeded."""


class Budget(ApiError):  # noqa: N818
    """429 (or 500) to an eviction: a PodDisruptionBudget does not allow it now. No fault; try again later."""


class WriteDenied(Exception):  # noqa: N818
    """A write was stopped before it was sent: this process no longer holds the leadership."""


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Which piece of a container's log is wanted."""

    previous: bool
    """Of the life before the present one."""
    tail_lines: int
    limit_bytes: int
    """Cuts the end off what `tail_lines` lets through."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a watch tells."""

    type: Literal["LISTED", "ADDED", "MODIFIED", "DELETED"]
    objects: tuple[Manifest, ...]
    """All that there are for `LISTED`, else one."""


class Watching(Protocol):
    """Watches of kinds that kopf does not watch."""

    def changes(self, resource: Resource, namespace: str | None, *, selector: str = "") -> AsyncIterator[Change]:
        """List, then tell every change until the watch ends, which it does now and then; raises `ApiError`s."""
        ...


class Port(Protocol):
    """The operator's view of the API. Methods raise `ApiError`s; writes without leadership raise `WriteDenied`."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        """Return one object."""
        ...

    async def list_all(
        self, resource: Resource, namespace: str | None, *, selector: str = "", limit: int = 0
    ) -> list[Manifest]:
        """Return all objects that match (`namespace=None`: cluster-wide); with `limit` at most that many."""
        ...

    async def list_identities(
        self, resource: Resource, namespace: str | None, *, selector: str = ""
    ) -> tuple[dict[str, str], str]:
        """Return the resource version of each object that matches by its uid, and that of the moment; no bodies."""
        ...

    async def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply as FIELD_MANAGER, taking over conflicting fields; return the object as it is now."""
        ...

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Server-side apply of the status subresource; the manifest carries only identity and `status`."""
        ...

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Change the given fields of an object; a `resourceVersion` in it makes that optimistic."""
        ...

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Create an object; `Conflict` when the name is taken."""
        ...

    async def replace(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Replace an object; its `resourceVersion` makes it optimistic (`Conflict` when it moved on)."""
        ...

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        """Delete the object with this uid in the background; one that is gone already is no error."""
        ...

    async def evict(self, namespace: str, name: str, *, uid: str) -> bool:
        """Evict the pod with this uid; whether it was there. `Budget` while a PodDisruptionBudget keeps it."""
        ...

    async def pod_log(self, namespace: str, pod: str, container: str, window: LogWindow) -> str:
        """Return a piece of a container's log; its permission is optional (`Forbidden` without it)."""
        ...
