"""The CustomResourceDefinition in a real API server: every rule both ways, the corpus, and what kubectl makes of it."""

import json
import re
from pathlib import Path

import pytest

from qwen_cached_serve.api.documents import load
from qwen_cached_serve.api.rules import RULES
from qwen_cached_serve.api.validate import InvalidResource, find_problems, parse
from tests.cluster.crd_support import CORPUS, MINIMAL, Judge, merged, resource

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def judge(cluster):
    return Judge(cluster.kubeconfig)


def header(text, name):
    found = re.search(rf"^# {name}: (.*)$", text, re.MULTILINE)
    return found.group(1) if found else None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_lets_through_what_it_should(judge, rule):
    for example in rule.accepts:
        document = resource(example)
        assert judge.verdict(document).accepted, (example, judge.verdict(document).text)
        assert find_problems(document) == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_refuses_what_it_should_at_the_same_field(judge, rule):
    for example in rule.rejects:
        document = resource(example)
        verdict, problems = judge.verdict(document), find_problems(document)
        assert not verdict.accepted, example
        assert {problem.field for problem in problems} == set(verdict.fields), example
        if rule.message_cel:
            # its words are put together in both places; where the API server cannot, it uses the general message
            assert problems[0].remedy in verdict.text or rule.message in verdict.text, example
        else:
            assert rule.message in verdict.text, example


@pytest.mark.parametrize("path", sorted(CORPUS.glob("accept/*.yaml")), ids=lambda path: path.stem)
def test_the_corpus_is_accepted(judge, path):
    verdict = judge.verdict(path.read_text())
    assert verdict.accepted, verdict.text
    (document,) = load(path.read_text())
    parse(document)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("reject/*.yaml")), ids=lambda path: path.stem)
def test_the_corpus_is_refused(judge, path):
    text = path.read_text()
    verdict = judge.verdict(text)
    assert not verdict.accepted
    assert (header(text, "server") or header(text, "message")) in verdict.text
    try:
        (document,) = load(text)
        problems = find_problems(document)
    except InvalidResource as error:
        problems = error.problems
    assert problems
    if verdict.fields:  # a field that does not exist, or is there twice, is told in the text only
        assert header(text, "field") in verdict.fields


def test_nothing_is_added_but_replicas(cluster, namespace):
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(resource({"engine": {"accelerator": {}}})))
    stored = json.loads(cluster.kubectl("get", "-n", namespace, "qcs", "case", "-o", "json").stdout)
    assert stored["spec"] == merged(MINIMAL, {"engine": {"accelerator": {}}, "replicas": 1})
    assert stored["status"] == {"observedGeneration": -1}
    assert parse(stored).spec == parse(resource({"engine": {"accelerator": {}}})).spec


def test_columns(cluster, namespace):
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(resource()))
    moment = "2026-01-01T00:00:00Z"
    status = {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Serving", "message": "m", "lastTransitionTime": moment},
            {
                "type": "CacheEffective",
                "status": "True",
                "reason": "Attached",
                "message": "m",
                "lastTransitionTime": moment,
            },
        ],
        "blockSize": {"probed": 784},
        "availableReplicas": 3,
        "updatedReplicas": 2,
        "url": "http://case.example",
        "revision": {"current": "abc"},
        "roll": {"to": "abc", "updated": 2, "total": 3, "reason": "WaitingForGPU"},
        "identities": [{"identity": "i1", "summary": "FLASH_ATTN/16", "gpu": "H100"}, {"identity": "i2"}],
        "aFieldOfTheFuture": 1,
    }
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", "-n", namespace, "qcs", "case", "--subresource=status", "--type=merge", "-p", patch)
    shown = cluster.kubectl("get", "-n", namespace, "qcs", "-o", "wide").stdout.splitlines()
    columns = "NAME READY REASON AVAILABLE DESIRED UPDATED N CACHE AGE MODEL REVISION ROLL IDENTITY GPU URL"
    assert " ".join(shown[0].split()) == columns
    row = shown[1].split()
    assert row[:8] == ["case", "True", "Serving", "3", "1", "2", "784", "Attached"]
    assert row[9:] == ["Qwen/Qwen3.5-0.8B", "abc", "WaitingForGPU", "FLASH_ATTN/16", "H100", "http://case.example"]
    narrow = cluster.kubectl("get", "-n", namespace, "qwencache").stdout.splitlines()[0]
    assert narrow.split()[-1] == "AGE"


def test_scale(cluster, namespace):
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(resource()))
    patch = json.dumps({"status": {"replicas": 1, "selector": "a=b"}})
    cluster.kubectl("patch", "-n", namespace, "qcs", "case", "--subresource=status", "--type=merge", "-p", patch)
    cluster.kubectl("scale", "-n", namespace, "qcs/case", "--replicas=3")
    path = f"/apis/qwencache.dev/v1alpha1/namespaces/{namespace}/qwencachedserves/case/scale"
    scale = json.loads(cluster.kubectl("get", "--raw", path).stdout)
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 1, "selector": "a=b"})


def test_two_managers_share_the_variables(cluster, namespace):
    for manager, name in (("gitops", "A"), ("person", "B")):
        document = resource({"engine": {"env": [{"name": name, "value": "1"}]}})
        document["spec"] = document["spec"] if manager == "gitops" else {"engine": document["spec"]["engine"]}
        cluster.kubectl(
            "apply",
            "--server-side",
            f"--field-manager={manager}",
            "-n",
            namespace,
            "-f",
            "-",
            stdin=json.dumps(document),
        )
    stored = json.loads(cluster.kubectl("get", "-n", namespace, "qcs", "case", "-o", "json").stdout)
    assert [variable["name"] for variable in stored["spec"]["engine"]["env"]] == ["A", "B"]


def test_kubectl_names_field_and_remedy(cluster, namespace):
    bad = resource({"engine": {"extraArgs": ["--max_num_batched_tokens=8192"]}})
    answer = cluster.kubectl(
        "apply", "--dry-run=server", "-n", namespace, "-f", "-", stdin=json.dumps(bad), check=False
    )
    assert answer.returncode != 0
    assert "spec.engine.extraArgs[0]" in answer.stderr
    assert "use spec.engine.vllm.maxNumBatchedTokens instead" in answer.stderr


def test_kubectl_explains_every_field(cluster):
    text = " ".join(cluster.kubectl("explain", "qcs.spec.engine.extraArgs").stdout.split())
    assert "Changing it restarts the pods." in text
    tree = cluster.kubectl("explain", "qcs.spec", "--recursive").stdout
    assert "maxNumBatchedTokens" in tree


def test_client_side_apply_takes_the_definition(cluster):
    (crd,) = (ROOT / "crds").glob("*.yaml")
    cluster.kubectl("apply", "--dry-run=server", "-f", str(crd))
