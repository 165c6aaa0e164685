"""The API server's own judgement of resources: server-side dry-run of YAML as a user wrote it, strict, no webhook."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path

from kubernetes import config

from qwen_cached_serve.api.documents import load
from qwen_cached_serve.api.rules import RULES
from qwen_cached_serve.api.schema import resource_schema
from qwen_cached_serve.api.v1alpha1 import API_VERSION, KIND

RESOURCES = "/apis/qwencache.dev/v1alpha1/namespaces/default/qwencachedserves"
CORPUS = Path(__file__).parents[1] / "corpus"
MINIMAL = {"model": {"name": "Qwen/Qwen3.5-0.8B"}, "cache": {"l1": {"size": "10Gi"}}}

VALUES = [
    None, 0, 1, -1, 2, 2**31, 2**63, 10**6, 1.5, True, False, "", "a", "A b", "é" * 3, "x" * 300, "x" * 5000, "\n",
    "1", "0", "100Gi", "-1Gi", "1.5Gi", "1e3", "500m", "10%", "/x", "/opt/qcs", "../x", "a/b", "qcs-x",
    "nvidia.com/gpu", "kubernetes.io/x", "Enabled", "Disabled", "Fixed", "GPU", "CPU", "--seed", "--max-model-len=1",
    "a..b", "-a", "a/../b", "foo", "/tmp", "a b", "In", "Exists", "Gt", "Localhost", "ScheduleAnyway", "hugepages-2Mi",
    [], {}, ["a"], {"a": "b"}, [{}], [None], {"name": "x"}, [{"name": "x"}],
    ["b", "c"], {"foo": 1}, {"rdma/hca": "1"},
]  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    accepted: bool
    fields: tuple
    text: str


class Judge:
    """Sends raw bodies, which the client library's models would not let through."""

    def __init__(self, kubeconfig):
        self._client = config.new_client_from_config(kubeconfig)

    def verdict(self, body, path=RESOURCES):
        """What the API server says to an object, YAML text or JSON data, by default to one of our resources."""
        text = body if isinstance(body, str) else json.dumps(body)
        kind = "application/yaml" if isinstance(body, str) else "application/json"
        answer = self._send("POST", f"{path}?dryRun=All&fieldValidation=Strict", text, kind)
        status = json.loads(answer.data)
        if answer.status < 300:
            return Verdict(True, (), "")
        assert answer.status in {400, 422}, status
        causes = status.get("details", {}).get("causes", [])
        return Verdict(False, tuple(cause.get("field", "") for cause in causes), status["message"])

    def _send(self, method, path, body, content_type):
        configuration = self._client.configuration
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        token = configuration.get_api_key_with_prefix("authorization") or configuration.get_api_key_with_prefix(
            "BearerToken"
        )
        if token:
            headers["Authorization"] = token
        return self._client.rest_client.pool_manager.request(
            method, configuration.host + path, body=body, headers=headers
        )


def accepted_resources():
    """The resources of the corpus that are right."""
    return [load(path.read_text())[0] for path in sorted(CORPUS.glob("accept/*.yaml"))]


def resource(spec=None, name="case"):
    """A minimal resource with a fragment of a spec merged over it."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": merged(MINIMAL, spec or {})}


def paths(node, path=()):
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from paths(value, (*path, key))


def at(node, path):
    for key in path:
        node = node[key]
    return node


def schema_at(path):
    node = resource_schema()["properties"]["spec"]
    for key in path:
        inner = node.get("items") if isinstance(key, int) else node.get("properties", {}).get(key)
        node = inner or node.get("additionalProperties") or {}
    return node


def merged(base, change):
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return copy.deepcopy(change)
    return {key: merged(base.get(key), change[key]) if key in change else base[key] for key in {**base, **change}}


def changed(resources, draw):
    """One of the resources with one to three small changes."""
    document = copy.deepcopy(draw.choice(resources))
    for _ in range(draw.choice([1, 1, 2, 3])):
        change(document["spec"], draw)
    return document


def change(spec, draw):
    """One small change somewhere below the spec, in place."""
    rule = draw.choice(RULES)
    spots = list(paths(spec))
    if not spots or draw.random() < 0.1:
        spec.update(merged(spec, draw.choice(rule.rejects + rule.accepts)))
        return
    path = draw.choice(spots)
    parent, node, schema = at(spec, path[:-1]), at(spec, path), schema_at(path)
    kind = draw.random()
    if kind < 0.2:
        del parent[path[-1]]
    elif kind < 0.3 and isinstance(parent, list):
        parent.append(copy.deepcopy(node))
    elif kind < 0.5 and isinstance(node, dict) and schema.get("properties"):
        node[draw.choice(list(schema["properties"]))] = copy.deepcopy(draw.choice(VALUES))
    elif kind < 0.7 and schema.get("enum"):
        parent[path[-1]] = draw.choice(schema["enum"])
    else:
        parent[path[-1]] = copy.deepcopy(draw.choice(VALUES))
