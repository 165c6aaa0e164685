"""Revisions on a real control plane: upgrades of the operator and of the definition restart nobody; restarts,
rollbacks and operators that end in the middle do what they should.

Another release of the operator is a copy of the sources with other scripts and another template, run as a process.
"""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from qwen_cached_serve.api.crd import build_crd
from qwen_cached_serve.core import names
from qwen_cached_serve.core.records import record_of
from qwen_cached_serve.kube.port import CONTROLLER_REVISIONS, DEPLOYMENTS, EVENTS, SERVES
from tests.cluster.operator_resources import children, complete, condition, report, serve, serving, with_message
from tests.cluster.operator_support import ROOT, eventually
from tests.cluster.test_operator_quiet import settled


@pytest.fixture
def release(tmp_path):
    """Sources of another release: other scripts, one more annotation of the pods, on demand a later format."""

    def make(number, stored_format=None):
        sources = tmp_path / f"release-{number}"
        shutil.copytree(ROOT / "operator" / "src", sources)  # compiled modules, too: their time stamps are kept
        package = sources / "qwen_cached_serve"
        script = package / "inpod" / "start.py"
        script.write_text(script.read_text() + f"\n# release {number}\n")
        template = package / "core" / "children" / "deployment.py"
        text = template.read_text()
        marked = text.replace(
            '"kubectl.kubernetes.io/default-container": "engine",',
            f'"kubectl.kubernetes.io/default-container": "engine", "release": "{number}",',
        )
        assert marked != text
        template.write_text(marked)
        if stored_format:
            module = package / "core" / "records.py"
            later = module.read_text().replace("\nFORMAT = 1\n", f"\nFORMAT = {stored_format}\n")
            assert later != module.read_text()
            module.write_text(later)
        return sources

    return make


@pytest.fixture
def qcs(cluster):
    """Run `qcs` as a person would; returns exit status, stdout, stderr."""

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "qwen_cached_serve.cli.main", *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(ROOT / "operator" / "src"), "KUBECONFIG": cluster.kubeconfig},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def pods(cluster, namespace):
    """Uids of the live pods."""
    items = cluster.get("pods", "-n", namespace)["items"]
    return {one["metadata"]["uid"] for one in items if "deletionTimestamp" not in one["metadata"]}


async def stored(api, namespace):
    """Revisions, oldest first."""
    return sorted(map(record_of, await api.list_all(CONTROLLER_REVISIONS, namespace)), key=lambda one: one.number)


async def template(api, namespace):
    return (await api.get(DEPLOYMENTS, namespace, "q"))["spec"]["template"]


async def looked(api, namespace, operator):
    """Wait until an operator is at rest; return the resource."""
    await eventually(lambda: operator.events("reconciled"))
    await settled(api, namespace, operator, seconds=1.0)
    return await api.get(SERVES, namespace, "q")


async def served(cluster, api, namespace, **spec):
    cluster.apply(with_message(serve(namespace, **spec), report(784)))
    return (await eventually(lambda: serving(api, namespace)))[0]


async def rolled_to(api, namespace, name):
    """Wait until a revision is fully rolled out."""

    async def there():
        resource, _ = await complete(api, namespace)
        assert resource["status"]["revision"].get("current") == name, resource["status"]["revision"]
        return resource

    return await eventually(there, timeout=60)


async def reasons(api, namespace):
    return [one["reason"] for one in await api.list_all(EVENTS, namespace) if one["regarding"]["kind"] == SERVES.kind]


@pytest.mark.case("B35")
async def test_an_upgrade_and_back_again_restarts_nobody(cluster, api, namespace, start_operator, release):
    first = await start_operator()
    await served(cluster, api, namespace)
    before, uids = await template(api, namespace), pods(cluster, namespace)
    assert first.stop() == 0
    second = await start_operator("--engine-image", "vllm/vllm-openai:v0.33.0", sources=release(2))
    resource = await looked(api, namespace, second)
    assert (await template(api, namespace), pods(cluster, namespace)) == (before, uids)
    current = condition(resource, "RevisionCurrent")
    assert (current["status"], current["reason"]) == ("False", "OperatorChanged")
    for words in ("the pod's scripts (1 of", "release (added)", "v0.33.0"):
        assert words in current["message"]
    assert condition(resource, "Ready")["status"] == "True"
    assert resource["status"]["resolved"]["image"].endswith(":v0.32.0")
    cluster.kubectl("scale", "-n", namespace, "qcs/q", "--replicas=2")
    await eventually(lambda: len(pods(cluster, namespace)) == 2)
    assert uids < pods(cluster, namespace)
    cluster.kubectl("delete", "-n", namespace, "configmap", "-l", f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}")
    _, found = await eventually(lambda: complete(api, namespace))
    [files] = [one for (kind, _), one in found.items() if kind == "ConfigMap"]
    assert "# release 2" not in "".join(files["data"].values())  # from what is stored
    uids = pods(cluster, namespace)
    assert second.stop() == 0
    third = await start_operator()
    resource = await looked(api, namespace, third)
    assert (await template(api, namespace), pods(cluster, namespace)) == (before, uids)
    assert condition(resource, "RevisionCurrent")["status"] == "True"
    assert len(await stored(api, namespace)) == 1


