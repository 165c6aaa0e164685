"""A real vLLM (CPU build) and a real `lmcache server`, run on this host by the pod's own scripts.

`QCS_ENGINE_PYTHON` names an interpreter that has both (facts/chain-without-gpu.md §1 tells how to make one). Without
one this tier is skipped with one line; under `CI=true` that is a failure. Timings go to build/engine-timings.json.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.facts import CacheSettings, EngineSettings, L2Tier, Ports, ServeSettings
from tests.engine.engine_pod import EnginePod, free_ports
from tests.machine import locked, unavailable

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_PYTHON = Path.home() / ".cache/qcs/dev-engine-venv/bin/python"
TINY = ROOT / "images/model-tiny/tiny-chain-352"
GEOMETRY_08B = ROOT / "tests/unit/core/fixtures/model-configs/qwen3.5-0.8b-geometry.json"
TIMINGS = ROOT / "build/engine-timings.json"


LONGEST_FIRST = ("test_node_faults", "test_engine_chain", "test_node_demo")
"""With two workers, which take a file each (tools.tiers): the last file to end should be a short one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring this folder's tests into the order of LONGEST_FIRST, and leave others where they are."""
    places = [place for place, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    mine = sorted((items[place] for place in places), key=lambda item: rank.get(item.path.stem, len(rank)))
    for place, item in zip(places, mine, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def engine_python() -> str:
    """An interpreter with vLLM and LMCache."""
    python = os.environ.get("QCS_ENGINE_PYTHON", str(DEFAULT_PYTHON))
    reason = ""
    if shutil.which(python) is None:
        reason = f"{python} is not there; set QCS_ENGINE_PYTHON"
    else:
        ask = "from importlib.metadata import version as v; print(v('vllm'), v('lmcache'))"
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=120)
        if answer.returncode != 0:
            reason = f"{python} has no vLLM and LMCache"
    if reason:
        unavailable(reason)
    return python


@pytest.fixture(scope="session")
def tiny_settings() -> ServeSettings:
    """Settings of the small random-weight model whose pages are equal: N = 352."""
    return ServeSettings(
        model=str(TINY),
        engine=EngineSettings(
            accelerator="CPU",
            block_size=32,
            mamba_ssm_cache_dtype="bfloat16",
            max_model_len=4096,
            max_num_seqs=8,
            shutdown_timeout_seconds=600,  # the drained request may meet a busy machine
            extra_args=("--load-format", "dummy", "--enforce-eager"),
        ),
        cache=CacheSettings(enabled=True, l1_size_bytes=1 << 30),
        served_names=("tiny",),
        probe_timeout_seconds=900,
    )


@pytest.fixture(scope="session")
def model_08b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder with the 0.8B model's geometry and no weights: N = 640 on a CPU, pages padded."""
    folder = tmp_path_factory.mktemp("geometry-08b")
    for path in TINY.glob("*token*"):
        shutil.copy(path, folder)
    shutil.copy(TINY / "preprocessor_config.json", folder)
    shutil.copy(GEOMETRY_08B, folder / "config.json")
    return folder


@pytest.fixture
def probe_pod(
    tmp_path: Path, engine_python: str, tiny_settings: ServeSettings
) -> Iterator[Callable[[ServeSettings], EnginePod]]:
    """Make a pod's folders for a probe."""
    pods: list[EnginePod] = []

    def make(settings: ServeSettings) -> EnginePod:
        pods.append(EnginePod(tmp_path / f"pod-{len(pods)}", settings, engine_python))
        return pods[-1]

    yield make
    for pod in pods:
        pod.close()


@pytest.fixture(scope="module")
def new_pod(
    tmp_path_factory: pytest.TempPathFactory, engine_python: str, tiny_settings: ServeSettings
) -> Iterator[Callable[[], EnginePod]]:
    """Bring up one whole pod after the other: the model at one path, the second tier's volume at another, all else new.

    Returned ones are probed, cache server and engine run, and the gate has passed.
    """
    root = tmp_path_factory.mktemp("node")
    model = shutil.copytree(TINY, root / "model")
    tier = L2Tier("disk", "Filesystem", path=str(root / "volume"))
    cache = replace(tiny_settings.cache, l2=(tier,))
    pods: list[EnginePod] = []

    def make() -> EnginePod:
        settings = replace(tiny_settings, model=str(model), cache=cache, ports=Ports(*free_ports(4)))
        pods.append(EnginePod(root / f"pod-{len(pods)}", settings, engine_python))
        pods[-1].bring_up()
        return pods[-1]

    yield make
    for pod in pods:
        pod.close()
        pod.remove_own_segments()


@pytest.fixture(scope="module")
def chain(new_pod: Callable[[], EnginePod]) -> EnginePod:
    """The first pod."""
    return new_pod()


@pytest.fixture(scope="session")
def timings() -> Iterator[dict[str, float | str]]:
    """Figures of this run; none of them is compared with anything."""
    found: dict[str, float | str] = {}
    yield found
    TIMINGS.parent.mkdir(exist_ok=True)
    with locked("engine-timings"):
        former = json.loads(TIMINGS.read_text(encoding="utf-8")) if TIMINGS.exists() else {}
        TIMINGS.write_text(json.dumps({**former, **found}, indent=1, sort_keys=True), encoding="utf-8")
    print(f"\nengine timings: {json.dumps(found, sort_keys=True)}")
