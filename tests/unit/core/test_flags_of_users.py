"""Flags and variables of the user that meet the operator's own (B15-B19, B21), judged by the whole chain."""

import pytest

from qwen_cached_serve.api.validate import InvalidResource
from qwen_cached_serve.core.plan import Environment, plan_resource
from tests.unit.core.status_support import condition, judged


def refused(resolved, *arguments):
    with pytest.raises(InvalidResource) as error:
        resolved({"engine": {"extraArgs": list(arguments)}})
    return str(error.value)


@pytest.mark.case("B15")
@pytest.mark.case("B16")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-num-batched-tokens=8192"],
        ["--max_num_batched_tokens", "8192"],
        ["--max-num_batched-tokens=8192"],
        ["--max-num-b", "8192"],
    ],
)
def test_a_derived_flag_is_refused_in_every_spelling(resolved, arguments):
    words = refused(resolved, *arguments)
    assert "spec.engine.extraArgs[0]" in words
    assert "maxNumBatchedTokens" in words


@pytest.mark.case("B16")
def test_another_case_is_another_flag(resolved):
    made = resolved({"engine": {"extraArgs": ["--Max-Num-Batched-Tokens", "1"]}})
    argv = [argument for flag in plan_resource(made).engine for argument in flag.argv()]
    assert argv[argv.index("--max-num-batched-tokens") + 1] == "1567"
    assert argv[-2:] == ["--Max-Num-Batched-Tokens", "1"]


@pytest.mark.case("B15")
@pytest.mark.parametrize(
    "spec", [{}, {"engine": {"vllm": {"tensorParallelSize": 1, "maxNumSeqs": 64, "blockSize": 32}}}]
)
def test_no_flag_is_there_twice(resolved, spec):
    plan = plan_resource(resolved(spec))
    for flags in (plan.engine, plan.cache_server):
        names = [flag.name for flag in flags if flag.name]
        assert len(names) == len(set(names))


@pytest.mark.case("B17")
def test_block_size_has_a_field_and_is_no_argument(resolved):
    for arguments in (["--block-size", "128"], ["--block_size=816"]):
        assert "blockSize" in refused(resolved, *arguments)


@pytest.mark.case("B18")
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--mamba-cache-mode", "all"], "--mamba-cache-mode"),
        (["--mamba-cache-mode=none"], "--mamba-cache-mode"),
        (["--no-enable-prefix-caching"], "--no-enable-prefix-caching"),
        (["--no_enable_prefix_caching"], "--no_enable_prefix_caching"),
        (["--disable-hybrid-kv-cache-manager"], "--disable-hybrid-kv-cache-manager"),
    ],
)
def test_what_switches_off_what_the_cache_needs_is_refused(resolved, arguments, word):
    assert word in refused(resolved, *arguments)


@pytest.mark.case("B19")
def test_another_connector_is_refused(resolved):
    connector = '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'
    assert "--kv-transfer-config" in refused(resolved, "--kv-transfer-config", connector)


@pytest.mark.case("B21")
def test_a_variable_without_effect_is_passed_on_with_a_warning(resolved, pod):
    spec = {"engine": {"env": [{"name": "VLLM_ATTENTION_BACKEND", "value": "TRITON_ATTN"}]}}
    (warning,) = resolved(spec).warnings
    assert "VLLM_ATTENTION_BACKEND" in warning
    assert "attentionBackend" in warning
    containers = pod(spec)["containers_by_name"]
    for name in ("probe", "engine"):
        assert {"name": "VLLM_ATTENTION_BACKEND", "value": "TRITON_ATTN"} in containers[name]["env"]


@pytest.mark.case("B12")
def test_more_ranks_than_gpus_are_refused(resolved):
    with pytest.raises(InvalidResource, match="tensorParallelSize"):
        resolved({"engine": {"accelerator": {"gpu": {"count": 1}}, "vllm": {"tensorParallelSize": 2}}})


def on_gpus(count, ranks, *unsupported):
    engine = {"accelerator": {"gpu": {"count": count}}, "vllm": {"tensorParallelSize": ranks} if ranks else {}}
    return {"engine": engine} | ({"unsupported": {"engineArgs": list(unsupported)}} if unsupported else {})


def test_gpus_that_no_rank_uses_are_told(resolved):
    """Stored resources may have it, so it is not refused; without a word the GPUs stay idle for ever."""
    (warning,) = resolved(on_gpus(4, 2)).warnings
    assert "tensorParallelSize 2 uses 2 of the pod's 4 GPUs" in warning
    assert "engine.accelerator.gpu.count" in warning
    assert "spec.replicas" in warning
    plan = plan_resource(resolved(on_gpus(4, 2)), Environment())
    assert warning in plan.warnings
    accepted = condition(judged(resolved(on_gpus(4, 2))), "SpecAccepted")
    assert accepted["reason"] == "AcceptedWithNotes"
    assert "the rest stay idle" in accepted["message"]


@pytest.mark.parametrize(("count", "ranks"), [(1, None), (1, 1), (4, 4), (4, None)])
def test_nothing_is_told_of_gpus_that_are_used(resolved, count, ranks):
    assert resolved(on_gpus(count, ranks)).warnings == ()


@pytest.mark.parametrize("more", [("-dp", "2"), ("--data_parallel_size=2",), ("--pipeline-parallel-size", "2")])
def test_arguments_that_may_use_the_rest_are_believed(resolved, more):
    assert not [text for text in resolved(on_gpus(4, 2, *more)).warnings if "idle" in text]
    assert [text for text in resolved(on_gpus(4, 2, "--seed", "1")).warnings if "idle" in text]


@pytest.mark.case("B13")
@pytest.mark.parametrize("lmcache", ["0.5.3", "0.5.6"])
def test_two_blocks_minus_one_suits_both_rules_of_lmcache(resolved, lmcache):
    plan = plan_resource(resolved(), Environment(lmcache_version=lmcache))
    assert plan.tokens_per_step == 1567
    grouped = any(flag.name == "--separate-object-groups" for flag in plan.cache_server)
    assert grouped is (lmcache != "0.4.7")
