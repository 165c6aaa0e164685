"""Predicted = probed = what a running engine says of itself in its metrics, for every geometry on every release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.versions.conftest import Judged, Release, answers_of, settings_of
from tests.versions.geometries import GEOMETRIES, Geometry
from tests.versions.test_versions_construct import prediction

pytestmark = pytest.mark.timeout(3600)

CANNOT_COMPUTE = {("0.25.1", "bfloat16"): "Input tensor dtype mismatch"}
"""Release and type of the recurrent state: what its CPU kernels answer to the first request; N is settled by then."""
ENGINES = Path(__file__).with_name("engines.py")


@pytest.fixture(scope="session")
def engines(release: Release, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an engine of each geometry said."""
    asked = {geometry.name: settings_of(geometry, models[geometry.name]) for geometry in GEOMETRIES}
    answers, words = answers_of(ENGINES, release, asked, tmp_path_factory.mktemp(f"engines-{release.version}"))
    assert all("labels" in answer for answer in answers.values()), words[-6000:]
    return answers


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.name)
def test_a_running_engine_has_the_predicted_n(
    release: Release, judged: Judged, engines: dict[str, Any], models: dict[str, Path], geometry: Geometry
) -> None:
    answer = engines[geometry.name]
    said = int(answer["labels"]["block_size"])
    if (release.version, geometry.mamba_ssm_cache_dtype) in CANNOT_COMPUTE:
        assert CANNOT_COMPUTE[release.version, geometry.mamba_ssm_cache_dtype] in answer["failure"]
    else:
        assert answer.get("tokens") == 2, answer
    assert said == judged.answers[geometry.name]["report"]["block_size"]
    assert said == prediction(geometry, models[geometry.name], release.version).block_size
    # N is told under two names where the release knows both.
    assert int(answer["labels"].get("effective_attention_block_size", said)) == said
    assert (answer["labels"]["mamba_cache_mode"], answer["labels"]["enable_prefix_caching"]) == ("align", "True")
