"""Settings and reports for the tests of the pod's scripts."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from qwen_cached_serve.inpod.facts import (
    CacheSettings,
    EngineSettings,
    Gpu,
    ProbeReport,
    ServeSettings,
    Versions,
)
from qwen_cached_serve.inpod.layout import Layout

# These tests run beside builds and other engines: how long one example takes says nothing.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def settings() -> ServeSettings:
    """The 27B model on one GPU, everything else as the resource's defaults make it."""
    return ServeSettings(
        model="Qwen/Qwen3.6-27B",
        engine=EngineSettings(accelerator="GPU"),
        cache=CacheSettings(enabled=True, l1_size_bytes=100 << 30),
        revision="main",
        served_names=("qwen3.6-27b",),
        gpu_count=1,
    )


@pytest.fixture
def report() -> ProbeReport:
    """What the probe finds for it on an H100 with the advised pair."""
    return ProbeReport(
        block_size=784,
        kernel_block_size=784,
        attention_backends=("FLASH_ATTN",),
        versions=Versions(vllm="0.32.0", lmcache="0.5.6", torch="2.13.0", python="3.12.12"),
        method="Construct",
        architecture="Qwen3_5ForConditionalGeneration",
        mamba_cache_mode="align",
        kv_cache_dtype="auto",
        mamba_ssm_cache_dtype="float32",
        max_model_len=262144,
        model_revision="a" * 40,
        gpus=(Gpu("NVIDIA H100 80GB HBM3", "GPU-1234", "9.0", "580.95", 80 << 30),),
    )


@pytest.fixture
def cpu_settings(settings: ServeSettings) -> ServeSettings:
    """The same on a CPU."""
    return replace(settings, engine=replace(settings.engine, accelerator="CPU"), gpu_count=0)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Empty folders of a pod."""
    places = Layout(tmp_path / "code", tmp_path / "state", tmp_path / "shm", tmp_path / "termination-log")
    for folder in (places.code, places.state, places.shm):
        folder.mkdir()
    return places


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """Distinct TCP ports that nobody uses."""

    def take(count: int) -> list[int]:
        held = [socket.socket() for _ in range(count)]
        try:
            for sock in held:
                sock.bind(("127.0.0.1", 0))
            return [sock.getsockname()[1] for sock in held]
        finally:
            for sock in held:
                sock.close()

    return take


def fetch(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of an HTTP answer, errors included."""
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def http() -> Callable[..., tuple[int, bytes]]:
    """Ask one's own servers."""
    return fetch


@pytest.fixture
def fixture_json() -> Callable[[str], Any]:
    """Read a recorded file."""
    return lambda name: json.loads((FIXTURES / name).read_text(encoding="utf-8"))


@pytest.fixture
def fixture_text() -> Callable[[str], str]:
    """Read a recorded file."""
    return lambda name: (FIXTURES / name).read_text(encoding="utf-8")
