"""Comparing two engines: the cases B07 to B14, reports, messages and resources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.compatibility import Side, compare, message_components, of_message, of_report
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.plan import Environment, plan_resource
from qwen_cached_serve.core.predicted_identity import of_resource
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod.facts import Gpu, ProbeReport, Versions
from qwen_cached_serve.inpod.flags import cache_server_flags, engine_flags
from qwen_cached_serve.inpod.identity import with_identity
from qwen_cached_serve.inpod.message import compact

HOPPER = Gpu("NVIDIA H100 80GB HBM3", "GPU-1", "9.0", "580.1", 80 << 30)
ADA = Gpu("NVIDIA L40S", "GPU-2", "8.9", "580.1", 48 << 30)
BUILDS = {"vllm": "a" * 16, "lmcache": "b" * 16, "torch": "c" * 16, "flashinfer": "d" * 16}
PINNED = "registry.invalid/engine@sha256:" + "0" * 64


@pytest.fixture
def probed(resolved):
    """A report of a resource's pod, as its probe would make it."""

    def make(
        spec=None, *, n=784, backend="FLASH_ATTN", kernel=16, builds=None, checkpoint="commit " + "e" * 40, **more
    ):
        made = resolved(spec)
        environ = {variable.name: variable.value or "" for variable in made.engine_env}
        report = ProbeReport(
            block_size=n,
            kernel_block_size=kernel,
            attention_backends=(backend,),
            method="Construct",
            **{
                "versions": Versions("0.32.0", "0.5.6", "2.13.0"),
                "gpus": (HOPPER,),
                "kv_cache_dtype": made.settings.engine.kv_cache_dtype or "auto",
                "mamba_ssm_cache_dtype": "float32",
                "mamba_cache_mode": "align",
                **more,
            },
        )
        return with_identity(made.settings, report, environ, checkpoint, BUILDS | (builds or {}))

    return make


def differences(first, second):
    """Names of what differs; the answer must say no."""
    comparison = compare(of_report("first", first), of_report("second", second))
    assert comparison.compatible is False
    assert first.identity != second.identity
    return {entry.component for entry in comparison.differences}


def flag(flags, name):
    return next(entry.value for entry in flags if entry.name == name)


def speculative(tokens):
    return {"engine": {"vllm": {"speculative": {"method": "mtp", "tokens": tokens}}}}


@pytest.mark.case("B07")
def test_b07_speculative_decoding_is_another_identity_even_with_equal_n(probed, resolved):
    plain, two = probed(), probed(speculative(2), n=800)
    assert differences(plain, two) == {"speculative", "blockSize", "chunkSize"}
    assert differences(two, probed(speculative(3), n=800)) == {"speculative"}
    settings = resolved(speculative(2)).settings
    assert flag(cache_server_flags(settings, two), "--chunk-size") == "800"
    assert flag(engine_flags(settings, two), "--max-num-batched-tokens") == "1599"


@pytest.mark.case("B08")
def test_b08_fp8_kv_with_another_backend(probed, resolved):
    fp8 = {"engine": {"vllm": {"kvCacheDtype": "fp8_e4m3"}}}
    second = probed(fp8, n=1568, backend="FLASHINFER", kernel=64)
    assert differences(probed(), second) == {
        "kvCacheDtype",
        "blockSize",
        "chunkSize",
        "attentionBackend",
        "kernelBlockSize",
    }
    short = {"engine": {"vllm": {"kvCacheDtype": "fp8"}}}
    assert probed(short, n=1568, backend="FLASHINFER", kernel=64).identity == second.identity
    settings = resolved(fp8).settings
    assert flag(cache_server_flags(settings, second), "--chunk-size") == "1568"
    assert flag(engine_flags(settings, second), "--max-num-batched-tokens") == "3135"


@pytest.mark.case("B09")
def test_b09_two_gpu_types_are_two_identities_with_equal_n(probed):
    first = probed(n=1568, backend="FLASHINFER", kernel=64, gpus=(ADA,))
    second = probed(n=1568, gpus=(HOPPER,))
    assert differences(first, second) == {"attentionBackend", "kernelBlockSize", "architecture"}


@pytest.mark.case("B10")
def test_b10_a_cpu_is_another_identity_and_the_probe_decides_about_n(probed, resolved):
    spec = {"engine": {"accelerator": {"type": "CPU"}}, "model": {"name": "Qwen/Qwen3.5-0.8B"}}
    cpu = probed(spec, n=640, backend="CPU_ATTN", kernel=128, gpus=())
    gpu = probed({"model": {"name": "Qwen/Qwen3.5-0.8B"}}, n=544)
    assert {"architecture", "blockSize", "attentionBackend"} <= differences(cpu, gpu)
    settings = resolved(spec).settings
    assert flag(cache_server_flags(settings, cpu), "--chunk-size") == "640"
    assert flag(engine_flags(settings, cpu), "--max-num-batched-tokens") == "1279"


