"""The port and the drift comparison against a real API server: what a stand-in could only repeat from belief."""

import asyncio
import copy

import pytest

from qwen_cached_serve.control.drift import differences, stamped
from qwen_cached_serve.kube import connection
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.lease import LeaseElector, LeaseTimes
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    PODS,
    SERVICES,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Transient,
    WriteDenied,
)


def config_map(namespace, name="c", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data}


async def test_a_repeated_apply_changes_nothing(api, namespace):
    made = await api.apply(config_map(namespace, a="1"))
    again = await api.apply(config_map(namespace, a="1"))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_the_answer_of_what_is_immutable_is_what_is_there(api, namespace):
    """The server is asked for the metadata only (hundreds of kilobytes else); the rest is what was sent."""
    told = []
    original = api._request

    async def request(*arguments, **options):
        told.append(await original(*arguments, **options))
        return told[-1]

    api._request = request
    made = await api.apply(config_map(namespace, a="1") | {"immutable": True})
    assert told[-1]["kind"] == "PartialObjectMetadata"
    del api._request
    live = await api.get(CONFIG_MAPS, namespace, "c")
    assert made == live


async def test_errors_have_the_servers_words(api, namespace):
    with pytest.raises(NotFound, match='configmaps "c" not found'):
        await api.get(CONFIG_MAPS, namespace, "c")
    with pytest.raises(Invalid, match="field not declared in schema"):
        await api.apply(config_map(namespace) | {"dat": {}})
    with pytest.raises(Invalid, match="Invalid value"):
        await api.apply(config_map(namespace, name="No Name"))
    with pytest.raises(NotFound, match="namespaces"):
        await api.apply(config_map("no-such-namespace"))
    await api.create(CONFIG_MAPS, config_map(namespace))
    with pytest.raises(Conflict, match="already exists"):
        await api.create(CONFIG_MAPS, config_map(namespace))


async def test_replace_is_optimistic(api, namespace):
    made = await api.create(CONFIG_MAPS, config_map(namespace, a="1"))
    await api.replace(CONFIG_MAPS, made | {"data": {"a": "2"}})
    with pytest.raises(Conflict, match="modified"):
        await api.replace(CONFIG_MAPS, made | {"data": {"a": "3"}})


async def test_delete_hits_only_the_object_meant(api, namespace):
    made = await api.apply(config_map(namespace, a="1"))
    with pytest.raises(Conflict, match="UID in the precondition"):
        await api.delete(CONFIG_MAPS, namespace, "c", uid="another")
    await api.delete(CONFIG_MAPS, namespace, "c", uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await api.get(CONFIG_MAPS, namespace, "c")
    await api.delete(CONFIG_MAPS, namespace, "c", uid=made["metadata"]["uid"])  # gone already is fine


async def test_lists_go_over_pages_and_identities_carry_a_version(api, namespace, monkeypatch):
    monkeypatch.setattr("qwen_cached_serve.kube.client.PAGE_SIZE", 2)
    made = [await api.apply(config_map(namespace, name=f"c{number}")) for number in range(5)]
    versions, version = await api.list_identities(CONFIG_MAPS, namespace)
    assert versions.items() >= {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in made}.items()
    assert int(version) >= int(made[-1]["metadata"]["resourceVersion"])
    assert len(await api.list_all(CONFIG_MAPS, namespace)) == len(versions)
    assert len(await api.list_all(CONFIG_MAPS, namespace, limit=1)) == 1
    assert await api.list_all(CONFIG_MAPS, namespace, selector="no=such") == []


async def test_a_guard_stops_writes_but_not_reads(api, namespace):
    left = [5.0]
    guarded = api.guarded(lambda: left[0])
    await guarded.apply(config_map(namespace, a="1"))
    left[0] = 0.0
    with pytest.raises(WriteDenied):
        await guarded.apply(config_map(namespace, a="2"))
    with pytest.raises(WriteDenied):
        await guarded.delete(CONFIG_MAPS, namespace, "c", uid="x")
    assert (await guarded.get(CONFIG_MAPS, namespace, "c"))["data"] == {"a": "1"}


async def test_nobody_listening_is_transient(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        'clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]\nusers: [{name: u, user: {token: t}}]\n'
    )
    client = await KubeClient.connect(connection.Origin(kubeconfig=str(path)))
    with pytest.raises(Transient):
        await client.get(CONFIG_MAPS, "default", "c")
    await client.close()


async def test_a_wrong_token_is_forbidden_after_it_was_read_again(cluster, tmp_path):
    text = cluster.kubectl("config", "view", "--raw", "--minify", "--flatten").stdout
    import yaml

    config = yaml.safe_load(text)
    config["users"][0]["user"] = {"token": "expired"}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    client = await KubeClient.connect(connection.Origin(kubeconfig=str(path)))
    with pytest.raises(Forbidden, match="Unauthorized"):
        await client.get(CONFIG_MAPS, "default", "c")
    path.write_text(text)  # what an exec plugin or the kubelet does: a fresh token in the same place
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "default", "no-such")
    await client.close()


