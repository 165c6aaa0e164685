"""Children on a real control plane: they appear, stay as stated, follow the spec, and go."""

import asyncio
import signal
import time

import pytest

from qwen_cached_serve.core import names
from qwen_cached_serve.core.records import record_of
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    SERVES,
    SERVICE_ACCOUNTS,
    SERVICES,
    NotFound,
)
from tests.cluster.operator_resources import base, children, complete, condition, report, serve, serving, with_message
from tests.cluster.operator_support import eventually


async def test_children_appear_and_the_resource_is_left_alone(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    resource, found = await eventually(lambda: complete(api, namespace))
    uid = resource["metadata"]["uid"]
    for child in found.values():
        [owner] = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("QwenCachedServe", "q", uid, True)
        assert "blockOwnerDeletion" not in owner
        assert child["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "qwen-cached-serve"
    metadata = resource["metadata"]
    assert "annotations" not in metadata
    assert "finalizers" not in metadata
    managers = {(entry["manager"], entry.get("subresource", "")) for entry in metadata["managedFields"]}
    assert managers == {("somebody", ""), ("qwen-cached-serve", "status")}
    [engine] = found["Deployment", "q"]["spec"]["template"]["spec"]["containers"]
    assert engine["name"] == "engine"


@pytest.mark.case("B51")
async def test_tracking_labels_and_annotations_stay_on_the_resource(cluster, api, namespace, operator):
    tracked = serve(namespace)
    tracked["metadata"] |= {
        "labels": {"argocd.argoproj.io/instance": "app", "app.kubernetes.io/instance": "app", "team": "x"},
        "annotations": {
            "argocd.argoproj.io/tracking-id": "app:x",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    }
    cluster.apply(tracked)
    _, found = await eventually(lambda: complete(api, namespace))
    pod = found["Deployment", "q"]["spec"]["template"]
    for owner in (*found.values(), pod):
        labels, annotations = owner["metadata"].get("labels", {}), owner["metadata"].get("annotations", {})
        assert not {"argocd.argoproj.io/instance", "team"} & set(labels)
        assert labels["app.kubernetes.io/instance"] == "q"
        assert not [key for key in annotations if "argocd" in key or "kubectl.kubernetes.io/last" in key]


async def test_drift_is_put_back(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    resource, found = await eventually(lambda: complete(api, namespace))
    [config_map] = [name for kind, name in found if kind == "ConfigMap"]

    cluster.kubectl("scale", "-n", namespace, "deployment/q", "--replicas=7")

    async def scaled_back():
        return (await api.get(DEPLOYMENTS, namespace, "q"))["spec"]["replicas"] == 1

    await eventually(scaled_back)

    image = {"spec": {"template": {"spec": {"containers": [{"name": "engine", "image": "other"}]}}}}
    import json

    cluster.kubectl("patch", "-n", namespace, "deployment/q", "--type=strategic", "-p", json.dumps(image))

    async def image_back():
        [engine] = (await api.get(DEPLOYMENTS, namespace, "q"))["spec"]["template"]["spec"]["containers"]
        return engine["image"] != "other"

    await eventually(image_back)

    old = {kind: found[kind, name]["metadata"]["uid"] for kind, name in found}
    cluster.kubectl(
        "delete", "-n", namespace, "deployment/q", "service/q", "serviceaccount/q", f"configmap/{config_map}"
    )

    async def made_anew():
        _, again = await complete(api, namespace)
        return all(again[kind, name]["metadata"]["uid"] != old[kind] for kind, name in again)

    await eventually(made_anew)
    assert (await api.get(SERVES, namespace, "q"))["metadata"]["uid"] == resource["metadata"]["uid"]


async def test_a_child_whose_labels_were_taken_away_comes_back(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: serving(api, namespace))  # later the status has nothing more to say
    cluster.kubectl("label", "-n", namespace, "service/q", "app.kubernetes.io/managed-by-", f"{names.OWNER_UID_LABEL}-")
    await eventually(lambda: complete(api, namespace))
    requests = await quiet(operator)
    cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"look": "again"}}})
    assert await quiet(operator) == requests  # it is found in the cache again, not asked for at every look


async def quiet(operator, seconds=1.5):
    """The number of requests, once there were none for a while."""
    last, since = -1.0, time.monotonic()
    while time.monotonic() - since < seconds:
        now = operator.metric("rest_client_requests_total")
        if now != last:
            last, since = now, time.monotonic()
        await asyncio.sleep(0.1)
    return last


