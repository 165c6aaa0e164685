"""Tiers behind main memory: volumes, settings and what the status says of them."""

import json

import pytest

from qwen_cached_serve.core.variables import pod_variables, visible_to_the_probe
from qwen_cached_serve.core.volumes import l2_volume
from qwen_cached_serve.inpod.facts import L2Tier

SPEC = {
    "cache": {
        "l2": [
            {"name": "disk", "type": "Filesystem", "filesystem": {"claimName": "kv", "path": "a/b", "capacity": "2Gi"}},
            {"name": "x" * 63, "type": "Filesystem", "filesystem": {"claimName": "nfs"}},
        ]
    }
}


def test_the_cache_server_gets_the_claims_and_nobody_else(pod):
    made = pod(SPEC)
    volumes = {volume["name"]: volume for volume in made["volumes"]}
    assert volumes["qcs-l2-disk"]["persistentVolumeClaim"] == {"claimName": "kv"}
    assert all(len(name) <= 63 for name in volumes)
    assert len({l2_volume(name) for name in ("x" * 63, "x" * 62 + "y")}) == 2
    mounts = {
        name: [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"].startswith("qcs-l2-")]
        for name, container in made["containers_by_name"].items()
    }
    assert mounts == {
        "probe": [],
        "engine": [],
        "cache-server": ["/var/lib/qcs-l2/disk", f"/var/lib/qcs-l2/{'x' * 63}"],
    }


def test_settings_name_the_paths(resolved):
    tiers = resolved(SPEC).settings.cache.l2
    assert tiers[0] == L2Tier("disk", "Filesystem", path="/var/lib/qcs-l2/disk/a/b", capacity_bytes=2 << 30)
    assert tiers[1].path == f"/var/lib/qcs-l2/{'x' * 63}"


def test_without_a_cache_nothing_is_mounted(pod):
    made = pod(SPEC | {"cache": SPEC["cache"] | {"mode": "Disabled"}})
    assert not [volume for volume in made["volumes"] if volume["name"].startswith("qcs-l2-")]


ENV = [
    {"name": "POD_IP_OF_MINE", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    {"name": "ADDRESS", "value": "tcp://$(POD_IP_OF_MINE):1"},
    {"name": "LITERAL", "value": "a=b"},
    {"name": "EMPTY"},
    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
]


def test_variables_of_the_pod_itself_are_told_apart(resolved):
    made = resolved({"engine": {"env": ENV}, "cache": {"env": ENV}})
    assert pod_variables(made.engine_env) == ("POD_IP_OF_MINE", "ADDRESS")
    assert made.settings.pod_variables == ("POD_IP_OF_MINE", "ADDRESS")
    assert (
        made.settings.cache.environment
        == visible_to_the_probe(made.cache_env)
        == (
            "POD_IP_OF_MINE=a field of the pod",
            "ADDRESS=a field of the pod",
            "LITERAL=a=b",
            "EMPTY=",
            "SECRET=key k of s",
            "MAP=key k of m",
        )
    )


@pytest.mark.parametrize(
    ("value", "own"),
    [
        ("tcp://$(QCS_NODE_NAME):1", True),
        ("$$$(QCS_NODE_NAME)", True),
        ("$$(QCS_NODE_NAME)", False),
        ("$(HF_TOKEN) QCS_NODE_NAME", False),
        ("$(QCS_NODE_NAME", False),
    ],
)
def test_references_to_the_operators_own_field_of_the_pod(resolved, value, own):
    """As Kubernetes expands them: `$$` is a dollar, and what it makes of a node's name differs from node to node."""
    env = [{"name": "A", "value": value}, {"name": "B", "value": "$(A)"}]
    made = resolved({"engine": {"env": env}, "cache": {"env": env}})
    assert made.settings.pod_variables == (("A", "B") if own else ())
    shown = f"A={'a field of the pod' if own else value}"
    assert made.settings.cache.environment[0] == shown


@pytest.mark.parametrize("path", ["../other", "/abs"])
def test_paths_stay_inside_the_claim(resource, path):
    from qwen_cached_serve.api.validate import InvalidResource, parse

    spec = json.loads(json.dumps(SPEC))
    spec["cache"]["l2"][0]["filesystem"]["path"] = path
    with pytest.raises(InvalidResource, match="leaves its folder"):
        parse(resource(spec))


IDENTITY = "v1-" + "a" * 40
STORES = {
    "cache": {
        "l2": [
            {
                "name": "vk",
                "type": "Valkey",
                "valkey": {
                    "endpoint": "valkey:6379",
                    "topology": "Cluster",
                    "tls": "Enabled",
                    "username": "kv",
                    "passwordSecretKeyRef": {"name": "s1", "key": "p"},
                },
            },
            {
                "name": "bk",
                "type": "S3",
                "s3": {
                    "endpoint": "{namespace}.s3.example",
                    "region": "eu",
                    "credentials": {
                        "accessKeyIdSecretKeyRef": {"name": "s2", "key": "id"},
                        "secretAccessKeySecretKeyRef": {"name": "s2", "key": "key", "optional": True},
                    },
                    "capacity": "1Gi",
                },
            },
            {
                "name": "b2",
                "type": "S3",
                "s3": {"endpoint": "b.s3.example", "region": "eu", "tls": "Disabled", "dedicatedTo": IDENTITY},
            },
            {"name": "re", "type": "Resp", "resp": {"endpoint": "redis:6379", "dedicatedTo": IDENTITY}},
        ]
    }
}


def test_stores_are_told_to_the_pod_without_their_secrets(resolved):
    made = resolved(STORES)
    keys = ("aws_access_key_id", "aws_secret_access_key")
    assert made.settings.cache.l2 == (
        L2Tier("vk", "Valkey", endpoint="valkey:6379", cluster=True, tls=True, username="kv", secrets=("password",)),
        L2Tier(
            "bk", "S3", endpoint="{namespace}.s3.example", region="eu", tls=True, capacity_bytes=1 << 30, secrets=keys
        ),
        L2Tier("b2", "S3", endpoint="b.s3.example", region="eu", identity=IDENTITY),
        L2Tier("re", "Resp", endpoint="redis:6379", identity=IDENTITY),
    )


def test_only_the_cache_server_gets_secrets_and_only_by_reference(pod):
    found = {
        name: {
            entry["name"]: entry["valueFrom"]["secretKeyRef"]
            for entry in container["env"]
            if entry["name"].startswith("QCS_L2_")
        }
        for name, container in pod(STORES)["containers_by_name"].items()
    }
    assert found == {
        "probe": {},
        "engine": {},
        "cache-server": {
            "QCS_L2_BK_AWS_ACCESS_KEY_ID": {"name": "s2", "key": "id"},
            "QCS_L2_BK_AWS_SECRET_ACCESS_KEY": {"name": "s2", "key": "key", "optional": True},
            "QCS_L2_VK_PASSWORD": {"name": "s1", "key": "p"},
        },
    }
