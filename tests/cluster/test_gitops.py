"""GitOps tools on a real API server: health by their own rules, no drift between appliers, handing over replicas.

Argo CD applies with kubectl's server-side apply under its own field manager and compares with a dry-run of that; Flux
applies with the engine of `fluxcd/pkg/ssa`, which `gitops-judge` holds, as it holds kstatus and Argo CD's Lua.
"""

import json

import pytest
import yaml

from qwen_cached_serve.kube.port import OWNED, SERVES
from tests.chart.gitops_support import GitopsJudge
from tests.cluster.operator_resources import condition, report, serve, serving, with_message
from tests.cluster.operator_support import eventually
from tests.cluster.test_operator_quiet import settled

pytestmark = pytest.mark.timeout(2400)  # the first test may have to build gitops-judge

ARGO, FLUX, PERSON = "argocd-controller", "kustomize-controller", "kubectl"


@pytest.fixture(scope="session")
def gitops(tmp_path_factory):
    return GitopsJudge(tmp_path_factory.mktemp("gitops"))


async def shown(api, gitops, namespace):
    """(Argo CD's health, its message, kstatus) of the resource as it is now."""
    [verdict] = gitops.verdicts([await api.get(SERVES, namespace, "q")])
    return verdict


def until_shown(api, gitops, namespace, argocd, kstatus):
    async def so():
        health, message, status = await shown(api, gitops, namespace)
        assert (health, status) == (argocd, kstatus), message
        return True

    return eventually(so)


def argo_apply(cluster, *manifests):
    """What Argo CD does with ServerSideApply=true."""
    return cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", f"--field-manager={ARGO}", "-f", "-",
        stdin=yaml.safe_dump_all(manifests),
    )  # fmt: skip


def drift(cluster, manifest):
    """What a dry-run of both ways to apply would change; empty when in sync."""
    ways = (["--server-side", "--force-conflicts", f"--field-manager={ARGO}"], [])
    found = ""
    for way in ways:
        done = cluster.kubectl("diff", *way, "-f", "-", stdin=yaml.safe_dump(manifest), check=False)
        assert done.returncode in (0, 1), done.stderr
        found += done.stdout
    return found


async def everything(api, namespace):
    """Resource version, generation and managers of the resource and of what the operator made."""
    return {
        (kind.kind, item["metadata"]["name"]): (item["metadata"]["resourceVersion"], item["metadata"].get("generation"))
        for kind in (SERVES, *OWNED)
        for item in await api.list_all(kind, namespace)
    }


async def test_the_life_of_a_resource_as_argo_cd_and_flux_show_it(cluster, api, gitops, namespace, start_operator):
    resource = with_message(serve(namespace), report(784))
    argo_apply(cluster, resource)
    # Nobody has looked at it: without the definition's own status, kstatus would take it for current.
    assert (await shown(api, gitops, namespace))[::2] == ("Progressing", "InProgress")
    await start_operator()
    await until_shown(api, gitops, namespace, "Healthy", "Current")

    step = {"engine": {"vllm": {"maxNumBatchedTokens": {"policy": "Fixed", "value": 16}}}}
    cluster.patch(namespace, "qcs", "q", {"spec": step})
    await until_shown(api, gitops, namespace, "Degraded", "Failed")
    assert "spec.engine.vllm.maxNumBatchedTokens" in (await shown(api, gitops, namespace))[1]
    found = await api.get(SERVES, namespace, "q")
    assert condition(found, "Available")["status"] == "True", "an edit that is refused takes nobody down"

    cluster.patch(namespace, "qcs", "q", {"spec": {"engine": None}})
    await until_shown(api, gitops, namespace, "Healthy", "Current")
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Paused"}})
    await until_shown(api, gitops, namespace, "Suspended", "Current")
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Stopped"}})
    await until_shown(api, gitops, namespace, "Healthy", "Current")
    stopped = await api.get(SERVES, namespace, "q")
    assert condition(stopped, "Ready")["reason"] == "Stopped"

    cluster.patch(namespace, "qcs", "q", {"metadata": {"finalizers": ["qcs.test/hold"]}})
    cluster.kubectl("delete", "-n", namespace, "qcs/q", "--wait=false")
    assert (await shown(api, gitops, namespace))[::2] == ("Progressing", "Terminating")
    cluster.patch(namespace, "qcs", "q", {"metadata": {"finalizers": None}})


