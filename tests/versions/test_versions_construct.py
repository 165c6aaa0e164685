"""Predicted = probed, for every geometry on every release: the formula against vLLM's own code (CPU granularity)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwen_cached_serve.core.blocksize import EngineShape, PredictedBlockSize, predict
from qwen_cached_serve.core.geometry import geometry_from_config
from tests.versions.conftest import Judged
from tests.versions.geometries import GEOMETRIES, Geometry

pytestmark = pytest.mark.timeout(3600)


def prediction(geometry: Geometry, model: Path, version: str, ranks: int = 1) -> PredictedBlockSize:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    shape = EngineShape(
        accelerator="CPU",
        tensor_parallel_size=ranks,
        block_size=geometry.block_size,
        mamba_ssm_cache_dtype=geometry.mamba_ssm_cache_dtype,
        vllm_version=version,
    )
    return predict(geometry_from_config(config), shape)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.name)
def test_the_prediction_is_what_the_layers_give(judged: Judged, models: dict[str, Path], geometry: Geometry) -> None:
    answer = judged.answers[geometry.name]
    assert "report" in answer, answer
    report = answer["report"]
    predicted = prediction(geometry, models[geometry.name], judged.release.version)
    assert report["block_size"] == predicted.block_size
    assert report["kernel_block_size"] == predicted.kernel_block_size
    assert report["page_padding_bytes"] == predicted.padding_bytes
    assert report["attention_backends"] == [predicted.attention_backend]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.name)
def test_the_report_holds_every_fact(judged: Judged, geometry: Geometry) -> None:
    report = judged.answers[geometry.name]["report"]
    assert report["method"] == "Construct"
    assert report["versions"]["vllm"].startswith(judged.release.version)
    assert report["versions"]["torch"]
    assert report["architecture"].startswith("Qwen3_5Moe" if "-A" in geometry.name else "Qwen3_5For")
    assert report["prefix_caching"] is True
    assert (report["mamba_cache_mode"], report["kv_cache_dtype"]) == ("align", "auto")
    assert report["mamba_ssm_cache_dtype"] == (geometry.mamba_ssm_cache_dtype or "float32")
    assert report["gdn_prefill_backend"]
    assert report["max_model_len"] == 8192
    assert {"versions", "model", "import", "configure", "construct", "verify"} <= set(report["timings_seconds"])


def test_n_of_four_ranks_on_one_process(judged: Judged, models: dict[str, Path]) -> None:
    """One process stands for all ranks: the configuration decides."""
    small = GEOMETRIES[1]
    answer = judged.answers["four ranks"]
    assert "report" in answer, answer
    predicted = prediction(small, models[small.name], judged.release.version, ranks=4)
    assert answer["report"]["block_size"] == predicted.block_size
    assert answer["report"]["page_padding_bytes"] == predicted.padding_bytes


def test_a_resource_for_gpus_is_refused_by_the_cpu_build(judged: Judged) -> None:
    answer = judged.answers["a GPU"]
    assert answer["code"] == "DeviceMissing"
    assert "spec.engine.image" in answer["hint"]


def test_an_n_that_does_not_fit_the_layers_is_not_believed(judged: Judged) -> None:
    """A release that settles N elsewhere would leave the plain default, without an error: then the engine is asked."""
    answer = judged.answers["N settled elsewhere"]
    assert answer["code"] == "ConstructFailed", answer
    assert "the engine would not use this block size" in answer["message"]
