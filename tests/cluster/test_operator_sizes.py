"""Large resources (kopf #1087): refused at once by name of the field, or small enough for everything made of them."""

import json

import pytest
import yaml

from qwen_cached_serve.kube.port import CONFIG_MAPS, CONTROLLER_REVISIONS, DEPLOYMENTS, SERVES, NotFound
from tests.cluster.operator_resources import condition, report, serve, serving, with_message
from tests.cluster.operator_support import eventually

TEXT = 32768
"""Characters that all arguments, or all variables, of a container may have (api/rules/variables.py)."""
REQUEST_LIMIT = 1_400_000
"""Bytes; etcd takes requests of 1.5 MiB."""
CONFIG_MAP_LIMIT = 1_000_000
"""Bytes of all values; the API server takes 1 MiB with the keys."""


def arguments(count, length, letter="y"):
    names = [f"--x{number}=" for number in range(count)]
    return [name + letter * (length - len(name)) for name in names]


def variables(count, length, letter="y"):
    return [{"name": f"X{number}", "value": letter * length} for number in range(count)]


def client_side(cluster, *manifests):
    """`kubectl apply` as most people use it: it adds a copy of the whole in an annotation."""
    return cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests), check=False)


@pytest.mark.case("B60")
@pytest.mark.parametrize(
    ("engine", "field", "words"),
    [
        ({"extraArgs": arguments(150, 1024)}, "spec.engine.extraArgs", "must have at most 64 items"),
        ({"extraArgs": arguments(10, 15360)}, "spec.engine.extraArgs[0]", "may not be more than 1024"),
        ({"extraArgs": arguments(33, 1000)}, "spec.engine.extraArgs", "more than 32768 characters"),
        ({"env": variables(150, 1024)}, "spec.engine.env", "must have at most 100 items"),
        ({"env": variables(10, 15360)}, "spec.engine.env[0].value", "may not be more than 4096"),
        ({"env": variables(38, 4096)}, "spec.engine.env", "more than 32768 characters"),
    ],
    ids=["arguments", "long-arguments", "arguments-in-all", "variables", "long-variables", "variables-in-all"],
)
async def test_too_large_is_refused_at_once_by_name(cluster, api, namespace, engine, field, words):
    refused = client_side(cluster, serve(namespace, engine=engine))
    assert refused.returncode == 1
    assert field in refused.stderr
    assert words in refused.stderr
    with pytest.raises(NotFound):
        await api.get(SERVES, namespace, "q")


def largest(namespace, letter="y"):
    """As much in arguments and variables as is taken."""
    texts = {
        "extraArgs": arguments(32, TEXT // 32, letter),
        "env": variables(8, TEXT // 8, letter),
    }
    unchecked = arguments(8, TEXT // 8, letter)
    return serve(
        namespace,
        engine=texts,
        cache={"l1": {"size": "10Gi"}, **texts},
        unsupported={"engineArgs": unchecked, "cacheServerArgs": unchecked},
    )


@pytest.mark.case("B60")
async def test_the_largest_is_served_edited_and_reported(cluster, api, namespace, operator):
    """As many characters in all arguments and variables as the schema takes, with client-side apply: reconciled, edited
    the same way, and the status written both times."""
    resource = with_message(largest(namespace), report(784))
    assert client_side(cluster, resource).returncode == 0
    await eventually(lambda: carried_out(api, namespace, 1), 60)
    resource["spec"]["engine"]["extraArgs"][-1] = "--last=" + "z" * (TEXT // 32 - len("--last="))
    assert client_side(cluster, resource).returncode == 0
    await eventually(lambda: carried_out(api, namespace, 2), 60)
    await everything_fits(api, namespace)


@pytest.mark.case("B60")
async def test_the_largest_in_four_bytes_a_character_is_served_too(cluster, api, namespace, operator):
    """The schema counts characters, etcd and ConfigMaps bytes. Applied on the server's side, since the copy that
    client-side apply adds does not fit into an annotation then, which kubectl says."""
    resource = with_message(largest(namespace, "𐍈"), report(784))
    refused = client_side(cluster, resource)
    assert "metadata.annotations: Too long" in refused.stderr
    cluster.apply(resource)
    await eventually(lambda: carried_out(api, namespace, 1), 60)
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})
    await eventually(lambda: carried_out(api, namespace, 2), 60)
    await everything_fits(api, namespace)


async def carried_out(api, namespace, generation):
    resource, _ = await serving(api, namespace)
    assert resource["metadata"]["generation"] == resource["status"]["observedGeneration"] == generation
    assert condition(resource, "Stalled")["status"] == "False"
    assert condition(resource, "Reconciling")["status"] == "False"
    return True


async def everything_fits(api, namespace):
    """Every object is below what the API server and etcd take, so that it can be written again."""
    for kind in (SERVES, DEPLOYMENTS, CONFIG_MAPS, CONTROLLER_REVISIONS):
        for one in await api.list_all(kind, namespace):
            what = kind.kind, one["metadata"]["name"]
            assert len(json.dumps(one, ensure_ascii=False).encode()) < REQUEST_LIMIT, what
            data = one.get("data") or {} if kind is CONFIG_MAPS else {}
            assert sum(len(value.encode()) for value in data.values()) < CONFIG_MAP_LIMIT, what
