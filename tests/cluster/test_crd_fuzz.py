"""Small changes to accepted resources: `validate`, the API server and what the operator makes of them never disagree.

The changes are drawn from fixed seeds, so a failure repeats. QCS_FUZZ=20000 looks longer.
"""

import json
import os
import random

import pytest

from qwen_cached_serve.api.rules import RULES
from qwen_cached_serve.api.validate import find_problems, parse
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.render.manifests import render_children
from tests.cluster.crd_support import Judge, accepted_resources, changed, resource

CHANGES = int(os.environ.get("QCS_FUZZ", "400"))
PATHS = {  # the children that a spec shapes
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "Service": "/api/v1/namespaces/default/services",
}


@pytest.mark.parametrize("seed", range(4))
def test_validate_and_the_api_server_agree(cluster, seed):
    judge, draw, resources = Judge(cluster.kubeconfig), random.Random(seed), accepted_resources()
    accepted = 0
    for _ in range(CHANGES // 4):
        document = changed(resources, draw)
        verdict, problems = judge.verdict(document), find_problems(document)
        accepted += verdict.accepted
        assert verdict.accepted == (problems == ()), (json.dumps(document), verdict.text, problems)
        # where the API server stops early it says so by a cause without a field
        if problems and verdict.fields and "<nil>" not in verdict.fields:
            assert {problem.field for problem in problems} == {field.lstrip(".") for field in verdict.fields}
    assert 0 < accepted < CHANGES // 4


def test_children_of_an_accepted_resource_are_accepted(cluster):
    judge, draw, resources = Judge(cluster.kubeconfig), random.Random(0), accepted_resources()
    examples = {json.dumps(example): resource(example) for rule in RULES for example in rule.accepts}
    documents = [*resources, *examples.values()]
    drawn = [changed(resources, draw) for _ in range(CHANGES // 2)]
    documents += [document for document in drawn if find_problems(document) == ()]
    assert len(documents) > len(examples) + len(resources)
    scripts = bundle.files()
    for document in documents:
        metadata = document["metadata"] | {"namespace": "default", "uid": "0" * 8, "generation": 1}
        resolved = resolve(parse(document | {"metadata": metadata}), OperatorDefaults())
        for manifest in (made for made in render_children(children(resolved, scripts)) if made["kind"] in PATHS):
            verdict = judge.verdict(manifest, PATHS[manifest["kind"]])
            assert verdict.accepted, (json.dumps(document), manifest["kind"], verdict.text)
