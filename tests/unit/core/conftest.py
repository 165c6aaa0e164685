import copy

import pytest
from hypothesis import settings

from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.render import render_children

# A busy machine is no failure.
settings.register_profile("calm", deadline=None)
settings.load_profile("calm")

UID = "8b8b2d3e-7f4c-4d36-8a08-0a3c9e6ff001"


def merged(base, change):
    result = copy.deepcopy(base)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def document(spec=None, **metadata):
    base = {"model": {"name": "Qwen/Qwen3.6-27B"}, "cache": {"l1": {"size": "40Gi"}}}
    meta = {"name": "q36", "namespace": "team-a", "uid": UID, "generation": 1} | metadata
    return {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": meta,
        "spec": merged(base, spec or {}),
    }


@pytest.fixture
def resource():
    """A resource as a dict: the base case of the reported faults with a change merged into its spec."""
    return document


@pytest.fixture
def resolved():
    """A resource of the base case, resolved."""
    return lambda spec=None, **metadata: resolve(parse(document(spec, **metadata)), OperatorDefaults())


@pytest.fixture
def manifests(resolved):
    """All manifests of a resource by kind, with the real scripts."""

    def make(spec=None, **metadata):
        made = render_children(children(resolved(spec, **metadata), bundle.files()))
        return {manifest["kind"]: manifest for manifest in made}

    return make


@pytest.fixture
def pod(manifests):
    """The pod template's spec of a resource, containers by name under `containers_by_name`."""

    def make(spec=None, **metadata):
        pod_spec = copy.deepcopy(manifests(spec, **metadata)["Deployment"]["spec"]["template"]["spec"])
        everyone = [*pod_spec["initContainers"], *pod_spec["containers"]]
        pod_spec["containers_by_name"] = {container["name"]: container for container in everyone}
        return pod_spec

    return make
