"""What a designer refuses besides what parsing and resolving do."""

import pytest
import yaml

from qwen_cached_serve.control import desired as module
from qwen_cached_serve.control.desired import Designer, SpecRefused
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.render.manifests import RenderError
from tests.unit.control.fake_api import serve

N = 784


def fixed(value, **vllm):
    return {"vllm": {"maxNumBatchedTokens": {"policy": "Fixed", "value": value}} | vllm}


def probed(resource, accepted_generation=1, **spec):
    """The resource as if pods of that spec had been probed."""
    accepted = {"type": "SpecAccepted", "status": "True"}
    block = {"probed": N, "probedWith": Designer(OperatorDefaults()).desired(serve(**spec)).probed_with}
    status = {"blockSize": block, "observedGeneration": accepted_generation, "conditions": [accepted]}
    return resource | {"status": status}


@pytest.fixture
def designer():
    return Designer(OperatorDefaults())


@pytest.mark.parametrize(("value", "lmcache"), [(N - 1, None), (N - 1, "0.5.6"), (2 * N, "0.5.3")])
@pytest.mark.parametrize("before", [{}, {"engine": fixed(N)}, {"replicas": 3, "lifecycle": "Paused"}], ids=str)
def test_tokens_outside_the_probed_range_are_refused(designer, value, lmcache, before):
    changed = probed(serve(generation=2, engine=fixed(value)), **before)
    changed["status"] |= {"resolved": {"lmcache": lmcache}} if lmcache else {}
    with pytest.raises(SpecRefused) as refused:
        designer.desired(changed)
    [problem] = refused.value.problems
    assert problem.startswith("spec.engine.vllm.maxNumBatchedTokens: ")
    assert f"Choose a value from {N} to {2 * N - 1}" in problem


@pytest.mark.parametrize(("value", "lmcache"), [(N, None), (2 * N - 1, "0.5.3"), (2 * N, None), (8192, "0.5.6")])
def test_tokens_that_the_release_takes_are_taken(designer, value, lmcache):
    designer.desired(serve())
    changed = probed(serve(generation=2, engine=fixed(value)))
    changed["status"] |= {"resolved": {"lmcache": lmcache}} if lmcache else {}
    assert designer.desired(changed).resolved.generation == 2


def test_nothing_is_refused_before_a_probe(designer):
    designer.desired(serve())
    assert designer.desired(serve(generation=2, engine=fixed(5000)))


def test_nothing_is_refused_without_the_cache(designer):
    assert designer.desired(probed(serve(generation=2, cache={"mode": "Disabled"}, engine=fixed(5000))))


OTHER_SETTINGS = pytest.mark.parametrize(
    "change",
    [
        {"engine": fixed(5000, kvCacheDtype="fp8")},
        {"engine": fixed(5000) | {"image": "example.test/vllm:v0.32.0"}},
        {"engine": fixed(5000) | {"env": [{"name": "VLLM_X", "value": "1"}]}},
        {"engine": fixed(5000) | {"accelerator": {"type": "GPU", "gpu": {"count": 2}}}},
        {"engine": fixed(5000), "pod": {"nodeSelector": {"gpu": "other"}}},
    ],
    ids=["dtype", "image", "env", "gpus", "node"],
)


@OTHER_SETTINGS
def test_an_edit_that_may_change_the_size_is_left_to_the_probe(designer, change):
    designer.desired(serve())
    assert designer.desired(probed(serve(generation=2, **change)))


@OTHER_SETTINGS
def test_what_was_left_to_the_probe_is_not_refused_by_the_next_edit(designer, change):
    """A roll goes on or an edit waits: N is still that of the pods before it."""
    assert designer.desired(probed(serve(generation=3, replicas=2, **change), accepted_generation=2))


def test_an_n_of_unknown_settings_says_nothing(designer):
    """A status that an older release wrote."""
    changed = probed(serve(generation=2, engine=fixed(5000)))
    del changed["status"]["blockSize"]["probedWith"]
    assert designer.desired(changed)


def test_what_was_accepted_stays_accepted_after_a_restart(designer):
    assert designer.desired(probed(serve(generation=2, engine=fixed(5000)), accepted_generation=2))


@pytest.mark.parametrize("error", [RenderError("deployment.yaml.j2: spec.x: bad"), yaml.YAMLError("spec.x: bad")])
def test_what_cannot_be_rendered_is_a_refusal(designer, monkeypatch, error):
    def fail(_children):
        raise error

    monkeypatch.setattr(module, "render_children", fail)
    with pytest.raises(SpecRefused, match=r"spec: .*spec\.x: bad"):
        designer.desired(serve())