async def test_an_immutable_config_map_with_other_content_is_made_anew(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    _, found = await eventually(lambda: complete(api, namespace))
    [name] = [name for kind, name in found if kind == "ConfigMap"]
    right = found["ConfigMap", name]
    wrong = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            key: right["metadata"][key] for key in ("name", "namespace", "labels", "annotations", "ownerReferences")
        },
        "immutable": True,
        "data": right["data"] | {"settings.json": "{}"},
    }
    operator.process.send_signal(signal.SIGSTOP)  # so that it cannot repair between delete and create
    cluster.kubectl("delete", "-n", namespace, f"configmap/{name}")
    await api.create(CONFIG_MAPS, wrong)
    operator.process.send_signal(signal.SIGCONT)

    async def repaired():
        return (await api.get(CONFIG_MAPS, namespace, name))["data"] == right["data"]

    await eventually(repaired)


@pytest.mark.case("B53")
async def test_foreign_fields_are_kept(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    await eventually(lambda: complete(api, namespace))
    cluster.patch(namespace, "deployment", "q", {"metadata": {"annotations": {"team": "x"}, "labels": {"team": "x"}}})
    cluster.patch(namespace, "service", "q", {"spec": {"externalTrafficPolicy": None, "sessionAffinity": "ClientIP"}})
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})

    async def rolled():
        resource, found = await complete(api, namespace)
        assert resource["metadata"]["generation"] == 2
        return found["Deployment", "q"]

    deployment = await eventually(rolled)
    assert deployment["metadata"]["annotations"]["team"] == "x"
    assert deployment["metadata"]["labels"]["team"] == "x"
    assert (await api.get(SERVICES, namespace, "q"))["spec"]["sessionAffinity"] == "ClientIP"


async def test_an_invalid_edit_leaves_the_children(cluster, api, namespace, start_operator):
    # The API server takes the edit; this operator cannot carry it out, since it has no image of its own to offer.
    await start_operator("--engine-image", "")
    cluster.apply(serve(namespace, engine={"image": "vllm/vllm-openai:v0.32.0"}))
    before, found = await eventually(lambda: complete(api, namespace))
    cluster.patch(namespace, "qcs", "q", {"spec": {"engine": {"image": None}}})

    async def refused():
        resource = await api.get(SERVES, namespace, "q")
        assert resource["status"]["observedGeneration"] == 2
        assert condition(resource, "Stalled")["status"] == "True"
        return resource

    resource = await eventually(refused)
    assert condition(resource, "SpecAccepted")["status"] == "False"
    assert "spec.engine.image" in condition(resource, "Stalled")["message"]
    assert resource["status"]["url"] == before["status"]["url"]
    after = await children(api, namespace, resource["metadata"]["uid"])
    for place, child in found.items():
        assert after[place]["metadata"]["uid"] == child["metadata"]["uid"]
        assert after[place].get("spec") == child.get("spec")

    cluster.patch(namespace, "qcs", "q", {"spec": {"engine": {"image": "vllm/vllm-openai:v0.32.0"}}})

    async def accepted():
        return condition(await api.get(SERVES, namespace, "q"), "SpecAccepted")["status"] == "True"

    await eventually(accepted)


@pytest.mark.case("B54")
async def test_deleting_works_with_the_operator_down(cluster, api, namespace, operator, start_operator):
    cluster.apply(serve(namespace))
    resource, _ = await eventually(lambda: complete(api, namespace))
    operator.stop(signal.SIGKILL)
    cluster.kubectl("delete", "-n", namespace, "qcs/q", "--timeout=10s")

    async def all_gone():
        return not await children(api, namespace, resource["metadata"]["uid"])

    await eventually(all_gone, timeout=60)
    again = await start_operator()
    cluster.apply(serve(namespace, name="other"))
    await eventually(lambda: complete(api, namespace, "other"))
    assert not await children(api, namespace, resource["metadata"]["uid"])
    assert again.metric("qwen_cached_serve_condition", name="q") == 0


