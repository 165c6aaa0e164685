"""Plans: what the settings mean for the prediction, what is refused to be predicted, what is warned of."""

from dataclasses import replace

import pytest

from qwen_cached_serve.core.accelerators import capability_of, typical_gpu
from qwen_cached_serve.core.blocksize import PredictionError
from qwen_cached_serve.core.catalogue import known_models, lookup, refusal
from qwen_cached_serve.core.plan import Environment, make_plan, plan_resource
from qwen_cached_serve.core.shaping import engine_shape
from qwen_cached_serve.core.versions import cuda_of_image
from qwen_cached_serve.inpod.facts import CacheSettings, EngineSettings, ServeSettings, TokensPerStep

MODEL = "Qwen/Qwen3.6-27B"
H100 = Environment("0.32.0", "0.5.6", (9, 0), 13)
BASE = ServeSettings(MODEL, EngineSettings("GPU"), CacheSettings(True, l1_size_bytes=1 << 40), gpu_count=1)


def engine(**changes):
    return replace(BASE, engine=replace(BASE.engine, **changes))


def planned(settings=BASE, environment=H100, model=MODEL):
    return make_plan(replace(settings, model=model), lookup(model).geometry, environment)


def warnings(settings=BASE, environment=H100, model=MODEL):
    return "\n".join(planned(settings, environment, model).warnings)


def test_the_only_remark_on_the_plainest_plan():
    plan = planned()
    assert plan.warnings == (
        (
            "prompts of 784 tokens or fewer are never cached, longer ones in steps of 784 "
            "(LMCache/LMCache#4094, by design)"
        ),
    )
    assert plan.problem is None
    # 2**40 bytes of L1, 64 layers of 4,096 bytes a token
    assert plan.l1_tokens == (1 << 40) // (64 * 4096)


def test_without_the_cache_there_is_nothing_to_remark():
    plan = planned(replace(engine(block_size=1024, max_model_len=100), cache=CacheSettings(False)))
    assert (plan.warnings, plan.chunk_size, plan.tokens_per_step, plan.l1_tokens) == ((), None, None, None)
    assert plan.predicted.block_size == 1024


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (engine(max_model_len=783), "N = 784 is larger than maxModelLen 783: no request ever fills a block"),
        (
            engine(max_model_len=784),
            "prompts of 784 tokens or fewer are never cached, but maxModelLen is 784: no prompt ever is",
        ),
        (
            replace(engine(max_model_len=1568), cache=replace(BASE.cache, chunk_blocks=2)),
            "prompts of 1568 tokens or fewer are never cached, but maxModelLen is 1568",
        ),
        (
            replace(BASE, cache=replace(BASE.cache, chunk_blocks=3)),
            "prompts of 2352 tokens or fewer are never cached, longer ones in steps of 2352",
        ),
        (
            engine(speculative_method="mtp", speculative_tokens=1),
            "prompts of 1600 tokens or fewer are never cached, longer ones in steps of 800",
        ),
        (
            engine(speculative_method="mtp", speculative_tokens=1, max_model_len=1600),
            "prompts of 1600 tokens or fewer are never cached, but maxModelLen is 1600: no prompt ever is",
        ),
        (engine(speculative_method="mtp", speculative_tokens=1), "LMCache/LMCache#4984, vllm-project/vllm#53912"),
        (engine(block_size=1024), "makes N = 1024 instead of 784, so every recurrent state takes 31 % more memory"),
        (engine(tokens_per_step=TokensPerStep("OneBlock")), "a step of exactly N = 784 tokens serialises"),
        (engine(tokens_per_step=TokensPerStep("Fixed", 784)), "a step of exactly N = 784 tokens serialises"),
        (engine(tokens_per_step=TokensPerStep("Fixed", 1568)), "a step of 1568 tokens holds 2 blocks of N = 784"),
        (engine(attention_backend="FLASHINFER"), "FLASHINFER works in blocks of 16 tokens inside N = 784"),
    ],
)
def test_warnings(settings, words):
    assert words in warnings(settings)


@pytest.mark.case("B14")
def test_b14_a_context_of_one_block_and_a_little_is_accepted():
    text = warnings(engine(max_model_len=2100), model="Qwen/Qwen3.5-122B-A10B")
    assert "no prompt is ever cached" not in text
    assert "prompts of 2096 tokens or fewer" in text


@pytest.mark.parametrize("steps", [TokensPerStep(), TokensPerStep("Fixed", 785), TokensPerStep("Fixed", 1567)])
def test_an_ordinary_step_is_not_remarked(steps):
    assert "a step of" not in warnings(engine(tokens_per_step=steps))


