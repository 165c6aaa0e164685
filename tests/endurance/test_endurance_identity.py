"""Who reads whose entries on a real node: a tag that moves under running pods, a volume that outlives them."""

import json
import os
import time

import pytest

from demo.shell import http
from localkube import cluster as clusters
from tests.endurance import moved_tag
from tests.endurance.support import FEW, LONG, TWO_PODS_SECONDS, N, external_hits, note, served, traffic
from tests.node_support import ROOT

pytestmark = pytest.mark.timeout(3600)

ENGINE = ROOT / "build" / "images" / "engine-cpu.tar"
MOVING = "localhost/qcs-engine-cpu:moving"
PATCHED = "opt/engine/lib/python3.11/site-packages/lmcache/__init__.py"
VOLUME = "kv-entries"


def identities(node, namespace):
    pods = node.resource(namespace, "tiny")["status"].get("pods", [])
    return {pod["name"]: pod.get("identity") for pod in pods}


@pytest.fixture
def move_tag(node, tmp_path):
    """Load the engine's image under the moving tag, as it is or with another file in LMCache."""

    def move(text=None):
        target = tmp_path / "moving.tar"
        if text is None:
            moved_tag.named(ENGINE, target, MOVING)
        else:
            moved_tag.patched(ENGINE, target, MOVING, PATCHED, text)
        clusters.find(os.environ["QCS_NODE_CLUSTER"]).load_image(target)
        target.unlink()

    return move


@pytest.mark.case("B11")
def test_a_moved_tag_replaces_the_older_pod_and_loses_nothing(node, node_namespace, move_tag):
    """Somebody rebuilds the image under its tag, and one pod is lost. Its successor has another build in it and another
    identity; the older pod is evicted once the newer one serves, and then both are equal. Nobody edited anything.
    """
    namespace = node_namespace
    move_tag()
    resource = node.tiny("tiny", engine={"image": MOVING, **FEW}, cache=FEW, rollout={"onCompatibilityChange": "Roll"})
    resource["spec"]["replicas"] = 2
    node.apply(namespace, resource)
    node.wait_ready(namespace, "tiny", TWO_PODS_SECONDS)
    before = node.resource(namespace, "tiny")["status"]
    (old,) = set(identities(node, namespace).values())
    first, second = sorted(pod["metadata"]["name"] for pod in served(node, namespace))
    move_tag(moved_tag.read(ENGINE, PATCHED) + "\n# rebuilt\n")
    found = {}
    with traffic(node, namespace, "client-moved", found):
        began = time.monotonic()
        node.shell.kubectl("delete", "pod", first, "-n", namespace, "--wait=false")

        def equal_again():
            now = identities(node, namespace)
            new = set(now.values()) - {old, None}
            return len(now) == 2 and not now.keys() & {first, second} and len(new) == 1 == len(set(now.values()))

        node.wait("both pods have the new identity", equal_again, seconds=TWO_PODS_SECONDS)
        node.wait_ready(namespace, "tiny")
        found["seconds"] = round(time.monotonic() - began, 1)
    status = node.resource(namespace, "tiny")["status"]
    note("moved-tag", found)
    assert [one["pod"] for one in status["evictions"]] == [second]
    assert status["revision"]["updated"] == before["revision"]["updated"]
    assert node.conditions(namespace, "tiny")["CacheCompatible"]["status"] == "True"
    events = {event["reason"] for event in node.shell.list("events", namespace)}
    assert "CompatibilityChanged" in events
    assert (found["lost"], found["sent"] > 0) == (0, True), found["why"]


def claim(namespace, folder):
    """A folder of the node as a volume, which a claim of the namespace is bound to."""
    folder.mkdir()
    folder.chmod(0o777)  # the pod's user is not the node's
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": namespace},
                "spec": {
                    "capacity": {"storage": "4Gi"},
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "",
                    "claimRef": {"namespace": namespace, "name": VOLUME},
                    "hostPath": {"path": str(folder), "type": "Directory"},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": VOLUME},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "",
                    "volumeName": namespace,
                    "resources": {"requests": {"storage": "4Gi"}},
                },
            },
        ],
    }


def new_pod(node, namespace):
    """Delete the pod, and wait for its successor."""
    (old,) = served(node, namespace)
    node.shell.kubectl("delete", "pod", old["metadata"]["name"], "-n", namespace)
    uid = old["metadata"]["uid"]
    node.wait("another pod is there", lambda: [p for p in served(node, namespace) if p["metadata"]["uid"] != uid])
    node.wait_ready(namespace, "tiny")
    return served(node, namespace)[0]["metadata"]["name"]


def stored(node, namespace, pod):
    """Objects that the second tier holds in all its namespaces."""
    command = ["python3", "-c", "import pathlib; print(len(list(pathlib.Path('/').glob('var/lib/qcs-l2/**/*.data'))))"]
    return int(node.shell.kubectl("exec", "-n", namespace, pod, "-c", "cache-server", "--", *command))


@pytest.mark.case("B13")
def test_entries_on_a_volume_outlive_the_pod_and_never_reach_another_build(node, node_namespace, move_tag, tmp_path):
    """Hits after a pod restart with the same identity; with another build of the image none, and no errors either."""
    namespace = node_namespace
    move_tag()
    node.shell.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(claim(namespace, tmp_path / "kv")))
    tier = {"name": "disk", "type": "Filesystem", "filesystem": {"claimName": VOLUME}}
    resource = node.tiny("tiny", engine={"image": MOVING, **FEW}, cache={"l2": [tier], **FEW})
    node.apply(namespace, resource)
    node.wait_ready(namespace, "tiny")
    pod = served(node, namespace)[0]["metadata"]["name"]
    same = identities(node, namespace)[pod]
    assert external_hits(node, namespace, pod) == 0
    node.wait("the entries are on the volume", lambda: stored(node, namespace, pod) >= 4, seconds=120)
    pod = new_pod(node, namespace)
    assert identities(node, namespace)[pod] == same
    hits = external_hits(node, namespace, pod)
    move_tag(moved_tag.read(ENGINE, PATCHED) + "\n# rebuilt\n")
    pod = new_pod(node, namespace)
    assert identities(node, namespace)[pod] not in (same, None)
    foreign = external_hits(node, namespace, pod)
    with node.shell.forward(f"pod/{pod}", namespace, 8000) as base:
        answer = http(f"{base}/v1/completions", {"model": "tiny", "prompt": LONG, "max_tokens": 2, "temperature": 0})
    log = node.shell.kubectl("logs", "-n", namespace, pod, "-c", "cache-server")
    note("volume", {"same_identity_hit_tokens": hits, "other_build_hit_tokens": foreign})
    assert (hits, foreign) == (4 * N, 0)
    assert json.loads(answer)["usage"]["completion_tokens"] == 2
    assert [line for line in log.splitlines() if " ERROR " in line] == []
