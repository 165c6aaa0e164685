"""Real engines on a real node under requests: killed again and again, a hung cache server, rolls to another geometry.

`make test-endurance`, not part of CI: half an hour on two cores. Figures go to build/reports/endurance-*.json.
"""

import contextlib
import json
import signal
import time

import pytest

from demo.shell import DemoError, http
from tests.endurance.support import (
    FEW,
    TWO_PODS_SECONDS,
    UNBOUND,
    N,
    external_hits,
    kill_engine,
    note,
    ready,
    served,
    shared_memory,
    statuses,
    traffic,
)

pytestmark = pytest.mark.timeout(3600)

MODELS = {"tiny-chain-352": N, "tiny-chain": 2144}
"""Block size of each geometry of the model image."""
LARGER_N = MODELS["tiny-chain"]
KILLS = 3


@pytest.fixture(scope="module")
def tiny(node, module_namespace):
    """The namespace with a Ready resource `tiny` that has the long prompt in its cache."""
    node.apply(module_namespace, node.tiny("tiny", engine={"env": UNBOUND, **FEW}, cache=FEW))
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


def test_an_engine_killed_before_its_first_heartbeat_finds_room(node, tiny):
    """LMCache keeps its registration, and with it its memory, for an hour: the cache server is renewed instead."""
    (pod,) = served(node, tiny)
    name, found = pod["metadata"]["name"], {}
    files = shared_memory(node, tiny, name)
    with node.shell.forward(f"pod/{name}", tiny, 8081) as relay:

        def registered():
            with contextlib.suppress(DemoError):
                return {
                    str(one) for one in json.loads(http(f"{relay}/status", timeout_seconds=5))["registered_gpu_ids"]
                }
            return set()

        before = registered()
        node.signal(tiny, name, "engine", signal.SIGKILL, "vllm")
        node.wait("the next life is registered", lambda: registered() - before, seconds=600)
    assert not ready(served(node, tiny)[0])
    began = time.monotonic()
    kill_engine(node, tiny, name)
    found["ready_again_seconds"] = round(time.monotonic() - began, 1)
    log = node.shell.kubectl("logs", "-n", tiny, name, "-c", "engine")
    note("killed-early", found)
    assert "a new cache server was needed" in log
    assert len(shared_memory(node, tiny, name)) <= len(files)
    external_hits(node, tiny, name)  # the new server is empty: the next tests find this prompt in it


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
    node.wait_ready(tiny, "tiny", TWO_PODS_SECONDS)
    before = node.resource(tiny, "tiny")["spec"]["model"]["name"]
    (other,) = MODELS.keys() - {before}
    found = {}
    with traffic(node, tiny, "client-rolling", found):
        began = time.monotonic()
        node.patch(tiny, "tiny", {"model": {"name": other}})
        node.wait_ready(tiny, "tiny", TWO_PODS_SECONDS)
        found["seconds"] = round(time.monotonic() - began, 1)
    assert node.resource(tiny, "tiny")["status"]["blockSize"]["verified"] == MODELS[other]
    note("rolling", found)
    assert (found["lost"], found["sent"] > 0) == (0, True), found["why"]