@pytest.mark.case("B11")
def test_b11_another_build_with_everything_else_equal(probed):
    before = probed(n=784, backend="FLASHINFER", kernel=64, versions=Versions("0.31.0", "0.5.6", "2.13.0"))
    after = probed(n=784, backend="FLASHINFER", kernel=64, builds={"vllm": "f" * 16})
    assert differences(before, after) == {"build vllm", "release vllm"}
    # A tag that moved to another build of the same release, and an LMCache that was patched in place.
    assert differences(probed(), probed(builds={"vllm": "f" * 16})) == {"build vllm"}
    assert differences(probed(), probed(builds={"lmcache": "f" * 16})) == {"build lmcache"}


@pytest.mark.case("B12")
def test_b12_tensor_parallel_size_with_equal_n(probed):
    two = {"engine": {"accelerator": {"gpu": {"count": 2}}, "vllm": {"tensorParallelSize": 2}}}
    assert differences(probed(), probed(two, gpus=(HOPPER, HOPPER))) == {"tensorParallelSize"}


@pytest.mark.case("B13")
def test_b13_the_cache_servers_release_and_its_object_groups(probed, resolved):
    old = probed(versions=Versions("0.32.0", "0.5.0", "2.13.0"), builds={"lmcache": "9" * 16})
    new = probed()
    assert differences(old, new) == {"build lmcache", "release lmcache", "objectGroups"}
    settings = resolved().settings
    for report in (old, new):
        assert flag(engine_flags(settings, report), "--max-num-batched-tokens") == "1567"
    assert "--separate-object-groups" in [entry.name for entry in cache_server_flags(settings, new)]
    assert "--separate-object-groups" not in [entry.name for entry in cache_server_flags(settings, old)]


@pytest.mark.case("B14")
def test_b14_the_context_window_does_not_count(probed):
    """N larger than the context makes the cache useless (CacheEffective says so), but no entry unreadable."""
    short, long = probed({"model": {"maxModelLen": 1024}}, n=2096), probed({"model": {"maxModelLen": 2100}}, n=2096)
    assert compare(of_report("a", short), of_report("b", long)).compatible is True


def test_equal_pods_are_compatible(probed):
    assert compare(of_report("a", probed()), of_report("b", probed(node="other"))).differences == ()


def test_messages_decide_by_identity_and_name_what_they_hold(probed):
    first, second, other = probed(), probed(builds={"torch": "9" * 16}), probed(n=800)
    sides = [of_message(label, compact(report, "0")) for label, report in (("a", first), ("b", second), ("c", other))]
    assert compare(sides[0], replace(sides[0], label="x")).compatible is True
    hidden = compare(sides[0], sides[1])
    assert hidden.compatible is False
    assert [(entry.component, entry.first) for entry in hidden.differences] == [("identity", first.identity)]
    assert {entry.component for entry in compare(sides[0], sides[2]).differences} == {"blockSize"}
    # A message against a full report: what the message lacks is no difference.
    assert {entry.component for entry in compare(sides[0], of_report("r", other)).differences} == {
        "blockSize",
    }


@pytest.mark.parametrize("dtype", ["auto", "fp8", "fp8_e4m3", "half"])
def test_a_message_says_what_its_report_says(probed, dtype):
    for report in (probed(kv_cache_dtype=dtype, mamba_ssm_cache_dtype=dtype), probed(kernel=0)):
        said = message_components(compact(report, "0"))
        assert len(said) > 6
        assert said == {name: report.identity_components[name] for name in said}


def test_a_report_that_was_edited_is_refused(probed):
    report = probed()
    changed = report.identity_components | {"blockSize": "800"}
    with pytest.raises(ValueError, match="it was changed"):
        of_report("a", replace(report, identity_components=changed))
    with pytest.raises(ValueError, match="names no identity"):
        of_report("a", replace(report, identity=""))
    with pytest.raises(ValueError, match="reported no identity"):
        of_message("a", compact(replace(report, identity=""), "0"))


@pytest.fixture
def expected(resource):
    """A resource's side; the image is the advised release by digest unless said otherwise."""

    def make(spec=None, *, image=PINNED, capability=(9, 0), releases=None):
        document = resource(spec)
        document["spec"].setdefault("engine", {})["image"] = image
        made = resolve(parse(document), OperatorDefaults())
        environment = Environment((releases or {}).get("vllm"), None, capability)
        plan = plan_resource(made, environment)
        return of_resource("resource", made, plan, capability=capability, releases=releases)

    return make


