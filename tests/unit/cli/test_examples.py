"""What examples/ shows is what the product accepts; tests/cluster/test_examples.py asks the API server."""

import re
from pathlib import Path

import pytest
import yaml

from qwen_cached_serve.api import documents
from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.render import render_children

FOLDER = Path(__file__).parents[3] / "examples"
AUTOSCALING = sorted((FOLDER / "autoscaling").glob("*.yaml"))
EXAMPLES = [*sorted(FOLDER.glob("*.yaml")), *AUTOSCALING, *sorted((FOLDER / "gitops" / "models").glob("qwen*.yaml"))]
METRICS = Path(__file__).parents[1] / "chart" / "fixtures" / "engine-metrics-0.32.0.txt"


def test_at_least_ten_situations_are_shown():
    assert len(sorted(FOLDER.glob("*.yaml"))) >= 10


def test_autoscalers_own_the_replicas_and_ask_for_metrics_that_the_engine_has():
    recorded = set(re.findall(r"^# TYPE (\S+)", METRICS.read_text(), re.MULTILINE))
    for path in AUTOSCALING:
        text = path.read_text()
        asked = set(re.findall(r"\bvllm:\w+", text))
        assert asked, path
        assert asked <= recorded
        model, scaler = yaml.safe_load_all(text)
        assert "replicas" not in model["spec"], "git and the autoscaler would take the number from each other"
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"], target["name"]) == (
            model["apiVersion"],
            model["kind"],
            model["metadata"]["name"],
        )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_accepted_and_can_be_rendered(path):
    resources = [doc for doc in documents.load(path.read_text()) if doc["kind"] == "QwenCachedServe"]
    assert resources
    for resource in resources:
        resolved = resolve(parse(resource), OperatorDefaults())
        kinds = {manifest["kind"] for manifest in render_children(children(resolved, bundle.files()))}
        assert {"ConfigMap", "Service", "Deployment"} <= kinds
