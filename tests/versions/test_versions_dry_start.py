"""The probe's second way, a started engine's log and metrics, on every release; not in CI (`make test-versions`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.facts import ServeSettings
from qwen_cached_serve.inpod.message import ProbeFailure, read
from tests.unit.inpod.pod_folder import wait_for
from tests.versions.conftest import BROKEN_SECONDS, Judged, VersionPod, settings_of
from tests.versions.geometries import GEOMETRIES, Geometry

pytestmark = [pytest.mark.timeout(3600), pytest.mark.slow]

MakePod = Callable[[ServeSettings], VersionPod]
TINY, SMALL = GEOMETRIES[:2]
LOGGED = [geometry for geometry in GEOMETRIES if geometry.name in ("27B", "122B-A10B")]
"""A dense and a sparse one: the log is worded alike for all sizes, which `test_versions_engines` has."""


def shared_memory() -> set[str]:
    """Segments of the workers; those of cache servers are other tests of this host."""
    return {path.name for path in Path("/dev/shm").iterdir() if path.name.startswith("torch_")}


def nothing_is_left(pod: VersionPod, before: set[str]) -> None:
    assert pod.temporary_files() == []
    assert pod.processes() == []
    assert shared_memory() <= before


def test_another_api_leads_to_the_engines_own_log(
    version_pod: MakePod, judged: Judged, models: dict[str, Path]
) -> None:
    """The scripts call a function that this release does not have, and go on to a real engine."""
    pod = version_pod(settings_of(SMALL, models[SMALL.name]))
    api = pod.layout.code / "qwen_cached_serve/inpod/vllm_api.py"
    text = api.read_text(encoding="utf-8")
    assert text.count("platform.update_block_size_for_backend(") == 1
    api.write_text(text.replace("update_block_size_for_backend(", "settle_block_size(", 1), encoding="utf-8")
    before = shared_memory()
    status, said = pod.probe()
    assert status == 0, said[-3000:]
    report, constructed = pod.layout.report(), judged.answers[SMALL.name]["report"]
    assert (report.method, report.block_size) == ("DryStart", constructed["block_size"])
    assert report.construct_failure.startswith("TypeError: ")  # a platform answers None for what it does not have
    assert "platform.settle_block_size(config)" in said
    assert (report.architecture, report.prefix_caching) == (constructed["architecture"], True)
    assert (report.max_model_len, report.kv_cache_dtype) == (8192, "auto")
    assert report.page_padding_bytes == -1  # padded, says the log
    nothing_is_left(pod, before)


@pytest.mark.parametrize("geometry", LOGGED, ids=lambda geometry: geometry.name)
def test_a_starting_engine_says_what_construct_found(
    version_pod: MakePod, judged: Judged, models: dict[str, Path], geometry: Geometry
) -> None:
    pod = version_pod(replace(settings_of(geometry, models[geometry.name]), probe_method="DryStart"))
    before = shared_memory()
    status, said = pod.probe()
    assert status == 0, said[-3000:]
    assert (pod.layout.report().method, pod.layout.report().construct_failure) == ("DryStart", "")
    assert pod.layout.report().block_size == judged.answers[geometry.name]["report"]["block_size"]
    nothing_is_left(pod, before)


@pytest.mark.case("B05")
def test_b05_an_n_that_the_engine_does_not_print_is_in_its_metrics(
    version_pod: MakePod, judged: Judged, models: dict[str, Path]
) -> None:
    """With `--block-size` N nothing has to be raised, so the log is silent; the engine is started to its end."""
    block_size = judged.answers[TINY.name]["report"]["block_size"]
    pod = version_pod(replace(settings_of(TINY, models[TINY.name], block_size=block_size), probe_method="DryStart"))
    before = shared_memory()
    status, said = pod.probe()
    assert status == 0, said[-3000:]
    assert "Setting attention block size" not in said
    report = pod.layout.report()
    assert (report.method, report.block_size, report.construct_failure) == ("DryStart", block_size, "")
    assert (report.mamba_cache_mode, report.mamba_ssm_cache_dtype) == ("align", "bfloat16")
    nothing_is_left(pod, before)


def test_sigterm_while_the_engine_starts(version_pod: MakePod, models: dict[str, Path]) -> None:
    pod = version_pod(replace(settings_of(SMALL, models[SMALL.name]), probe_method="DryStart"))
    before = shared_memory()
    process = pod.start("probe", pod.probe_environ())
    wait_for(lambda: "Initializing a V1 LLM engine" in pod.said("probe"), BROKEN_SECONDS, every=0.2)
    process.terminate()
    assert process.wait(timeout=BROKEN_SECONDS) == 1
    failure = read(pod.layout.termination_log.read_text())
    assert isinstance(failure, ProbeFailure)
    assert failure.code == "Terminated"
    nothing_is_left(pod, before)


def test_the_time_limit_while_vllm_is_imported(version_pod: MakePod, models: dict[str, Path]) -> None:
    pod = version_pod(settings_of(TINY, models[TINY.name], probe_timeout_seconds=1))
    before = shared_memory()
    assert pod.probe()[0] == 1
    failure = read(pod.layout.termination_log.read_text())
    assert isinstance(failure, ProbeFailure)
    assert (failure.code, "spec.blockSizeProbe.timeoutSeconds" in failure.hint) == ("Timeout", True)
    nothing_is_left(pod, before)
