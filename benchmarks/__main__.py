"""`python -m benchmarks [--sizes 100,500]`: the operator with many resources on simulated nodes.

For every size a fresh control plane with simulated nodes, the operator as a process of its own, then:

- paced: resources applied one a second, so that nothing queues; time from the API server's answer to the apply
  until the Deployment exists (p50, p99);
- burst: all the rest at once; time until every Deployment exists and until every resource is Ready;
- writes of the operator per resource (its own request counter), processor seconds, resident memory;
- idle: 60 seconds in which nothing happens; writes and processor time.

Writes build/bench/operator.json and prints a table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from localkube.cluster import Options, up
from qwen_cached_serve.inpod import facts, message
from qwen_cached_serve.inpod.identity import with_identity
from tests.cluster.operator_support import ROOT, Cluster, OperatorProcess

OUT = ROOT / "build" / "bench"
PACED = 20
PACE_SECONDS = 1.0
IDLE_SECONDS = 60.0
SETTLE_SECONDS = 10.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Result:
    """Figures of one size; seconds unless the name says otherwise."""

    resources: int
    paced_p50_ms: float
    paced_p99_ms: float
    burst_deployments: float
    burst_p50: float
    burst_p99: float
    all_ready: float
    cpu_per_resource_ms: float
    rss_mb: float
    writes_per_resource: float
    idle_writes: float
    idle_cpu_percent: float


class Watch:
    """Deployments and Ready resources, with the time at which each was first seen."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.deployments: dict[str, float] = {}
        self.ready: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Watch:
        from kubernetes.aio import client, config, watch

        await config.load_kube_config(config_file=self._cluster.kubeconfig)
        self._client = client.ApiClient()
        apps, custom = client.AppsV1Api(self._client), client.CustomObjectsApi(self._client)

        async def deployments() -> None:
            async with watch.Watch().stream(apps.list_namespaced_deployment, namespace="bench") as stream:
                async for event in stream:
                    self.deployments.setdefault(event["raw_object"]["metadata"]["name"], time.monotonic())

        async def resources() -> None:
            arguments = ("qwencache.dev", "v1alpha1", "bench", "qwencachedserves")
            async with watch.Watch().stream(custom.list_namespaced_custom_object, *arguments) as stream:
                async for event in stream:
                    found = event["raw_object"] if "raw_object" in event else event["object"]
                    conditions = {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}
                    if conditions.get("Ready") == "True":
                        self.ready.setdefault(found["metadata"]["name"], time.monotonic())

        self._tasks = [asyncio.create_task(deployments()), asyncio.create_task(resources())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def until(self, seen: dict[str, float], wanted: set[str], within_seconds: float) -> None:
        """Wait until all of `wanted` were seen."""
        deadline = time.monotonic() + within_seconds
        while not wanted <= seen.keys():
            for task in self._tasks:
                if task.done():
                    task.result()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{len(wanted - seen.keys())} of {len(wanted)} not seen after {within_seconds:.0f} s"
                )
            await asyncio.sleep(0.05)


