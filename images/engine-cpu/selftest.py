"""
Runs the whole cached chain inside the engine image without a cluster: store, restart the engine, retrieve.

    python3 selftest.py MODEL_FOLDER WORK_FOLDER

Starts `lmcache server` and `vllm serve` of the image on loopback, sends one prompt of four blocks, ends the engine,
starts it again and sends the same prompt. Prints one JSON line; exits 1 with the tail of the log of what failed. The
flags fit images/model-tiny/tiny-chain-352 only (N = 352 without padding); in a pod they are derived, not written down.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

BLOCK_SIZE = 352
PROMPT_TOKENS = 4 * BLOCK_SIZE + 50
DEADLINE_SECONDS = 600.0
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "LMCACHE_TRACK_USAGE": "false",
    "DO_NOT_TRACK": "1",
}
HITS = "vllm:external_prefix_cache_hits_total"


class ChainError(Exception):
    """A step failed; the message holds the log's tail."""


def free_port() -> int:
    """A TCP port nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Program:
    """A child process with a log file and an address to wait for."""

    def __init__(self, name: str, command: list[str], work: Path, ready: str) -> None:
        self.name, self.ready, self.log = name, ready, work / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=work, start_new_session=True)

    def wait_ready(self) -> float:
        """Seconds until the address answers 200."""
        began = time.monotonic()
        while time.monotonic() - began < DEADLINE_SECONDS:
            if self.process.poll() is not None:
                raise ChainError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
            try:
                get(self.ready, timeout=2)
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
            else:
                return time.monotonic() - began
        raise ChainError(f"{self.name} was not ready within {DEADLINE_SECONDS:.0f} s:\n{self.tail()}")

    def stop(self) -> None:
        """Ends the process and what it started."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def get(url: str, timeout: float = 30) -> str:
    """Body of a GET."""
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return str(answer.read().decode())


def complete(url: str) -> float:
    """Seconds for one completion of the prompt."""
    prompt = [100 + (index * 7) % 300 for index in range(PROMPT_TOKENS)]
    body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 4, "temperature": 0}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", data=body, headers={"Content-Type": "application/json"})
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
        answer.read()
    return time.monotonic() - began


def metric(text: str, name: str) -> float:
    """Sum of a metric over its label sets."""
    lines = [line for line in text.splitlines() if re.match(rf"{re.escape(name)}[{{ ]", line)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def all_stored(server: str) -> bool:
    """Whether the cache server holds objects and is done writing."""
    manager = json.loads(get(f"{server}/status"))["storage_manager"]["l1_manager"]
    writing = int(manager["write_locked_count"]) + int(manager["staging_object_count"])
    return int(manager["total_object_count"]) > 0 and writing == 0


def shared_memory() -> set[Path]:
    """Shared-memory segments of vLLM and LMCache."""
    return {path for pattern in ("lmcache_kv_*", "psm_*") for path in Path("/dev/shm").glob(pattern)}


def run_chain(model: Path, work: Path) -> dict[str, Any]:
    """The chain; figures in seconds and tokens."""
    cache_port, cache_http, engine_port = free_port(), free_port(), free_port()
    server_url, engine_url = f"http://127.0.0.1:{cache_http}", f"http://127.0.0.1:{engine_port}"
    connector = {
        "kv_connector": "LMCacheMPConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "lmcache.mp.host": "tcp://127.0.0.1",
            "lmcache.mp.port": cache_port,
            "lmcache.mp.mp_transfer_mode": "lmcache_driven",
        },
    }
    # fmt: off
    serve = [
        "vllm", "serve", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(engine_port),
        "--load-format", "dummy", "--enforce-eager", "--language-model-only", "--max-model-len", "4096",
        "--block-size", "32", "--mamba-ssm-cache-dtype", "bfloat16", "--enable-prefix-caching",
        "--mamba-cache-mode", "align", "--max-num-batched-tokens", str(2 * BLOCK_SIZE - 1), "--max-num-seqs", "4",
        "--kv-transfer-config", json.dumps(connector),
    ]
    cache = [
        "lmcache", "server", "--host", "127.0.0.1", "--port", str(cache_port), "--http-host", "127.0.0.1",
        "--http-port", str(cache_http), "--chunk-size", str(BLOCK_SIZE), "--separate-object-groups",
        "--l1-size-gb", "1", "--eviction-policy", "LRU",
    ]
    # fmt: on
    figures: dict[str, Any] = {}
    shared_before = shared_memory()
    server = Program("cache-server", cache, work, f"{server_url}/healthcheck")
    programs = [server]
    try:
        figures["cache_server_ready_s"] = server.wait_ready()
        for life in ("cold", "hit"):
            engine = Program("engine", serve, work, f"{engine_url}/health")
            programs.append(engine)
            figures[f"engine_ready_{life}_s"] = engine.wait_ready()
            figures[f"prompt_{life}_s"] = complete(engine_url)
            figures[f"external_hit_tokens_{life}"] = metric(get(f"{engine_url}/metrics"), HITS)
            wait_stored(server_url)
            engine.stop()
        seen = re.search(r"attention block size to (\d+)", engine.log.read_text())
        figures["block_size"] = int(seen.group(1)) if seen else None
    finally:
        for program in reversed(programs):
            program.stop()
        for segment in shared_memory() - shared_before:  # a worker leaves its segment behind
            segment.unlink(missing_ok=True)
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in figures.items()}


def wait_stored(server_url: str) -> None:
    """Waits until the cache server has stored what the engine sent."""
    deadline = time.monotonic() + 60
    while not all_stored(server_url):
        if time.monotonic() > deadline:
            raise ChainError(f"nothing stored after 60 s: {get(f'{server_url}/status')}")
        time.sleep(0.2)


def main() -> int:
    """Runs the chain and judges it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("work", type=Path)
    arguments = parser.parse_args()
    os.environ |= ENVIRONMENT | {"HOME": str(arguments.work)}
    try:
        figures = run_chain(arguments.model, arguments.work)
    except ChainError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(figures), flush=True)
    expected = 4 * BLOCK_SIZE
    if figures["external_hit_tokens_cold"] != 0 or figures["external_hit_tokens_hit"] < expected:
        print(f"expected no external hits, then at least {expected} tokens", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