@pytest.mark.case("B51")
@pytest.mark.case("B53")
async def test_three_appliers_and_the_operator_agree_and_nothing_moves(cluster, api, gitops, namespace, operator):
    resource = with_message(serve(namespace), report(784))
    resource["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": f"models:qwencache.dev/q:{namespace}/q"}
    argo_apply(cluster, resource)
    assert gitops.flux_apply(cluster.kubeconfig, namespace, [resource]) == {
        f"QwenCachedServe/{namespace}/q": "configured"  # its labels
    }
    cluster.apply(resource, field_manager=PERSON)
    await eventually(lambda: serving(api, namespace))
    await settled(api, namespace, operator)
    before = await everything(api, namespace)
    writes = operator.writes()
    for _ in range(2):
        argo_apply(cluster, resource)
        answer = gitops.flux_apply(cluster.kubeconfig, namespace, [resource])
        assert answer == {f"QwenCachedServe/{namespace}/q": "unchanged"}
        cluster.apply(resource, field_manager=PERSON)
    await settled(api, namespace, operator)
    assert await everything(api, namespace) == before
    assert operator.writes() == writes
    assert drift(cluster, resource) == "", "no field needs ignoreDifferences"

    live = cluster.get("qcs", "-n", namespace, "q", "--show-managed-fields")
    theirs = {entry["manager"] for entry in live["metadata"]["managedFields"] if not entry.get("subresource")}
    ours = [entry for entry in live["metadata"]["managedFields"] if entry["manager"] == "qwen-cached-serve"]
    assert theirs == {ARGO, FLUX, PERSON}, "the operator writes neither spec nor metadata"
    assert {entry.get("subresource") for entry in ours} == {"status"}
    assert live["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] == "models"
    for kind in OWNED:
        for item in await api.list_all(kind, namespace):
            marks = {**item["metadata"].get("labels", {}), **item["metadata"].get("annotations", {})}
            assert not [key for key in marks if "fluxcd" in key or "argoproj" in key], "a pruning tool deletes these"


def replicas(cluster, namespace):
    return cluster.get("qcs", "-n", namespace, "q")["spec"]["replicas"]


async def test_replicas_are_handed_to_an_autoscaler_without_a_moment_at_one(cluster, api, gitops, namespace, operator):
    """docs/gitops.md: first a manifest of replicas alone, then git without them, then the autoscaler."""
    with_replicas = with_message(serve(namespace, replicas=2), report(784))
    without = with_message(serve(namespace), report(784))
    argo_apply(cluster, with_replicas)
    alone = {key: with_replicas[key] for key in ("apiVersion", "kind", "metadata")} | {"spec": {"replicas": 2}}
    cluster.apply(alone, field_manager="handover-to-autoscaler")
    generation = cluster.get("qcs", "-n", namespace, "q")["metadata"]["generation"]
    argo_apply(cluster, without)
    assert replicas(cluster, namespace) == 2
    assert cluster.get("qcs", "-n", namespace, "q")["metadata"]["generation"] == generation, "nothing moved"

    await eventually(lambda: serving(api, namespace))
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "qwencache.dev/v1alpha1", "kind": "QwenCachedServe", "name": "q"},
            "minReplicas": 3,
            "maxReplicas": 4,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "vllm_num_requests_waiting"},
                        "target": {"type": "AverageValue", "averageValue": "4"},
                    },
                }
            ],
        },
    }
    cluster.apply(hpa)

    def scaled():  # the real HPA controller, through the scale subresource, up to its minimum
        return replicas(cluster, namespace) == 3

    await eventually(scaled, timeout=60)
    conditions = {entry["type"]: entry for entry in cluster.get("hpa", "-n", namespace, "q")["status"]["conditions"]}
    assert conditions["AbleToScale"]["status"] == "True"
    argo_apply(cluster, without)
    gitops.flux_apply(cluster.kubeconfig, namespace, [without])
    assert replicas(cluster, namespace) == 3, "an applier took the number back"
    assert drift(cluster, without) == ""

    async def three():
        return (await serving(api, namespace))[0]["status"]["readyReplicas"] == 3

    await eventually(three, timeout=60)


def test_applied_twice_the_client_s_way_nothing_changes(cluster, namespace):
    """Argo CD's default way, which keeps what it applied in an annotation."""
    text = json.dumps(serve(namespace))
    cluster.kubectl("apply", "-f", "-", stdin=text)
    before = cluster.get("qcs", "-n", namespace, "q")
    assert "unchanged" in cluster.kubectl("apply", "-f", "-", stdin=text).stdout
    assert cluster.get("qcs", "-n", namespace, "q") == before
    assert drift(cluster, serve(namespace)) == ""


def test_without_the_hand_over_the_number_falls_to_one(cluster, namespace):
    """Why docs/gitops.md asks for the order: a field that nobody names any more gets its default."""
    argo_apply(cluster, serve(namespace, replicas=2))
    argo_apply(cluster, serve(namespace))
    assert replicas(cluster, namespace) == 1
