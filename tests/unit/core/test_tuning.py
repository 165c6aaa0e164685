"""The engine's own number becomes --max-num-seqs: when it does, when it does not, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.core import tuning
from qwen_cached_serve.core.diagnose import diagnose_log
from qwen_cached_serve.core.inputs import tuning_hash
from qwen_cached_serve.core.tuning import Adjustment, Declined, decide, from_data, tuned
from qwen_cached_serve.inpod.facts import Gpu, ProbeReport, Versions
from qwen_cached_serve.inpod.flags import engine_argv


def words(asked, room):
    """What vLLM 0.32 raises (config/compilation.py)."""
    return diagnose_log(
        f"ValueError: max_num_seqs ({asked}) exceeds available Mamba cache blocks ({room}). Each decode sequence "
        "requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most "
        f"{room} or increase gpu_memory_utilization."
    )


def lowered(*values):
    return tuple(Adjustment("maxNumSeqs", one, 1024, "MaxNumSeqsTooLarge") for one in values)


def report(n=784):
    return ProbeReport(
        block_size=n,
        kernel_block_size=n,
        attention_backends=("FLASH_ATTN",),
        method="Construct",
        versions=Versions("0.32.0", "0.5.6"),
        gpus=(Gpu("NVIDIA H100 80GB HBM3", "GPU-1", "9.0", "580.1", 80 << 30),),
    )


@pytest.mark.case("B23")
def test_the_engines_number_is_taken(resolved):
    found = decide([words(1024, 614)], resolved(), ())
    assert found == Adjustment("maxNumSeqs", 614, 1024, "MaxNumSeqsTooLarge")
    assert "from 1024 to 614" in found.sentence
    argv = engine_argv(tuned(resolved(), (found,)).settings, report())
    assert argv[argv.index("--max-num-seqs") + 1] == "614"


def test_the_smallest_number_of_several_pods_counts(resolved):
    assert decide([words(1024, 614), words(1024, 95), words(1024, 600)], resolved(), ()).value == 95


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "ValueError: max_num_batched_tokens (287) must be greater than or equal to max_num_seqs (1024).",
        "ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
    ],
)
def test_every_other_failure_only_explains(resolved, text):
    assert diagnose_log(text) is not None
    assert decide([diagnose_log(text)], resolved(), ()) is None


@pytest.mark.parametrize(
    ("spec", "former", "room", "why"),
    [
        ({"engine": {"autoTune": "Disabled"}}, (), 614, "autoTune is Disabled"),
        ({"engine": {"vllm": {"maxNumSeqs": 1024}}}, (), 614, "a number of your own"),
        ({"unsupported": {"engineArgs": ["--max_num_seqs=1024"]}}, (), 614, "spec.unsupported.engineArgs"),
        ({"unsupported": {"engineArgs": ["--max-num-s", "1024"]}}, (), 614, "spec.unsupported.engineArgs"),
        ({}, (), 0, "no state block"),
        ({}, lowered(614), 614, "did not take up"),
        ({}, lowered(614), 700, "did not take up"),
        ({}, lowered(614, 600, 95), 90, "3 times"),
    ],
)
def test_it_is_not_done_and_says_why(resolved, spec, former, room, why):
    found = decide([words(1024, room)], resolved(spec), former)
    assert isinstance(found, Declined)
    assert why in found.why


def test_an_argument_that_only_looks_alike_hinders_nothing(resolved):
    made = resolved({"unsupported": {"engineArgs": ["--max-num-partial-prefills", "2", "--max-num-s-of-mine=1"]}})
    assert decide([words(1024, 614)], made, ()).value == 614


@given(st.lists(st.integers(min_value=0, max_value=2048), max_size=12))
def test_whatever_the_engine_says_the_number_falls_and_the_adjustments_end(rooms):
    made = resolved_once()
    found = ()
    for room in rooms:
        asked = tuning.value(found) or 4096
        answer = decide([words(asked, room)], made, found)
        if isinstance(answer, Adjustment):
            assert 1 <= answer.value < asked
            found = (*found, answer)
    assert len(found) <= tuning.LIMIT


def resolved_once():
    from qwen_cached_serve.api.validate import parse
    from qwen_cached_serve.core.defaults import OperatorDefaults
    from qwen_cached_serve.core.resolve import resolve
    from tests.unit.core.conftest import document

    return resolve(parse(document()), OperatorDefaults())


def test_the_users_number_and_the_tokens_of_a_step_go_before(resolved):
    own = tuned(resolved({"engine": {"vllm": {"maxNumSeqs": 32}}}), lowered(614))
    argv = engine_argv(own.settings, report())
    assert (argv.count("--max-num-seqs"), argv[argv.index("--max-num-seqs") + 1]) == (1, "32")
    argv = engine_argv(tuned(resolved(), lowered(614)).settings, report(n=144))
    assert argv[argv.index("--max-num-seqs") + 1] == "287"


def test_what_is_stored_is_read_back_and_has_a_hash_of_its_own():
    assert tuning.as_data(()) == {}
    assert tuning_hash(tuning.as_data(())) == ""
    made = lowered(614, 95)
    assert from_data(tuning.as_data(made)) == made
    assert tuning_hash(tuning.as_data(made)) != tuning_hash(tuning.as_data(lowered(95)))
    assert [one["value"] for one in tuning.tuning_status(made)] == ["95"]
    for broken in ({"adjustments": [{"name": "x"}]}, {"adjustments": 3}, {"adjustments": ["x"]}):
        with pytest.raises(ValueError, match="no tuning"):
            from_data(broken)
