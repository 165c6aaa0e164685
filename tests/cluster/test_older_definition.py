"""An operator that meets the definition of an older release, as Helm leaves it where a chart keeps it in crds/."""

import copy
import json

import pytest

from tests.cluster.operator_resources import report, serve, serving, with_message
from tests.cluster.operator_support import eventually
from tests.cluster.test_operator_quiet import settled

CRD = "customresourcedefinition/qwencachedserves.qwencache.dev"


def put(cluster, definition):
    """Make that the definition, whatever its version in the API server is."""
    made = copy.deepcopy(definition)
    del made["metadata"]["resourceVersion"]
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(made))


def knows_block_size(cluster, namespace):
    resource = serve(namespace, name="probe") | {"status": {"blockSize": {"probed": 784}}}
    asked = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    return "status.blockSize" not in cluster.kubectl(*asked, stdin=json.dumps(resource), check=False).stderr


@pytest.fixture
async def older_definition(cluster, namespace):
    """The definition before status.blockSize was there; calling it brings the present one back."""
    present = cluster.get(CRD)
    older = copy.deepcopy(present)
    [version] = older["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["blockSize"]
    put(cluster, older)

    async def update():
        put(cluster, present)
        await eventually(lambda: knows_block_size(cluster, namespace))

    try:
        await eventually(lambda: not knows_block_size(cluster, namespace))
        yield update
    finally:
        await update()


@pytest.mark.case("B52")
async def test_an_older_definition_is_told_and_costs_only_the_fields_it_lacks(
    cluster, api, namespace, start_operator, older_definition
):
    cluster.apply(with_message(serve(namespace), report(784)))
    operator = await start_operator()
    served, _ = await eventually(lambda: serving(api, namespace))
    assert "blockSize" not in served["status"]
    told = [line for line in operator.lines() if "CustomResourceDefinition is older" in line.get("event", "")]
    assert [line["unknown"] for line in told] == [["status.blockSize"]]
    assert operator.metric("qwen_cached_serve_definition_unknown_fields") == 1

    _, writes, _ = await settled(api, namespace, operator)
    for number in range(3):
        cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"touched": str(number)}}})
    _, writes_after, _ = await settled(api, namespace, operator)
    assert writes_after == writes, "a field that does not stick is written again and again"

    await older_definition()
    operator.stop()
    await start_operator()

    async def complete():
        resource, _ = await serving(api, namespace)
        return resource["status"].get("blockSize", {}).get("probed") == 784

    await eventually(complete)