RICH = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "labels": {"a": "b"}},
    "spec": {
        "replicas": 0,
        "minReadySeconds": 0,
        "progressDeadlineSeconds": 5400,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}, "annotations": {}},
            "spec": {
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "hostNetwork": False,
                "shareProcessNamespace": True,
                "terminationGracePeriodSeconds": 120,
                "securityContext": {"runAsNonRoot": True, "runAsUser": 2000, "fsGroup": 2000},
                "nodeSelector": {},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "initContainers": [
                    {
                        "name": "probe",
                        "image": "i",
                        "command": ["a", ""],
                        "env": [
                            {"name": "EMPTY", "value": ""},
                            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                            {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
                        ],
                        "resources": {"limits": {"memory": "1024Mi", "cpu": "2000m", "nvidia.com/gpu": "1"}},
                    },
                    {"name": "side", "image": "i", "restartPolicy": "Always", "ports": [{"containerPort": 8081}]},
                ],
                "containers": [
                    {
                        "name": "engine",
                        "image": "i",
                        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                        "startupProbe": {"exec": {"command": ["x"]}, "periodSeconds": 5, "failureThreshold": 720},
                        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
                        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                        "volumeMounts": [
                            {"name": "code", "mountPath": "/opt/qcs", "readOnly": True},
                            {"name": "shm", "mountPath": "/dev/shm"},
                        ],
                        "resources": {"requests": {"memory": "1.5Gi", "cpu": "0.5"}},
                    }
                ],
                "volumes": [
                    {"name": "code", "configMap": {"name": "c", "defaultMode": 292}},
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "10240Mi"}},
                    {"name": "state", "emptyDir": {}},
                ],
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"a": "b"}},
                    }
                ],
            },
        },
    },
}


@pytest.mark.case("B53")
async def test_what_the_server_makes_of_a_deployment_is_no_drift(api, namespace):
    desired = stamped(copy.deepcopy(RICH) | {"metadata": RICH["metadata"] | {"namespace": namespace}})
    live = await api.apply(desired)
    assert differences(desired, live) == []
    changed = copy.deepcopy(desired)
    changed["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1537Mi"
    assert differences(changed, live) == ["spec.template.spec.containers[engine].resources.requests.memory"]


@pytest.mark.case("B53")
async def test_what_the_server_makes_of_a_service_is_no_drift(api, namespace):
    desired = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "s"},
        "spec": {
            "type": "NodePort",
            "selector": {"a": "b"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
        },
    }
    live = await api.apply(stamped(desired))
    assert differences(stamped(desired), live) == []
    assert live["spec"]["ports"][0]["nodePort"]
    assert (await api.get(SERVICES, namespace, "s"))["spec"]["clusterIP"]


async def test_dry_run_writes_nothing(api, namespace):
    desired = copy.deepcopy(RICH) | {"metadata": RICH["metadata"] | {"namespace": namespace}}
    assert (await api.apply(desired, dry_run=True))["metadata"]["uid"]
    with pytest.raises(NotFound):
        await api.get(DEPLOYMENTS, namespace, "d")


async def test_paths_of_every_kind_exist(api):
    assert await api.served("no.such.group", "v1") == set()
    assert "deployments" in await api.served("apps", "v1")
    assert isinstance(await api.list_all(PODS, None, limit=1), list)


async def test_leadership_goes_from_hand_to_hand(api, namespace):
    times = LeaseTimes(lease=2, renew_deadline=1.5, retry=0.1)
    first = LeaseElector(api, namespace=namespace, name="l", identity="first", times=times)
    second = LeaseElector(api, namespace=namespace, name="l", identity="second", times=times)
    await asyncio.wait_for(first.acquire(), 5)
    leading = asyncio.create_task(first.lead())
    waiting = asyncio.create_task(second.acquire())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 3)  # longer than the lease: it is being renewed
    leading.cancel()
    await first.release()
    await asyncio.wait_for(waiting, 1)
    spec = (await api.get(LEASES, namespace, "l"))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)
    assert not first.leading


async def test_a_silent_leader_is_replaced_after_its_lease(api, namespace):
    times = LeaseTimes(lease=2, renew_deadline=1, retry=0.1)
    first = LeaseElector(api, namespace=namespace, name="l", identity="first", times=times)
    second = LeaseElector(api, namespace=namespace, name="l", identity="second", times=times)
    await first.acquire()  # and never renews
    await asyncio.wait_for(second.acquire(), 5)
    assert second.leading
    assert not first.leading
