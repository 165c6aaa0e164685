"""The operator's own HTTP endpoints: /healthz, /readyz and /metrics.

/healthz is dumb on purpose (kopf's documentation warns that a clever liveness probe does harm): it answers while the
event loop turns, no essential task has ended, and no watch has been behind for `--watch-behind-seconds`. The last is
certain when it is said (`control.watch_lag`), and a new process with new connections and lists is its cure.

/readyz says why when it is not ready, so that `kubectl describe` shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from qwen_cached_serve.observe.metrics import CONTENT_TYPE, Metrics

Check = Callable[[], str]
"""Returns what is wrong, empty when nothing is."""


class WebServer:
    """Serves probes and metrics on a port each, as controller-runtime does. Port 0: a free one; no host: all."""

    def __init__(
        self, *, host: str, health_port: int, metrics_port: int, metrics: Metrics, alive: Check, ready: Check
    ) -> None:
        self._host = host
        self._metrics = metrics
        self._alive = alive
        self._ready = ready
        self._wanted = (health_port, metrics_port)
        self._runners: list[web.AppRunner] = []
        self.health_port = 0
        self.metrics_port = 0

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: a port is taken.

        """
        health = web.Application()
        health.add_routes([web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)])
        scraped = web.Application()
        scraped.add_routes([web.get("/metrics", self._expose)])
        self.health_port = await self._listen(health, self._wanted[0])
        self.metrics_port = await self._listen(scraped, self._wanted[1])

    async def stop(self) -> None:
        """Stop listening."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _listen(self, app: web.Application, port: int) -> int:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, self._host or None, port)
        await site.start()
        return int(runner.addresses[0][1])

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _verdict(self._alive())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _verdict(self._ready())

    async def _expose(self, _request: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._metrics.expose)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def _verdict(wrong: str) -> web.Response:
    return web.Response(text=f"{wrong}\n", status=503) if wrong else web.Response(text="ok\n")
