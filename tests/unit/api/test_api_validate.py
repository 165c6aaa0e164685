"""Clear words for what is wrong, and the cases of the collection that admission decides."""

import copy

import pytest

from qwen_cached_serve.api.problem import Problem
from qwen_cached_serve.api.rules import RULES
from qwen_cached_serve.api.v1alpha1 import API_VERSION, KIND, QwenCachedServe
from qwen_cached_serve.api.v1alpha1.model import ModelSpec
from qwen_cached_serve.api.validate import InvalidResource, find_problems, parse

MINIMAL = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "q"},
    "spec": {"model": {"name": "Qwen/Qwen3.6-27B"}, "cache": {"l1": {"size": "100Gi"}}},
}


def resource(**spec):
    document = copy.deepcopy(MINIMAL)
    document["spec"].update(spec)
    return document


def lines(document):
    return [str(problem) for problem in find_problems(document)]


def test_a_minimal_resource():
    parsed = parse(MINIMAL)
    assert parsed.spec.model.name == "Qwen/Qwen3.6-27B"
    assert parsed.spec.replicas == 1
    assert parsed.spec.engine is None
    assert parsed.metadata.name == "q"


def test_what_is_parsed_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        parse(MINIMAL).spec.replicas = 2


def test_python_names_are_for_python_only():
    assert ModelSpec(name="a", max_model_len=5).max_model_len == 5
    assert lines(resource(model={"name": "a", "max_model_len": 5})) == [
        "spec.model.max_model_len: there is no field max_model_len; write maxModelLen"
    ]


def test_a_live_object_is_taken_with_what_the_server_added():
    live = copy.deepcopy(MINIMAL)
    live["metadata"] |= {"uid": "u", "generation": 3, "resourceVersion": "7", "fieldOfAFutureRelease": 1}
    live["status"] = {"conditions": "written by another release"}
    parsed = parse(live)
    assert (parsed.metadata.uid, parsed.metadata.generation, parsed.status) == ("u", 3, None)


def test_a_status_of_another_release_can_be_read():
    status = {"observedGeneration": 2, "aNewField": 1, "blockSize": {"probed": 784, "another": 1}}
    read = QwenCachedServe.model_validate({**MINIMAL, "status": status}, strict=False).status
    assert read.block_size.probed == 784


def test_null_is_absent():
    assert parse(resource(engine=None, replicas=None)) == parse(MINIMAL)


@pytest.mark.parametrize("document", [None, [], "text", 7])
def test_what_is_no_resource(document):
    with pytest.raises(InvalidResource, match="this is not a resource"):
        parse(document)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"kind": "Deployment"},
            (
                "kind: this is qwencache.dev/v1alpha1 Deployment, not a QwenCachedServe; "
                "write apiVersion: qwencache.dev/v1alpha1 and kind: QwenCachedServe"
            ),
        ),
        ({"spec": None}, "spec: spec is required; add it"),
        ({"metadata": {}}, "metadata.name: a name is required; add metadata.name"),
        (
            {"foo": 1},
            "foo: there is no field foo; remove it; the resource takes apiVersion, kind, metadata, spec, status",
        ),
    ],
)
def test_the_envelope(change, line):
    assert line in lines({**MINIMAL, **change})


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"replicas": "2"}, "spec.replicas: this has to be an integer, not a string; write it without quotes"),
        ({"replicas": 1.5}, "spec.replicas: this has to be an integer, not a fraction; write an integer"),
        ({"replicas": -1}, "spec.replicas: -1 is out of bounds; write a number not below 0"),
        ({"replicas": True}, "spec.replicas: this has to be an integer, not a boolean; write an integer"),
        ({"lifecycle": "Off"}, "spec.lifecycle: 'Off' is not one of its values; write one of Running, Paused, Stopped"),
        ({"engine": []}, "spec.engine: this has to be an object, not a list; write an object"),
        ({"engine": {"env": {}}}, "spec.engine.env: this has to be a list, not an object; write a list"),
        (
            {"engine": {"env": [{"name": "A", "value": 1}]}},
            "spec.engine.env[0].value: this has to be a string, not an integer; put it into quotes",
        ),
        ({"engine": {"env": [{}]}}, "spec.engine.env[0].name: name is required; add it"),
        (
            {"engine": {"env": [{"name": ""}]}},
            "spec.engine.env[0].name: this has to have at least 1 character; correct it",
        ),
        (
            {"engine": {"env": [{"name": "1 A"}]}},
            (
                "spec.engine.env[0].name: '1 A' has characters or a form that is not allowed; "
                "write what matches ^[-._a-zA-Z][-._a-zA-Z0-9]*$"
            ),
        ),
        (
            {"pod": {"nodeSelector": {"a": 1}}},
            "spec.pod.nodeSelector[a]: this has to be a string, not an integer; put it into quotes",
        ),
        (
            {"cache": {"l1": {"size": ["1"]}}},
            "spec.cache.l1.size: ['1'] is neither an integer nor a short string; write a number or a quantity",
        ),
        ({"engine": {"gpu": 1}}, "spec.engine.gpu: there is no field gpu; move it to spec.engine.accelerator.gpu"),
        ({"engine": {"imag": "x"}}, "spec.engine.imag: there is no field imag; write image"),
        (
            {"service": {"zzz": 1}},
            "spec.service.zzz: there is no field zzz; remove it; spec.service takes type, port, annotations",
        ),
    ],
)
def test_words(spec, line):
    assert lines(resource(**spec)) == [line]