def resource(name: str) -> dict[str, Any]:
    """One GPU resource whose simulated probe answers with N = 784."""
    report = facts.ProbeReport(
        block_size=784,
        kernel_block_size=784,
        attention_backends=("FLASH_ATTN",),
        versions=facts.Versions(vllm="0.32.0", lmcache="0.5.6"),
        method="Construct",
    )
    shape = facts.ServeSettings("m", facts.EngineSettings("GPU"), facts.CacheSettings(enabled=True))
    report = with_identity(shape, report, {}, "commit 0123456", {})
    return {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": {"name": name, "namespace": "bench"},
        "spec": {
            "model": {"name": "Qwen/Qwen3.6-27B"},
            "cache": {"l1": {"size": "4Gi"}},
            "pod": {
                "annotations": {"qcs.test/message.probe": message.termination_message(report, "bench")},
                "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            },
        },
    }


async def create(custom: Any, name: str) -> float:
    """Create one resource; returns the time of the API server's answer."""
    await custom.create_namespaced_custom_object(
        "qwencache.dev", "v1alpha1", "bench", "qwencachedserves", resource(name)
    )
    return time.monotonic()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def percentile(values: list[float], percent: float) -> float:
    """The value below which `percent` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


async def measure(cluster: Cluster, size: int) -> Result:
    """Run one size on a cluster without resources."""
    from kubernetes.aio import client

    log = OUT / f"operator-{size}.log"
    log.unlink(missing_ok=True)  # the ports are read from it
    operator = OperatorProcess(log, cluster.kubeconfig, ["--leader-election", "false"])
    try:
        await operator.wait_ready()
        async with Watch(cluster) as seen:
            custom = client.CustomObjectsApi(seen._client)
            writes, cpu = operator.writes(), cpu_seconds(operator.process.pid)
            created: dict[str, float] = {}
            for number in range(PACED):
                created[f"paced-{number}"] = await create(custom, f"paced-{number}")
                await asyncio.sleep(PACE_SECONDS)
            await seen.until(seen.deployments, set(created), 60)
            paced = [seen.deployments[name] - at for name, at in created.items()]
            burst = [f"burst-{number}" for number in range(size - PACED)]
            begun = time.monotonic()
            times = await asyncio.gather(*(create(custom, name) for name in burst))
            await seen.until(seen.deployments, set(burst), 900)
            delays = [seen.deployments[name] - at for name, at in zip(burst, times, strict=True)]
            everything = set(burst) | set(created)
            await seen.until(seen.ready, everything, 1800)
            all_ready = max(seen.ready.values()) - begun
            await asyncio.sleep(SETTLE_SECONDS)
            spent, written = cpu_seconds(operator.process.pid) - cpu, operator.writes() - writes
            cpu, writes = cpu_seconds(operator.process.pid), operator.writes()
            await asyncio.sleep(IDLE_SECONDS)
            return Result(
                resources=size,
                paced_p50_ms=percentile(paced, 50) * 1000,
                paced_p99_ms=percentile(paced, 99) * 1000,
                burst_deployments=max(seen.deployments[name] for name in burst) - begun,
                burst_p50=percentile(delays, 50),
                burst_p99=percentile(delays, 99),
                all_ready=all_ready,
                cpu_per_resource_ms=spent / size * 1000,
                rss_mb=operator.memory_bytes() / 1e6,
                writes_per_resource=written / size,
                idle_writes=operator.writes() - writes,
                idle_cpu_percent=(cpu_seconds(operator.process.pid) - cpu) / IDLE_SECONDS * 100,
            )
    finally:
        operator.stop()


def run(size: int) -> Result:
    """One size on a cluster of its own."""
    found = up(Options(name=f"bench-{size}", simulated_nodes=max(4, size // 50), gpus=0), print)
    try:
        cluster = Cluster(found.kubeconfig)
        # The benchmark is about the operator, not about room: every simulated node takes all of the pods.
        room = {"nvidia.com/gpu": "1000", "cpu": "10k", "memory": "100Ti"}
        for node in cluster.get("nodes", "-l", "type=kwok")["items"]:
            found.set_node_capacity(room, node["metadata"]["name"])
        for crd in sorted((ROOT / "crds").glob("*.yaml")):
            cluster.kubectl("apply", "--server-side", "-f", str(crd))
        cluster.wait_until_served()
        cluster.apply(*yaml.safe_load_all("apiVersion: v1\nkind: Namespace\nmetadata: {name: bench}\n"))
        return asyncio.run(measure(cluster, size))
    finally:
        found.down()


def main() -> int:
    """Entry point of `make bench`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,500", help="numbers of resources, comma separated")
    sizes = [int(part) for part in parser.parse_args().sizes.split(",")]
    OUT.mkdir(parents=True, exist_ok=True)
    results = [run(size) for size in sizes]
    (OUT / "operator.json").write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    names = list(asdict(results[0]))
    for name in names:
        print(f"{name:<22}" + "".join(f"{getattr(result, name):>12.1f}" for result in results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
