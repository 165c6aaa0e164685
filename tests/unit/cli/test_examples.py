"""What examples/ shows is what the product accepts."""

from pathlib import Path

import pytest

from qwen_cached_serve.api import documents
from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.render import render_children

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_accepted_and_can_be_rendered(path):
    resources = [doc for doc in documents.load(path.read_text()) if doc["kind"] == "QwenCachedServe"]
    assert resources
    for resource in resources:
        resolved = resolve(parse(resource), OperatorDefaults())
        kinds = {manifest["kind"] for manifest in render_children(children(resolved, bundle.files()))}
        assert {"ConfigMap", "Service", "Deployment"} <= kinds
