"""What has to be true before watching makes sense: the CRD is served and everything that is watched may be listed.

kopf is told not to watch CRDs (no permission for it is asked for), so a CRD that appears later would never be
noticed; and a watch without permission fails over and over in kopf's own words. Hence this check first, in words
that say what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from qwen_cached_serve.control.handlers import CHILD_SELECTOR, WATCHED
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.port import SERVES, ApiError, Forbidden, NotFound, Resource

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5.0


class Preflight:
    """Checks until everything is fine; `problem` says what is not, empty when done."""

    def __init__(self, client: KubeClient, namespaces: Sequence[str]) -> None:
        self._client = client
        self._namespaces: list[str | None] = list(namespaces) or [None]
        self.problem = "not checked yet"

    async def wait(self, retry_seconds: float = RETRY_SECONDS) -> None:
        """Return when the operator can start; log each new problem once."""
        reported = ""
        while True:
            self.problem = await self.check()
            if not self.problem:
                return
            if self.problem != reported:
                reported = self.problem
                log.error("cannot start yet", problem=self.problem)
            await asyncio.sleep(retry_seconds)

    async def check(self) -> str:
        """Return what is wrong, empty when nothing is."""
        try:
            if SERVES.plural not in await self._client.served(SERVES.group, SERVES.version):
                return (
                    f"the API server does not serve {SERVES.plural}.{SERVES.group}/{SERVES.version}: "
                    "install the CustomResourceDefinition (kubectl apply -f crds/)"
                )
            for resource in WATCHED:
                for namespace in self._namespaces:
                    await self._list(resource, namespace)
        except Forbidden as error:
            return f"{error.message}; apply the RBAC of config/ (or set --namespaces to what it covers)"
        except NotFound as error:
            return error.message
        except ApiError as error:
            return f"the API server cannot be used: {error.message}"
        return ""

    async def _list(self, resource: Resource, namespace: str | None) -> None:
        selector = "" if resource is SERVES else CHILD_SELECTOR
        await self._client.list_all(resource, namespace, selector=selector, limit=1)
