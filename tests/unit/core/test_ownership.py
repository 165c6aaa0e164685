"""Managed fields as the API server writes them."""

import json

from qwen_cached_serve.core.ownership import fields_of, foreign_fields, owned, states

TEMPLATE = {
    "metadata": {"labels": {"a": "1"}, "annotations": {"ours": "1", "kubectl.kubernetes.io/restartedAt": "now"}},
    "spec": {
        "dnsPolicy": "ClusterFirst",  # the API server's default
        "nodeSelector": {"gpu": "h100"},
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "theirs", "emptyDir": {}}],
        "containers": [
            {
                "name": "engine",
                "image": "vllm",
                "terminationMessagePath": "/dev/x",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                "command": ["python3", "/opt/qcs"],
            }
        ],
    },
}
OURS = {
    "f:metadata": {"f:labels": {"f:a": {}}, "f:annotations": {"f:ours": {}}},
    "f:spec": {
        "f:nodeSelector": {},
        "f:volumes": {'k:{"name":"tmp"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
        "f:containers": {
            'k:{"name":"engine"}': {
                ".": {},
                "f:name": {},
                "f:image": {},
                "f:command": {},
                "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                "f:ports": {
                    'k:{"containerPort":8000,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:containerPort": {}}
                },
            }
        },
    },
}
THEIRS = {
    "f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}}},
    "f:spec": {
        "f:containers": {
            'k:{"name":"engine"}': {"f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}}, "f:image": {}}
        },
    },
}


def live():
    def entry(manager, fields, operation, subresource=""):
        inside = {"f:spec": {"f:template": fields}}
        made = {"manager": manager, "operation": operation, "fieldsV1": inside}
        return made | ({"subresource": subresource} if subresource else {})

    return {
        "metadata": {
            "managedFields": [
                entry("qwen-cached-serve", OURS, "Apply"),
                entry("kubectl-edit", THEIRS, "Update"),
                entry("kube-controller-manager", {"f:spec": {"f:x": {}}}, "Update", "status"),
            ]
        },
        "spec": {"template": TEMPLATE},
    }


def test_only_what_the_manager_stated_is_taken():
    taken = owned(live(), fields_of(live(), "qwen-cached-serve"))
    assert taken["spec"]["template"] == {
        "metadata": {"labels": {"a": "1"}, "annotations": {"ours": "1"}},
        "spec": {
            "nodeSelector": {"gpu": "h100"},
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "containers": [
                {
                    "name": "engine",
                    "image": "vllm",
                    "env": [{"name": "A", "value": "1"}],
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "command": ["python3", "/opt/qcs"],
                }
            ],
        },
    }


def test_items_of_a_set_and_empty_containers():
    fields = {"f:finalizers": {".": {}, 'v:"a"': {}}, "f:labels": {".": {}}}
    assert owned({"finalizers": ["a", "b"], "labels": {"x": "1"}}, fields) == {"finalizers": ["a"], "labels": {}}


def test_what_is_merged_as_a_whole_is_spelled_as_it_was_rendered():
    fields = {"f:fieldRef": {}}
    live_value = {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}
    rendered = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert owned(live_value, fields, rendered) == rendered
    assert owned(live_value, fields, {"fieldRef": {"fieldPath": "metadata.name"}}) == live_value
    assert owned(live_value, fields) == live_value


def test_whether_a_rendering_states_every_field():
    ours = {"spec": {"template": TEMPLATE}}
    fields = {"f:spec": {"f:template": OURS}}
    assert states(ours, fields)
    without = json.loads(json.dumps(ours))
    del without["spec"]["template"]["spec"]["containers"][0]["env"][0]
    assert not states(without, fields)
    assert not states({"spec": {}}, fields)
    assert states({"finalizers": ["a"]}, {"f:finalizers": {".": {}, 'v:"a"': {}}})
    assert not states({"finalizers": []}, {"f:finalizers": {".": {}, 'v:"a"': {}}})


def test_others_fields_are_named_with_their_manager():
    assert foreign_fields(live(), "qwen-cached-serve", ("spec", "template")) == [
        ("kubectl-edit", "spec.template.metadata.annotations.kubectl.kubernetes.io/restartedAt"),
        ("kubectl-edit", "spec.template.spec.containers[engine].env[B].name"),
        ("kubectl-edit", "spec.template.spec.containers[engine].env[B].value"),
    ]


def test_an_object_nobody_applied_has_no_fields_of_ours():
    assert fields_of({"metadata": {}}, "qwen-cached-serve") == {}
    assert foreign_fields(json.loads('{"metadata": {}}'), "qwen-cached-serve", ("spec",)) == []