SIZES = ("blockSize", "chunkSize", "kernelBlockSize")
COMMIT = {"model": {"source": {"type": "HuggingFace", "huggingFace": {"revision": "e" * 40}}}}


def test_two_resources_of_one_image_and_one_commit(expected):
    both = expected(COMMIT), expected(COMMIT)
    assert compare(*both).unsettled  # the recurrent dtype is the checkpoint's
    pinned = COMMIT | {"engine": {"vllm": {"mambaSsmCacheDtype": "float32"}}}
    answer = compare(expected(pinned), expected(pinned | {"replicas": 3}))
    assert answer.compatible is True, answer


def test_a_branch_and_a_tag_leave_it_open(expected):
    answer = compare(expected(image="vllm/vllm-openai:v0.32.0"), expected(image="vllm/vllm-openai:v0.32.0"))
    assert answer.compatible is None
    names = {entry.component for entry in answer.unsettled}
    assert {"checkpoint", "build vllm", "build lmcache"} <= names
    assert "release vllm" not in names  # the tag tells it
    checkpoint = next(entry for entry in answer.unsettled if entry.component == "checkpoint")
    assert checkpoint.first == "what Qwen/Qwen3.6-27B at main leads to on the hub"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"engine": {"vllm": {"kvCacheDtype": "fp8"}}}, {"kvCacheDtype", *SIZES}),
        (speculative(2), {"speculative", *SIZES}),
        ({"cache": {"chunkBlocks": 2}}, {"chunkSize"}),
        ({"engine": {"extraArgs": ["--seed", "3"]}}, {"seed"}),
        ({"engine": {"extraArgs": ["--unheard-of"]}}, {"engine flag --unheard-of"}),
        ({"engine": {"env": [{"name": "MY_PATCH", "value": "1"}]}}, {"engine variable MY_PATCH"}),
        ({"cache": {"env": [{"name": "PYTHONHASHSEED", "value": "1"}]}}, {"cache server variable PYTHONHASHSEED"}),
        ({"unsupported": {"cacheServerArgs": ["--hash-algorithm", "builtin"]}}, {"cache server flag --hash-algorithm"}),
    ],
)
def test_resources_that_differ(expected, change, names):
    answer = compare(expected(), expected(change))
    assert answer.compatible is False
    assert {entry.component for entry in answer.differences} == names


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 4},
        {"model": {"servedNames": ["x"]}},
        {"engine": {"extraArgs": ["--enable-log-requests"]}},
        {"engine": {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}},
        {"engine": {"env": [{"name": "MY_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}},
    ],
)
def test_resources_that_do_not(expected, change):
    names = {entry.component for entry in compare(expected(), expected(change)).differences}
    assert names <= {"engine variable MY_IP"}


def test_gpus_and_releases_of_resources(expected):
    hopper, blackwell = expected(), expected(capability=(10, 0))
    assert {"architecture", "attentionBackend"} <= {entry.component for entry in compare(hopper, blackwell).differences}
    answer = compare(
        expected(image="vllm/vllm-openai:v0.31.0"), expected(image="vllm/vllm-openai:v0.32.0", capability=(9, 0))
    )
    assert {entry.component for entry in answer.differences} == {"release vllm"}
    unknown = compare(expected(capability=None), expected())
    assert "architecture" in {entry.component for entry in unknown.unsettled}


def test_a_resource_against_the_pod_of_it(expected, probed):
    image_sets = {"engine": {"env": [{"name": "FROM_IMAGE", "value": "1"}]}}
    report = of_report("pod", probed(image_sets, kernel=784, gdn_prefill_backend="flashinfer"))
    answer = compare(expected(COMMIT), report)
    assert answer.compatible is None
    # The image may set it: no difference.
    assert "engine variable FROM_IMAGE" in {entry.component for entry in answer.unsettled}
    changed = compare(expected(COMMIT | {"cache": {"chunkBlocks": 2}}), report)
    assert [(entry.component, entry.first, entry.second, entry.predicted) for entry in changed.differences] == [
        ("chunkSize", "1568", "784", True)
    ]
    mine = expected({"engine": {"env": [{"name": "MY_PATCH", "value": "1"}]}})
    assert "engine variable MY_PATCH" in {entry.component for entry in compare(mine, report).differences}


def test_values_from_secrets_are_open(expected):
    spec = {"engine": {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}}
    assert expected(spec).open["engine variable X"].words == "comes from another object"


def test_sides_without_anything_in_common():
    first, second = Side("a", {"x": "1"}), Side("b", {"x": "1"}, partial=True)
    assert compare(first, second).compatible is None
