"""`qcs top`: what the pods are doing now, read from their engine and relay through the API server's proxy.

The proxy works from anywhere that kubectl works, with the user's own rights (`get` on `pods/proxy`). Rates need two
readings; both are taken within the command, and with `--watch` each round is compared with the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from typing import Any

from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.core import names
from qwen_cached_serve.core.traffic import (
    UNKNOWN_RATES,
    CacheReading,
    EngineReading,
    Rates,
    between,
    read_cache,
    read_engine,
    share,
)
from qwen_cached_serve.inpod.facts import ENGINE_PORT, RELAY_PORT
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.pod_proxy import pod_answer
from qwen_cached_serve.kube.port import PODS, SERVES, ApiError, Forbidden, Manifest


@dataclass(frozen=True, slots=True)
class Reading:
    """One pod at one time; None where a program does not answer."""

    namespace: str
    resource: str
    pod: str
    phase: str
    engine: EngineReading | None
    cache: CacheReading | None

    @property
    def place(self) -> tuple[str, str]:
        """What tells the pod from all others."""
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True)
class Row:
    """One pod between two readings."""

    now: Reading
    rates: Rates | None

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON data; shares are 0 to 1, sizes are bytes."""
        now, engine, cache = self.now, self.now.engine, self.now.cache
        rates = self.rates or UNKNOWN_RATES
        return {
            "namespace": now.namespace,
            "resource": now.resource,
            "pod": now.pod,
            "phase": now.phase,
            "engine": engine
            and {
                "blockSize": engine.block_size,
                "running": engine.running,
                "waiting": engine.waiting,
                "localHits": rates.local_hits,
                "externalHits": rates.external_hits,
                "promptTokensPerSecond": rates.prompt_tokens,
                "generatedTokensPerSecond": rates.generated_tokens,
                "localHitsSinceStart": share(engine.counters, "local"),
                "externalHitsSinceStart": share(engine.counters, "external"),
            },
            "cacheServer": cache
            and {
                "l1UsedBytes": cache.used_bytes,
                "l1SizeBytes": cache.size_bytes,
                "registered": cache.registered,
                "l2": [asdict(tier) for tier in cache.tiers],
            },
        }


async def rounds(origin: Origin, namespace: str | None, name: str | None, seconds: float) -> AsyncGenerator[list[Row]]:
    """Yield rows every `seconds`, the first after two readings.

    Raises:
        ApiError, ConnectionFailed: no cluster, no such resource, no permission.
        CliError: no permission to use the proxy.

    """
    client = await KubeClient.connect(origin)
    try:
        if name is not None:
            await client.get(SERVES, namespace or "default", name)
        before = {reading.place: reading for reading in await _read(client, namespace, name)}
        while True:
            await asyncio.sleep(seconds)
            now = await _read(client, namespace, name)
            yield [Row(reading, _rates(before.get(reading.place), reading)) for reading in now]
            before = {reading.place: reading for reading in now}
    finally:
        await client.close()


def _rates(before: Reading | None, now: Reading) -> Rates | None:
    return between(before.engine, now.engine) if before and before.engine and now.engine else None


async def _read(client: KubeClient, namespace: str | None, name: str | None) -> list[Reading]:
    label = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
    pods = await client.list_all(PODS, namespace, selector=names.selector_text(name) if name else label)
    found = await asyncio.gather(*(_read_pod(client, pod) for pod in pods))
    return sorted(found, key=lambda reading: (reading.namespace, reading.resource, reading.pod))


async def _read_pod(client: KubeClient, pod: Manifest) -> Reading:
    metadata = pod["metadata"]
    engine, cache = await asyncio.gather(
        _ask(client, pod, ENGINE_PORT, "metrics"), _ask(client, pod, RELAY_PORT, "status")
    )
    return Reading(
        namespace=metadata["namespace"],
        resource=(metadata.get("annotations") or {}).get(names.NAME_ANNOTATION, "-"),
        pod=metadata["name"],
        phase=(pod.get("status") or {}).get("phase", "Unknown"),
        engine=read_engine(engine, time.monotonic()) if engine else None,
        cache=read_cache(cache) if cache else None,
    )


async def _ask(client: KubeClient, pod: Manifest, port: int, path: str) -> str | None:
    if not (pod.get("status") or {}).get("podIP"):
        return None
    metadata = pod["metadata"]
    try:
        return await pod_answer(client, metadata["namespace"], metadata["name"], port, path)
    except Forbidden as error:
        raise CliError(
            f"{error.message}; qcs top reads pods through the API server's proxy and needs the verb get on pods/proxy "
            f"in namespace {metadata['namespace']}"
        ) from error
    except ApiError:
        # The program does not answer (yet), or a NetworkPolicy keeps the API server out.
        return None
