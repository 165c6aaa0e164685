"""Real engines on a real node under requests: killed again and again, a hung cache server, rolls to another geometry.

`make test-endurance`, not part of CI: half an hour on two cores. Figures go to build/reports/endurance-*.json.
"""

import contextlib
import json
import signal
import time
from pathlib import Path

import pytest

from demo.shell import DemoError, counter, http
from tests.node_support import ROOT

pytestmark = pytest.mark.timeout(3600)

MODELS = {"tiny-chain-352": 352, "tiny-chain": 2144}
"""Block size of each geometry of the model image."""
N, LARGER_N = MODELS.values()
LONG = [10 + (7 * index + index // 190) % 190 for index in range(4 * N + 92)]
KILLS = 3
CLIENT = Path(__file__).with_name("client.py").read_text(encoding="utf-8")
STOP = "/tmp/stop"


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


@pytest.fixture(scope="module")
def tiny(node, module_namespace):
    """The namespace with a Ready resource `tiny` that has the long prompt in its cache."""
    few = {"resources": {"requests": {"cpu": "250m"}}}  # two pods on two cores
    node.apply(module_namespace, node.tiny("tiny", engine=few, cache=few))
    node.wait_ready(module_namespace, "tiny")
    (pod,) = served(node, module_namespace)
    assert external_hits(node, module_namespace, pod["metadata"]["name"]) == 0
    return module_namespace


def test_an_engine_killed_three_times_comes_back_with_its_hits(node, tiny):
    (pod,) = served(node, tiny)
    name, lives = pod["metadata"]["name"], []
    files = shared_memory(node, tiny, name)
    for _ in range(KILLS):
        began = time.monotonic()
        kill_engine(node, tiny, name)
        left = shared_memory(node, tiny, name)
        lives.append({
            "ready_again_seconds": round(time.monotonic() - began, 1),
            "hit_tokens": external_hits(node, tiny, name),
            "shm_files": len(left),
        })  # fmt: skip
        assert len(left) <= len(files), (files, left)
    note("killed", {"shm_files_at_first": len(files), "lives": lives})
    assert [life["hit_tokens"] for life in lives] == [4 * N] * KILLS
    assert statuses(served(node, tiny)[0])["cache-server"]["restartCount"] == 0


def test_a_hung_cache_server_is_replaced_while_the_engine_answers(node, tiny):
    (pod,) = served(node, tiny)
    name, found = pod["metadata"]["name"], {}
    with traffic(node, tiny, "client-hung", found), node.shell.forward(f"pod/{name}", tiny, 8081) as relay:
        began = time.monotonic()
        node.signal(tiny, name, "cache-server", signal.SIGSTOP, "lmcache")

        def replaced():
            (now,) = served(node, tiny)
            assert ready(now)
            log = node.shell.kubectl("logs", "-n", tiny, name, "-c", "cache-server")
            return "killing it" in log

        node.wait("the hung server is killed", replaced, seconds=300)

        def registered():
            with contextlib.suppress(DemoError):
                return json.loads(http(f"{relay}/status", timeout_seconds=5))["registered_gpu_ids"]
            return None

        node.wait("the engine is registered with the next server", registered, seconds=300)
        found["seconds_until_registered"] = round(time.monotonic() - began, 1)
    # The new server is empty: the first prompt fills it, the next life of the engine finds it.
    external_hits(node, tiny, name)
    kill_engine(node, tiny, name)
    found["hit_tokens"] = external_hits(node, tiny, name)
    note("hung", found)
    assert (found["lost"], found["sent"] > 0) == (0, True), found["why"]
    assert found["hit_tokens"] == 4 * N


def test_a_roll_of_one_pod_to_another_geometry(node, tiny):
    """Recreate: what is lost are the requests between the two pods, and the status says what goes on."""
    found = {}
    with traffic(node, tiny, "client-recreate", found):
        began = time.monotonic()
        node.patch(tiny, "tiny", {"model": {"name": "tiny-chain"}})
        node.wait_ready(tiny, "tiny")
        found["seconds"] = round(time.monotonic() - began, 1)
    status = node.resource(tiny, "tiny")["status"]
    note("recreate", found)
    assert status["blockSize"]["verified"] == LARGER_N
    assert 0 < found["lost"] < found["sent"], found
    assert found["longest_without_answer_seconds"] < found["seconds"]


def test_a_roll_of_two_pods_loses_nothing(node, tiny):
    node.patch(tiny, "tiny", {"replicas": 2})
    node.wait_ready(tiny, "tiny")
    before = node.resource(tiny, "tiny")["spec"]["model"]["name"]
    (other,) = MODELS.keys() - {before}
    found = {}
    with traffic(node, tiny, "client-rolling", found):
        began = time.monotonic()
        node.patch(tiny, "tiny", {"model": {"name": other}})
        node.wait_ready(tiny, "tiny")
        found["seconds"] = round(time.monotonic() - began, 1)
    assert node.resource(tiny, "tiny")["status"]["blockSize"]["verified"] == MODELS[other]
    note("rolling", found)
    assert (found["lost"], found["sent"] > 0) == (0, True), found["why"]
