"""A pod's scripts with the real engine and the real cache server, and clients of both."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwen_cached_serve.inpod.facts import ServeSettings
from tests.unit.inpod.pod_folder import PodFolder, kill_all, wait_for

BROKEN_SECONDS = 900
"""Limit of every wait: a slow, busy machine is no fault, a program that hangs is."""


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports that nobody uses."""
    held = [socket.socket() for _ in range(count)]
    try:
        for sock in held:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in held]
    finally:
        for sock in held:
            sock.close()


class EnginePod(PodFolder):
    """Processes of one pod on this host."""

    engine: subprocess.Popen[str]
    cache_server: subprocess.Popen[str]

    def __init__(self, root: Path, settings: ServeSettings, python: str) -> None:
        super().__init__(root, settings, python)
        # Short, since vLLM makes sockets there, whose names may have 107 characters; those of a killed engine stay.
        self._temporary = tempfile.TemporaryDirectory(prefix="qcs-", dir="/tmp", ignore_cleanup_errors=True)

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment of the containers: offline, one GiB of KV space, the host's shared memory."""
        own = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "QCS_SHM_DIR": "/dev/shm"}
        own["TMPDIR"] = self._temporary.name
        return super().environ({**own, **(more or {})})

    def close(self) -> None:
        """End everything, and remove the temporary files."""
        super().close()
        self._temporary.cleanup()

    def bring_up(self) -> dict[str, float]:
        """Probe, start both programs and wait for the gate; returns the seconds of each step."""
        began = time.monotonic()
        status, said = self.run("probe", seconds=BROKEN_SECONDS)
        assert status == 0, said[-3000:]
        probed = time.monotonic()
        self.cache_server = self.start("cache-server")
        wait_for(self.cache_server_answers, BROKEN_SECONDS, every=0.5)
        cached = time.monotonic()
        self.start_engine()
        self.wait_ready()
        return {"probe": probed - began, "cache_server": cached - probed, "engine": time.monotonic() - cached}

    def start_engine(self) -> None:
        """Start the engine's container."""
        self.engine = self.start("engine")

    def wait_ready(self) -> str:
        """Run the gate as the kubelet does until it passes; returns its line."""
        last = ""

        def passes() -> bool:
            nonlocal last
            assert self.engine.poll() is None, f"the engine has ended:\n{self.said('engine')[-3000:]}"
            status, last = self.run("ready")
            return status == 0

        wait_for(passes, BROKEN_SECONDS, every=2)
        return last

    def kill_engine(self) -> None:
        """End the engine's container as the kernel does: every process of it, at once."""
        kill_all(self.engine.pid)
        self.engine.wait()

    def cache_server_pid(self) -> int:
        """Pid of the `lmcache server` that the supervisor has started last."""
        return int(re.findall(r"cache server started \(pid (\d+)\)", self.said("cache-server"))[-1])

    def cache_server_answers(self) -> bool:
        """Whether the relay passes on a healthy answer."""
        assert self.cache_server.poll() is None, self.said("cache-server")[-3000:]
        try:
            return self.get(self.layout.settings().ports.relay, "/healthcheck")[0] == 200
        except OSError:
            return False

    def server_status(self) -> dict[str, Any]:
        """`/status` of the cache server, through the relay."""
        status, body = self.get(self.layout.settings().ports.relay, "/status")
        assert status == 200, body
        data: dict[str, Any] = json.loads(body)
        return data

    def registrations(self) -> set[int]:
        """Workers registered with the cache server; none while it is away."""
        try:
            return set(self.server_status()["registered_gpu_ids"])
        except (AssertionError, OSError):
            return set()

    def healthy(self) -> bool:
        """What the kubelet's readiness probe sees."""
        try:
            return self.get(self.layout.settings().ports.engine, "/health", seconds=120)[0] == 200
        except OSError:
            return False

    def complete(self, tokens: list[int], seconds: float = BROKEN_SECONDS, length: int = 2) -> float:
        """Send a prompt of token ids and get as many tokens as asked for; returns the seconds it took."""
        asked = {"model": "tiny", "prompt": tokens, "max_tokens": length, "ignore_eos": True, "temperature": 0}
        began = time.monotonic()
        status, answer = self.get(
            self.layout.settings().ports.engine, "/v1/completions", json.dumps(asked).encode(), seconds
        )
        assert status == 200, answer
        assert json.loads(answer)["usage"]["completion_tokens"] == length
        return time.monotonic() - began

    def external_hits(self) -> float:
        """Tokens that the engine has loaded from LMCache in this life."""
        return self.metric("vllm:external_prefix_cache_hits_total")

    def metric(self, name: str) -> float:
        """Sum of one of the engine's metrics."""
        text = self.get(self.layout.settings().ports.engine, "/metrics")[1].decode()
        values = re.findall(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
        return sum(float(value) for value in values)

    def get(self, port: int, path: str, body: bytes | None = None, seconds: float = 10) -> tuple[int, bytes]:
        """Ask one of the pod's ports."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", data=body, headers={"Content-Type": "application/json"} if body else {}
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def remove_own_segments(self) -> None:
        """Shared memory of the engines that were killed here; a pod's goes away with the pod."""
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path\n"
            "from qwen_cached_serve.inpod.shm import remove_leftovers\n"
            "remove_leftovers(Path('/dev/shm'))\n"
        )
        subprocess.run([self.python, "-c", script, str(self.layout.code)], check=False)


def prompt(count: int, seed: int) -> list[int]:
    """Token ids of a prompt, the same for the same seed."""
    return [10 + (seed * 31 + index * 7 + index // 190) % 190 for index in range(count)]


def write_copy(path: Path, to: Path, **changes: Any) -> None:
    """Copy a JSON object with some of its fields changed."""
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")
