"""The port's adapter, and the only user of the `kubernetes` library for requests.

It speaks to known paths (port.Resource), so that no discovery request is ever made, and asks for strict field
validation: a field that the API server would drop silently is an error here, since a manifest of ours that loses a
field is a bug.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncGenerator, Callable, Mapping

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.rest import RESTResponse

from qwen_cached_serve.kube import connection
from qwen_cached_serve.kube.answers import error_of, object_in, parsed
from qwen_cached_serve.kube.body import apply_body
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    FIELD_MANAGER,
    PODS,
    Conflict,
    Forbidden,
    LogWindow,
    Manifest,
    NotFound,
    Resource,
    Transient,
    WriteDenied,
    resource_of,
)

REQUEST_TIMEOUT_SECONDS = 30.0
PAGE_SIZE = 500
SILENCE_SECONDS = 90.0
"""The API server sends a bookmark every minute; a watch that hears nothing for longer is dead."""
JSON = "application/json"
APPLY = "application/apply-patch+yaml; charset=utf-8"
"""With a parameter the library takes the body as we write it."""
MERGE = "application/merge-patch+json"
ANYTHING = "*/*"
METADATA_OF_LIST = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
METADATA_OF_ONE = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
IMMUTABLE = (CONFIG_MAPS, CONTROLLER_REVISIONS)
"""Hundreds of kilobytes, which the answer to an apply would repeat: what was sent is what is there."""

Observe = Callable[[str, str], None]
"""Called with (method, code) after every request; code is `<error>` when no answer came, as client-go reports it."""
Guard = Callable[[], float]
"""Seconds for which writes are still allowed; 0 or less: not any more."""


class KubeClient:
    """See the module's text. Make it with `connect`, close it with `close`."""

    def __init__(
        self,
        api: ApiClient,
        origin: connection.Origin,
        *,
        observe: Observe | None = None,
        guard: Guard | None = None,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self._api = api
        self._origin = origin
        self._observe = observe
        self._guard = guard
        self._timeout = timeout_seconds

    @classmethod
    async def connect(cls, origin: connection.Origin, *, observe: Observe | None = None) -> KubeClient:
        """Read the credentials and return a client; nothing is sent yet.

        Raises:
            connection.ConnectionFailed: no usable credentials.

        """
        configuration = await connection.load(origin)
        configuration.connection_pool_maxsize = 0  # no limit: every watch holds a connection
        api = connection.client(configuration)
        api.user_agent = FIELD_MANAGER
        return cls(api, origin, observe=observe)

    def guarded(self, guard: Guard) -> KubeClient:
        """Return a client on the same connections that writes only while `guard` allows it."""
        return KubeClient(self._api, self._origin, observe=self._observe, guard=guard, timeout_seconds=self._timeout)

    def limited(self, timeout_seconds: float) -> KubeClient:
        """Return a client on the same connections with another request timeout."""
        return KubeClient(
            self._api, self._origin, observe=self._observe, guard=self._guard, timeout_seconds=timeout_seconds
        )

    async def close(self) -> None:
        """Close the connections (of all clients that share them)."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        """See `Port.get`."""
        return await self._request("GET", resource.path(namespace, name))

    async def list_all(
        self, resource: Resource, namespace: str | None, *, selector: str = "", limit: int = 0
    ) -> list[Manifest]:
        """See `Port.list_all`; reads in pages of PAGE_SIZE."""
        items: list[Manifest] = []
        async for page in self.pages(resource, namespace, selector, limit or PAGE_SIZE, JSON):
            items += page.get("items") or []
            if limit:
                break
        return items

    async def list_identities(
        self, resource: Resource, namespace: str | None, *, selector: str = ""
    ) -> tuple[dict[str, str], str]:
        """See `Port.list_identities`."""
        versions: dict[str, str] = {}
        version = ""
        async for page in self.pages(resource, namespace, selector, PAGE_SIZE, METADATA_OF_LIST):
            found = [item["metadata"] for item in page.get("items") or []]
            versions |= {metadata["uid"]: metadata["resourceVersion"] for metadata in found}
            version = version or page["metadata"]["resourceVersion"]
        return versions, version

    async def pages(
        self, resource: Resource, namespace: str | None, selector: str, size: int, accept: str
    ) -> AsyncGenerator[Manifest]:
        """List in pages of `size`."""
        following = ""
        while True:
            query = [("limit", str(size))]
            query += [("labelSelector", selector)] if selector else []
            query += [("continue", following)] if following else []
            page = await self._request("GET", resource.path(namespace), query, accept=accept)
            yield page
            following = page.get("metadata", {}).get("continue", "")
            if not following:
                return

    async def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """See `Port.apply`."""
        return await self._apply(manifest, None, dry_run=dry_run, validation="Strict")

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """See `Port.apply_status`."""
        # Not strict: an older CRD than this operator may lack a status field, and the rest must still get through.
        return await self._apply(manifest, "status", dry_run=False, validation="Ignore")

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """See `Port.create`."""
        path = resource.path(manifest["metadata"]["namespace"])
        return await self._request("POST", path, [("fieldManager", FIELD_MANAGER)], manifest)

    async def replace(self, resource: Resource, manifest: Manifest) -> Manifest:
        """See `Port.replace`."""
        metadata = manifest["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        return await self._request("PUT", path, [("fieldManager", FIELD_MANAGER)], manifest)

    async def annotate(
        self, resource: Resource, namespace: str, name: str, annotations: Mapping[str, str | None]
    ) -> Manifest:
        """Set annotations of an object, or take them away (None); for people's commands, the operator has no use."""
        patch = {"metadata": {"annotations": dict(annotations)}}
        return await self.merge(resource, namespace, name, patch, manager="qcs")

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Manifest, *, manager: str = FIELD_MANAGER
    ) -> Manifest:
        """See `Port.merge`."""
        path = resource.path(namespace, name)
        return await self._request("PATCH", path, [("fieldManager", manager)], patch, content_type=MERGE)

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        """See `Port.delete`."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._request("DELETE", resource.path(namespace, name), [], options)
        except NotFound:
            return

    async def evict(self, namespace: str, name: str, *, uid: str) -> bool:
        """See `Port.evict`."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._request("POST", PODS.path(namespace, name, "eviction"), [], eviction)
        except (NotFound, Conflict):
            return False  # gone, or another pod has the name
        return True

    async def pod_log(self, namespace: str, pod: str, container: str, window: LogWindow) -> str:
        """See `Port.pod_log`."""
        query = [
            ("container", container),
            ("previous", "true" if window.previous else "false"),
            ("tailLines", str(window.tail_lines)),
            ("limitBytes", str(window.limit_bytes)),
        ]
        raw = await self._raw("GET", PODS.path(namespace, pod, "log"), query, None, accept=ANYTHING)
        return raw.decode("utf-8", "replace")

    async def text(self, path: str) -> str:
        """Return the body of a GET as text, whatever its type."""
        raw = await self._raw("GET", path, [], None, accept=ANYTHING)
        return raw.decode("utf-8", "replace")

    async def served(self, group: str, version: str) -> set[str]:
        """Return the plural names that the API server serves for a group and version, empty when it knows none."""
        try:
            found = await self._request("GET", f"/apis/{group}/{version}")
        except NotFound:
            return set()
        return {entry["name"] for entry in found.get("resources") or []}

    async def lines(self, path: str, query: list[tuple[str, str]]) -> AsyncGenerator[bytes]:
        """Return a watch, line by line; it breaks when it is silent for SILENCE_SECONDS."""
        limits = aiohttp.ClientTimeout(sock_connect=10.0, sock_read=SILENCE_SECONDS)
        try:
            response = await self._call("GET", path, query, None, {"Accept": JSON}, limits)
            try:
                if response.status != 200:
                    answer = parsed(await response.response.read())
                    raise error_of(response.status, answer, response.headers.get("Retry-After", ""))
                async for line in response.response.content:
                    yield line
            finally:
                response.response.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Transient(f"GET {path}: the watch broke: {error or 'silence'}") from error

    async def _call(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Manifest | None,
        headers: dict[str, str],
        limits: aiohttp.ClientTimeout,
    ) -> RESTResponse:
        url = path + ("?" + urllib.parse.urlencode(query) if query else "")
        written = apply_body(body) if body is not None and headers.get("Content-Type") == APPLY else body
        request = await self._api.param_serialize(
            method, url, header_params=dict(headers), body=written, auth_settings=["BearerToken"]
        )
        return await self._api.call_api(*request, _request_timeout=limits)

    async def _apply(self, manifest: Manifest, subresource: str | None, *, dry_run: bool, validation: str) -> Manifest:
        metadata = manifest["metadata"]
        path = resource_of(manifest).path(metadata["namespace"], metadata["name"], subresource)
        query = [("fieldManager", FIELD_MANAGER), ("force", "true"), ("fieldValidation", validation)]
        query += [("dryRun", "All")] if dry_run else []
        if resource_of(manifest) not in IMMUTABLE:
            return await self._request("PATCH", path, query, manifest, content_type=APPLY)
        answer = await self._request("PATCH", path, query, manifest, content_type=APPLY, accept=METADATA_OF_ONE)
        return {**manifest, "metadata": answer["metadata"]}

    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        body: Manifest | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Manifest:
        raw = await self._raw(method, path, query or [], body, content_type=content_type, accept=accept)
        return object_in(raw, f"{method} {path}")

    async def _raw(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Manifest | None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            return await self._send(method, path, query, body, headers)
        except Forbidden as error:
            if error.status != 401:
                raise
        # The token expired: its source (file, exec plugin) has a new one, or the second refusal is final.
        fresh = await connection.load(self._origin)
        self._api.configuration.api_key = fresh.api_key
        return await self._send(method, path, query, body, headers)

    async def _send(
        self, method: str, path: str, query: list[tuple[str, str]], body: Manifest | None, headers: dict[str, str]
    ) -> bytes:
        timeout = self._allowed_seconds(method, path)
        code = "<error>"
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 10.0))
        try:
            response = await self._call(method, path, query, body, headers, limits)
            raw: bytes = await response.read()  # type: ignore[no-untyped-call]
            code = str(response.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = f"no answer within {timeout:.1f} s" if isinstance(error, TimeoutError) else str(error)
            raise Transient(f"{method} {path}: {what}") from error
        finally:
            if self._observe:
                self._observe(method, code)
        if 200 <= response.status < 300:
            return raw
        raise error_of(response.status, parsed(raw), response.headers.get("Retry-After", ""))

    def _allowed_seconds(self, method: str, path: str) -> float:
        if method == "GET" or self._guard is None:
            return self._timeout
        left = self._guard()
        if left <= 0:
            raise WriteDenied(f"{method} {path}: leadership ended, nothing is written any more")
        return min(self._timeout, left)
