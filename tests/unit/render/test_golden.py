"""Whole manifests, compared with files that a person reads in review; `--update-golden` writes them anew.

The pod's scripts have golden sizes of their own making: they are replaced by one short file here, so that a change of a
script does not touch these files.
"""

import json
from pathlib import Path

import kubernetes_validate
import pytest

from qwen_cached_serve.api.v1alpha1 import QwenCachedServe
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.render import render_children
from qwen_cached_serve.render.yaml_text import dump_all, load_all, load_one

CASES = sorted(path.parent for path in (Path(__file__).parents[2] / "golden").glob("*/in.yaml"))
SCRIPTS = {"__main__.py": "# the pod's scripts\n"}


def rendered(path):
    serve = QwenCachedServe.model_validate_json(json.dumps(load_one(path.read_text())))
    return render_children(children(resolve(serve, OperatorDefaults()), SCRIPTS))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_golden(case, update_golden):
    manifests = rendered(case / "in.yaml")
    expected = case / "out.yaml"
    if update_golden:
        expected.write_text(dump_all(manifests))
    assert load_all(expected.read_text()) == manifests


def test_texts_of_any_length_come_through_as_they_are():
    texts = {f"file-{length}": ('é\n\t"{{ x }}' * length)[:length] for length in (0, 1, 1023, 1024, 1025, 70_000)}
    serve = QwenCachedServe.model_validate_json(json.dumps(load_one((CASES[0] / "in.yaml").read_text())))
    made = children(resolve(serve, OperatorDefaults()), texts)
    config_map = render_children(made)[0]
    assert config_map["data"] == dict(made.config_map.data)
    assert set(texts.values()) <= set(config_map["data"].values())
    assert list(config_map["data"]) == list(made.config_map.data)


@pytest.mark.parametrize("version", ["1.34", "1.37"])
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_kubernetes_schemas_take_the_manifests(case, version):
    for manifest in rendered(case / "in.yaml"):
        if manifest["kind"] == "PodMonitor":
            continue  # not Kubernetes' own: applied strictly to its real definition in tests/cluster
        kubernetes_validate.validate(manifest, version, strict=True)