@pytest.mark.case("B35")
async def test_what_a_later_release_rendered_is_kept_by_the_former(cluster, api, namespace, start_operator, release):
    first = await start_operator()
    await served(cluster, api, namespace)
    assert first.stop() == 0
    second = await start_operator(sources=release(2))
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})
    await eventually(lambda: renumbered(api, namespace, 2))
    new = (await stored(api, namespace))[-1]
    await rolled_to(api, namespace, new.name)
    later, uids = await template(api, namespace), pods(cluster, namespace)
    assert later["metadata"]["annotations"]["release"] == "2"
    assert second.stop() == 0
    third = await start_operator()
    resource = await looked(api, namespace, third)
    assert (await template(api, namespace), pods(cluster, namespace)) == (later, uids)
    assert condition(resource, "RevisionCurrent")["reason"] == "OperatorChanged"


async def renumbered(api, namespace, count):
    return len(await stored(api, namespace)) == count


async def test_roll_replaces_them(cluster, api, namespace, start_operator, release):
    first = await start_operator()
    await served(cluster, api, namespace, rollout={"onOperatorUpgrade": "Roll"})
    uids = pods(cluster, namespace)
    assert first.stop() == 0
    await start_operator(sources=release(2))
    await eventually(lambda: renumbered(api, namespace, 2))
    await rolled_to(api, namespace, (await stored(api, namespace))[-1].name)
    assert not pods(cluster, namespace) & uids
    assert (await template(api, namespace))["metadata"]["annotations"]["release"] == "2"
    assert {"RollStarted", "RollCompleted"} <= set(await reasons(api, namespace))


@pytest.mark.case("B35")
async def test_a_definition_with_more_defaults_restarts_nobody(cluster, api, namespace, operator, start_operator):
    await served(cluster, api, namespace, engine={}, pod={})
    before, uids = await template(api, namespace), pods(cluster, namespace)
    original = build_crd()
    crd = copy.deepcopy(original)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["cache"]["properties"]["chunkBlocks"]["default"] = 1
    spec["engine"]["properties"]["startupTimeoutSeconds"]["default"] = 3600
    spec["rollout"]["default"] = {}
    spec["rollout"]["properties"]["onOperatorUpgrade"]["default"] = "Keep"
    try:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(crd))

        async def filled_in():
            found = (await api.get(SERVES, namespace, "q"))["spec"]
            return found["cache"].get("chunkBlocks") == 1 and found["rollout"] == {"onOperatorUpgrade": "Keep"}

        await eventually(filled_in)
        cluster.patch(namespace, "qcs", "q", {"spec": {"replicas": 2}})  # stored with the defaults from now on
        await eventually(lambda: len(pods(cluster, namespace)) == 2)
        assert operator.stop() == 0
        again = await start_operator()
        await looked(api, namespace, again)
        assert await template(api, namespace) == before
        assert uids < pods(cluster, namespace)
        assert len(await stored(api, namespace)) == 1
    finally:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(original))


async def test_a_later_format_freezes_the_former_release(cluster, api, namespace, start_operator, release):
    second = await start_operator(sources=release(2, stored_format=2))
    await served(cluster, api, namespace)
    before, uids = await template(api, namespace), pods(cluster, namespace)
    assert second.stop() == 0
    first = await start_operator()
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}, "replicas": 2}})

    async def frozen():
        resource = await api.get(SERVES, namespace, "q")
        assert condition(resource, "RevisionCurrent")["reason"] == "NewerFormat"
        return resource

    resource = await eventually(frozen)
    await settled(api, namespace, first, seconds=1.0)
    assert condition(resource, "Stalled")["status"] == "True"
    assert condition(resource, "Available")["status"] == "True"
    assert (await template(api, namespace), pods(cluster, namespace)) == (before, uids)
    assert (await api.get(DEPLOYMENTS, namespace, "q"))["spec"]["replicas"] == 1
    assert first.stop() == 0
    await start_operator(sources=release(3, stored_format=2))
    await eventually(lambda: renumbered(api, namespace, 2))
    resource = await rolled_to(api, namespace, (await stored(api, namespace))[-1].name)
    assert condition(resource, "Stalled")["status"] == "False"