def test_the_number_of_sequences_is_lowered_aloud():
    # facts/vllm.md §4: 0.8B with TP8 has 287 tokens a step, and 1,024 sequences by default.
    eight = engine(tensor_parallel_size=8)
    plan = planned(eight, model="Qwen/Qwen3.5-0.8B")
    assert plan.tokens_per_step == 287
    text = "\n".join(plan.warnings)
    assert "at most 287 requests run at once (--max-num-seqs): the engine's default, 1024, is more than" in text
    assert "--max-num-seqs" not in warnings(engine(tensor_parallel_size=8, max_num_seqs=64), model="Qwen/Qwen3.5-0.8B")
    refused = planned(engine(tensor_parallel_size=8, max_num_seqs=288), model="Qwen/Qwen3.5-0.8B")
    assert "maxNumSeqs is 288, but a step holds 287 tokens" in refused.problem
    assert "Set spec.engine.vllm.maxNumSeqs to 287 or less." in refused.problem


@pytest.mark.parametrize(
    ("gpu", "bounded"),
    [("H100", True), ("B200", True), ("A100", False), ("NVIDIA-L40S", False), ("9.0", True), ("A800", True)],
)
def test_the_gpus_memory_decides_how_many_sequences_are_the_default(gpu, bounded):
    # 0.8B with TP8: 287 tokens a step; 256 sequences by default on a small GPU, 1,024 on a large or unknown one.
    environment = replace(H100, capability=capability_of(gpu), gpu=typical_gpu(gpu))
    plan = planned(engine(tensor_parallel_size=8), environment, "Qwen/Qwen3.5-0.8B")
    assert plan.tokens_per_step == 287
    assert any("--max-num-seqs" in warning for warning in plan.warnings) is bounded