async def test_deleting_with_the_operator_up_makes_nothing_anew(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    resource, _ = await eventually(lambda: complete(api, namespace))
    cluster.kubectl("delete", "-n", namespace, "qcs/q", "--timeout=10s")

    async def all_gone():
        return not await children(api, namespace, resource["metadata"]["uid"])

    await eventually(all_gone, timeout=60)
    writes = operator.writes()
    await eventually(lambda: 'name="q"' not in operator.fetch(operator.metrics_port, "/metrics")[1])
    assert not await children(api, namespace, resource["metadata"]["uid"])
    assert operator.writes() == writes


@pytest.mark.case("B58")
async def test_a_foreign_object_with_the_name_is_not_adopted(cluster, api, namespace, operator):
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "q"},
        "spec": {"ports": [{"port": 1234}], "selector": {"other": "app"}},
    }
    cluster.apply(foreign)
    cluster.apply(serve(namespace))

    async def refused():
        return condition(await api.get(SERVES, namespace, "q"), "Ready")

    ready = await eventually(refused)
    assert (ready["status"], ready["reason"]) == ("False", "NameTaken")
    assert "Service named q exists already" in ready["message"]
    service = await api.get(SERVICES, namespace, "q")
    assert service["spec"]["selector"] == {"other": "app"}
    assert "ownerReferences" not in service["metadata"]
    with pytest.raises(NotFound):
        await api.get(DEPLOYMENTS, namespace, "q")  # no half-made set


async def test_an_object_with_another_controller_is_not_adopted(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    await eventually(lambda: complete(api, namespace))
    operator.process.send_signal(signal.SIGSTOP)
    other = await api.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": "other"}}
    )
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": other["metadata"]["uid"],
        "controller": True,
    }
    taken = {"labels": {names.OWNER_UID_LABEL: "x"}, "ownerReferences": [owner]}
    cluster.patch(namespace, "serviceaccount", "q", {"metadata": taken})
    operator.process.send_signal(signal.SIGCONT)

    async def refused():
        ready = condition(await api.get(SERVES, namespace, "q"), "Ready")
        return "ServiceAccount named q exists already" in ready["message"]

    await eventually(refused)


async def test_children_left_behind_on_purpose_are_taken_back(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    first, _ = await eventually(lambda: complete(api, namespace))
    cluster.kubectl("delete", "-n", namespace, "qcs/q", "--cascade=orphan", "--timeout=120s")
    deployment = (await api.get(DEPLOYMENTS, namespace, "q"))["metadata"]["uid"]
    cluster.apply(serve(namespace))
    second, found = await eventually(lambda: complete(api, namespace))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert found["Deployment", "q"]["metadata"]["uid"] == deployment
    [owner] = found["Deployment", "q"]["metadata"]["ownerReferences"]
    assert owner["uid"] == second["metadata"]["uid"]


NAMES = {
    "dot": "qwen3.6-27b",
    "digit": "3qwen",
    "63": "a" * 63,
    "64": "b" * 64,
    "253": "c" * 253,
    "twin-1": "d" * 99 + "1",
    "twin-2": "d" * 99 + "2",
    "dash": "qwen3-6-27b",
}


@pytest.mark.case("B46")
@pytest.mark.case("B47")
async def test_every_name_gets_complete_and_distinct_children(cluster, api, namespace, operator):
    cluster.apply(*(serve(namespace, name=name, replicas=0) for name in NAMES.values()))
    seen = set()
    for name in NAMES.values():
        resource, found = await eventually(lambda name=name: complete(api, namespace, name))
        assert not seen & set(found)
        seen |= set(found)
        assert ("Deployment", base(name)) in found
        assert found["Deployment", base(name)]["metadata"]["annotations"]["qwencache.dev/name"] == name
        assert condition(resource, "SpecAccepted")["status"] == "True"


@pytest.mark.case("B57")
@pytest.mark.parametrize("point", ["ConfigMap", "Deployment", "Status"])
async def test_killed_in_the_middle_it_ends_where_it_should(cluster, api, namespace, operator, start_operator, point):
    cluster.apply(serve(namespace))

    async def reached():
        resource = await api.get(SERVES, namespace, "q")
        if point == "Status":
            return resource.get("status")
        return point in {kind for kind, _ in await children(api, namespace, resource["metadata"]["uid"])}

    await eventually(reached, interval=0.01)
    operator.stop(signal.SIGKILL)
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})
    await start_operator()
    _, found = await eventually(lambda: complete(api, namespace))
    deployment = found["Deployment", "q"]

    async def rolled():
        return (await api.get(DEPLOYMENTS, namespace, "q"))["status"]["observedGeneration"] == deployment["metadata"][
            "generation"
        ]

    await eventually(rolled)
    templates = cluster.get("replicaset", "-n", namespace)["items"]
    assert len(templates) <= 2  # at most one roll for each distinct template
    [config_map] = [
        volume["configMap"]["name"]
        for volume in deployment["spec"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    ]
    assert '"chunk_blocks": 2' in (await api.get(CONFIG_MAPS, namespace, config_map))["data"]["settings.json"]


async def test_an_own_account_replaces_ours_once_no_pod_uses_it(cluster, api, namespace, operator):
    cluster.apply(serve(namespace, replicas=0))
    await eventually(lambda: complete(api, namespace))
    cluster.kubectl("create", "serviceaccount", "-n", namespace, "mine")
    cluster.patch(namespace, "qcs", "q", {"spec": {"pod": {"serviceAccountName": "mine"}}})

    async def changed():
        deployment = await api.get(DEPLOYMENTS, namespace, "q")
        return deployment["spec"]["template"]["spec"]["serviceAccountName"] == "mine"

    await eventually(changed)
    # Old ReplicaSets name the account for rollbacks; without them it goes.
    cluster.kubectl("delete", "-n", namespace, "replicaset", "--all", "--cascade=orphan")

    async def gone():
        return "q" not in {account["metadata"]["name"] for account in await api.list_all(SERVICE_ACCOUNTS, namespace)}

    await eventually(gone)


async def test_old_config_maps_go_when_nothing_names_them(cluster, api, namespace, operator):
    cluster.apply(serve(namespace, replicas=0))
    _, found = await eventually(lambda: complete(api, namespace))
    [first] = [name for kind, name in found if kind == "ConfigMap"]
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})

    async def two():
        resource = await api.get(SERVES, namespace, "q")
        maps = [
            name for kind, name in await children(api, namespace, resource["metadata"]["uid"]) if kind == "ConfigMap"
        ]
        assert len(maps) == 2
        assert (await api.get(DEPLOYMENTS, namespace, "q"))["status"]["observedGeneration"] == 2
        return maps

    assert first in await eventually(two)
    for revision in await api.list_all(CONTROLLER_REVISIONS, namespace):
        if record_of(revision).config_map == first:
            cluster.kubectl("delete", "-n", namespace, f"controllerrevision/{revision['metadata']['name']}")
    for replica_set in cluster.get("replicaset", "-n", namespace)["items"]:
        volumes = replica_set["spec"]["template"]["spec"]["volumes"]
        if first in [volume.get("configMap", {}).get("name") for volume in volumes]:
            cluster.kubectl("delete", "-n", namespace, f"replicaset/{replica_set['metadata']['name']}")

    async def one():
        resource = await api.get(SERVES, namespace, "q")
        maps = [
            name for kind, name in await children(api, namespace, resource["metadata"]["uid"]) if kind == "ConfigMap"
        ]
        return len(maps) == 1 and first not in maps

    await eventually(one)