async def test_a_restart_is_asked_for_and_done_once(cluster, api, namespace, operator, start_operator, qcs):
    await served(cluster, api, namespace)
    uids = pods(cluster, namespace)
    code, out, _ = qcs("restart", "q", "-n", namespace)
    assert code == 0, out
    await eventually(lambda: renumbered(api, namespace, 2))
    await rolled_to(api, namespace, (await stored(api, namespace))[-1].name)
    restarted = pods(cluster, namespace)
    assert not restarted & uids
    cluster.kubectl("annotate", "-n", namespace, "qcs/q", "qwencache.dev/restarted-at-")
    await settled(api, namespace, operator)
    assert operator.stop() == 0
    again = await start_operator()
    await looked(api, namespace, again)
    assert pods(cluster, namespace) == restarted
    managers = {entry["manager"] for entry in (await api.get(SERVES, namespace, "q"))["metadata"]["managedFields"]}
    assert "qwen-cached-serve" in managers  # of the status only:
    for entry in (await api.get(SERVES, namespace, "q"))["metadata"]["managedFields"]:
        assert entry["manager"] != "qwen-cached-serve" or entry["subresource"] == "status"


async def test_rollback_holds_until_the_next_edit(cluster, api, namespace, operator, qcs):
    await served(cluster, api, namespace)
    [good] = await stored(api, namespace)
    first = await template(api, namespace)
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})
    await eventually(lambda: renumbered(api, namespace, 2))
    bad = (await stored(api, namespace))[-1]
    await rolled_to(api, namespace, bad.name)
    assert qcs("rollback", "q", "-n", namespace, "--to", 7)[0] == 1
    code, out, err = qcs("rollback", "q", "-n", namespace)
    assert code == 0, err
    resource = await rolled_to(api, namespace, good.name)
    assert await template(api, namespace) == first
    stalled = condition(resource, "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "RolledBack")
    assert condition(resource, "Available")["status"] == "True"
    assert (await reasons(api, namespace)).count("RolledBack") == 1
    code, out, _ = qcs("history", "q", "-n", namespace)
    assert [line.split()[0] for line in out.splitlines()] == ["REVISION", "2", "1"]
    assert "held" in out.splitlines()[2]
    code, _, err = qcs("restart", "q", "-n", namespace)
    assert (code, "held" in err) == (1, True)
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 3}}})
    await eventually(lambda: renumbered(api, namespace, 3))
    resource = await rolled_to(api, namespace, (await stored(api, namespace))[-1].name)
    assert condition(resource, "Stalled")["status"] == "False"


async def test_going_back_to_a_spec_uses_its_revision_and_replica_set_again(cluster, api, namespace, operator):
    await served(cluster, api, namespace)
    [first] = await stored(api, namespace)
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})
    await eventually(lambda: renumbered(api, namespace, 2))
    await rolled_to(api, namespace, (await stored(api, namespace))[-1].name)
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": None}}})
    resource = await rolled_to(api, namespace, first.name)
    assert [one.number for one in await stored(api, namespace)] == [2, 3]
    assert len(cluster.get("replicaset", "-n", namespace)["items"]) == 2
    [pod] = resource["status"]["pods"]
    assert pod["revision"] == first.name


@pytest.mark.parametrize("point", ["ControllerRevision", "Deployment"])
async def test_killed_in_the_middle_of_a_roll(cluster, api, namespace, operator, start_operator, release, point):
    await served(cluster, api, namespace)
    generation = (await api.get(DEPLOYMENTS, namespace, "q"))["metadata"]["generation"]
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})

    async def reached():
        if point == "ControllerRevision":
            return await renumbered(api, namespace, 2)
        return (await api.get(DEPLOYMENTS, namespace, "q"))["metadata"]["generation"] > generation

    await eventually(reached, interval=0.005)
    operator.stop(signal.SIGKILL)
    new = (await stored(api, namespace))[-1]
    await start_operator(sources=release(2))  # even another release goes on with what was stored
    await rolled_to(api, namespace, new.name)
    assert len(await stored(api, namespace)) == 2
    assert "release" not in (await template(api, namespace))["metadata"]["annotations"]
    assert len(cluster.get("replicaset", "-n", namespace)["items"]) == 2


async def test_paused_and_stopped_over_an_upgrade(cluster, api, namespace, operator, start_operator, release):
    await served(cluster, api, namespace)
    before, uids = await template(api, namespace), pods(cluster, namespace)
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Paused"}})
    await looked(api, namespace, operator)
    assert operator.stop() == 0
    second = await start_operator(sources=release(2))
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})
    await looked(api, namespace, second)
    assert (await template(api, namespace), pods(cluster, namespace)) == (before, uids)
    assert len(await stored(api, namespace)) == 1
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Stopped", "cache": {"chunkBlocks": None}}})
    await eventually(lambda: not pods(cluster, namespace))
    assert await template(api, namespace) == before
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Running"}})
    await eventually(lambda: serving(api, namespace))
    assert await template(api, namespace) == before
    assert len(await stored(api, namespace)) == 1


