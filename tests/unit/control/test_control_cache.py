"""The cache's two corrections of kopf's indices: our own newer writes, and ghosts."""

import json

import pytest

from qwen_cached_serve.control.cache import OVERLAY_SECONDS, OWNER_UID_LABEL, Cache, Packed, trimmed
from qwen_cached_serve.kube.port import CONFIG_MAPS, DEPLOYMENTS, PODS, REPLICA_SETS, SERVES

UID = "uid-of-serve"
KEY = ("n", "q")


def thing(kind, name, version, uid=None, **extra):
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "namespace": "n",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {OWNER_UID_LABEL: UID},
        },
    } | extra


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def cache_with(deployments=(), pods=(), clock=None, serve_version=1):
    serve = thing(SERVES, "q", serve_version, uid=UID)
    cache = Cache(monotonic=clock or Clock())
    indices = {
        SERVES: {KEY: [Packed(serve)], UID: [Packed(serve)]},
        DEPLOYMENTS: {UID: [Packed(one) for one in deployments]} if deployments else {},
        PODS: {UID: [Packed(one) for one in pods]} if pods else {},
    }
    cache.attach(indices)
    return cache, indices


def deployment_version(cache):
    child = cache.snapshot(KEY).children.get((DEPLOYMENTS, "q"))
    return child and child["metadata"]["resourceVersion"]


def test_snapshot_of_an_unknown_resource_is_none():
    cache, _ = cache_with()
    assert cache.snapshot(("n", "other")) is None


def test_snapshot_has_children_and_sorted_pods():
    pods = [thing(PODS, "b", 2), thing(PODS, "a", 3)]
    cache, _ = cache_with([thing(DEPLOYMENTS, "q", 5)], pods)
    snapshot = cache.snapshot(KEY)
    assert deployment_version(cache) == "5"
    assert [pod["metadata"]["name"] for pod in snapshot.pods] == ["a", "b"]
    assert cache.all_keys() == [KEY]
    assert cache.key_of_owner(UID) == KEY
    assert cache.key_of_owner("nobody") is None


def test_own_write_is_seen_before_the_watch_brings_it():
    cache, indices = cache_with()
    cache.wrote(thing(DEPLOYMENTS, "q", 10))
    assert deployment_version(cache) == "10"
    indices[DEPLOYMENTS][UID] = [Packed(thing(DEPLOYMENTS, "q", 9))]  # an older event arrives late
    assert deployment_version(cache) == "10"
    indices[DEPLOYMENTS][UID] = [Packed(thing(DEPLOYMENTS, "q", 11))]
    assert deployment_version(cache) == "11"


def test_versions_are_numbers_not_text():
    cache, _ = cache_with([thing(DEPLOYMENTS, "q", 99)])
    cache.wrote(thing(DEPLOYMENTS, "q", 100))
    assert deployment_version(cache) == "100"


def test_own_write_is_not_believed_for_ever():
    clock = Clock()
    cache, _ = cache_with(clock=clock)
    cache.wrote(thing(DEPLOYMENTS, "q", 10))
    clock.now = OVERLAY_SECONDS + 1
    assert deployment_version(cache) is None
    cache.sweep()
    assert not cache._written[DEPLOYMENTS]


@pytest.mark.case("B55")
def test_an_index_that_says_nothing_new_does_not_take_back_what_is_known_newer():
    clock = Clock()
    cache, indices = cache_with([thing(DEPLOYMENTS, "q", 9)], clock=clock)
    cache.wrote(thing(DEPLOYMENTS, "q", 12))
    clock.now = OVERLAY_SECONDS + 1
    cache.sweep()
    assert deployment_version(cache) == "12"  # its watch is dead: 9 was true before
    indices[DEPLOYMENTS][UID] = [Packed(thing(DEPLOYMENTS, "q", 10))]
    cache.sweep()
    assert deployment_version(cache) == "10"  # it speaks, and of something else: a cluster restored from a backup
    assert not cache._written[DEPLOYMENTS]


@pytest.mark.case("B55")
def test_a_dead_watch_of_resources_does_not_take_back_an_edit():
    clock = Clock()
    cache, _ = cache_with(clock=clock)
    edited = cache.snapshot(KEY).serve
    edited["metadata"]["resourceVersion"] = "77"
    cache.wrote(edited)
    clock.now = OVERLAY_SECONDS + 1
    cache.sweep()
    assert cache.snapshot(KEY).serve["metadata"]["resourceVersion"] == "77"


