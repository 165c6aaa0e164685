"""Faults and ends of a serving pod on a real node: a dead cache server, sizes that disagree, a deleted pod; cache off.

Tests from the first to the last about the resource `tiny` share it and are told in their order: an engine's start
costs more than all that is asked of it.
"""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from demo.shell import DemoError, http
from tests.node_support import ROOT

LIFE = "/var/run/qcs/registrations-before.json"
"""Written by the process that becomes `vllm`, just before."""
LOADING_END_SECONDS = 30
"""A pod whose engine loads must be gone by then, with its cache server; its grace period is 90 s."""
PAUSE_SECONDS = 10
"""Before the engine of a serving pod gets SIGTERM."""


class Traffic:
    """Short requests through the pod's address, one after the other; counts what failed and when."""

    def __init__(self, base, model):
        self._base, self._model = base, model
        self._stop = threading.Event()
        self.sent = 0
        self.failed = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.is_set():
            self.sent += 1
            try:
                body = {"model": self._model, "prompt": "hello", "max_tokens": 2, "temperature": 0}
                http(f"{self._base}/v1/completions", body, 120)
            except DemoError as error:
                self.failed.append(str(error))
            self._stop.wait(0.2)


def ready_condition(pod):
    return next((c for c in pod["status"].get("conditions", []) if c["type"] == "Ready"), {})


def pod_ready(pod):
    return ready_condition(pod).get("status") == "True"


@pytest.fixture(scope="module")
def applied(node, module_namespace):
    """The namespace with the resource `tiny`."""
    node.apply(module_namespace, node.tiny("tiny"))
    return module_namespace


@pytest.fixture(scope="module")
def tiny(node, applied):
    """The same, once the resource is Ready."""
    node.wait_ready(applied, "tiny")
    return applied


def test_a_pod_deleted_while_its_engine_loads_is_gone_within_seconds(node, applied):
    """Neither the kernel's protection of pid 1 nor a pause for clients, who are not there, hold it back."""

    def loading():
        """The only pod, once its engine's container has started `vllm`; it must not be Ready yet."""
        pods = node.pods(applied)
        if len(pods) != 1:
            return None
        assert not pod_ready(pods[0])
        state = next((s["state"] for s in pods[0]["status"].get("containerStatuses", []) if s["name"] == "engine"), {})
        life = ("exec", "-n", applied, pods[0]["metadata"]["name"], "-c", "engine", "--", "cat", LIFE)
        return pods[0] if "running" in state and "pid" in node.shell.kubectl(*life, check=False) else None

    pod = node.wait("the engine loads", loading)
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    began = time.monotonic()
    node.shell.kubectl("delete", "pod", "-n", applied, pod["metadata"]["name"], f"--timeout={grace + 60}s")
    seconds = time.monotonic() - began
    figures = {"grace_seconds": grace, "gone_after_seconds": round(seconds, 1)}
    print(json.dumps(figures))
    (ROOT / "build" / "reports" / "deleted-while-loading.json").write_text(json.dumps(figures, indent=1))
    assert seconds < LOADING_END_SECONDS < grace


def test_top_shows_what_the_pod_does(node, tiny):
    """Through the API server's proxy: N from the engine's metrics, L1 and the registration from the relay."""
    (pod,) = node.pods(tiny)
    qcs = (sys.executable, "-m", "qwen_cached_serve.cli.main")
    command = [*qcs, "top", "-n", tiny, "--kubeconfig", node.kubeconfig, "--interval", "0.5", "-o", "json"]
    (row,) = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (row["resource"], row["pod"], row["phase"]) == ("tiny", pod["metadata"]["name"], "Running")
    assert (row["engine"]["blockSize"], row["engine"]["running"]) == (352, 0)
    assert (row["cacheServer"]["registered"], row["cacheServer"]["l1SizeBytes"]) == (1, 1 << 30)
    assert row["cacheServer"]["l1UsedBytes"] > 0  # the gate's request has stored a chunk


def test_a_killed_cache_server_neither_leaves_the_service_nor_loses_requests(node, tiny):
    name = node.pods(tiny)[0]["metadata"]["name"]
    ready_before = ready_condition(node.pods(tiny)[0])
    with (
        node.shell.forward(f"pod/{name}", tiny, 8000) as engine,
        node.shell.forward(f"pod/{name}", tiny, 8081) as relay,
        Traffic(engine, "tiny") as traffic,
    ):
        before = set(json.loads(http(f"{relay}/status"))["registered_gpu_ids"])
        node.signal(tiny, name, "cache-server", signal.SIGKILL, "lmcache")
        at = time.monotonic()

        def registered_again():
            try:
                status = json.loads(http(f"{relay}/status", timeout_seconds=5))
            except DemoError:
                return None
            return status["registered_gpu_ids"] or None

        again = node.wait("the engine registers with the new cache server", registered_again, seconds=180)
        seconds_to_register = time.monotonic() - at
    pod = node.pods(tiny)[0]
    measured = {
        "seconds_until_registered_again": round(seconds_to_register, 1),
        "left_the_service": ready_condition(pod) != ready_before,
        "requests_sent": traffic.sent,
        "requests_failed": len(traffic.failed),
    }
    print(json.dumps(measured))
    (ROOT / "build" / "reports" / "cache-server-killed.json").write_text(json.dumps(measured, indent=1))
    assert before
    assert again
    assert traffic.failed == []
    # Not even for a moment: the condition has not changed since before.
    assert ready_condition(pod) == ready_before
    statuses = pod["status"]["containerStatuses"] + pod["status"]["initContainerStatuses"]
    assert all(status["restartCount"] == 0 for status in statuses)