@pytest.mark.parametrize(
    ("vllm", "lmcache", "warning", "problem"),
    [
        ("0.32.0", "0.5.6", "", ""),
        ("0.32.0", "0.5.5", "LMCache/LMCache#4247", "LMCache/LMCache#4701"),
        ("0.27.1", "0.5.3", "LMCache/LMCache#4674", "LMCache/LMCache#4247"),
        ("0.29.0", "0.5.6", "vllm-project/vllm#45474", "vllm-project/vllm#50687"),
        ("0.30.0", "0.5.6", "", "vLLM 0.30.0 is older than 0.31.0"),
        ("0.33.0", "0.5.6", "vllm-project/vllm#53424", ""),
        ("0.34.0", "0.5.7", "vLLM 0.34.0 is newer than the newest reviewed release (0.33)", ""),
        ("0.32.0", "0.5.8", "LMCache 0.5.8 is newer than the newest reviewed release (0.5.7)", ""),
    ],
)
def test_pairs(vllm, lmcache, warning, problem):
    plan = planned(environment=replace(H100, vllm_version=vllm, lmcache_version=lmcache))
    assert warning in "\n".join(plan.warnings)
    assert problem in (plan.problem or "")
    assert (plan.problem is None) is (problem == "")
    # The command lines are shown all the same: what would be started is part of the answer.
    assert plan.tokens_per_step == 2 * plan.predicted.block_size - 1


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (("--dtype", "float32"), "model_dtype", "float32"),
        (("--mamba-cache-dtype=float32",), "mamba_cache_dtype", "float32"),
        (("--mamba_cache_dtype", "float32"), "mamba_cache_dtype", "float32"),
        (("--gdn-prefill-backend", "triton"), "gdn_prefill_backend", "triton"),
        (("--gdn-prefill", "triton"), "gdn_prefill_backend", "triton"),
    ],
)
def test_extra_arguments_that_shape_n_are_read(arguments, field, value):
    assert getattr(engine_shape(engine(extra_args=arguments), H100), field) == value


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (("--block-size", "1024"), "block_size", 1024),
        (("-tp", "2"), "tensor_parallel_size", 2),
        (("--kv-cache-dtype=fp8",), "kv_cache_dtype", "fp8"),
        (("--mamba-ssm-cache-dtype=float16",), "mamba_ssm_cache_dtype", "float16"),
        (("--attention-backend", "TRITON_ATTN"), "attention_backend", "TRITON_ATTN"),
    ],
)
def test_unsupported_arguments_win_over_fields_as_in_the_engine(arguments, field, value):
    settings = engine(
        unsupported_args=arguments, block_size=16, kv_cache_dtype="bfloat16", mamba_ssm_cache_dtype="float32",
        attention_backend="FLASH_ATTN",
    )  # fmt: skip
    shape = engine_shape(settings, H100)
    assert getattr(shape, field) == value
    untouched = engine_shape(replace(settings, engine=replace(settings.engine, unsupported_args=())), H100)
    assert replace(shape, **{field: getattr(untouched, field)}) == untouched
    assert (untouched.block_size, untouched.tensor_parallel_size, untouched.kv_cache_dtype) == (16, 1, "bfloat16")
    assert (untouched.mamba_ssm_cache_dtype, untouched.attention_backend) == ("float32", "FLASH_ATTN")


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("--hf-overrides={}", "--hf-overrides"),
        ("--hf_overrides={}", "--hf-overrides"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--additional-config={}", "--additional-config"),
        ("--attention-config.flash_attn_version=2", "--attention-config"),
        ("-dcp=2", "--decode-context-parallel-size"),
        ("--kv-cache-dtype-skip-layers=0", "--kv-cache-dtype-skip-layers"),
        ("--speculative-config={}", "--speculative-config"),
        ("--block-size=x", "--block-size 'x' is not a whole number"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(argument, name):
    with pytest.raises(PredictionError, match=name):
        engine_shape(engine(unsupported_args=(argument,)), H100)
    plan = planned(engine(unsupported_args=(argument,)))
    assert plan.predicted is None
    assert name in plan.problem
    assert (plan.engine, plan.cache_server, plan.chunk_size) == ((), (), None)


def test_the_gpu_and_the_cuda_runtime_are_read_from_the_resource(resolved):
    def spec(product, image):
        return {"engine": {"image": image}, "pod": {"nodeSelector": {"nvidia.com/gpu.product": product}}}

    def size(*arguments):
        plan = plan_resource(resolved(spec(*arguments)))
        return plan.predicted.block_size, any("assumed" in warning for warning in plan.warnings)

    assert size("NVIDIA-B200", "r.example/vllm-openai:v0.33.0-cu129") == (784, False)
    assert size("NVIDIA-B200", "r.example/vllm-openai:v0.33.0-cu130") == (832, False)
    assert size("NVIDIA-H100-80GB-HBM3", "r.example/vllm-openai:v0.33.0") == (832, False)
    assert size("Voodoo-2", "r.example/vllm-openai:v0.33.0") == (832, True)


@pytest.mark.parametrize(
    ("image", "major"),
    [
        ("vllm/vllm-openai:v0.33.0-cu129", 12), ("r.example:5000/vllm:v1-cu130-ubuntu2404@sha256:00", 13),
        ("vllm/vllm-openai:v0.33.0", None), ("cu129/vllm", None), ("vllm:v0.33.0-acu129", None),
    ],
)  # fmt: skip
def test_cuda_of_an_image(image, major):
    assert cuda_of_image(image) == major


def test_other_vendors_are_not_predicted(resolved):
    gpu = {"resourceName": "amd.com/gpu"}
    plan = plan_resource(resolved({"engine": {"accelerator": {"gpu": gpu}}}))
    assert plan.predicted is None
    assert "N on amd.com/gpu is not predicted" in plan.problem


def test_a_release_that_may_bring_its_own_kv_dtype_is_not_guessed(resolved):
    plan = plan_resource(resolved({"model": {"name": f"{MODEL}-NVFP4"}}))
    assert plan.predicted is None
    assert "kvCacheDtype" in plan.problem
    said = plan_resource(resolved({"model": {"name": f"{MODEL}-NVFP4"}, "engine": {"vllm": {"kvCacheDtype": "fp8"}}}))
    assert said.predicted.block_size == 1568
    eight_bits = plan_resource(resolved({"model": {"name": f"{MODEL}-FP8"}}))
    assert eight_bits.predicted.block_size == 784
    assert any("dimensions of Qwen/Qwen3.6-27B-FP8 are not confirmed" in warning for warning in eight_bits.warnings)


@pytest.mark.parametrize(
    ("model", "words"), [("Qwen/Qwen3.8-Flash-Next", "Qwen4Exp"), ("acme/other", "not in the catalogue")]
)
def test_models_without_a_prediction(resolved, model, words):
    plan = plan_resource(resolved({"model": {"name": model}}))
    assert plan.predicted is None
    assert words in plan.problem


def test_the_catalogue():
    assert MODEL in known_models()
    assert not any(refusal(model) for model in known_models())
    assert lookup("acme/other") is None
    assert lookup("Qwen/Qwen3.5-2B").confidence == "Assumed"
    assert all(lookup(model).geometry.mtp_layers == 1 for model in known_models())
