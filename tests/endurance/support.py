"""What the endurance tests share: the served pods, the prompt that is cached, requests that go on all the time."""

import contextlib
import json
import signal
from pathlib import Path

import pytest

from demo.shell import counter, http
from tests.node_support import ROOT

N = 352
"""Unified block size of `tiny-chain-352`."""
LONG = [10 + (7 * index + index // 190) % 190 for index in range(4 * N + 92)]
FEW = {"resources": {"requests": {"cpu": "250m"}}}
"""Two pods on two cores."""
UNBOUND = [
    {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"},
    {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"},
]
"""By itself vLLM binds every engine of a node to the same core; of two workers that share one, the spinning one left
the other 2 s of 360 (Linux 6.18), so that it never started."""
CLIENT = Path(__file__).with_name("client.py").read_text(encoding="utf-8")
STOP = "/tmp/stop"
TWO_PODS_SECONDS = 3000
"""For two pods that start one after the other on two cores which have other work."""


def note(name, figures):
    print(json.dumps(figures))
    (ROOT / "build" / "reports" / f"endurance-{name}.json").write_text(json.dumps(figures, indent=1))


def served(node, namespace):
    """Pods of the resource; the client's is not one of them."""
    return [pod for pod in node.pods(namespace) if "qwencache.dev/name" in pod["metadata"].get("annotations", {})]


def statuses(pod):
    found = pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", [])
    return {status["name"]: status for status in found}


def ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def kill_engine(node, namespace, pod):
    """End the engine as the kernel does, and wait for its next life; one start has to do."""
    before = statuses(served(node, namespace)[0])["engine"]["restartCount"]
    node.signal(namespace, pod, "engine", signal.SIGKILL, "vllm")

    def back():
        (now,) = served(node, namespace)
        count = statuses(now)["engine"]["restartCount"]
        if count > before + 1:
            log = node.shell.kubectl("logs", "-n", namespace, pod, "-c", "engine", "--previous", check=False)
            pytest.fail(f"a life of the engine ended by itself: {log[-4000:]}")
        return count == before + 1 and ready(now)

    node.wait("the engine's next life", back)


def shared_memory(node, namespace, pod):
    """Files in the engine's /dev/shm."""
    listed = node.shell.kubectl("exec", "-n", namespace, pod, "-c", "engine", "--", "ls", "/dev/shm")
    return sorted(listed.split())


def external_hits(node, namespace, pod):
    """Send the long prompt; returns the tokens that this life of the engine took from LMCache for it."""
    with node.shell.forward(f"pod/{pod}", namespace, 8000) as base:
        before = counter(http(f"{base}/metrics"), "vllm:external_prefix_cache_hits_total")
        http(f"{base}/v1/completions", {"model": "tiny", "prompt": LONG, "max_tokens": 2, "temperature": 0})
        return counter(http(f"{base}/metrics"), "vllm:external_prefix_cache_hits_total") - before


@contextlib.contextmanager
def traffic(node, namespace, name, found):
    """Requests to the Service from a pod of their own; what it saw is in `found` afterwards."""
    (service,) = [one for one in node.shell.list("services", namespace) if one["spec"].get("clusterIP")]
    address = service["spec"]["clusterIP"]  # this cluster has no DNS
    node.shell.kubectl(
        "apply", "-n", namespace, "-f", "-",
        stdin=json.dumps({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "client",
                    "image": node.place.images.engine_cpu,
                    "command": ["python3", "-c", CLIENT, f"http://{address}/v1", "tiny", STOP],
                }],
            },
        }),
    )  # fmt: skip

    def phase():
        return (node.shell.get("pod", name, namespace) or {}).get("status", {}).get("phase")

    node.wait("the client runs", lambda: phase() == "Running", seconds=120)
    yield
    node.shell.kubectl("exec", "-n", namespace, name, "--", "touch", STOP)
    node.wait("the client has ended", lambda: phase() == "Succeeded", seconds=300)
    found.update(json.loads(node.shell.kubectl("logs", "-n", namespace, name).splitlines()[-1]))