def test_every_problem_is_told_at_once():
    problems = find_problems(resource(replicas="2", lifecycle="x", engine={"image": 5}))
    assert [problem.field for problem in problems] == ["spec.lifecycle", "spec.replicas", "spec.engine.image"]


def test_one_value_is_not_called_wrong_twice():
    problems = find_problems(resource(cache={"l1": {"size": 1.5}}))
    assert len(problems) == 1


def refusals(**spec):
    return {problem.field: f"{problem.message}; {problem.remedy}" for problem in find_problems(resource(**spec))}


@pytest.mark.case("B12")
def test_tensor_parallel_size_beyond_the_gpus():
    bad = {"accelerator": {"gpu": {"count": 1}}, "vllm": {"tensorParallelSize": 2}}
    assert set(refusals(engine=bad)) == {"spec.engine.vllm.tensorParallelSize"}
    assert not refusals(engine={"accelerator": {"gpu": {"count": 2}}, "vllm": {"tensorParallelSize": 2}})


@pytest.mark.case("B15", "B16", "B17", "B18", "B19")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-num-batched-tokens=8192"],
        ["--max_num_batched_tokens", "8192"],
        ["--max_num-batched_tokens=8192"],
        ["--no_enable_prefix_caching"],
        ["--no-enable-prefix-caching"],
        ["--block-size", "128"],
        ["--block_size=816"],
        ["--mamba-cache-mode", "all"],
        ["--mamba-cache-mode=none"],
        ["--disable-hybrid-kv-cache-manager"],
        ["--kv-transfer-config", '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'],
    ],
)
def test_derived_flags_are_refused_in_every_spelling(arguments):
    found = refusals(engine={"extraArgs": ["--seed=1", *arguments]})
    assert set(found) == {"spec.engine.extraArgs[1]"}
    assert arguments[0].split("=")[0] in found["spec.engine.extraArgs[1]"]


@pytest.mark.case("B16")
def test_another_case_is_another_flag():
    assert not refusals(engine={"extraArgs": ["--Max-Num-Batched-Tokens", "1"]})


@pytest.mark.case("B20", "B48")
def test_a_model_path_with_quotes_is_taken_literally():
    source = {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "m"}}
    name = 'org/it\'s a $HOME "test"'
    assert parse(resource(model={"name": name, "source": source})).spec.model.name == name
    assert "not an id of the Hugging Face Hub" in refusals(model={"name": name})["spec.model.name"]
    assert "not an id of the Hugging Face Hub" in refusals(model={"name": "/mnt/models/weights v2"})["spec.model.name"]


@pytest.mark.case("B21")
def test_a_variable_without_effect_is_no_error():
    assert not refusals(engine={"env": [{"name": "VLLM_ATTENTION_BACKEND", "value": "TRITON_ATTN"}]})


@pytest.mark.case("B40")
@pytest.mark.parametrize(
    ("l1", "needed"), [("1Gi", 3072), ("60Gi", 63488), ("64Gi", 67584), ("100Gi", 104448), ("100G", 97416)]
)
def test_a_memory_limit_below_l1_is_refused_with_the_figure(l1, needed):
    cache = {"l1": {"size": l1}, "resources": {"limits": {"memory": l1}}}
    assert f"needs: {needed}Mi (L1 plus 2Gi)" in refusals(cache=cache)["spec.cache.resources.limits"]
    cache["resources"]["limits"]["memory"] = f"{needed}Mi"
    assert not refusals(cache=cache)
    cache["resources"]["limits"]["memory"] = f"{needed - 1}Mi"
    assert refusals(cache=cache)


@pytest.mark.case("B42")
@pytest.mark.parametrize("name", ["nvidia.com/mig-3g.40gb", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915"])
def test_other_gpu_resources(name):
    assert not refusals(engine={"accelerator": {"gpu": {"resourceName": name, "count": 1}}})


@pytest.mark.case("B42")
def test_slices_in_tensor_parallel():
    gpu = {"resourceName": "nvidia.com/mig-1g.10gb", "count": 2}
    engine = {"accelerator": {"gpu": gpu}, "vllm": {"tensorParallelSize": 2}}
    assert set(refusals(engine=engine)) == {"spec.engine.accelerator.gpu.resourceName"}


@pytest.mark.case("B46", "B47")
@pytest.mark.parametrize(
    ("name", "valid"),
    [("qwen3.6-27b", True), ("3qwen", True), ("q" * 63, True), ("q" * 64, True), ("q" * 253, True), ("q" * 254, False),
     ("Qwen", False), ("q_w", False), ("-q", False), ("q..w", False)],
)  # fmt: skip
def test_names(name, valid):
    document = {**MINIMAL, "metadata": {"name": name}}
    assert (find_problems(document) == ()) == valid


def test_what_is_not_implemented_names_a_way_out():
    refused = [rule for rule in RULES if "not implemented yet" in rule.problem]
    assert len(refused) == 4
    for rule in refused:
        for example in rule.rejects:
            assert any("not implemented yet" in line for line in refusals(**example).values())


def test_a_problem_names_its_field_once():
    """Rules name the field themselves, since the API server tells the path of the rule, which may be above it."""
    assert str(Problem("spec.engine.type", "engine.type: SGLang is not there", "set vLLM")) == (
        "spec.engine.type: SGLang is not there; set vLLM"
    )
    assert str(Problem("spec.engine", "engine.type: SGLang is not there", "set vLLM")) == (
        "spec.engine: engine.type: SGLang is not there; set vLLM"
    )
    assert str(Problem("", "no document", "give one")) == "no document; give one"
