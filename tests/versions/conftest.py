"""The probe on several real vLLM releases (CPU builds), as processes of this host.

`QCS_ENGINE_VERSIONS` names the releases, all that have pins by default; their environments are made by
`python -m tools.engine_versions`. One that is not there is skipped with one line; under CI=true that is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod.facts import CacheSettings, EngineSettings, ServeSettings, dump
from tests.machine import unavailable
from tests.unit.inpod.pod_folder import PodFolder
from tests.versions.geometries import GEOMETRIES, Geometry, write_model
from tools.engine_versions import RELEASES, is_made, python_of

VERSIONS = os.environ.get("QCS_ENGINE_VERSIONS", " ".join(RELEASES)).split()
BROKEN_SECONDS = 1800
"""Limit of every wait: a slow, busy machine is no fault, a program that hangs is."""
# The environments' torch has no headers to compile with (images/engine-cpu/slim.py). Eager engines need no compiler,
# but vLLM 0.25 uses it all the same.
ENVIRON = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}

JUDGE = Path(__file__).with_name("judge.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for a release once for each, all of a release together."""
    if "release" in metafunc.fixturenames:
        metafunc.parametrize("release", VERSIONS, indirect=True, scope="session")


@dataclass(frozen=True, slots=True)
class Release:
    """One vLLM release on this host."""

    version: str
    python: str


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> Release:
    """The release under test."""
    if not is_made(request.param):
        unavailable(f"no environment with vLLM {request.param}: python -m tools.engine_versions {request.param}")
    return Release(request.param, str(python_of(request.param)))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each geometry."""
    root = tmp_path_factory.mktemp("models")
    return {geometry.name: write_model(geometry, root / geometry.name) for geometry in GEOMETRIES}


def settings_of(geometry: Geometry, model: Path, **more: Any) -> ServeSettings:
    """A pod's settings for one geometry, without the cache: which releases LMCache fits is another matter."""
    engine: dict[str, Any] = {
        "accelerator": "CPU",
        "max_model_len": 8192,
        "max_num_seqs": 8,
        "block_size": geometry.block_size,
        "mamba_ssm_cache_dtype": geometry.mamba_ssm_cache_dtype,
        "extra_args": ("--enable-prefix-caching", "--enforce-eager"),
    }
    engine |= {key: more.pop(key) for key in list(more) if key in engine or key == "tensor_parallel_size"}
    return ServeSettings(
        str(model), EngineSettings(**engine), CacheSettings(False), **{"probe_timeout_seconds": BROKEN_SECONDS, **more}
    )


def answers_of(
    script: Path, release: Release, asked: Mapping[str, ServeSettings], folder: Path
) -> tuple[dict[str, dict[str, Any]], str]:
    """Run a script (`judge.py`, `engines.py`) in a release's interpreter: its answers by name, and its errors."""
    pod = PodFolder(folder / "pod", next(iter(asked.values())), release.python)
    questions = folder / "questions.json"
    questions.write_text(json.dumps({name: dump(settings) for name, settings in asked.items()}), encoding="utf-8")
    done = subprocess.run(
        [release.python, str(script), str(pod.layout.code), str(questions)],
        env=pod.environ(ENVIRON),
        capture_output=True,
        text=True,
        timeout=BROKEN_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    return json.loads(line.removeprefix("ANSWERS")), done.stderr


@dataclass(frozen=True, slots=True)
class Judged:
    """What the probe's own code said of several settings, in one process of one release."""

    release: Release
    answers: dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def judged(release: Release, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Every geometry, and more of the smallest one: vLLM is imported once."""
    asked = {geometry.name: settings_of(geometry, models[geometry.name]) for geometry in GEOMETRIES}
    tiny, small = GEOMETRIES[0], GEOMETRIES[1]
    asked["four ranks"] = settings_of(small, models[small.name], tensor_parallel_size=4)
    asked["a GPU"] = settings_of(tiny, models[tiny.name], accelerator="GPU", gpu_count=1)
    asked["N settled elsewhere"] = asked[small.name]
    answers, _ = answers_of(JUDGE, release, asked, tmp_path_factory.mktemp(f"judged-{release.version}"))
    return Judged(release, answers)


class VersionPod(PodFolder):
    """A pod of one release; what its probe leaves on this host is counted."""

    def probe(self) -> tuple[int, str]:
        """Run the probe to its end."""
        return self.run("probe", self.probe_environ(), seconds=BROKEN_SECONDS)

    temporary: Path

    def probe_environ(self) -> dict[str, str]:
        """Environment of a probe on this host: its temporary folder is its own, /dev/shm is not."""
        # As short as a pod's: vLLM makes sockets there, whose names may have 107 characters.
        self.temporary = Path(tempfile.mkdtemp(prefix="qcs-", dir="/tmp"))
        return {**ENVIRON, "TMPDIR": str(self.temporary)}

    def temporary_files(self) -> list[Path]:
        """What is left in the temporary folder, which goes with this look at it."""
        left = list(self.temporary.iterdir())
        shutil.rmtree(self.temporary)
        return left

    def processes(self) -> list[str]:
        """Command lines of processes that belong to this pod, by its folder in their environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if str(self.root).encode() in (path / "environ").read_bytes():
                    found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            except OSError:
                continue
        return found


@pytest.fixture
def version_pod(tmp_path: Path, release: Release) -> Iterator[Callable[[ServeSettings], VersionPod]]:
    """Make a pod's folders for a probe."""
    pods: list[VersionPod] = []

    def make(settings: ServeSettings) -> VersionPod:
        pods.append(VersionPod(tmp_path / f"pod-{len(pods)}", settings, release.python))
        return pods[-1]

    yield make
    for pod in pods:
        pod.close()