def test_deletion_beats_our_own_write():
    cache, _ = cache_with()
    cache.wrote(thing(DEPLOYMENTS, "q", 10))
    cache.deleted(DEPLOYMENTS, "n", "q", "uid-q")
    assert deployment_version(cache) is None
    cache.wrote(thing(DEPLOYMENTS, "q", 13, uid="another"))
    assert deployment_version(cache) == "13"


def test_what_a_list_does_not_show_is_hidden_but_newer_objects_are_not():
    cache, indices = cache_with([thing(DEPLOYMENTS, "q", 5)])
    assert cache.listed(DEPLOYMENTS, None, {"uid-q"}, "20") == []
    assert deployment_version(cache) == "5"
    assert cache.listed(DEPLOYMENTS, "elsewhere", set(), "20") == []
    found = cache.listed(DEPLOYMENTS, None, set(), "20")
    assert [m["metadata"]["name"] for m in found] == ["q"]
    assert deployment_version(cache) is None
    indices[DEPLOYMENTS][UID] = [Packed(thing(DEPLOYMENTS, "q", 25, uid="made-later"))]
    assert cache.listed(DEPLOYMENTS, None, set(), "20") == []
    assert deployment_version(cache) == "25"
    cache.sweep()
    assert not cache._ghosts[DEPLOYMENTS]


def test_what_an_event_shows_again_is_no_ghost():
    cache, _ = cache_with([thing(DEPLOYMENTS, "q", 5)])
    cache.deleted(DEPLOYMENTS, "n", "q", "uid-q")  # lost its labels: gone for a watch with a selector
    assert deployment_version(cache) is None
    cache.seen(DEPLOYMENTS, "uid-q")
    assert deployment_version(cache) == "5"


def test_what_we_wrote_is_no_ghost():
    cache, _ = cache_with([thing(DEPLOYMENTS, "q", 5)])
    cache.deleted(DEPLOYMENTS, "n", "q", "uid-q")
    cache.wrote(thing(DEPLOYMENTS, "q", 6))
    assert deployment_version(cache) == "6"


def test_of_two_with_one_name_the_newer_counts():
    cache, indices = cache_with()
    old, new = Packed(thing(SERVES, "q", 9, uid="old")), Packed(thing(SERVES, "q", 10, uid="new"))
    for order in ([old, new], [new, old]):
        indices[SERVES][KEY] = order
        assert cache.snapshot(KEY).serve["metadata"]["uid"] == "new"
    twins = [Packed(thing(DEPLOYMENTS, "q", 11, uid="a")), Packed(thing(DEPLOYMENTS, "q", 8, uid="b"))]
    indices[DEPLOYMENTS]["new"] = twins
    assert deployment_version(cache) == "11"


def test_only_what_is_read_is_kept():
    config_map = thing(CONFIG_MAPS, "c", 1, data={"big": "x" * 1000}, immutable=True)
    config_map["metadata"]["managedFields"] = [{"manager": "m"}]
    kept = trimmed(config_map)
    assert len(json.dumps(kept)) < 500
    assert kept["immutable"] is True
    assert "managedFields" not in kept["metadata"]
    pod = trimmed(
        thing(PODS, "p", 1, spec={"nodeName": "a", "containers": [{"name": "x"}]}, status={"phase": "Running"})
    )
    assert pod["spec"] == {"nodeName": "a"}
    assert pod["status"] == {"phase": "Running"}
    volumes = [{"name": "v", "configMap": {"name": "c"}}]
    replica_set = thing(
        REPLICA_SETS, "r", 1, spec={"replicas": 1, "template": {"spec": {"volumes": volumes, "containers": []}}}
    )
    assert trimmed(replica_set)["spec"]["template"]["spec"] == {"volumes": volumes}


def test_what_another_namespace_labels_with_our_uid_is_not_ours():
    foreign_pod, foreign = thing(PODS, "a", 2), thing(DEPLOYMENTS, "q", 99, uid="foreign")
    for one in (foreign_pod, foreign):
        one["metadata"]["namespace"] = "elsewhere"
    replica_set = thing(REPLICA_SETS, "r", 3)
    replica_set["metadata"]["namespace"] = "elsewhere"
    cache, indices = cache_with([foreign, thing(DEPLOYMENTS, "q", 5)], [foreign_pod, thing(PODS, "b", 3)])
    indices[REPLICA_SETS] = {UID: [Packed(replica_set)]}
    assert deployment_version(cache) == "5"
    snapshot = cache.snapshot(KEY)
    assert [pod["metadata"]["name"] for pod in snapshot.pods] == ["b"]
    assert snapshot.replica_sets == ()
    assert [pod["metadata"]["name"] for _, pod in cache.all_pods()] == ["b"]