@pytest.mark.case("B35")
@pytest.mark.parametrize("rendered", ["the same", "differently"])
async def test_a_release_without_stored_revisions_is_taken_over(
    cluster, api, namespace, operator, start_operator, release, rendered
):
    await served(cluster, api, namespace)
    before, uids = await template(api, namespace), pods(cluster, namespace)
    assert operator.stop() == 0
    cluster.kubectl("delete", "-n", namespace, "controllerrevisions", "--all")
    cluster.kubectl("annotate", "-n", namespace, "deployment/q", f"{names.REVISION_ANNOTATION}-")
    sources = {"sources": release(2)} if rendered == "differently" else {}
    second = await start_operator(**sources)
    resource = await looked(api, namespace, second)
    assert (await template(api, namespace), pods(cluster, namespace)) == (before, uids)
    [record] = await stored(api, namespace)
    assert resource["status"]["revision"]["current"] == record.name
    reason = "OperatorChanged" if rendered == "differently" else "Current"
    assert condition(resource, "RevisionCurrent")["reason"] == reason
    assert "RollStarted" not in await reasons(api, namespace)
    assert second.stop() == 0
    third = await start_operator(**sources)
    await looked(api, namespace, third)
    assert third.writes() == 0
    assert (await template(api, namespace), pods(cluster, namespace)) == (before, uids)


async def test_foreign_fields_of_the_template_are_named(cluster, api, namespace, operator):
    await served(cluster, api, namespace)
    annotation = {"spec": {"template": {"metadata": {"annotations": {"mesh.example/inject": "true"}}}}}
    cluster.patch(namespace, "deployment", "q", annotation, field_manager="mesh")

    async def named():
        resource = await api.get(SERVES, namespace, "q")
        return "mesh.example/inject (mesh)" in condition(resource, "RevisionCurrent")["message"]

    await eventually(named, timeout=60)
    assert (await template(api, namespace))["metadata"]["annotations"]["mesh.example/inject"] == "true"


async def test_revisions_go_with_their_resource(cluster, api, namespace, operator):
    await served(cluster, api, namespace)
    [record] = await stored(api, namespace)
    live = await api.get(CONTROLLER_REVISIONS, namespace, record.name)
    refused = cluster.kubectl(
        "patch", "-n", namespace, "controllerrevision", record.name, "--type=merge", "-p", '{"data": {"format": 9}}',
        check=False,
    )  # fmt: skip
    assert refused.returncode
    # Everything else of it can be changed: the garbage collector has to, when owners go.
    cluster.kubectl("label", "-n", namespace, "controllerrevision", record.name, "team=x")
    assert live["metadata"]["ownerReferences"][0]["kind"] == SERVES.kind
    cluster.kubectl("delete", "-n", namespace, "qcs/q", "--timeout=10s")

    async def gone():
        return not await stored(api, namespace) and not await children(
            api, namespace, live["metadata"]["ownerReferences"][0]["uid"]
        )

    await eventually(gone, timeout=60)


async def test_a_revision_that_was_taken_away_is_stored_again(cluster, api, namespace, operator):
    await served(cluster, api, namespace)
    uids = pods(cluster, namespace)
    [record] = await stored(api, namespace)
    cluster.kubectl("delete", "-n", namespace, "controllerrevision", record.name)

    async def again():
        return [found.name for found in await stored(api, namespace)] == [record.name]

    await eventually(again)
    await settled(api, namespace, operator, seconds=1.0)
    assert pods(cluster, namespace) == uids


async def test_diff_answers_before_the_edit(cluster, api, namespace, operator, qcs, tmp_path):
    await served(cluster, api, namespace)
    edited = with_message(serve(namespace, cache={"l1": {"size": "10Gi"}, "chunkBlocks": 2}), report(784))
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump(edited))
    code, out, err = qcs("diff", "-f", file, "-n", namespace)
    assert code == 0, err
    assert "restarts its pods" in out
    assert "spec.cache.chunkBlocks: default → 2" in out
    uids = pods(cluster, namespace)
    cluster.apply(edited)
    await eventually(lambda: renumbered(api, namespace, 2))
    await rolled_to(api, namespace, (await stored(api, namespace))[-1].name)
    assert not pods(cluster, namespace) & uids
    edited["spec"]["replicas"] = 2
    del edited["spec"]["cache"]["chunkBlocks"]
    file.write_text(yaml.safe_dump(edited))
    code, out, _ = qcs("diff", "-f", file, "-n", namespace)
    assert "revision  1" in out
    assert "spec.replicas: 1 → 2" in out
