"""The CustomResourceDefinition: what is checked in is what is generated, and it is one that people can work with."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from kubernetes.client import V1CustomResourceDefinition

from qwen_cached_serve.api.crd import FILE_NAME, SIZE_LIMIT_BYTES, build_crd, build_schema, size_bytes, to_yaml
from qwen_cached_serve.api.documents import load
from qwen_cached_serve.api.schema import MIXED, NO, YES
from qwen_cached_serve.api.structural import check
from qwen_cached_serve.api.v1alpha1.operations import LIFECYCLE, UPGRADE

CHECKED_IN = Path(__file__).parents[3] / "crds" / FILE_NAME


def fields(node, path=""):
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}".lstrip("."), child
        yield from fields(child, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(node.get(key), dict):
            yield from fields(node[key], path + mark)


FIELDS = dict(fields(build_schema()))


def test_what_is_checked_in_is_what_is_generated():
    assert CHECKED_IN.read_text() == to_yaml(build_crd()), "run make crds"


def test_it_fits_into_the_annotation_of_client_side_apply():
    assert size_bytes(build_crd()) < SIZE_LIMIT_BYTES


def test_its_schema_is_structural():
    assert check(build_schema()) == []


def test_the_client_library_knows_every_field_of_it():
    V1CustomResourceDefinition.model_validate(copy.deepcopy(build_crd()))


def test_yaml_1_1_reads_what_was_written():
    (document,) = load(to_yaml(build_crd()))
    assert document == json.loads(json.dumps(build_crd()))
    assert yaml.safe_load(to_yaml(build_crd())) == document


def test_every_description_says_what_a_change_does():
    for path in (path for path in FIELDS if path.startswith("spec")):
        description = FIELDS[path]["description"]
        ending = next(
            (end for end in (YES, NO, MIXED, LIFECYCLE.sentence, UPGRADE.sentence) if description.endswith(end)), None
        )
        assert ending, path
        assert len(description.removesuffix(ending).split()) >= 4, path
        assert "  " not in description, path


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("spec.replicas", NO),
        ("spec.lifecycle", LIFECYCLE.sentence),
        ("spec.rollout.onOperatorUpgrade", UPGRADE.sentence),
        ("spec.service.port", NO),
        ("spec.rollout", NO),
        ("spec.cache.onUnavailable", NO),
        ("spec.cache", MIXED),
        ("spec.cache.l1.size", YES),
        ("spec.engine.extraArgs", YES),
        ("spec.pod", YES),
        ("spec.blockSizeProbe.timeoutSeconds", YES),
    ],
)
def test_what_restarts_the_pods(path, sentence):
    assert FIELDS[path]["description"].endswith(sentence)


def test_only_replicas_are_locked_at_creation():
    locked = {path for path, node in FIELDS.items() if "default" in node}
    assert {path for path in locked if path.startswith("spec")} == {"spec.replicas"}


def test_a_resource_that_nobody_has_looked_at_says_so():
    assert FIELDS["status"]["default"] == {}
    assert FIELDS["status.observedGeneration"]["default"] == -1


def test_defaults_of_the_operator_are_told():
    assert "Default: 3600." in FIELDS["spec.engine.startupTimeoutSeconds"]["description"]
    assert "Default: TwoBlocksMinusOne." in FIELDS["spec.engine.vllm.maxNumBatchedTokens.policy"]["description"]


def test_lists_are_keyed_where_entries_have_names():
    keyed = {
        path: node["x-kubernetes-list-map-keys"]
        for path, node in FIELDS.items()
        if "x-kubernetes-list-map-keys" in node
    }
    assert keyed == {
        "spec.engine.env": ["name"],
        "spec.cache.env": ["name"],
        "spec.cache.l2": ["name"],
        "spec.pod.imagePullSecrets": ["name"],
        "spec.pod.securityContext.sysctls": ["name"],
        "spec.pod.topologySpreadConstraints": ["topologyKey", "whenUnsatisfiable"],
        "spec.pod.volumes": ["name"],
        "spec.pod.volumeMounts": ["mountPath"],
        "status.conditions": ["type"],
        "status.evictions": ["uid"],
        "status.identities": ["identity"],
        "status.pods": ["name"],
        "status.tuning": ["name"],
    }


def test_columns_read_fields_that_exist():
    version = build_crd()["spec"]["versions"][0]
    names = [column["name"] for column in version["additionalPrinterColumns"]]
    assert (
        " ".join(names).upper() == "READY REASON AVAILABLE DESIRED UPDATED N CACHE AGE MODEL REVISION ROLL "
        "IDENTITY GPU URL"
    )
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"].lstrip(".")
        if path.startswith("metadata"):
            continue
        steps = path.split("[")[0], path.rpartition("].")[2] if "[" in path else ""
        assert ("[].".join(steps) if steps[1] else steps[0]) in FIELDS
    for path in version["subresources"]["scale"].values():
        assert path.lstrip(".") in FIELDS