async def test_deleted_and_made_again_at_once_it_never_says_that_its_name_is_taken(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    first, found = await eventually(lambda: complete(api, namespace))
    # The old Service cannot go until the finalizer does, so the new resource surely meets it.
    cluster.patch(namespace, "service", "q", {"metadata": {"finalizers": ["qcs.test/hold"]}})
    cluster.kubectl("delete", "-n", namespace, "qcs/q", "--timeout=10s")
    cluster.apply(serve(namespace))

    def waiting():
        return [line for line in operator.events("reconcile failed") if "Service q has to go first" in line["error"]]

    await eventually(waiting)
    assert (await api.get(SERVES, namespace, "q"))["status"] == {"observedGeneration": -1}
    cluster.patch(namespace, "service", "q", {"metadata": {"finalizers": None}})
    second, again = await eventually(lambda: complete(api, namespace), timeout=60)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["Deployment", "q"]["metadata"]["uid"] != found["Deployment", "q"]["metadata"]["uid"]
    assert condition(second, "Ready")["reason"] != "NameTaken"
    assert "NameTaken" not in operator.log.read_text()


async def test_tokens_that_the_probed_size_rules_out_leave_what_serves(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    _, found = await eventually(lambda: serving(api, namespace))
    tokens = {"policy": "Fixed", "value": 700}
    cluster.patch(namespace, "qcs", "q", {"spec": {"engine": {"vllm": {"maxNumBatchedTokens": tokens}}}})

    async def refused():
        resource = await api.get(SERVES, namespace, "q")
        assert "from 784 to 1567" in condition(resource, "Stalled")["message"]
        return resource

    resource = await eventually(refused)
    after = await children(api, namespace, resource["metadata"]["uid"])
    assert {place: child.get("spec") for place, child in after.items()} == {
        place: child.get("spec") for place, child in found.items()
    }
    assert resource["status"]["blockSize"]["probed"] == 784