def test_without_the_cache_there_is_no_cache_server_and_no_connector(node, tiny):
    node.patch(tiny, "tiny", {"cache": {"mode": "Disabled"}})
    node.wait_ready(tiny, "tiny")
    pods = node.pods(tiny)
    assert len(pods) == 1
    assert "cache-server" not in {c["name"] for c in pods[0]["spec"].get("initContainers", [])}
    arguments = node.resource(tiny, "tiny")["status"]["plan"]["engineArgs"]
    assert not any(argument.startswith("--kv-transfer-config") for argument in arguments)


class Answer(threading.Thread):
    """One streamed completion of a fixed number of tokens; its end is told by the engine."""

    def __init__(self, base, tokens):
        super().__init__(daemon=True)
        body = {"model": "tiny", "prompt": "hello", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        headers = {"Content-Type": "application/json"}
        self._request = urllib.request.Request(f"{base}/v1/completions", json.dumps(body).encode(), headers)
        self.began = threading.Event()
        self.reason, self.error, self.ended = None, None, None

    def run(self):
        try:
            with urllib.request.urlopen(self._request, timeout=300) as stream:
                for line in stream:
                    if line.startswith(b"data: {"):
                        self.began.set()
                        self.reason = json.loads(line[6:])["choices"][0]["finish_reason"] or self.reason
        except OSError as error:
            self.error = error
        self.ended = time.monotonic()


def test_a_stopped_pod_finishes_its_requests_first(node, tiny):
    """The request is still running when the engine gets SIGTERM, and is answered to its last token."""
    name = node.pods(tiny)[0]["metadata"]["name"]
    with node.shell.forward(f"pod/{name}", tiny, 8000) as base:
        short = Answer(base, 100)
        began = time.monotonic()
        short.start()
        short.join()
        # As many tokens as take three pauses, as fast as this machine is; the drain allows seven.
        answer = Answer(base, min(7500, int(3 * PAUSE_SECONDS * 100 / (short.ended - began))))
        answer.start()
        assert answer.began.wait(300), answer.error
        began = time.monotonic()
        node.patch(tiny, "tiny", {"lifecycle": "Stopped"})
        answer.join(300)
        seconds = answer.ended - began
    assert (answer.error, answer.reason) == (None, "length")
    assert seconds > PAUSE_SECONDS, "the request ended before the engine was told to"
    node.wait("the pods are gone", lambda: not node.shell.list("pods", tiny), seconds=180)
    figures = {"answered_after_seconds": round(seconds, 1), "gone_after_seconds": round(time.monotonic() - began, 1)}
    print(json.dumps(figures))
    (ROOT / "build" / "reports" / "stopped-while-serving.json").write_text(json.dumps(figures, indent=1))


def test_a_server_with_another_chunk_size_never_lets_the_pod_become_ready(node, node_namespace):
    """One granule (32 tokens) more than N = 352, the way out of every check but the gate and LMCache's own."""
    odd = {"unsupported": {"cacheServerArgs": ["--chunk-size", "384"]}}
    node.apply(node_namespace, node.tiny("odd", **odd))

    def failed():
        pods = node.pods(node_namespace)
        if not pods:
            return None
        assert not pod_ready(pods[0])
        status = next((s for s in pods[0]["status"].get("containerStatuses", []) if s["name"] == "engine"), None)
        return status and status["restartCount"] >= 1

    node.wait("the engine's refusal", failed, seconds=600)
    pod = node.pods(node_namespace)[0]["metadata"]["name"]
    words = node.shell.kubectl("logs", "-n", node_namespace, pod, "-c", "engine", "--previous")
    assert "LMCache chunk size 384 must be a multiple of" in words

    def told():
        ready = node.conditions(node_namespace, "odd").get("Ready", {})
        # The kubelet keeps 2 KiB of the log; vLLM's last words are a wrapper, the cause is further up (B26).
        return ready.get("status") == "False" and ready.get("reason") in {"EngineStartFailed", "ChunkSizeMismatch"}

    node.wait("the status says so", told, seconds=60)
    assert node.conditions(node_namespace, "odd")["Validated"]["reason"] == "UnsupportedArguments"
