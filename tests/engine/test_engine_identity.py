"""A store that outlives the pod: hits with the same identity, none with another model at the same path (DESIGN D7, D8).

By hand and without an identity, the second of these gave 8,576 wrong hits (facts/local-cluster.md §6).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.facts import L2Tier, Ports, ServeSettings
from qwen_cached_serve.inpod.namespaces import MARKER, namespace_of
from tests.engine.conftest import TINY
from tests.engine.engine_pod import BROKEN_SECONDS, EnginePod, free_ports, prompt
from tests.unit.inpod.pod_folder import wait_for

pytestmark = pytest.mark.timeout(2400)

N = 352
LONG = prompt(4 * N + 92, seed=1)


@pytest.fixture
def new_pod(tmp_path: Path, engine_python: str, tiny_settings: ServeSettings) -> Iterator[Callable[[], EnginePod]]:
    """One pod after the other: the model at one path, the volume of the second tier at another, all else new."""
    model = tmp_path / "model"
    shutil.copytree(TINY, model)
    pods: list[EnginePod] = []

    def make() -> EnginePod:
        tier = L2Tier("disk", "Filesystem", path=str(tmp_path / "volume" / "kv"))
        settings = replace(
            tiny_settings,
            model=str(model),
            cache=replace(tiny_settings.cache, l2=(tier,)),
            ports=Ports(*free_ports(4)),
        )
        pods.append(EnginePod(tmp_path / f"pod-{len(pods)}", settings, engine_python))
        pods[-1].bring_up()
        return pods[-1]

    yield make
    for pod in pods:
        pod.close()
        pod.remove_own_segments()


def test_entries_outlive_the_pod_and_never_reach_another_model(
    new_pod: Callable[[], EnginePod], tmp_path: Path, timings: dict[str, float | str]
) -> None:
    volume = tmp_path / "volume" / "kv"
    first = new_pod()
    identity = first.layout.report().identity
    store = volume / namespace_of(identity)
    assert json.loads((store / MARKER).read_text(encoding="utf-8"))["identity"] == identity
    timings["l2_cold_seconds"] = round(first.complete(LONG), 2)
    wait_for(lambda: len(list(store.glob("*.data"))) >= 4, BROKEN_SECONDS)
    first.close()

    second = new_pod()
    assert second.layout.report().identity == identity
    before = second.external_hits()
    timings["l2_hit_seconds"] = round(second.complete(LONG), 2)
    assert second.external_hits() - before == 4 * N
    second.close()

    config = tmp_path / "model" / "config.json"
    changed = json.loads(config.read_text(encoding="utf-8"))
    part = changed.get("text_config", changed)
    part["rms_norm_eps"] = 2 * part.get("rms_norm_eps", 1e-6)
    config.write_text(json.dumps(changed), encoding="utf-8")
    third = new_pod()
    report = third.layout.report()
    assert report.identity != identity
    before = third.external_hits()
    third.complete(LONG)
    assert third.external_hits() - before == 0
    assert {path.name for path in volume.iterdir()} == {namespace_of(identity), namespace_of(report.identity)}
