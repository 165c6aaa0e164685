"""Reading logs of failed containers: once for each life, bounded, and without a word where it is not allowed."""

import asyncio

import pytest

from qwen_cached_serve.control import podlogs
from qwen_cached_serve.control.cache import OWNER_UID_LABEL
from qwen_cached_serve.control.podlogs import PodLogs
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.core.diagnose import diagnose_log
from qwen_cached_serve.core.observed import observe
from qwen_cached_serve.core.status import LogRequest
from qwen_cached_serve.kube.port import DEPLOYMENTS, Forbidden, Invalid, NotFound, Transient
from tests.unit.control.bench import Bench
from tests.unit.control.fake_api import UID

KEY = ("ns", "q")
CAUSE = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).\n"
NOISE = "(APIServer pid=1) INFO 11-29 15:49:10 [model.py:2152] Using max model len 16384\n" * 2000
WANTED = (LogRequest("p", "engine"),)


def pod(ended="2026-11-29T10:00:00Z", restarts=1, state="waiting", uid="uid-p"):
    end = {"exitCode": 1, "reason": "Error", "finishedAt": ended}
    kind = {"terminated": end} if state == "terminated" else {state: {}}
    return {
        "metadata": {"namespace": "ns", "name": "p", "uid": uid},
        "spec": {"nodeName": "n"},
        "status": {
            "containerStatuses": [
                {
                    "name": "engine",
                    "restartCount": restarts,
                    "state": kind,
                    "lastState": {} if state == "terminated" else {"terminated": end},
                }
            ]
        },
    }


def seen(manifest):
    return observe(None, (), [manifest])


