"""What counts as an edit of the pods: the hash of a spec."""

import copy
import json
from typing import Annotated

import pytest
from pydantic import create_model

from qwen_cached_serve.api.base import Default, Restarts
from qwen_cached_serve.api.schema import resource_schema
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.engine import EngineSpec
from qwen_cached_serve.api.v1alpha1.resource import Spec
from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.inputs import canonical, digest, spec_hash, tuning_hash

BASE = {"model": {"name": "Qwen/Qwen3.6-27B"}, "cache": {"l1": {"size": "40Gi"}}}


def merged(base, change):
    result = copy.deepcopy(base)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def spec(change=None):
    document = {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": {"name": "q"},
        "spec": merged(BASE, change or {}),
    }
    return parse(document).spec


KEEPS = [
    {"replicas": 7},
    {"lifecycle": "Stopped"},
    {"lifecycle": "Paused"},
    {"service": {"type": "NodePort", "port": 8000}},
    {"rollout": {"maxSurge": 1, "onOperatorUpgrade": "Roll"}},
    {"monitoring": {"podMonitor": "Disabled"}},
    {"networkPolicy": {"mode": "Enabled", "allowedClients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}},
    {"monitoring": {"podMonitor": "Enabled", "interval": "30s", "labels": {"a": "b"}}},
    {"disruptionBudget": {"maxUnavailable": 2}},
    {"service": {"annotations": {"a": "b"}}},
    {"engine": {"autoTune": "Disabled"}},
    {"engine": {"autoTune": "Enabled"}},
    {"cache": {"onUnavailable": "ServeWithoutCache"}},
    {"engine": {"image": "other/vllm:v0.33.0"}},  # compared beside the hash
    {"engine": {}, "pod": {}, "blockSizeProbe": {}, "unsupported": {}},
    {"engine": {"vllm": {}, "env": [], "extraArgs": []}, "pod": {"nodeSelector": {}}},
]


@pytest.mark.parametrize("change", KEEPS, ids=str)
def test_what_keeps_the_pods_keeps_the_hash(change):
    assert spec_hash(spec(change)) == spec_hash(spec())


RESTARTS = [
    {"model": {"name": "Qwen/Qwen3.5-0.8B"}},
    {"model": {"maxModelLen": 4096}},
    {"cache": {"l1": {"size": "41Gi"}}},
    {"cache": {"chunkBlocks": 2}},
    {"cache": {"mode": "Disabled"}},
    {"engine": {"imagePullPolicy": "Always"}},
    {"engine": {"env": [{"name": "A", "value": ""}]}},
    {"engine": {"vllm": {"tensorParallelSize": 2}, "accelerator": {"gpu": {"count": 2}}}},
    {"pod": {"tolerations": [{"operator": "Exists"}]}},
    {"pod": {"securityContext": {"runAsUser": 0}}},
    {"pod": {"volumes": [{"name": "a", "emptyDir": {}}]}},
    {"unsupported": {"engineArgs": ["--x"]}},
]


def test_every_other_change_has_a_hash_of_its_own():
    hashes = [spec_hash(spec(change)) for change in ({}, *RESTARTS)]
    assert len(set(hashes)) == len(hashes)


def test_empty_parts_of_list_items_count():
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    without = {"pod": {"topologySpreadConstraints": [constraint]}}
    everything = {"pod": {"topologySpreadConstraints": [constraint | {"labelSelector": {}}]}}
    assert spec_hash(spec(without)) != spec_hash(spec(everything))


@pytest.mark.case("B35")
def test_a_definition_that_fills_in_defaults_is_no_edit():
    """Stored objects get new defaults when they are read: every default of the models, one by one and all together."""
    every = {
        "lifecycle": defaults.LIFECYCLE,
        "model": {
            "source": {"type": defaults.MODEL_SOURCE, "huggingFace": {"revision": defaults.HUB_REVISION}},
            "downloadVolume": {"type": defaults.DOWNLOAD_VOLUME},
            "modalities": defaults.MODALITIES,
        },
        "engine": {
            "type": defaults.ENGINE_TYPE,
            "imagePullPolicy": defaults.IMAGE_PULL_POLICY,
            "accelerator": {
                "type": defaults.ACCELERATOR,
                "gpu": {"count": defaults.GPU_COUNT, "resourceName": defaults.GPU_RESOURCE_NAME},
            },
            "startupTimeoutSeconds": defaults.STARTUP_TIMEOUT_SECONDS,
            "vllm": {
                "gpuMemoryUtilizationPercent": defaults.GPU_MEMORY_UTILIZATION_PERCENT,
                "maxNumBatchedTokens": {"policy": defaults.TOKENS_PER_STEP_POLICY},
            },
        },
        "cache": {
            "mode": defaults.CACHE_MODE,
            "l1": {"evictionPolicy": defaults.EVICTION_POLICY},
            "chunkBlocks": defaults.CHUNK_BLOCKS,
        },
        "pod": {"terminationGracePeriodSeconds": defaults.TERMINATION_GRACE_PERIOD_SECONDS},
        "blockSizeProbe": {"timeoutSeconds": defaults.PROBE_TIMEOUT_SECONDS},
    }
    assert spec_hash(spec(every)) == spec_hash(spec())
    for part, value in every.items():
        assert spec_hash(spec({part: value})) == spec_hash(spec()), part


def test_a_field_that_a_later_release_adds_with_a_default_is_no_edit():
    """The next release's models, with one more field in the engine and its default filled in."""
    later_engine = create_model(
        "LaterEngine", __base__=EngineSpec, attention_sinks=(Annotated[str | None, Default("Off")], None)
    )
    later = create_model("LaterSpec", __base__=Spec, engine=(later_engine | None, None))
    data = merged(BASE, {"engine": {"attentionSinks": "Off"}, "replicas": 1})
    assert spec_hash(later.model_validate_json(json.dumps(data))) == spec_hash(spec())
    other = merged(BASE, {"engine": {"attentionSinks": "On"}, "replicas": 1})
    assert spec_hash(later.model_validate_json(json.dumps(other))) != spec_hash(spec())


def test_a_mark_below_one_that_keeps_the_pods_counts():
    inner = create_model("Inner", __base__=EngineSpec, shape=(Annotated[str | None, Restarts(pods=True)], None))
    outer = create_model("Outer", __base__=Spec, engine=(Annotated[inner | None, Restarts(pods=False)], None))
    base = merged(BASE, {"replicas": 1})
    text = json.dumps
    plain = outer.model_validate_json(text(base))
    same = outer.model_validate_json(text(merged(base, {"engine": {"env": [{"name": "A", "value": "1"}]}})))
    other = outer.model_validate_json(text(merged(base, {"engine": {"shape": "x"}})))
    assert canonical(same) == canonical(plain)
    assert canonical(other) != canonical(plain)


def test_every_field_that_keeps_pods_says_so_in_its_description():
    """Hash and descriptions come from one mark; a description that promised more than the hash keeps would lie."""
    schema = resource_schema()["properties"]["spec"]
    for name in ("replicas", "service", "rollout", "monitoring", "networkPolicy", "disruptionBudget"):
        text = schema["properties"][name]["description"]
        assert "restart" in text.lower(), name
        assert name not in canonical(spec())


def test_tuning_counts_only_when_there_is_some():
    assert tuning_hash({}) == ""
    assert tuning_hash({"maxNumSeqs": 8}) == tuning_hash({"maxNumSeqs": 8}) != tuning_hash({"maxNumSeqs": 4})


def test_order_does_not_count():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
