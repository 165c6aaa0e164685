"""What the programs of a serving pod say themselves, read over the network where that is possible.

Two requests: the engine's `/metrics` (its N) and the relay's `/status` (what the cache server holds). Whatever goes
wrong on the way, a mesh, a NetworkPolicy, an operator outside the cluster, is "not known" and never a verdict
(DESIGN D15): the pod's own start-up gate has compared the same figures before the pod became ready.
"""

from __future__ import annotations

import aiohttp

from qwen_cached_serve.core.observed import Verification
from qwen_cached_serve.inpod import facts
from qwen_cached_serve.inpod.engine_metrics import METRICS_LIMIT_BYTES, engine_block_size
from qwen_cached_serve.inpod.registrations import STATUS_LIMIT_BYTES, ServerStatus, parse_status

TIMEOUT_SECONDS = 3.0


class PodReader:
    """Reads pods by their address; close it in the end."""

    def __init__(
        self,
        *,
        engine_port: int = facts.ENGINE_PORT,
        relay_port: int = facts.RELAY_PORT,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._engine_port = engine_port
        self._relay_port = relay_port
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def read(self, address: str) -> Verification | None:
        """Return what the pod at that IP address says; None when either program cannot be reached or understood."""
        metrics = await self._get(address, self._engine_port, "/metrics", METRICS_LIMIT_BYTES)
        status = await self._get(address, self._relay_port, "/status", STATUS_LIMIT_BYTES)
        if metrics is None or status is None:
            return None
        try:
            return verification(metrics.decode("utf-8", "replace"), parse_status(status))
        except ValueError:
            return None

    async def report(self, address: str) -> bytes | None:
        """Return the relay's `/report` of the pod at that IP address; None when it cannot be reached."""
        return await self._get(address, self._relay_port, "/report", METRICS_LIMIT_BYTES)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, address: str, port: int, path: str, limit: int) -> bytes | None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))
        host = f"[{address}]" if ":" in address else address
        try:
            # Redirects are refused: a pod must not send the operator elsewhere in the cluster.
            async with self._session.get(f"http://{host}:{port}{path}", allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                body = await answer.content.read(limit + 1)
                while len(body) <= limit and (more := await answer.content.read(limit + 1 - len(body))):
                    body += more
                return body if len(body) <= limit else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def verification(metrics: str, status: ServerStatus) -> Verification:
    """Put the two answers into the core's type."""
    blocks = {size for worker in status.ids for size in status.tokens_per_block.get(worker, frozenset())}
    return Verification(
        engine_block_size=engine_block_size(metrics),
        server_chunk_size=status.chunk_size,
        server_block_sizes=tuple(sorted(blocks)),
        registered=bool(status.ids),
    )