class FakeLogs:
    """The port's method for logs; answers from a list, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def pod_log(self, namespace, name, container, window):
        self.asked.append((namespace, name, container, window))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def made(*answers):
    port, queue = FakeLogs(*answers), WorkQueue()
    return PodLogs(port=port, queue=queue, pause_seconds=0.001), port, queue


def tail(logs, manifest):
    return logs.enriched(seen(manifest)).pods[0].log_tail("engine")


async def step(logs):
    await asyncio.wait_for(logs.step(), 5)


async def test_a_failed_life_is_read_once_and_its_owner_looked_at():
    logs, port, queue = made(NOISE + CAUSE + NOISE)
    for _ in range(3):
        logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    for _ in range(3):
        logs.want(KEY, seen(pod()), WANTED)
    assert len(port.asked) == 1
    assert logs._wanted.empty()
    assert await asyncio.wait_for(queue.get(), 1) == KEY
    assert diagnose_log(tail(logs, pod())).code == "MaxNumSeqsTooLarge"


async def test_only_the_decisive_lines_are_kept_and_the_answer_is_bounded():
    logs, port, _ = made(NOISE + CAUSE)
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    assert tail(logs, pod()) == CAUSE.strip()
    window = port.asked[0][3]
    assert 0 < window.limit_bytes <= 256 << 10
    assert 80 < window.tail_lines <= 500


@pytest.mark.parametrize(("state", "previous"), [("waiting", True), ("running", True), ("terminated", False)])
async def test_the_life_that_ended_is_asked_for(state, previous):
    logs, port, _ = made(CAUSE)
    logs.want(KEY, seen(pod(state=state)), WANTED)
    await step(logs)
    assert port.asked[0][:3] == ("ns", "p", "engine")
    assert port.asked[0][3].previous is previous


async def test_the_same_end_seen_before_and_after_the_restart_is_one_life():
    logs, port, _ = made(CAUSE)
    logs.want(KEY, seen(pod(restarts=0, state="terminated")), WANTED)
    await step(logs)
    logs.want(KEY, seen(pod(restarts=1, state="waiting")), WANTED)
    assert logs._wanted.empty()
    assert tail(logs, pod(restarts=1, state="running"))
    assert len(port.asked) == 1


async def test_another_life_is_asked_again_and_never_explained_by_the_old_one():
    logs, port, _ = made(CAUSE)
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    later = pod(ended="2026-11-29T11:00:00Z", restarts=2)
    assert tail(logs, later) == ""
    logs.want(KEY, seen(later), WANTED)
    await step(logs)
    assert len(port.asked) == 2
    assert tail(logs, pod(uid="another")) == ""


async def test_without_the_permission_nothing_is_known_and_nobody_is_woken():
    logs, port, queue = made(Forbidden("pods/log is forbidden", status=403), CAUSE)
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    for _ in range(3):
        # Every reconcile asks again; no request is made for it.
        logs.want(KEY, seen(pod()), WANTED)
        await step(logs)
    assert len(port.asked) == 1
    assert len(queue) == 0
    assert tail(logs, pod()) == ""
    logs._forbidden_until = 0  # as if ten minutes had passed
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    assert tail(logs, pod())


@pytest.mark.parametrize("error", [NotFound("gone", status=404), Invalid("previous container not found", status=400)])
async def test_a_log_that_is_gone_is_asked_for_once(error):
    logs, port, queue = made(error)
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    logs.want(KEY, seen(pod()), WANTED)
    assert logs._wanted.empty()
    assert (len(port.asked), len(queue)) == (1, 0)


async def test_a_node_that_does_not_answer_is_asked_a_few_times():
    logs, port, queue = made(Transient("no answer", status=500))
    logs.want(KEY, seen(pod()), WANTED)
    for _ in range(podlogs.TRIES):
        await step(logs)
    logs.want(KEY, seen(pod()), WANTED)
    assert logs._wanted.empty()
    assert (len(port.asked), len(queue)) == (podlogs.TRIES, 0)


async def test_a_node_that_answers_late_still_helps():
    logs, _, queue = made(Transient("no answer", status=500), CAUSE)
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    await step(logs)
    assert tail(logs, pod())
    assert len(queue) == 1


async def test_a_log_without_a_failure_wakes_nobody():
    logs, _, queue = made(NOISE)
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    assert (tail(logs, pod()), len(queue)) == ("", 0)


async def test_secrets_are_not_kept():
    token = "hf_" + "a1B2c3D4e5" * 3
    logs, _, _ = made(f"RuntimeError: strange answer to {token}\n")
    logs.want(KEY, seen(pod()), WANTED)
    await step(logs)
    assert "strange answer" in tail(logs, pod())
    assert token not in tail(logs, pod())


async def test_a_reconcile_asks_and_the_next_one_names_the_cause():
    """The whole loop, with the real reconciler on a stand-in API."""
    bench = Bench()
    logs, port, queue = made(NOISE + CAUSE)
    await bench.look()
    bench.reconciler._enrich, bench.reconciler._want_logs = logs.enriched, logs.want
    failing = pod()
    end = failing["status"]["containerStatuses"][0]["lastState"]["terminated"]
    end["message"] = "RuntimeError: Engine core initialization failed. See root cause above."
    probed = {"name": "probe", "state": {"terminated": {"exitCode": 0, "message": ""}}}
    started = {"name": "cache-server", "state": {"running": {}}, "started": True, "ready": True}
    failing["status"]["initContainerStatuses"] = [probed, started]
    failing["metadata"]["labels"] = {OWNER_UID_LABEL: UID}
    bench.api.store(failing | {"apiVersion": "v1", "kind": "Pod"})
    bench.settled()
    live = bench.api.of(DEPLOYMENTS)["q"]
    bench.api.store({**live, "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}})
    await bench.look()
    assert bench.condition("Ready")["reason"] == "EngineStartFailed"
    await step(logs)
    assert await asyncio.wait_for(queue.get(), 1) == KEY
    await bench.look()
    assert bench.condition("Ready")["reason"] == "MaxNumSeqsTooLarge"
    assert "614" in bench.condition("Ready")["message"]
    assert bench.condition("Stalled")["status"] == "True"
    for _ in range(3):
        await bench.look()
        assert bench.api.writes() == []
    assert len(port.asked) == 1


async def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(podlogs, "_REMEMBERED", 3)
    logs, _, _ = made(CAUSE)
    for number in range(6):
        logs.want(KEY, seen(pod(uid=f"uid-{number}")), WANTED)
        await step(logs)
    assert len(logs._found) == 3
    assert tail(logs, pod(uid="uid-5"))
