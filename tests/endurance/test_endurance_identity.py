"""Who reads whose entries on a real node: a tag that moves under running pods, a volume that outlives them."""

import json
import os
import time

import pytest

from localkube import cluster as clusters
from tests.endurance import moved_tag
from tests.endurance.support import FEW, TWO_PODS_SECONDS, UNBOUND, N, external_hits, note, served, traffic
from tests.node_support import ROOT

pytestmark = pytest.mark.timeout(3600)

ENGINE = ROOT / "build" / "images" / "engine-cpu.tar"
CHECKPOINT = ROOT / "build" / "images" / "model-tiny.tar"
MOVING = {ENGINE: "localhost/qcs-engine-cpu:moving", CHECKPOINT: "localhost/qcs-model-tiny:moving"}
BUILD = "opt/engine/lib/python3.11/site-packages/lmcache/__init__.py"
CONFIG = "tiny-chain-352/config.json"
VOLUME = "kv-entries"


def identities(node, namespace):
    pods = node.resource(namespace, "tiny")["status"].get("pods", [])
    return {pod["name"]: pod.get("identity") for pod in pods}


@pytest.fixture
def move_tag(node, tmp_path):
    """Load an image under its moving tag, as it is or with another file in it."""

    def move(archive, path=None, text=None):
        target = tmp_path / "moving.tar"
        if path is None:
            moved_tag.named(archive, target, MOVING[archive])
        else:
            moved_tag.patched(archive, target, MOVING[archive], path, text)
        clusters.find(os.environ["QCS_NODE_CLUSTER"]).load_image(target)
        target.unlink()

    return move


@pytest.mark.case("B11")
def test_a_moved_tag_replaces_the_older_pod_and_loses_nothing(node, node_namespace, move_tag):
    """Somebody rebuilds the image under its tag, and one pod is lost. Its successor has another build in it and another
    identity; the older pod is evicted once the newer one serves, and then both are equal. Nobody edited anything.
    """
    move_tag(ENGINE)
    resource = node.tiny(
        "tiny",
        engine={"image": MOVING[ENGINE], "env": UNBOUND, **FEW},
        cache=FEW,
        rollout={"onCompatibilityChange": "Roll"},
    )
    resource["spec"]["replicas"] = 2
    node.apply(node_namespace, resource)
    node.wait_ready(node_namespace, "tiny", TWO_PODS_SECONDS)
    before = node.resource(node_namespace, "tiny")["status"]
    (old,) = set(identities(node, node_namespace).values())
    first, second = sorted(pod["metadata"]["name"] for pod in served(node, node_namespace))
    move_tag(ENGINE, BUILD, moved_tag.read(ENGINE, BUILD) + "\n# rebuilt\n")
    found = {}
    with traffic(node, node_namespace, "client-moved", found):
        began = time.monotonic()
        node.shell.kubectl("delete", "pod", first, "-n", node_namespace, "--wait=false")

        def equal_again():
            now = identities(node, node_namespace)
            new = set(now.values()) - {old, None}
            return len(now) == 2 and not now.keys() & {first, second} and len(new) == 1 == len(set(now.values()))

        node.wait("both pods have the new identity", equal_again, seconds=TWO_PODS_SECONDS)
        node.wait_ready(node_namespace, "tiny")
        found["seconds"] = round(time.monotonic() - began, 1)
    status = node.resource(node_namespace, "tiny")["status"]
    note("moved-tag", found)
    assert [one["pod"] for one in status["evictions"]] == [second]
    assert status["revision"]["updated"] == before["revision"]["updated"]
    assert node.conditions(node_namespace, "tiny")["CacheCompatible"]["status"] == "True"
    events = {event["reason"] for event in node.shell.list("events", node_namespace)}
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
def test_entries_on_a_volume_outlive_the_pod_and_reach_no_other_build_or_checkpoint(
    node, node_namespace, move_tag, tmp_path
):
    """Hits after a pod restart with the same identity. With another checkpoint at the same path none (by hand these
    were 8,576 wrong ones, facts/local-cluster.md §6), nor with another build of the image; and no errors.
    """
    found = {}
    move_tag(ENGINE)
    move_tag(CHECKPOINT)
    node.shell.kubectl(
        "apply", "-n", node_namespace, "-f", "-", stdin=json.dumps(claim(node_namespace, tmp_path / "kv"))
    )
    tier = {"name": "disk", "type": "Filesystem", "filesystem": {"claimName": VOLUME}}
    resource = node.tiny("tiny", engine={"image": MOVING[ENGINE], "env": UNBOUND, **FEW}, cache={"l2": [tier], **FEW})
    resource["spec"]["model"]["source"]["image"]["reference"] = MOVING[CHECKPOINT]
    node.apply(node_namespace, resource)
    node.wait_ready(node_namespace, "tiny")
    pod = served(node, node_namespace)[0]["metadata"]["name"]
    seen = [identities(node, node_namespace)[pod]]
    assert external_hits(node, node_namespace, pod) == 0
    node.wait("the entries are on the volume", lambda: stored(node, node_namespace, pod) >= 4, seconds=120)

    pod = new_pod(node, node_namespace)
    assert [identities(node, node_namespace)[pod]] == seen
    found["same"] = external_hits(node, node_namespace, pod)

    config = json.loads(moved_tag.read(CHECKPOINT, CONFIG))
    config["text_config"]["rms_norm_eps"] = 2 * config["text_config"].get("rms_norm_eps", 1e-6)
    for name, change in {
        "other checkpoint": (CHECKPOINT, CONFIG, json.dumps(config)),
        "other build": (ENGINE, BUILD, moved_tag.read(ENGINE, BUILD) + "\n# rebuilt\n"),
    }.items():
        move_tag(*change)
        pod = new_pod(node, node_namespace)
        identity = identities(node, node_namespace)[pod]
        assert identity not in (*seen, None)
        seen.append(identity)
        found[name] = external_hits(node, node_namespace, pod)
        log = node.shell.kubectl("logs", "-n", node_namespace, pod, "-c", "cache-server")
        assert [line for line in log.splitlines() if " ERROR" in line] == []
    note("volume", {"hit_tokens": found})
    assert found == {"same": 4 * N, "other checkpoint": 0, "other build": 0}
