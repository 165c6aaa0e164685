"""What a real kubelet makes of a pod whose probe refuses: one line says why, and nothing else starts."""

import pytest

SMALL = {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
"""A GPU engine asks for more than a test machine has."""
TIGHT = {"requests": {"cpu": "500m", "memory": "400Mi"}, "limits": {"memory": "400Mi"}}
"""Enough to start the probe, too little to import vLLM."""


def containers(pod):
    return {
        status["name"]: status
        for status in pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    }


def refused(node, namespace, name):
    """Wait until the probe refused; returns the condition and the pod."""

    def look():
        condition = node.conditions(namespace, name).get("Probed")
        return condition if condition and condition["status"] == "False" else None

    condition = node.wait("the probe's refusal", look, seconds=300)
    return condition, node.pods(namespace)[0]


@pytest.mark.parametrize(
    ("name", "spec", "code", "word"),
    [
        ("no-checkpoint", {"model": {"name": "not-there"}}, "CheckpointMissing", "not-there"),
        (
            "no-gpu",
            {"engine": {"accelerator": {"type": "GPU"}, "env": [], "vllm": {}, "resources": SMALL}},
            "DeviceMissing",
            "GPU",
        ),
        ("no-memory", {"engine": {"resources": TIGHT}}, "OutOfMemory", "spec.engine.resources.limits.memory"),
    ],
)
def test_a_refusing_probe_says_why_and_nothing_else_starts(node, node_namespace, name, spec, code, word):
    node.apply(node_namespace, node.tiny(name, **spec))
    condition, pod = refused(node, node_namespace, name)
    assert condition["reason"] == code
    assert word in condition["message"]
    assert "\n" not in condition["message"]
    states = containers(pod)
    for never in ("cache-server", "engine"):
        assert states[never]["restartCount"] == 0
        assert "waiting" in states[never]["state"], states[never]["state"]
    probe = states["probe"]
    ended = probe["state"].get("terminated") or probe["lastState"]["terminated"]
    assert len(ended["message"].encode()) <= 1024
    assert node.conditions(node_namespace, name)["Ready"]["status"] == "False"
